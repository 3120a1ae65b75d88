"""`torch.wave.allow_fp16_accumulation`: what it allows, and that gradients keep their range without it."""

import pytest
import torch
import torch.nn.functional as F


@pytest.fixture(autouse=True)
def restored():
    before = torch.wave.allow_fp16_accumulation()
    yield
    torch.wave.allow_fp16_accumulation(before)


def test_a_switch_that_tells_what_was():
    assert torch.wave.allow_fp16_accumulation(False) in (True, False, "forward")
    assert torch.wave.allow_fp16_accumulation("forward") is False
    assert torch.wave.allow_fp16_accumulation(True) == "forward"
    assert torch.wave.allow_fp16_accumulation() is True
    for wrong in ["backward", "1", 2]:
        with pytest.raises(ValueError, match="none of"):
            torch.wave.allow_fp16_accumulation(wrong)
    assert torch.wave.allow_fp16_accumulation() is True


@pytest.mark.parametrize("which", [False, "forward", True])
def test_passes_are_right(which):
    torch.wave.allow_fp16_accumulation(which)
    x = torch.randn(2, 64, 12, 12).half()
    w = (torch.randn(64, 64, 3, 3) / 24).half()
    # Without the switch, gradients may be subnormal.
    g = (torch.randn(2, 64, 12, 12) * (1e-6 if which is not True else 1.0)).half()
    a, b = x.to("wave").requires_grad_(), w.to("wave").requires_grad_()
    y = F.conv2d(a, b, padding=1)
    y.backward(g.to("wave"))
    c, d = x.double().requires_grad_(), w.double().requires_grad_()
    z = F.conv2d(c, d, padding=1)
    z.backward(g.double())
    for ours, theirs in [(y.detach(), z.detach()), (a.grad, c.grad), (b.grad, d.grad)]:
        ours, theirs = ours.cpu().double(), theirs.half().double()
        assert ours.isfinite().all()
        # Half of the distance of subnormal numbers, for each.
        allowed = 7e-3 * theirs.norm() + 2**-24 * theirs.numel() ** 0.5
        assert (ours - theirs).norm() <= allowed
