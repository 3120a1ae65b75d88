"""Processes that run tests: one that has loaded a file, and runners forked from it."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
# A file that is not loaded by then is given up.
LOAD_SECONDS = 600.0
# In place of a test's id.
DEVICE_NAME = "?"


class WorkerEnded(Exception):
    """A file's process has ended, and the one in its place too."""


class Worker:
    """A process of worker.py for one file and device."""

    def __init__(self, checkout: pathlib.Path, file: str, device: str) -> None:
        self.file = file
        self.folder = tempfile.TemporaryDirectory(prefix="upstream-")
        self._lock = threading.Lock()
        self._runners = 0
        self._command = [sys.executable, str(HERE / "worker.py"), str(checkout), file, device]
        self._log = open(pathlib.Path(self.folder.name) / "load.log", "w+")
        self._start()

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        environment = dict(
            os.environ, PYTHONHASHSEED="0", WAVE32_FALLBACK="quiet", OMP_NUM_THREADS="1",
            PYTORCH_PRINT_REPRO_ON_FAILURE="0",
            PYTHONPATH=os.pathsep.join(os.path.abspath(path) for path in sys.path if path),
        )
        # Torch is to see no GPU of its own, as on a machine whose card it does not support.
        environment["CUDA_VISIBLE_DEVICES"] = ""
        # The run's deadline is what ends a test, not the device's.
        environment.setdefault("WAVE32_TIMEOUT", "600")
        # Only these are asked for; PyTorch's CI sets others that download lists.
        for name in ("CI", "PYTORCH_TEST_WITH_SLOW"):
            environment.pop(name, None)
        self._process = subprocess.Popen(
            [*self._command, str(theirs.fileno())], pass_fds=[theirs.fileno()], env=environment,
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, cwd=self.folder.name, start_new_session=True,
        )
        theirs.close()
        self._control.settimeout(LOAD_SECONDS)
        self._answers = self._control.makefile("r")

    def loaded(self) -> dict[str, Any]:
        """What it says once it has loaded the file: its tests, or why not."""
        try:
            line = self._answers.readline()
        except TimeoutError:
            line = ""
        return json.loads(line) if line else {"error": "the file's process ended: " + self._tail()}

    def _tail(self) -> str:
        self._log.seek(0)
        return self._log.read()[-600:]

    def _ask(self, request: str, descriptors: list[int]) -> int | None:
        """None where it has ended."""
        try:
            socket.send_fds(self._control, [request.encode()], descriptors)
            return int(self._answers.readline() or "-") if self._process.poll() is None else None
        except (OSError, ValueError):
            return None

    def _end(self) -> None:
        # The file keeps the socket open.
        self._answers.close()
        self._control.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _fork(self, request: str, descriptor: int) -> int:
        """A runner's process; a file's process that has ended is started anew once."""
        with self._lock:
            pid = self._ask(request, [descriptor])
            if pid is None:
                self._end()
                how = f"the file's process ended ({self._process.returncode}): {self._tail()}"
                self._start()
                if "error" in self.loaded() or (pid := self._ask(request, [descriptor])) is None:
                    raise WorkerEnded(how)
            return pid

    def device_name(self) -> str:
        """What the driver calls the device."""
        try:
            runner = self.runner()
        except WorkerEnded as ended:
            return str(ended)
        told = runner.run(DEVICE_NAME, 120)
        runner.close()
        return told.get("name", told.get("reason", "?"))

    def runner(self) -> Runner:
        """A fresh process that runs tests of this file."""
        ours, theirs = socket.socketpair()
        with self._lock:
            self._runners += 1
            log = pathlib.Path(self.folder.name) / f"runner{self._runners}.log"
        with theirs:
            pid = self._fork(f"run {log}", theirs.fileno())
        return Runner(self, pid, ours, log)

    def reap(self, pid: int) -> int:
        """The exit code of a runner that has ended or is about to; a signal's number, negative; 0 where none can tell."""
        with self._lock:
            return self._ask(f"reap {pid}", []) or 0

    def close(self) -> None:
        """Ends it."""
        self._end()
        self._log.close()
        self.folder.cleanup()


class Runner:
    """A forked process; one test at a time."""

    def __init__(self, worker: Worker, pid: int, connection: socket.socket, log: pathlib.Path) -> None:
        self.worker, self.pid, self._connection, self._log = worker, pid, connection, log
        self._answers = connection.makefile("r")
        self.is_over = False

    def run(self, test: str, deadline: float) -> dict[str, Any]:
        """What became of the test; after an abort or a timeout the runner is over."""
        start = time.monotonic()
        self._connection.settimeout(deadline)
        line = ""
        try:
            self._connection.sendall(test.encode() + b"\n")
            line = self._answers.readline()
        except TimeoutError:
            self._kill()
            return {"outcome": "timeout", "seconds": round(time.monotonic() - start, 1), "reason": self._where()}
        except OSError:
            pass  # It ended.
        if line:
            told = json.loads(line)
            self.is_over = told.pop("last", False)
            if self.is_over:
                self._close()
            return told
        self.is_over = True
        code = self.worker.reap(self.pid)
        self._kill_group()
        self._connection.close()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        seconds = round(time.monotonic() - start, 1)
        return {"outcome": "abort", "seconds": seconds, "reason": f"{how}: {self._last_words()}"}

    def _tail(self, size: int) -> str:
        try:
            return self._log.read_text(errors="replace")[-size:].strip()
        except OSError:
            return ""

    def _last_words(self) -> str:
        """What was said before the end, and where it was."""
        said = self._tail(20000).split("Fatal Python error")[0].strip()
        return f"{said[-400:]} {self._where()}".strip()

    def _where(self) -> str:
        """The innermost lines of the stack that faulthandler wrote."""
        lines = [line.strip() for line in self._tail(20000).splitlines() if line.strip().startswith("File ")]
        return " < ".join(lines[:4])

    def _kill_group(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def _kill(self) -> None:
        """With what it was doing in its log, where it still can say."""
        self.is_over = True
        try:
            os.kill(self.pid, signal.SIGUSR1)
            for _ in range(20):
                time.sleep(0.1)
                if "most recent call first" in self._tail(20000):
                    break
        except ProcessLookupError:
            pass
        self._kill_group()
        self.worker.reap(self.pid)
        self._connection.close()

    def _close(self) -> None:
        self._connection.close()
        self.worker.reap(self.pid)

    def close(self) -> None:
        """Ends it between two tests."""
        if not self.is_over:
            self.is_over = True
            self._close()
