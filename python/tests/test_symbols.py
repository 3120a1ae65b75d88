"""A torch that lacks symbols outside its stable C ABI: the device works without them or refuses with a reason.

WAVE32_SYMBOLS=all hides each of them in turn; a usual run a few at random. Both hide all at once too.
"""

import os
import random
import subprocess
import sys

import pytest
from wave32 import _native

if not hasattr(_native, "optional_symbols"):
    pytest.skip("hiding symbols needs a build with the feature fault-injection", allow_module_level=True)

PROGRAM = """
import sys, torch
from torch import nn
try:
    import wave32
    torch.manual_seed(5)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                          nn.Linear(8 * 64, 5))
    image, label = torch.randn(2, 3, 16, 16), torch.tensor([1, 4])
    nn.functional.cross_entropy(model(image), label).backward()
    wanted = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model.to("wave")
    nn.functional.cross_entropy(model(image.to("wave")), label.to("wave")).backward()
    torch.rand(4, device="wave"), torch.dropout(image.to("wave"), 0.5, True)
    torch.utils.data.default_collate([image, image])
    for parameter, right in zip(model.parameters(), wanted):
        error = (parameter.grad.cpu() - right).norm() / right.norm().clamp_min(1e-6)
        assert error < 1e-4, f"WRONG by {error}"
    view = image.to("wave")[:, 1:, ::2]
    assert torch.equal(view.contiguous().cpu(), image[:, 1:, ::2]), "WRONG view"
    moved = image.to("wave").to("cpu", torch.float16, non_blocking=True)
    assert torch.equal(moved, image.half()), "WRONG conversion"
    with torch.autocast("wave", torch.bfloat16):
        cast = model(image.to("wave"))
    assert cast.dtype is torch.bfloat16, cast.dtype
    error = (cast.float() - model(image.to("wave"))).norm() / cast.float().norm()
    assert error < 0.05, f"WRONG by {error} under autocast"
    # An error of an operator is torch's type, whatever is missing.
    for enabled in (False, True):
        try:
            with torch.autocast("wave", enabled=enabled):
                torch.empty(2, 3, device="wave") @ torch.empty(2, 3, device="wave")
        except RuntimeError:
            pass
        else:
            raise AssertionError("WRONG shapes multiplied")
    print("works")
except (ImportError, RuntimeError, NotImplementedError) as error:
    print("refused:", error)
"""


def outcome(hidden):
    environment = {**os.environ, "WAVE32_TEST_WITHOUT": hidden, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, f"without {hidden}: exit {ran.returncode}\n{ran.stderr[-3000:]}"
    told = ran.stdout.strip().splitlines()[-1]
    assert told == "works" or len(told) > len("refused: ") + 10, f"without {hidden}: {told}"
    return told


def chosen():
    if os.environ.get("WAVE32_SYMBOLS") == "all":
        return ["all", *_native.optional_symbols()]
    return ["all", "at random", "another at random"]


@pytest.mark.parametrize("hidden", chosen())
def test_without_a_symbol_the_device_works_or_says_why(hidden):
    if "random" in hidden:
        hidden = random.SystemRandom().choice(_native.optional_symbols())
    print(hidden, outcome(hidden))


def test_nothing_hidden_works():
    assert outcome("") == "works"
