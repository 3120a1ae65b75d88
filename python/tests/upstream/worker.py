"""A process that has loaded one test file and forks runners, each of which runs tests one by one.

Started by pool.py with a socket: a request is a line and, for a runner, the runner's own socket. Loading takes long (10 s
for the files that use OpInfo), forking does not: a test that ends its process costs only itself. Nothing here uses the
device before the fork.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import pathlib
import re
import signal
import socket
import sys
import time
import traceback
import unittest
from typing import Any

import adapt
import rules

# A runner is replaced after this many tests, so that what one leaves behind does not grow.
TESTS_PER_RUNNER = 300


class _Result(unittest.TestResult):
    """The first thing that went wrong, or the reason for skipping."""

    def __init__(self) -> None:
        super().__init__()
        self.outcome, self.reason = "passed", ""

    def _fail(self, err: Any) -> None:
        if self.outcome == "failed":
            return
        self.outcome = "failed"
        self.reason = "".join(traceback.format_exception_only(err[0], err[1])).strip()[-1500:]
        frames = [f for f in traceback.extract_tb(err[2]) if "/test/" in f.filename]
        if frames:
            self.reason += f"\n  at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}: {frames[-1].line}"

    def addError(self, test: Any, err: Any) -> None:
        self._fail(err)

    addFailure = addError

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._fail(err)

    def addSkip(self, test: Any, reason: str) -> None:
        if self.outcome == "passed":
            self.outcome, self.reason = "skipped", str(reason)

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self.reason = "as expected, it fails"

    def addUnexpectedSuccess(self, test: Any) -> None:
        if self.outcome == "passed":
            self.outcome, self.reason = "failed", "unexpected success: the test is marked as a failing one"


def _reset(device: str, default_device: str | None) -> None:
    """What an earlier test may have left set."""
    import torch

    torch.set_default_dtype(torch.float32)
    torch.set_default_device(default_device)
    torch.use_deterministic_algorithms(False)
    torch.set_grad_enabled(True)


def _module(device: str) -> Any:
    import torch

    return getattr(torch, device, None)


def _run_one(kind: type, name: str, device: str, is_host: bool) -> dict[str, Any]:
    import torch

    own = _module(device)
    counts = device != "cpu" and hasattr(own, "fallbacks")
    _reset(device, device if is_host and device != "cpu" else None)
    if counts:
        own.reset_fallbacks()
    result = _Result()
    # The variable is read once, and the next test may be another's.
    native = getattr(sys.modules.get("wave32"), "_native", None) if device == "wave" else None
    is_blocking = any(re.search(pattern, f"::{name}") for pattern, _ in rules.BLOCKING)
    if native:
        native.block_launches(is_blocking)
    start = time.monotonic()
    unittest.TestSuite([kind(name)]).run(result)
    # Kernels report some errors at the next wait; those are this test's.
    try:
        if device != "cpu":
            own.synchronize()
    except Exception:
        if result.outcome == "passed":
            result._fail(sys.exc_info())
    told: dict[str, Any] = {"outcome": result.outcome, "seconds": round(time.monotonic() - start, 2)}
    if result.reason:
        told["reason"] = result.reason
    if counts and (fallbacks := own.fallbacks()):
        told["fallbacks"] = sum(fallbacks.values())
        told["ops"] = dict(sorted(fallbacks.items(), key=lambda item: -item[1])[:4])
    _reset(device, None)
    del torch
    return told


def _run(connection: socket.socket, loaded: Any, file: rules.File, device: str, log: str) -> None:
    """The loop of a runner; ends with the connection."""
    os.setsid()
    captured = os.open(log, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    for descriptor in (1, 2):
        os.dup2(captured, descriptor)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    lines = connection.makefile("r")
    for done, line in enumerate(lines, start=1):
        os.ftruncate(captured, 0)
        test = line.strip()
        if test == "?":
            own = _module(device)
            name = own.get_device_name(0) if device != "cpu" else device
            connection.sendall(json.dumps({"name": name}).encode() + b"\n")
            continue
        kind, name = loaded.tests[test]
        told = _run_one(kind, name, device, kind.__name__ in file.on_default_device)
        sys.stdout.flush()
        sys.stderr.flush()
        if done % 20 == 0:
            gc.collect()
        told["last"] = done >= TESTS_PER_RUNNER
        connection.sendall(json.dumps(told).encode() + b"\n")
        if told["last"]:
            return


def _reap(pid: int) -> int:
    """How it ended: as `os.waitstatus_to_exitcode`, or 0 where it would not end."""
    for _ in range(200):
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 0  # Of the process that was here before.
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    return 0


def main() -> None:
    checkout, path, device, control_number = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    control = socket.socket(fileno=control_number)
    file = next((f for f in rules.FILES if f.path == path), rules.File(path))
    try:
        adapt.open_device(device)
        loaded = adapt.load(checkout, file, device)
    except BaseException as error:
        traceback.print_exc()
        control.sendall(json.dumps({"error": f"{type(error).__name__}: {error}"[-600:]}).encode() + b"\n")
        return
    import torch

    told = {"torch": torch.__version__, "tests": list(loaded.tests), "missing": loaded.missing}
    control.sendall(json.dumps(told).encode() + b"\n")
    gc.collect()
    # What was loaded is the runners' in common: looking for garbage in it would copy it.
    gc.freeze()
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, 4096, 1)
        if not request:
            return
        command, _, argument = request.decode().strip().partition(" ")
        if command == "run":
            pid = os.fork()
            if pid == 0:
                control.close()
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    _run(socket.socket(fileno=descriptors[0]), loaded, file, device, argument)
                os._exit(0)
            os.close(descriptors[0])
            control.sendall(f"{pid}\n".encode())
        elif command == "reap":
            control.sendall(f"{_reap(int(argument))}\n".encode())


if __name__ == "__main__":
    main()
