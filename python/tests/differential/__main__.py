"""The command: cases until the time or the number is up, findings shrunk, a summary."""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing.connection
import os
import platform
import random
import sys
import time
from typing import Any

# After so many children an operator is left out for the rest of the run.
LOST = 3


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m differential", description="Random calls on the device and on the CPU.")
    parser.add_argument("--seconds", type=float, default=60, help="how long (60)")
    parser.add_argument("--seed", type=int, help="of all cases; a fresh one unless given, and printed")
    parser.add_argument("--cases", type=int, help="how many at most; with it --seconds is only a limit")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (0)")
    parser.add_argument("--jobs", type=int, default=max(1, min(8, (os.cpu_count() or 2) // 2)))
    parser.add_argument("--json", help="where to write what was found")
    parser.add_argument("--only", action="append", help="an operator of the table, as often as wanted")
    parser.add_argument("--device", default="wave", help="`cpu` tries the fuzzer itself")
    parser.add_argument("--deadline", type=float, default=60, help="seconds a case may take (60)")
    parser.add_argument("--shrink", type=float, default=20, help="seconds to make a finding small (20)")
    parser.add_argument("--most", type=int, default=40, help="findings of different kinds after which to stop (40)")
    parser.add_argument("--plant", action="append", help="KIND:OPERATOR, a fault for the fuzzer's own test")
    parser.add_argument("--list", action="store_true", help="print the operators")
    return parser.parse_args(arguments)


class Run:
    """What was done and found."""

    def __init__(self, options: argparse.Namespace):
        from differential.workers import Worker

        self.options = options
        plain = {"seed": options.seed, "device": options.device, "only": options.only, "plant": options.plant}
        self.workers = [Worker(plain, options.deadline) for _ in range(options.jobs)]
        self.shrinker = Worker(plain, options.deadline)
        self.next, self.done, self.late = options.first, 0, 0
        self.counts: dict[str, int] = {}
        # How many children an operator has cost.
        self.lost: dict[str, int] = {}
        self.skipped = 0
        self.findings: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.began = self.started = time.monotonic()

    def loop(self) -> None:
        while len(self.findings) < self.options.most:
            for worker in self.workers:
                if worker.running is None and (index := self._next()) is not None:
                    worker.start(index)
            busy = [worker for worker in self.workers if worker.running is not None]
            if not busy:
                return
            multiprocessing.connection.wait([worker.pipe for worker in busy], timeout=0.2)
            for worker in busy:
                index = worker.running
                if (said := worker.poll()) is not None:
                    self._take(index, *said)

    def _next(self) -> int | None:
        """The number of the next case to run; None when it is enough."""
        from differential.generate import make

        while self._more():
            self.next += 1
            # What kills or hangs every child would be all that is run.
            if not self.lost or self.lost.get(make(self.options.seed, self.next - 1, self.options.only).op, 0) < LOST:
                return self.next - 1
            self.skipped += 1
        return None

    def _more(self) -> bool:
        if self.options.cases is not None and self.next - self.options.first >= self.options.cases:
            return False
        # The children's start does not count.
        return self.done == 0 or time.monotonic() - self.started < self.options.seconds

    def _take(self, index: int, op: str, mode: str, found: Any) -> None:
        if self.done == 0:
            self.started = time.monotonic()
        self.done += 1
        self.counts[op] = self.counts.get(op, 0) + 1
        if found is None:
            return
        if found.kind in ("abort", "hang"):
            self.lost[op] = self.lost.get(op, 0) + 1
        if found.kind == "late":
            self.late += 1
            return
        key = (op, found.kind, mode)
        if key in self.findings:
            self.findings[key]["count"] += 1
            return
        began = time.monotonic()
        self.findings[key] = finding = self._small(index, found)
        self.started += time.monotonic() - began
        print(f"MISMATCH seed {self.options.seed} case {index}: {op} ({mode}): {found.kind}: {found.what}\n{finding['reproducer']}\n", flush=True)

    def _small(self, index: int, found: Any) -> dict[str, Any]:
        from differential.generate import make
        from differential.shrink import pruned, shrink

        case = make(self.options.seed, index, self.options.only)
        seconds = max(self.options.shrink, 2 * self.options.deadline) if found.kind == "hang" and self.options.shrink else self.options.shrink
        small, said = shrink(case, found, self.shrinker.run, seconds)
        small = pruned(small)
        return {
            "index": index, "op": case.op, "mode": case.mode, "kind": found.kind, "what": said.what, "first": found.what, "count": 1,
            "reproducer": small.reproducer(f"{said.kind}: {said.what}", _out(small, said)), "case": repr(small),
        }

    def close(self) -> None:
        for worker in (*self.workers, self.shrinker):
            worker.close()


def _out(case: Any, found: Any) -> tuple[str, str]:
    """What out= was, as text."""
    if case.mode != "out" or found.kind in ("abort", "hang"):
        return "", "..."
    from differential import outs, sides
    from differential.operators import first

    like = sides.run(dataclasses.replace(case, mode="plain"), "cpu")
    number = first(case)
    source = like.inputs[number] if number is not None and like.inputs else None
    return outs.text(case, like.results[0], source, case.names()[number or 0]) if like.results else ("", "...")


def main(arguments: list[str] | None = None) -> int:
    options = options_of(arguments)
    # Several children share this machine's processors, lavapipe's threads included.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("WAVE32_FALLBACK", "quiet")
    os.environ.setdefault("LP_NUM_THREADS", str(max(1, (os.cpu_count() or 2) // options.jobs)))
    import torch

    from differential.operators import NAMES

    if options.list:
        print("\n".join(NAMES))
        return 0
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    print(f"seed {options.seed}; torch {torch.__version__}, {len(NAMES)} operators, {options.jobs} jobs", flush=True)
    run = Run(options)
    try:
        run.loop()
    finally:
        run.close()
    seconds = time.monotonic() - run.began
    failed = sum(finding["count"] for finding in run.findings.values())
    print(
        f"seed {options.seed}: {run.done} cases from number {options.first} on, of {len(run.counts)} operators, in {seconds:.0f} s, {failed} mismatches"
        f" of {len(run.findings)} kinds, {run.late} not judged as the machine was busy, {run.skipped} left out; repeat with: python -m differential --seed {options.seed} --first {options.first} --cases {run.next - options.first}"
    )
    if options.json:
        with open(options.json, "w") as file:
            json.dump({
                "seed": options.seed, "first": options.first, "cases": run.done, "seconds": seconds, "torch": torch.__version__,
                "python": platform.python_version(), "device": options.device, "operators": run.counts, "findings": list(run.findings.values()),
            }, file, indent=1)
    return 1 if run.findings or not run.done else 0


if __name__ == "__main__":
    sys.exit(main())
