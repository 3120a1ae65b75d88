"""Resampling by taps, against PyTorch on the CPU: values, whole numbers, infinities and NaN, refusals."""

import math

import pytest
import torch
import torch.nn.functional as F
from against_cpu import check, pick, seeded

R = torch.randn

MODES = {
    "bicubic": dict(mode="bicubic"),
    "trilinear": dict(mode="trilinear"),
    "smooth_bilinear": dict(mode="bilinear", antialias=True),
    "smooth_bicubic": dict(mode="bicubic", antialias=True),
}


def sizes_of(name, random, low=2, high=9):
    return [pick(random, low, high) for _ in range(3 if name == "trilinear" else 2)]


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("case", range(4))
def test_values_and_gradients(name, case):
    random = seeded(case)
    # Not to size 1, where the CPU's antialiasing is wrong.
    x = R(2, 3, *sizes_of(name, random, 5, 12))
    for align in (False, True):
        check(lambda x: F.interpolate(x, sizes_of(name, seeded(case + 9)), align_corners=align, **MODES[name]), x, rtol=5e-6)
    # Not at factors that leave a size as it is: there the CPU's gradient with antialiasing is not that of its result.
    check(lambda x: F.interpolate(x, scale_factor=1.7, **MODES[name]), x, rtol=5e-6)
    check(lambda x: F.interpolate(x, scale_factor=0.45, **MODES[name]), x.double(), rtol=1e-12)


def poisoned(shape):
    x = R(shape)
    for value in (math.inf, -math.inf, math.nan):
        x.view(-1)[torch.randint(x.numel(), ())] = value
    return x


def same_kinds(found, expected):
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.isposinf(), expected.isposinf()) and torch.equal(found.isneginf(), expected.isneginf())
    torch.testing.assert_close(found, expected, rtol=5e-5, atol=5e-5, equal_nan=True)


@pytest.mark.parametrize("name", ["bicubic", "trilinear"])
@pytest.mark.parametrize("case", range(6))
def test_infinities_stay_where_they_reach_on_the_cpu(name, case):
    random = seeded(case)
    sizes = sizes_of(name, random, 3, 9)
    # Every axis changes: where none does, the CPU copies.
    outs = [size + 1 + pick(random, 0, 4) if pick(random, 0, 1) else size - 1 for size in sizes]
    x = poisoned([2, 2, *sizes]).requires_grad_()
    wave = x.detach().to("wave").requires_grad_()
    for align in (False, True):
        expected, found = (F.interpolate(t, outs, align_corners=align, **MODES[name]) for t in (x, wave))
        same_kinds(found.detach().cpu(), expected.detach())
        grad = poisoned(expected.shape)
        (of_x,), (of_wave,) = torch.autograd.grad(expected, x, grad), torch.autograd.grad(found, wave, grad.to("wave"))
        same_kinds(of_wave.cpu(), of_x)


@pytest.mark.parametrize("name", ["smooth_bilinear", "smooth_bicubic"])
def test_antialiasing_keeps_a_nan_near(name):
    x = R(1, 1, 16, 16)
    x[0, 0, 0, 0] = math.nan
    for outs in ((5, 5), (37, 37)):
        expected, found = (F.interpolate(t, outs, **MODES[name]) for t in (x, x.to("wave")))
        assert torch.equal(found.cpu().isnan(), expected.isnan()) and not found.isnan().all()
    # Backward: no further than the filter is wide.
    leaf = R(1, 1, 16, 16, device="wave", requires_grad=True)
    made = F.interpolate(leaf, (5, 5), **MODES[name])
    grad = torch.ones_like(made)
    grad[0, 0, 0, 0] = math.nan
    made.backward(grad)
    assert leaf.grad[0, 0, 0, 0].isnan() and not leaf.grad[0, 0, 9:].isnan().any()


def test_an_image_of_bytes_does_not_wrap():
    x = torch.tensor([[[[0, 255, 255, 0]]]], dtype=torch.uint8)
    found = F.interpolate(x.to("wave"), (1, 8), mode="bicubic")
    assert found.flatten().tolist() == [0, 58, 197, 255, 255, 197, 58, 0]


@pytest.mark.parametrize("mode, smooth", [("bicubic", False), ("bicubic", True), ("bilinear", False), ("bilinear", True)])
@pytest.mark.parametrize("case", range(4))
def test_bytes_are_rounded_and_clamped(mode, smooth, case):
    random = seeded(case)
    x = torch.randint(0, 256, (2, 3, pick(random, 3, 12), pick(random, 3, 12)), dtype=torch.uint8)
    x[0].mul_(0).add_(torch.randint(0, 2, x[0].shape).byte() * 255)
    outs = [pick(random, 2, 15) for _ in range(2)]
    for align in (False, True):
        how = dict(mode=mode, antialias=smooth, align_corners=align)
        for layout in (torch.contiguous_format, torch.channels_last):
            found = F.interpolate(x.to("wave", memory_format=layout), outs, **how)
            assert found.dtype == torch.uint8 and found.is_contiguous(memory_format=layout)
            # Bit for bit: weights of 16 bits, and a rounding after each axis.
            assert torch.equal(found.cpu(), F.interpolate(x.to(memory_format=layout), outs, **how))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64], ids=str)
def test_other_types_are_refused_as_on_the_cpu(dtype):
    image, volume, signal = (torch.ones(1, 1, *sizes) for sizes in ((4, 4), (4, 4, 4), (4,)))
    cases = [
        (image, "nearest", False), (image, "nearest-exact", False), (image, "bilinear", False), (image, "bicubic", False),
        (image, "area", False), (image, "bilinear", True), (image, "bicubic", True), (volume, "trilinear", False),
        (volume, "nearest", False), (signal, "linear", False), (signal, "nearest", False),
    ]  # fmt: skip
    for x, mode, smooth in cases:
        texts = []
        for device in ("cpu", "wave"):
            with pytest.raises(NotImplementedError) as raised:
                F.interpolate(x.to(dtype).to(device), scale_factor=0.5, mode=mode, antialias=smooth)
            texts.append(str(raised.value))
        assert texts[0].split("for")[1] == texts[1].split("for")[1], texts


def test_volumes_and_signals_of_bytes_are_refused():
    for sizes, mode in (((4, 4, 4), "trilinear"), ((4,), "linear")):
        for device in ("cpu", "wave"):
            with pytest.raises(NotImplementedError, match="not implemented for 'Byte'"):
                F.interpolate(torch.ones(1, 1, *sizes, dtype=torch.uint8, device=device), scale_factor=0.5, mode=mode)


def test_layouts_are_kept():
    for shape, layout, mode in (((2, 3, 5, 6), torch.channels_last, "bicubic"), ((2, 3, 4, 5, 6), torch.channels_last_3d, "trilinear")):
        x = R(shape).to(memory_format=layout)
        expected, found = (F.interpolate(t, scale_factor=2, mode=mode) for t in (x, x.to("wave")))
        assert found.stride() == expected.stride()


@pytest.mark.parametrize("dtype, rtol", [(torch.float16, 4e-3), (torch.bfloat16, 3e-2)])
def test_short_floats(dtype, rtol):
    x = R(1, 2, 6, 7).to(dtype)
    check(lambda x: F.interpolate(x, (9, 4), mode="bicubic"), x, rtol=rtol)
    # The CPU has no antialiasing of these.
    found = F.interpolate(x.to("wave"), (4, 3), mode="bicubic", antialias=True).cpu().double()
    exact = F.interpolate(x.double(), (4, 3), mode="bicubic", antialias=True)
    assert (found - exact).abs().max() <= rtol * exact.abs().max()


def test_empty_batches():
    check(lambda x: F.interpolate(x, (3, 4), mode="bicubic"), R(0, 2, 5, 5))
