"""The harness for PyTorch's own test files, on a file of ours written as those are: each kind of end is told right."""

import concurrent.futures
import json
import pathlib
import subprocess
import sys

import pytest

RUN = pathlib.Path(__file__).parent / "upstream" / "run.py"
sys.path.insert(0, str(RUN.parent))

import adapt  # noqa: E402
import rules  # noqa: E402
import run  # noqa: E402
import table  # noqa: E402

FILE = '''
import os
import time
import unittest

import torch
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests, onlyCPU, onlyCUDA
from torch.testing._internal.common_utils import TestCase, a_name_of_another_version, parametrize, run_tests


class TestTiny(TestCase):
    @dtypes(torch.float32, torch.int64)
    def test_add(self, device, dtype):
        a = torch.ones(3, device=device, dtype=dtype)
        self.assertEqual(torch.device(device).type, a.device.type)
        self.assertEqual(a + a, a * 2)

    @parametrize("size", [0, 5])
    def test_falls_back(self, device, size):
        torch.special.bessel_j0(torch.rand(size + 1, device=device))

    def test_wrong(self, device):
        self.assertEqual(torch.ones(2, device=device), torch.zeros(2, device=device))

    def test_skipped(self, device):
        raise unittest.SkipTest("not today")

    @onlyCPU
    def test_of_the_cpu(self, device):
        pass

    @onlyCUDA
    def test_of_any_gpu(self, device):
        self.assertNotEqual(torch.device(device).type, "cpu")

    @onlyCUDA
    def test_of_that_gpu(self, device):
        torch.cuda.synchronize()

    def test_forks_the_generator(self, device):
        with torch.random.fork_rng():
            first = torch.rand(5, device=device)
        with torch.random.fork_rng(devices=[] if device == "cpu" else [device]):
            self.assertEqual(first, torch.rand(5, device=device))
        self.assertEqual(first, torch.rand(5, device=device))

    def test_hangs(self, device):
        time.sleep(600)

    def test_aborts(self, device):
        os.abort()

    def test_exits(self, device):
        os._exit(3)

    @unittest.expectedFailure
    def test_fails_as_marked(self, device):
        self.fail("as marked")

    @a_name_of_another_version("with an argument")
    def test_stand_in(self, device):
        self.assertFalse(a_name_of_another_version)
        self.assertEqual([1] + a_name_of_another_version() + [2], [1, 2])

    def test_sets_the_type(self, device):
        torch.set_default_dtype(torch.float64)

    def test_type_is_set_back(self, device):
        self.assertEqual(torch.get_default_dtype(), torch.float32)


class TestOfTheHost(TestCase):
    def test_is_not_taken(self):
        self.fail("it has no device")


instantiate_device_type_tests(TestTiny, globals())

if __name__ == "__main__":
    run_tests()
'''

EXPECTED = {
    "test_add_DEVICE_float32": "passed",
    "test_add_DEVICE_int64": "passed",
    "test_falls_back_size_0_DEVICE": "passed",
    "test_falls_back_size_5_DEVICE": "passed",
    "test_wrong_DEVICE": "failed",
    "test_skipped_DEVICE": "skipped",
    "test_of_the_cpu_DEVICE": "skipped",
    "test_of_any_gpu_DEVICE": "passed",
    "test_of_that_gpu_DEVICE": "skipped",
    "test_forks_the_generator_DEVICE": "passed",
    "test_hangs_DEVICE": "timeout",
    "test_aborts_DEVICE": "abort",
    "test_exits_DEVICE": "abort",
    "test_fails_as_marked_DEVICE": "passed",
    "test_stand_in_DEVICE": "passed",
    "test_sets_the_type_DEVICE": "passed",
    "test_type_is_set_back_DEVICE": "passed",
}


def checkout_of(folder, text=FILE):
    (folder / "test").mkdir()
    (folder / "test" / "test_tiny.py").write_text(text)
    return folder


@pytest.fixture
def checkout(tmp_path):
    return checkout_of(tmp_path)


def harness(checkout, *options):
    done = subprocess.run(
        [sys.executable, str(RUN), "--checkout", str(checkout), "--files", "test_tiny.py", "--deadline-of", "test_hangs=5",
         "--results", str(checkout / "results"), "--jobs", "2", *options],
        capture_output=True, text=True, timeout=600,
    )
    lines = table.read(checkout / "results")
    return done, {line["id"].split("::")[2]: line for line in lines if "id" in line}, lines


# A sample of one worker, as each takes seconds to load torch's testing modules.
SAMPLE = ("--device", "cpu", "--jobs", "1", "--sample", "1/2", "--seed", "11", "--only", "add|falls_back|stand_in|type")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The longer runs, started at once, two side by side: name: (checkout, what `harness` returns, later)."""
    ends = FILE.replace("        os.abort()", "        os.kill(os.getppid(), 9); os.abort()")
    wanted = {
        "every end": (FILE, ("--table", "table.md")),
        "sample": (FILE, SAMPLE),
        "its process ends": (ends, ("--device", "cpu", "--jobs", "1", "--only", "add|aborts|exits|type")),
    }
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        started = {}
        for name, (text, options) in wanted.items():
            checkout = checkout_of(tmp_path_factory.mktemp("checkout"), text)
            options = [str(checkout / option) if option == "table.md" else option for option in options]
            started[name] = checkout, pool.submit(harness, checkout, *options)
        yield started


def test_every_end_is_told(runs):
    checkout, run = runs["every end"]
    done, told, lines = run.result()
    assert {name: line["outcome"] for name, line in told.items()} == EXPECTED, done.stdout + done.stderr
    assert done.returncode == 1
    assert told["test_aborts_DEVICE"]["reason"].startswith("SIGABRT")
    assert told["test_exits_DEVICE"]["reason"].startswith("exit code 3")
    assert told["test_skipped_DEVICE"]["reason"] == "not today"
    ops = told["test_falls_back_size_5_DEVICE"]["ops"]
    assert len(ops) == 1 and next(iter(ops)).startswith("aten::special_bessel_j0"), ops
    assert "fallbacks" not in told["test_add_DEVICE_float32"]
    cpu = {line["cpu_of"].split("::")[2]: line["outcome"] for line in lines if "cpu_of" in line}
    assert cpu == {name: EXPECTED[name] for name in cpu} and len(cpu) == 4
    about = next(line for line in lines if line.get("file") == "test_tiny.py")
    assert about["missing"] == ["torch.testing._internal.common_utils.a_name_of_another_version"]
    row = next(line for line in (checkout / "table.md").read_text().splitlines() if line.startswith("| test_tiny"))
    assert row == "| test_tiny.py | 17 of 17 | 14 | 10 | 1 | 2 | 1 | 0 | 4 | 2 | 3 | 0 | 71.4 % |"


def test_slices_make_the_whole(runs):
    """A sample in two slices is the sample at once; a cut line is run again."""
    checkout, run = runs["sample"]
    _, whole, _ = run.result()
    path = checkout / "results"
    kept = path.read_text().splitlines()[:3]
    path.write_text("\n".join(kept) + '\n{"id": "cut o')
    done, resumed, _ = harness(checkout, *SAMPLE, "--resume")
    assert resumed.keys() == whole.keys() and 0 < len(whole) < 7, done.stdout + done.stderr
    done, _, _ = harness(checkout, "--sample", "1/2", "--seed", "12", "--resume")
    assert done.returncode == 2 and "of the sample 1/2 of seed 11" in done.stderr


def test_rules_keep_lines(monkeypatch):
    """Whether a test speaks of CUDA is looked up by its line."""
    windows = "ref = f(signal.get_window(\n    (name, 3), size, fftbins=periodic\n), 1)\n"
    assert adapt.adapted(windows) == "ref = f((signal.get_window(\n    (name, 3), size, fftbins=periodic\n) if size else np.empty(0)), 1)\n"
    monkeypatch.setattr(rules, "TEXT", [(r"\(\s*1", "(1", "it moves lines")])
    with pytest.raises(ValueError, match="moves lines"):
        adapt.adapted("f(\n1)")


class _FakeWorker:
    """A file that is loaded in no time."""

    def __init__(self, checkout, file, device):
        self.file = file

    def loaded(self):
        return {}

    def close(self):
        pass


@pytest.mark.parametrize("limit, expected", [
    # A second a test: four files share 20 s, and what a short file leaves over goes to the later ones.
    (20.5, {"a": 6, "b": 2, "c": 7, "d": 6}),
    # Enough for all: what was set aside is run too.
    (1000, {"a": 30, "b": 2, "c": 30, "d": 30}),
    (float("inf"), {"a": 30, "b": 2, "c": 30, "d": 30}),
])
def test_each_file_has_its_share_of_the_time(monkeypatch, limit, expected):
    now = 0.0
    monkeypatch.setattr(run, "Worker", _FakeWorker)
    monkeypatch.setattr(run.time, "monotonic", lambda: now)
    sizes = {"a": 30, "b": 2, "c": 30, "d": 30}
    wanted = [(file, lambda file, _: [f"{file}{i}" for i in range(sizes[file])]) for file in sizes]
    queue = run._Queue(pathlib.Path(), "cpu", wanted, limit, 2)
    done = []
    while (found := queue.next()) is not None:
        done.append(found[1])
        assert found[0].file == found[1][0]
        now += 1
    assert len(set(done)) == len(done)
    assert {file: sum(test[0] == file for test in done) for file in sizes} == expected


def test_what_was_not_reached_is_told():
    head = {"sample": "1/1", "seed": "7", "device": "wave", "torch": "2", "deadline": 9, "jobs": 1}
    lines = [head, {"wanted": ["a.py", "b.py", "c.py"]}, {"file": "a.py", "tests": 9, "taken": 3, "missing": []},
             {"id": "a.py::C::test_x", "outcome": "failed", "reason": "wrong"},
             {"file": "b.py", "error": "no such name"}]
    text = table.markdown(lines)
    assert "| a.py | 3 of 9 (2 not reached) | 1 | 0 | 1 |" in text
    assert "Not reached for want of time: 2 of the tests taken; none of c.py." in text
    assert "1 failures were not run on the CPU as well." in text


def test_rows_that_quote_torch_leave_the_sum():
    rows = [{"id": "test_a", "error": "refuses", "class": "torch", "reason": "TORCH_CHECK(...)"},
            {"id": "test_b", "class": "open", "reason": "ours"}]
    lines = [{"id": f"f::C::test_{name}", "outcome": outcome, "reason": reason} for name, outcome, reason in [
        ("a", "failed", "it refuses"), ("a2", "failed", "another"), ("b", "failed", "wrong"), ("c", "passed", ""),
        ("d", "skipped", "by us: slow"), ("e", "skipped", "its own")]]
    count = table._count(lines, {}, rows)
    assert (count["run"], count["torch"], count["by us"], count["skipped"]) == (4, 1, 1, 1)
    assert table.share(count) == "25.0 %"


def test_known_failures_are_well_formed():
    import re

    for row in table.known():
        assert row["class"] in ("torch", "test", "open"), row
        assert row["reason"] and re.compile(row["id"]) and re.compile(row.get("error", "")), row
    assert json.loads(table.KNOWN.read_text()) == table.known()


def test_a_file_whose_process_ends_is_loaded_again(runs):
    """A test that ends the process that its runner was forked from costs itself only."""
    _, told, _ = runs["its process ends"][1].result()
    names = {name: EXPECTED[name] for name in told}
    assert {name: line["outcome"] for name, line in told.items()} == names
    assert len(told) == 6


def test_a_file_that_ends_twice_is_told(checkout):
    import pool

    path = checkout / "test" / "test_tiny.py"
    marker = checkout / "loaded"
    path.write_text(FILE + f"""
if os.path.exists({str(marker)!r}):
    os._exit(7)
open({str(marker)!r}, "w").close()
""")
    worker = pool.Worker(checkout, "test_tiny.py", "cpu")
    try:
        assert "error" not in worker.loaded()
        worker._process.kill()
        worker._process.wait()
        with pytest.raises(pool.WorkerEnded, match=r"ended \(-9\)"):
            worker.runner()
        assert worker.reap(12345) == 0
    finally:
        worker.close()
