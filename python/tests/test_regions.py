"""torchvision's `roi_align` and its gradients, beside the CPU's."""

import pytest
import torch

ops = pytest.importorskip("torchvision").ops


def drawn(count, dtype, size=(11, 14)):
    x = torch.randn(3, 5, *size, dtype=dtype)
    # Some reach beyond the picture, some are empty or the wrong way round.
    corners = torch.rand(count, 4, dtype=dtype) * 90 - 20
    corners[:-2, 2:] += corners[:-2, :2].clamp(min=0)
    return x, torch.cat([torch.randint(3, (count, 1)).to(dtype), corners], 1)


def check(x, rois, bins, samples, is_aligned):
    """Result and gradient beside the CPU's."""
    results = []
    for device in ("cpu", "wave"):
        y = x.detach().clone().to(device).requires_grad_()
        found = ops.roi_align(y, rois.to(device), bins, 0.25, samples, is_aligned)
        (found * torch.arange(found.numel(), dtype=torch.float32).reshape(found.shape).cos().to(device)).sum().backward()
        results.append((found.detach().cpu(), y.grad.cpu()))
    for expected, found in zip(*results):
        assert found.shape == expected.shape and found.dtype == torch.float32 and found.is_contiguous()
        assert (found - expected).abs().max() <= 3e-5 * expected.abs().max()


@pytest.mark.parametrize("is_aligned", [False, True])
@pytest.mark.parametrize("bins, samples", [((7, 7), 2), ((1, 3), 1), ((4, 2), 3)])
def test_roi_align(is_aligned, bins, samples, on_the_device):
    x, rois = drawn(9, torch.float32)
    check(x, rois, bins, samples, is_aligned)


def test_it_runs_in_pieces(monkeypatch, on_the_device):
    monkeypatch.setattr("wave32._regions._MOST", 2 * 7 * 5 * 14)
    x, rois = drawn(20, torch.float32)
    found = ops.roi_align(x.to("wave"), rois.to("wave"), 7, 0.25, 2, True).cpu()
    assert torch.allclose(found, ops.roi_align(x, rois, 7, 0.25, 2, True), atol=1e-5)


def test_halves(on_the_device):
    x, rois = drawn(9, torch.float16)
    found = ops.roi_align(x.to("wave"), rois.to("wave"), 7, 0.25, 2)
    assert found.dtype == torch.float16
    assert torch.allclose(found.cpu().float(), ops.roi_align(x.float(), rois.float(), 7, 0.25, 2), atol=4e-3)


def test_no_region(on_the_device):
    # A level of a pyramid often has none.
    x, rois = drawn(4, torch.float32)
    y = x.to("wave").requires_grad_()
    found = ops.roi_align(y, rois[:0].to("wave"), 7, 0.25, 2)
    assert found.shape == (0, 5, 7, 7)
    found.sum().backward()
    assert not y.grad.any()


def boxes(count, dtype, size=90):
    """The right way round: torchvision's kernel for CPUs cannot make a grid of another (it asks for memory below zero)."""
    start = torch.rand(count, 2, dtype=dtype) * size - 20
    return torch.cat([torch.randint(3, (count, 1)).to(dtype), start, start + torch.rand(count, 2, dtype=dtype) * size], 1)


@pytest.mark.parametrize("is_aligned", [False, True])
@pytest.mark.parametrize("bins", [(7, 7), (1, 3), (2, 5)])
def test_a_grid_of_each_region(bins, is_aligned, on_the_device, monkeypatch):
    x, rois = drawn(0, torch.float32)[0], boxes(12, torch.float32)
    rois[0, 3:] = rois[0, 1:3]
    monkeypatch.setattr("wave32._regions._MOST", 14 * 40)
    check(x, rois, bins, 0, is_aligned)


def test_a_grid_of_a_region_the_wrong_way_round(on_the_device):
    # CUDA's kernel sums no sample and gives zero.
    x, rois = drawn(4, torch.float32)[0].to("wave").requires_grad_(), boxes(4, torch.float32)
    rois[1, 3], rois[2, 4], rois[3, 3:] = rois[1, 1] - 30, rois[2, 2] - 30, rois[3, 1:3] - 30
    found = ops.roi_align(x, rois.to("wave"), 7, 0.25, -1, True)
    found.sum().backward()
    assert not found[1:].any()
    y = x.detach().cpu().requires_grad_()
    expected = ops.roi_align(y, rois[:1], 7, 0.25, -1, True)
    expected.sum().backward()
    assert torch.allclose(found[:1].cpu(), expected, atol=1e-5) and torch.allclose(x.grad.cpu(), y.grad, atol=1e-5)


def test_what_the_cpu_runs():
    x, rois = drawn(0, torch.float64)[0], boxes(4, torch.float64)
    wide = x.to("wave"), rois.to("wave")
    assert torch.allclose(ops.roi_align(*wide, 7, 0.25, 2).cpu(), ops.roi_align(x, rois, 7, 0.25, 2), atol=1e-12)
    assert torch.wave.fallbacks() == {"torchvision::roi_align": 1}


@pytest.mark.parametrize("corner", [1e9, float("inf"), float("nan")])
def test_no_region_of_a_picture(corner):
    x, rois = torch.randn(1, 2, 5, 5), torch.tensor([[0, 0, 0, 1, corner]])
    with pytest.raises(RuntimeError, match="clip_boxes_to_image"):
        ops.roi_align(x.to("wave"), rois.to("wave"), 7, 0.25, 0)


def test_gradients_repeat(on_the_device):
    x, rois = drawn(30, torch.float32)
    y, rois = x.to("wave").requires_grad_(), rois.to("wave")
    first, again = (torch.autograd.grad(ops.roi_align(y, rois, 7, 0.25, 2).square().sum(), y)[0] for _ in range(2))
    assert torch.equal(first, again)
