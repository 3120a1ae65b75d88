"""Tests of the device; they need a Vulkan driver (Mesa's lavapipe will do)."""

import os
import random
import signal
import subprocess
import sys
import textwrap
from collections import defaultdict

import pytest

os.environ.setdefault("WAVE32_FALLBACK", "quiet")
# A shell's background job ignores Ctrl-C, and so would every program started from these tests.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import torch
import wave32
from against_cpu import settle_the_cpu

settle_the_cpu()

LONG = "examples run_cuda compatibility distributed virtual_card upstream leaks attention fuse fuse_activations".split()


def pytest_collection_modifyitems(config, items):
    """Of a test marked `sampled(count)` so many cases run, others each time. Where the processor runs kernels, such a case lasts
    up to a minute, most of it the driver's compiler. All run with WAVE32_TEST_ALL=1, with `-k`, or where a test is named."""
    if os.environ.get("WAVE32_TEST_ALL") or config.option.keyword or any("::" in name for name in config.args):
        return
    cases = defaultdict(list)
    for item in items:
        if mark := item.get_closest_marker("sampled"):
            cases[item.location[0], item.originalname, mark.args[0]].append(item)
    # All processes of pytest-xdist leave out the same.
    chance = random.Random(getattr(config, "workerinput", {}).get("testrunuid"))
    left_out = {item for (*_, count), of in cases.items() for item in chance.sample(of, max(len(of) - count, 0))}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]
    # Files of which a test lasts half a minute come first: all processes have work to the end.
    items.sort(key=lambda item: item.path.stem.removeprefix("test_") not in LONG)


@pytest.fixture(autouse=True)
def fresh_seed(request):
    seed = int(os.environ.get("WAVE32_TEST_SEED", torch.seed() % 2**31))
    torch.manual_seed(seed)
    request.node.user_properties.append(("seed", seed))
    print(f"WAVE32_TEST_SEED={seed}")
    return seed


@pytest.fixture
def fresh_compiler():
    """Nothing that another test compiled."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def decided_early(monkeypatch):
    """Of a compiled function, fewer calls are timed than users' are before it is replayed or not."""
    monkeypatch.setattr(wave32._replay, "_TIMED", 4)


@pytest.fixture(autouse=True)
def fresh_fallbacks():
    """What ran on the CPU in an earlier test of this process does not count."""
    torch.wave.reset_fallbacks()


@pytest.fixture
def on_the_device():
    """Nothing in the test may run on the CPU."""
    yield
    assert torch.wave.fallbacks() == {}


@pytest.fixture
def run_python():
    """Runs a script in a fresh interpreter; its output. Fails on a bad exit or after a minute."""

    def run(script, **environment):
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", "import torch, wave32\n" + textwrap.dedent(script)],
            env={**os.environ, **environment}, capture_output=True, text=True, timeout=120,
        )
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="session")
def entry_point(tmp_path_factory):
    """A folder that says what an installed wave32 says: which module torch loads by itself."""
    folder = tmp_path_factory.mktemp("installed")
    info = folder / "wave32-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wave32\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\nwave32 = wave32_autoload:load\n")
    return str(folder)
