"""Pooling and resampling against the CPU."""

import pytest
import torch
import torch.nn.functional as F
from against_cpu import check, pick, seeded

TOLERANCES = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float64: 1e-13}


def image(random, dtype, axes=2):
    shape = [pick(random, 1, 3), pick(random, 1, 5)] + [pick(random, 6, 15) for _ in range(axes)]
    x = torch.randn(shape).to(dtype)
    if axes == 2 and pick(random, 0, 1):
        x = x.contiguous(memory_format=torch.channels_last)
    return x


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("case", range(6))
def test_max_pool(case, dtype):
    random = seeded(case)
    kernel = [pick(random, 1, 4), pick(random, 1, 4)]
    options = {
        "stride": [pick(random, 1, 3), pick(random, 1, 3)], "padding": [size // 2 for size in kernel],
        "dilation": pick(random, 1, 2) if max(kernel) < 4 else 1, "ceil_mode": bool(pick(random, 0, 1)),
        "return_indices": True,
    }
    x = image(random, dtype)
    check(lambda x: F.max_pool2d(x, kernel, **options), x, rtol=TOLERANCES[dtype])
    check(lambda x: F.max_pool2d(x[0], kernel, **options), x, rtol=TOLERANCES[dtype])
    check(lambda x: F.max_pool1d(x, 3, 2, 1), image(random, dtype, 1), rtol=TOLERANCES[dtype])


def test_max_pool_of_equals_and_nan():
    x = torch.randint(0, 3, (2, 3, 9, 9)).float()
    x[0, 1, 4, 4] = float("nan")
    x[1, 0, 0, 0] = float("inf")
    x[1, 2] = float("-inf")
    with torch.no_grad():
        check(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x, rtol=0)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("case", range(6))
def test_avg_pool(case, dtype):
    random = seeded(case)
    kernel = [pick(random, 1, 4), pick(random, 1, 4)]
    options = {
        "stride": [pick(random, 1, 3), pick(random, 1, 3)], "padding": [size // 2 for size in kernel],
        "ceil_mode": bool(pick(random, 0, 1)), "count_include_pad": bool(pick(random, 0, 1)),
        "divisor_override": [None, 3, -2][pick(random, 0, 2)],
    }
    x = image(random, dtype)
    check(lambda x: F.avg_pool2d(x, kernel, **options), x, rtol=TOLERANCES[dtype])
    check(lambda x: F.avg_pool1d(x, 3, 2, 1), image(random, dtype, 1), rtol=TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("case", range(4))
def test_adaptive_pool(case, dtype):
    random = seeded(case)
    size = (pick(random, 2, 9), pick(random, 1, 9))
    x = image(random, dtype)
    check(lambda x: F.adaptive_avg_pool2d(x, size), x, rtol=TOLERANCES[dtype])
    check(lambda x: F.adaptive_max_pool2d(x, size, return_indices=True), x, rtol=TOLERANCES[dtype])


def test_pool_into_given_tensors():
    x, out, places = torch.randn(2, 3, 8, 8).to("wave"), torch.empty(0, device="wave"), torch.empty(0, device="wave")
    torch.ops.aten.avg_pool2d.out(x, [2, 2], out=out)
    assert torch.allclose(out.cpu(), F.avg_pool2d(x.cpu(), 2))
    strided = torch.full((2, 3, 4, 8), 7.0, device="wave")[..., ::2]
    torch.ops.aten.max_pool2d_with_indices.out(x, [2, 2], out=strided, indices=places.long())
    assert torch.equal(strided.cpu(), F.max_pool2d(x.cpu(), 2))
    with pytest.raises(RuntimeError, match="half"):
        F.max_pool2d(x, 2, padding=2)
    with pytest.raises(RuntimeError):
        F.avg_pool2d(x, 20)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bilinear aligned"])
def test_interpolate(mode, dtype):
    random = seeded(len(mode))
    options = {"mode": mode.split()[0]}
    if "aligned" in mode:
        options["align_corners"] = True
    rtol = TOLERANCES[dtype] * 4
    for case in range(4):
        x = image(random, dtype)
        check(lambda x: F.interpolate(x, size=(pick(seeded(case), 1, 30), 2 * x.shape[3]), **options), x, rtol=rtol)
        factors = (0.5 + 3 * torch.rand(2, generator=random)).tolist()
        check(lambda x: F.interpolate(x, scale_factor=factors, **options), x, rtol=rtol)
        check(lambda x: F.interpolate(x, scale_factor=2, **options), x, rtol=rtol)
    options["mode"] = options["mode"].replace("bilinear", "linear")
    check(lambda x: F.interpolate(x, size=17, **options), image(random, dtype, 1), rtol=rtol)


def test_what_has_no_kernel_is_right_as_well():
    whole = torch.randint(0, 200, (1, 2, 5, 6), dtype=torch.uint8)
    for mode, name in [("nearest", "upsample_nearest2d"), ("bilinear", "upsample_bilinear2d")]:
        check(lambda x: F.interpolate(x, size=(7, 9), mode=mode), whole, fallbacks=[f"aten::{name}.out"])
    check(lambda x: F.max_pool2d(x, 2), whole.long(), fallbacks=["aten::max_pool2d_with_indices.out"])
