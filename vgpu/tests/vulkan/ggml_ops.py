"""ggml's own test of its backends (llama.cpp's test-backend-ops): Vulkan against its CPU code.

The test has some 18,000 cases, many of them large. Here each operation runs with each of its types: of the cases that differ
in numbers only, the smallest.

    ggml_ops.py PROGRAM VERSION [COUNT]

PROGRAM is the command of test-backend-ops; COUNT of each such group, one unless told.
"""

import contextlib
import csv
import io
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict

from checks import Checks

# A number that is no part of a name.
NUMBER = re.compile(r"(?<![A-Za-z0-9_.])-?\d+(?:\.\d+)?")
# A case's line.
VERDICT = re.compile(r"(?P<case>.*\)): (?P<verdict>OK|FAIL|not supported.*)")
# More work than this is left out.
LARGEST = 2e7
# Cases of one run: a run ends where the device is lost.
TOGETHER = 40
SECONDS = 600


def work(parameters: str) -> float:
    """More for larger cases; no measure."""
    product = 1.0
    for number in NUMBER.findall(parameters):
        product *= max(1.0, abs(float(number)))
    return product


def cases(program: list, count: int) -> list:
    command = [*program, "support", "--output", "csv", "-b", "Vulkan0"]
    told = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=SECONDS, check=True).stdout
    groups = defaultdict(list)
    for row in csv.DictReader(io.StringIO(told)):
        if row["supported"] == "1":
            case = f"{row['op_name']}({row['op_params']})"
            groups[NUMBER.sub("#", case)].append((work(row["op_params"]), case))
    chosen = []
    for group in groups.values():
        chosen += [case for size, case in sorted(group)[:count] if size < LARGEST]
    return chosen


def output(command: list) -> tuple:
    """What a program writes, line by line as to a terminal: one that is cut off has told all that it did."""
    terminal, end = pty.openpty()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=end, stderr=errors)
        os.close(end)
        late = threading.Timer(SECONDS, process.kill)
        late.start()
        out = b""
        # A terminal that nobody writes to any more is an error, not an end.
        with contextlib.suppress(OSError):
            while part := os.read(terminal, 1 << 16):
                out += part
        os.close(terminal)
        process.wait()
        late.cancel()
        errors.seek(0)
        err = errors.read()
    if process.returncode == -signal.SIGKILL:
        err += f"wave32-vgpu: not done after {SECONDS} s\n"
    return out.decode(errors="replace"), err


def run(program: list, some: list) -> tuple:
    """What it says of each case; and what the card says."""
    out, err = output([*program, "test", "-b", "Vulkan0", "-o", ",".join(some)])
    card = [line.removeprefix("wave32-vgpu: ") for line in err.splitlines() if line.startswith("wave32-vgpu: ")]
    verdicts = {}
    for line in re.sub(r"\x1b\[[0-9;]*m|\r", "", out).splitlines():
        # Before the case may stand how wrong it is.
        told = VERDICT.fullmatch(line.strip())
        for case in some:
            if told and f" {told['case']}".endswith(f" {case}"):
                verdicts[case] = told["verdict"], told["case"].removesuffix(case).strip()
    return verdicts, card


def main():
    program, version = sys.argv[1].split(), sys.argv[2]
    checks = Checks("ggml-vulkan", version)
    left = cases(program, int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    without_cpu = 0
    batches = [left[at : at + TOGETHER] for at in range(0, len(left), TOGETHER)]
    while batches:
        some = batches.pop(0)
        verdicts, card = run(program, some)
        missing = [case for case in some if case not in verdicts]
        if missing and len(some) > 1:
            # The device was lost, by which of them the order does not tell: each on its own.
            batches[:0] = [[case] for case in missing]
        elif missing:
            checks.tell("refused", missing[0], card[0] if card else "no verdict")
        for case, (verdict, error) in verdicts.items():
            if verdict == "OK":
                checks.tell("right", case)
            elif verdict == "FAIL":
                checks.tell("wrong", case, error)
            else:
                without_cpu += 1
    print(f"  {without_cpu} have no CPU code to compare with")
    checks.end()


main()
