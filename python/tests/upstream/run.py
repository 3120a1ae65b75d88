#!/usr/bin/env python3
"""PyTorch's own device-generic test files on the device `wave`, or on any other.

    python run.py --checkout FOLDER [--device wave] [--sample 1/20] [--seed 7] [--resume] --results FILE

FOLDER is a checkout of PyTorch that fits the installed torch; nothing is fetched and nothing in it is changed. Tests run
in forked processes, each test with a deadline; a crash or a hang costs that test only. Results are lines of JSON;
`--resume` goes on where an earlier run stopped. See docs/pytorch_tests.md.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import importlib.metadata
import json
import pathlib
import random
import re
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

import rules
import table
from pool import Runner, Worker, WorkerEnded

# Of a run's minutes; the rest is kept for running on the CPU what failed.
DEVICE_SHARE = 0.8


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=pathlib.Path, help="a checkout of PyTorch, of the installed version")
    parser.add_argument("--device", default="wave")
    parser.add_argument("--files", default="", help="comma-separated, such as test_nn.py; all by default")
    parser.add_argument("--only", default="", help="a pattern that ids must match")
    parser.add_argument("--sample", default="1/1", metavar="N/M", help="N of every M tests, chosen by the seed")
    parser.add_argument("--max-tests", type=int, default=0, help="at most so many tests of a file, chosen by the seed")
    parser.add_argument("--seed", default=None, help="of the sample; drawn and printed by default")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--deadline", type=float, default=120.0, help="seconds for one test")
    parser.add_argument("--deadline-of", action="append", default=[], metavar="PATTERN=SECONDS", help="of ids that match")
    parser.add_argument("--minutes", type=float, default=0.0, help="start no test after so many; 0: no end")
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--resume", action="store_true", help="go on with the results that are there")
    parser.add_argument("--no-cpu", action="store_true", help="do not run what failed on the CPU as well")
    parser.add_argument("--table", type=pathlib.Path, help="write the table in Markdown there")
    parser.add_argument("--report", action="store_true", help="only write the table of the results that are there")
    parser.add_argument("--again", default="", help="with --resume: run these outcomes again (failed,timeout,abort)")
    return parser.parse_args()


def chosen(tests: Iterable[str], sample: tuple[int, int], most: int, seed: str) -> list[str]:
    """The sample: the same for every slice of a run and for every machine."""
    share, whole = sample

    def rank(test: str) -> int:
        return int.from_bytes(hashlib.sha256(f"{seed} {test}".encode()).digest()[:8], "big")

    # In an order that is random too, so that what a run that ends early has reached is a sample as well.
    taken = sorted((test for test in tests if rank(test) % whole < share), key=rank)
    return taken[:most] if most else taken


class _Results:
    """The file of results: lines are added as tests end."""

    def __init__(self, path: pathlib.Path, is_resumed: bool) -> None:
        self._lock = threading.Lock()
        self.lines = table.read(path) if is_resumed and path.exists() else []
        self._file = path.open("a" if is_resumed else "w")
        if self.lines and not path.read_bytes().endswith(b"\n"):
            self._file.write("\n")  # The last line was cut off.

    def add(self, line: dict[str, Any]) -> None:
        with self._lock:
            self.lines.append(line)
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
            self._file.flush()


class _Queue:
    """Tests of file after file; the next files are loaded while those of this one run.

    Each file has an equal share of the time that is left. What a file does not get done in its share waits until all
    have had theirs.
    """

    def __init__(
        self, checkout: pathlib.Path, device: str, wanted: list[tuple[str, Any]], until: float, ahead: int
    ) -> None:
        self._checkout, self._device, self._wanted, self._until = checkout, device, collections.deque(wanted), until
        self._aside: list[tuple[str, Any]] = []
        self._lock = threading.Lock()
        self._tests: collections.deque[tuple[Worker, str]] = collections.deque()
        self._users: dict[Worker, int] = collections.Counter()
        self._most_ahead = ahead
        self._ahead: collections.deque[Worker] = collections.deque()
        self._current: Worker | None = None
        self._share_ends = until

    def _load(self) -> None:
        if not self._wanted:
            self._wanted, self._aside = collections.deque(self._aside), []
        while len(self._ahead) < min(self._most_ahead + 1, len(self._wanted)):
            self._ahead.append(Worker(self._checkout, self._wanted[len(self._ahead)][0], self._device))
        file, select = self._wanted.popleft()
        worker = self._ahead.popleft()
        self._leave_current()
        self._current = worker
        self._tests.extend((worker, test) for test in select(file, worker))
        now = time.monotonic()
        self._share_ends = now + (self._until - now) / (len(self._wanted) + 1)

    def _set_aside(self) -> None:
        """The tests left of a file whose share is over, until the other files have had theirs."""
        left = [test for _, test in self._tests]
        self._tests.clear()

        def select(file: str, worker: Worker) -> list[str]:
            return [] if "error" in worker.loaded() else left

        self._aside.append((self._current.file, select))

    def _leave_current(self) -> None:
        left, self._current = self._current, None
        if left is not None and not self._users[left]:
            left.close()

    def next(self) -> tuple[Worker, str] | None:
        """A test and its file's process, which is in use until `use(worker, -1)`; none at the end."""
        with self._lock:
            if self._tests and (self._wanted or self._aside) and time.monotonic() > self._share_ends:
                self._set_aside()
            while not self._tests:
                if not (self._wanted or self._aside) or time.monotonic() > self._until:
                    return None
                self._load()
            if time.monotonic() > self._until:
                return None
            worker, test = self._tests.popleft()
            # Till the test has ended: another thread may turn to the next file meanwhile.
            self._users[worker] += 1
            return worker, test

    def use(self, worker: Worker, change: int) -> None:
        """A runner of `worker` was made (1) or closed (-1); the last one ends it, unless tests of it are left."""
        with self._lock:
            self._users[worker] += change
            if not self._users[worker] and worker is not self._current:
                worker.close()

    def close(self) -> None:
        """After the last runner is closed."""
        self._leave_current()
        for worker in self._ahead:
            worker.close()


def _work(queue: _Queue, deadline: float, add: Any) -> None:
    runner: Runner | None = None

    def leave() -> None:
        if runner is not None:
            runner.close()
            queue.use(runner.worker, -1)

    while (found := queue.next()) is not None:
        worker, test = found
        if runner is not None and (runner.is_over or runner.worker is not worker):
            leave()
            runner = None
        if runner is None:
            try:
                runner = worker.runner()
                queue.use(worker, 1)
            except WorkerEnded as ended:
                add({"id": test, "outcome": "abort", "reason": str(ended)})
        if runner is not None:
            limit = next((limit for pattern, limit in rules.DEADLINES if re.search(pattern, test)), deadline)
            add({"id": test, **runner.run(test, limit)})
        queue.use(worker, -1)
    leave()


def _run(queue: _Queue, jobs: int, deadline: float, add: Any) -> None:
    threads = [threading.Thread(target=_work, args=(queue, deadline, add)) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queue.close()


def main() -> int:
    options = _arguments()
    if options.report:
        return table.report(table.read(options.results), options.table)
    if options.checkout is None or not (options.checkout / "test" / "test_torch.py").exists() and not options.files:
        print("--checkout: a checkout of PyTorch, with the folder test in it", file=sys.stderr)
        return 2
    # Files are opened from other folders.
    options.checkout = options.checkout.resolve()
    for given in options.deadline_of:
        pattern, _, seconds = given.rpartition("=")
        rules.DEADLINES.insert(0, (pattern, float(seconds)))
    share, _, whole = options.sample.partition("/")
    sample = int(share), int(whole or 1)
    told_sample = options.sample + (f", at most {options.max_tests} of a file" if options.max_tests else "")
    results = _Results(options.results, options.resume)
    head = next((line for line in results.lines if "sample" in line), None)
    seed = options.seed or (head and head["seed"]) or str(random.SystemRandom().randrange(10**6))
    if head is not None and (head["seed"], head["sample"]) != (seed, told_sample):
        print(f"these results are of the sample {head['sample']} of seed {head['seed']}", file=sys.stderr)
        return 2
    if head is None:
        results.add({
            "sample": told_sample, "seed": seed, "device": options.device, "torch": importlib.metadata.version("torch"),
            "deadline": options.deadline, "jobs": options.jobs,
        })
    print(f"sample {told_sample}, seed {seed}", flush=True)
    again = set(filter(None, options.again.split(",")))
    if again:
        results.lines = [line for line in results.lines if line.get("outcome") not in again]
    done = {line["id"] for line in results.lines if "id" in line}
    started = time.monotonic()
    until = started + options.minutes * 60 if options.minutes else float("inf")
    asks_cpu = options.device != "cpu" and not options.no_cpu
    device_until = started + options.minutes * 60 * (DEVICE_SHARE if asks_cpu else 1) if options.minutes else until

    def select(file: str, worker: Worker) -> list[str]:
        loaded = worker.loaded()
        if "error" in loaded:
            results.add({"file": file, "error": loaded["error"]})
            print(f"{file}: {loaded['error']}", flush=True)
            return []
        if not any("name" in line for line in results.lines):
            results.add({"name": worker.device_name()})
        tests = [test for test in loaded["tests"] if re.search(options.only, test)]
        taken = chosen(tests, sample, options.max_tests, seed)
        if not any(line.get("file") == file and "tests" in line for line in results.lines):
            results.add({"file": file, "tests": len(tests), "taken": len(taken), "missing": loaded["missing"]})
        left = []
        for test in taken:
            reason = next((why for pattern, why in rules.SKIPPED if re.search(pattern, test)), None)
            if test in done:
                continue
            if reason is not None:
                results.add({"id": test, "outcome": "skipped", "reason": f"by us: {reason}"})
            else:
                left.append(test)
        print(f"{file}: {len(left)} to run, {len(taken)} taken of {len(tests)}", flush=True)
        return left

    names = options.files.split(",") if options.files else [file.path for file in rules.FILES]
    results.add({"wanted": names})
    # What an earlier slice has finished is not loaded again.
    ended = collections.Counter(test.split("::")[0] for test in done)
    finished = {line["file"] for line in results.lines if "taken" in line and ended[line["file"]] >= line["taken"]}
    names = [name for name in names if name not in finished]
    # A loaded file takes 1 GB.
    ahead = min(options.jobs, 6)
    queue = _Queue(options.checkout, options.device, [(name, select) for name in names], device_until, ahead)
    _run(queue, options.jobs, options.deadline, results.add)

    if asks_cpu:
        _ask_cpu(options, results, until)
    return table.report(results.lines, options.table)


def _ask_cpu(options: argparse.Namespace, results: _Results, until: float) -> None:
    """What failed, on the CPU: a test that fails there too tells nothing of the device."""
    told = {line["cpu_of"] for line in results.lines if "cpu_of" in line}
    failed: dict[str, list[str]] = collections.defaultdict(list)
    for line in table.last(results.lines).values():
        if line["outcome"] in ("failed", "abort", "timeout") and line["id"] not in told:
            failed[line["id"].split("::")[0]].append(line["id"])

    def select(file: str, worker: Worker) -> list[str]:
        known = set(worker.loaded().get("tests", ()))
        for test in failed[file]:
            if test not in known:
                results.add({"cpu_of": test, "outcome": "none"})
        return [test for test in failed[file] if test in known]

    def add(line: dict[str, Any]) -> None:
        results.add({"cpu_of": line["id"], "outcome": line["outcome"], "reason": line.get("reason", "")[:300]})

    queue = _Queue(options.checkout, "cpu", [(file, select) for file in failed], until, min(options.jobs, 6))
    _run(queue, options.jobs, options.deadline, add)


if __name__ == "__main__":
    sys.exit(main())
