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
    assert torch.wave.allow_fp16_accumulation(False) in (True, False, "forward", "matmul")
    assert torch.wave.allow_fp16_accumulation("matmul") is False
    assert torch.wave.allow_fp16_accumulation("forward") == "matmul"
    assert torch.wave.allow_fp16_accumulation(True) == "forward"
    assert torch.wave.allow_fp16_accumulation() is True
    for wrong in ["backward", "1", 2]:
        with pytest.raises(ValueError, match="none of"):
            torch.wave.allow_fp16_accumulation(wrong)
    assert torch.wave.allow_fp16_accumulation() is True


@pytest.mark.parametrize("which", [False, "matmul", "forward", True])
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


def test_products_of_a_backward_pass_sum_in_f32_where_only_forward_ones_may_not(run_python):
    # Sums that are 0 and whose parts are beyond f16. `WAVE32_CONFIG` allows one kernel, which sums in f16.
    told = run_python("""
        import torch.nn.functional as F

        class Same(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                return F.linear(x, w)

            @staticmethod
            def backward(ctx, g):
                return F.linear(*ctx.saved_tensors), None

        signs = torch.tensor([1.0, 1.0, -1.0, -1.0]).repeat(16)
        x = (300 * signs * torch.ones(64, 64)).half().to("wave").requires_grad_()
        for which in ("forward", "matmul"):
            torch.wave.allow_fp16_accumulation(which)
            x.grad = None
            y = Same.apply(x, torch.full((64, 64), 300.0).half().to("wave"))
            y.sum().backward()
            print(which, y.isfinite().any().item(), "backward", (x.grad == 0).all().item())
        torch.wave.allow_fp16_accumulation(True)
        y = Same.apply(x, torch.full((64, 64), 20.0).half().to("wave"))
        print("small", (y == 0).all().item())
    """, WAVE32_CONFIG="hnt64x64/1", WAVE32_SOLVER="gemm", WAVE32_FALLBACK="quiet")
    assert "forward False backward True" in told and "matmul False backward True" in told, told
    assert "small True" in told, told
