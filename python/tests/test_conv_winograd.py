"""`torch.wave.winograd`: what it allows, and what that costs."""

import pytest
import torch
import torch.nn.functional as F


@pytest.fixture(autouse=True)
def restored():
    before = torch.wave.winograd()
    yield
    torch.wave.winograd(before)


def kernels(work):
    with torch.wave.profile() as profiler:
        work()
        torch.wave.synchronize()
    return {launch[0] for launch in profiler.launches}


def test_a_switch_that_tells_what_was():
    assert torch.wave.winograd(False) in (True, False)
    assert torch.wave.winograd() is False
    assert torch.wave.winograd(True) is False
    assert torch.wave.winograd(None) is True


@pytest.mark.sampled(1)
@pytest.mark.parametrize("channels", [64, 128])
def test_forward_and_gradients_with_and_without(channels):
    x = torch.randint(-3, 4, (4, channels, 30, 34)).float()
    w = torch.randint(-3, 4, (channels, channels, 3, 3)).float()
    g = torch.randint(-3, 4, (4, channels, 30, 34)).float()

    def run():
        a, b = x.to("wave").requires_grad_(), w.to("wave").requires_grad_()
        y = F.conv2d(a, b, padding=1)
        y.backward(g.to("wave"))
        return [y.detach().cpu(), a.grad.cpu(), b.grad.cpu()]

    a, b = x.double().requires_grad_(), w.double().requires_grad_()
    y = F.conv2d(a, b, padding=1)
    y.backward(g.double())
    right = [y.detach(), a.grad, b.grad]

    torch.wave.winograd(False)
    names = kernels(run)
    assert names and not any("winograd" in name for name in names), names
    for ours, theirs in zip(run(), right):
        assert torch.equal(ours.double(), theirs)

    torch.wave.winograd(True)
    names = kernels(run)
    # Which passes take it is the cost model's choice for this device; forward of so many channels does.
    assert any("winograd" in name for name in names), names
    first, second = run(), run()
    for ours, again, theirs in zip(first, second, right):
        assert torch.equal(ours, again)
        assert torch.equal(ours.double().round(), theirs)
        assert (ours.double() - theirs).norm() <= 2e-5 * theirs.norm()
