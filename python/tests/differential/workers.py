"""Children that run cases: what kills or hangs one costs one case, and is that case's finding."""

from __future__ import annotations

import contextlib
import glob
import multiprocessing
import os
import pathlib
import signal
import tempfile
import time
import warnings
from typing import Any

from differential.cases import Case
from differential.compare import Mismatch, check

# A child is replaced after so many cases, as what it keeps grows.
LIFE = 4000
# Starting: torch, the device, its first kernels.
START_S = 180
STAGES = ("start", "cpu", "device", "f64", "idle")


def _child(pipe: Any, stage: Any, options: dict[str, Any], log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("WAVE32_FALLBACK", "quiet")
    import faulthandler

    import torch

    faulthandler.enable()
    warnings.simplefilter("ignore")
    # A kernel in the place of a composite would lose its gradient.
    warnings.filterwarnings("error", message=".*an autograd kernel was not registered")
    torch.set_num_threads(1)
    device = options["device"]
    if device == "wave":
        import wave32  # noqa: F401
    from differential import faults, sides
    from differential.generate import make

    call = faults.planted(options.get("plant"))
    torch.ones(2, device=device).add(1).cpu()
    with sides.Perturbed(1e-3, 0):  # The first of these imports much.
        torch.ones(2, dtype=torch.float64).add(1)
    pipe.send("ready")
    while True:
        try:
            what = pipe.recv()
        except EOFError:
            return
        case = make(options["seed"], what, options["only"]) if isinstance(what, int) else what
        torch.manual_seed(1)

        def told(name: str) -> None:
            stage.value = STAGES.index(name)

        try:
            found = check(case, device, told, call)
        except Exception as error:  # A fault of the fuzzer's own is a finding too, and must not end the run.
            import traceback

            lines = traceback.format_exc().splitlines()
            found = Mismatch("fuzzer", f"{type(error).__name__}: {error} {' | '.join(lines[-4:])}"[:600])
        told("idle")
        pipe.send((case.op, case.mode, found))


def _waited(pid: int) -> float:
    """Seconds for which a process's threads were ready to run and had no processor; 0 where the system does not tell."""
    total = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with contextlib.suppress(OSError):  # A thread that has ended.
            total += int(pathlib.Path(path).read_text().split()[1])
    return total / 1e9


class Worker:
    """One child. `start` a case, then `poll` until it tells."""

    def __init__(self, options: dict[str, Any], deadline: float):
        self.options, self.deadline = options, deadline
        self.process: Any = None
        self.running: Any = None
        self._since = self._waited = 0.0
        self._ready = self._started = False
        self._done = 0
        handle, self._log = tempfile.mkstemp(prefix="differential-")
        os.close(handle)

    def start(self, what: int | Case) -> None:
        if self.process is None or self._done >= LIFE:
            self._spawn()
        self.running = what
        self._begin()
        self.pipe.send(what)
        self._done += 1

    def _begin(self) -> None:
        self._since, self._waited = time.monotonic(), _waited(self.process.pid)

    def poll(self) -> tuple[str, str, Mismatch | None] | None:
        """(operator, mode, mismatch) when the case is done, or has ended the child."""
        try:
            while self.pipe.poll():
                said = self.pipe.recv()
                if said != "ready":
                    self.running = None
                    return said
                self._ready = self._started = True
                self._begin()
        except (EOFError, ConnectionResetError):
            return self._ended("abort", "")
        late = time.monotonic() - self._since > (self.deadline if self._ready else START_S)
        return self._ended("hang", f"no answer in {self.deadline:g} s; ") if late else None

    def run(self, case: Case) -> Mismatch | None:
        """One case, waited for."""
        self.start(case)
        while True:
            self.pipe.poll(0.1)
            if (said := self.poll()) is not None:
                return said[2]

    def close(self) -> None:
        self._stop()
        if os.path.exists(self._log):
            os.unlink(self._log)

    def _ended(self, kind: str, said: str) -> tuple[str, str, Mismatch]:
        from differential.generate import make

        stage = STAGES[self._stage.value]
        is_starved = _waited(self.process.pid) - self._waited > (time.monotonic() - self._since) / 2
        self.process.join(0 if kind == "hang" else 10)
        code = self.process.exitcode
        self._stop()
        with open(self._log, errors="replace") as file:
            tail = " ".join(file.read()[:400].split())
        what, self.running = self.running, None
        if stage == "start" and not self._started:
            raise RuntimeError(f"a child did not start ({code}): {tail}")
        case = make(self.options["seed"], what, self.options["only"]) if isinstance(what, int) else what
        side = {"cpu": "on the CPU", "f64": "on the CPU in f64"}.get(stage, "on the device")
        if kind == "hang" and (is_starved or side != "on the device"):
            kind = "late"  # A busy machine; nothing that the device did.
        ended = said or f"ended by {signal.Signals(-code).name}; " if code is not None and code < 0 else said or f"ended with {code}; "
        return case.op, case.mode, Mismatch(kind, f"{ended}{side}; {tail}")

    def _spawn(self) -> None:
        self._stop()
        # A server that has imported torch, and opens nothing, forks the children: they start at once.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["differential.workers", "torch", *(["wave32"] if self.options["device"] == "wave" else [])])
        self.pipe, theirs = context.Pipe()
        self._stage = context.RawValue("i", 0)
        self.process = context.Process(target=_child, args=(theirs, self._stage, self.options, self._log), daemon=True)
        self.process.start()
        theirs.close()
        self._ready, self._done = False, 0

    def _stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()
            self.process = None
