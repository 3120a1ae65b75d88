"""What is made of other operators, against PyTorch on the CPU, without fallbacks: values, gradients, statistics."""

import math

import pytest
import torch
import torch.nn.functional as F
from against_cpu import check, pick, seeded

R = torch.randn


@pytest.mark.parametrize("case", range(6))
def test_patches(case):
    random = seeded(case)
    n, c, kh, kw = (pick(random, 1, 3) for _ in range(4))
    stride, padding, dilation = ([pick(random, 1, 2) for _ in range(2)] for _ in range(3))
    padding = [p - 1 for p in padding]
    size = [pick(random, 6, 11) for _ in range(2)]
    how = dict(kernel_size=(kh, kw), stride=stride, padding=padding, dilation=dilation)
    x = R(n, c, *size)
    check(lambda x: F.unfold(x, **how), x)
    check(lambda x: F.fold(x, size, **how), torch.randn_like(F.unfold(x, **how)), rtol=2e-6)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(mode, padding):
    for align in (False, True):
        grid = torch.rand(2, 4, 5, 2) * 2.4 - 1.2
        check(lambda x, grid: F.grid_sample(x, grid, mode, padding, align), R(2, 3, 7, 6), grid, rtol=2e-5)


@pytest.mark.parametrize("transposed", [False, True])
def test_volumes(transposed):
    for stride, padding, dilation, groups, more in (
        (1, 0, 1, 1, 0), (2, 1, 1, 1, 1), ((2, 1, 1), (0, 1, 2), (1, 2, 1), 2, 0), (3, 1, 2, 1, (2, 0, 1)),
    ):  # fmt: skip
        x, bias = R(2, 4, 6, 5, 7), R(6)
        weight = R(4, 6 // groups, 3, 2, 3) if transposed else R(6, 4 // groups, 3, 2, 3)
        if transposed:
            check(lambda x, w, b: F.conv_transpose3d(x, w, b, stride, padding, more, groups, dilation), x, weight, bias, rtol=5e-6)
        else:
            check(lambda x, w, b: F.conv3d(x, w, b, stride, padding, dilation, groups), x, weight, bias, rtol=5e-6)


def test_a_part_may_run_on_the_cpu():
    # No engine of ours pads an output by more than the stride: from within Python, which a kernel called, to Python again.
    by = dict(stride=(3, 2, 1), padding=(1, 2, 3), output_padding=(2, 3, 1), groups=2, dilation=4)
    on_cpu = ["aten::convolution", "aten::convolution_backward"]
    check(lambda x, w: F.conv_transpose3d(x, w, **by), R(2, 2, 4, 4, 4), R(2, 2, 4, 5, 6), rtol=5e-6, fallbacks=on_cpu)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8])
def test_order(dtype):
    x = (R(3, 700, 2) * 20).to(dtype)
    if dtype.is_floating_point:
        x[0, 5], x[1, 7], x[1, 8] = math.nan, -0.0, 0.0
        x[2, 9], x[2, 10] = math.inf, -math.inf
    x = x.detach()

    def same(function):
        expected, found = function(x), function(x.to("wave"))
        for one, other in zip(expected, found):
            assert torch.equal(one.nan_to_num(1e4), other.cpu().nan_to_num(1e4))

    for descending in (False, True):
        same(lambda x: torch.sort(x, dim=1, descending=descending, stable=True))
    same(lambda x: [x.topk(7, 1).values, x.topk(3, 0, largest=False).values])
    same(lambda x: [x.kthvalue(30, 1).values, x.reshape(-1).median(), x.median(1).values])
    # Places of equal elements are free: those named hold the values.
    values, places = x.to("wave").topk(9, 1)
    assert torch.equal(x.gather(1, places.cpu()).nan_to_num(1e4), values.cpu().nan_to_num(1e4))
    assert torch.wave.fallbacks() == {}


def test_sorted_in_place():
    x = R(4, 2049)
    y, places = x.to("wave"), torch.empty(0, dtype=torch.int64, device="wave")
    torch.sort(y, stable=True, out=(y, places))
    values, order = torch.sort(x, stable=True)
    assert torch.equal(y.cpu(), values) and torch.equal(places.cpu(), order)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("beta, alpha", [(0, 1), (2, 3), (1, 1), (0, 2.5), (1.5, 1), (True, True)])
def test_scaled_outer_products(dtype, beta, alpha):
    y, a, b = (torch.ones(size).to(dtype) for size in ((3, 4), (3,), (4,)))
    ends = []
    for device in ("cpu", "wave"):
        try:
            ends.append(torch.addr(*(x.to(device) for x in (y, a, b)), beta=beta, alpha=alpha).cpu())
        except RuntimeError as error:
            ends.append(str(error))
    assert type(ends[0]) is type(ends[1])
    assert ends[0] == ends[1] if isinstance(ends[0], str) else ends[0].equal(ends[1]) and ends[0].dtype == ends[1].dtype


def test_weights_of_four_bits():
    n, k, group = 48, 64, 32
    bits, scales_and_zeros = torch.randint(0, 16, (n, k)), torch.rand(k // group, n, 2)
    pairs = (bits[:, ::2] << 4 | bits[:, 1::2]).to(torch.uint8)
    scale, zero = (part.t().repeat_interleave(group, 1) for part in scales_and_zeros.unbind(-1))
    x, weights = R(5, k), (bits - 8) * scale + zero
    packed = torch._convert_weight_to_int4pack(pairs.to("wave"), 2)
    found = torch._weight_int4pack_mm(x.to("wave"), packed, group, scales_and_zeros.to("wave"))
    torch.testing.assert_close(found.cpu(), x @ weights.t(), rtol=1e-4, atol=1e-3)
    with pytest.raises(RuntimeError, match="scales"):
        torch._weight_int4pack_mm(x.to("wave"), packed, group, scales_and_zeros.half().to("wave"))


def test_sorting_has_gradients():
    def distinct(*shape):  # Of equal values, the CPU may put any first.
        return (torch.randperm(math.prod(shape)) - 50).reshape(shape) / 7

    for descending in (False, True):
        check(lambda x: x.sort(1, descending=descending).values, distinct(5, 300))
        check(lambda x: x.sort(dim=1, descending=descending, stable=True).values, R(5, 300).mul(9).round())
    check(lambda x: x.topk(4, 0).values, distinct(50, 3))
    check(lambda x: x.median(1).values, distinct(5, 31))


def test_sets_and_counts():
    x = torch.randint(-4, 9, (10, 50))
    check(lambda x: torch.unique(x), x)
    check(lambda x: torch.unique(x, return_inverse=True, return_counts=True), x)
    check(lambda x: torch.unique(x), x[:0])
    check(lambda x: torch.bincount(x, minlength=10), x.abs().reshape(-1))
    check(lambda x, w: torch.bincount(x, w.detach()), x.abs().reshape(-1), torch.rand(500), rtol=2e-6)
    check(torch.isin, x, torch.tensor([1, 2]))
    edges = torch.tensor([-1.0, 0.0, 0.0, 0.5])
    values = torch.cat([R(40).detach(), edges, torch.tensor([math.inf, -math.inf, math.nan])])
    for right in (False, True):
        check(lambda e: torch.searchsorted(e.detach(), values.to(e.device), right=right), edges)
        check(lambda e: torch.bucketize(values.to(e.device), e.detach(), right=right, out_int32=True), edges)
    check(lambda x, by: x.repeat_interleave(by, 0), R(3, 5), torch.tensor([1, 2, 0]))
    with pytest.raises(RuntimeError):
        torch.bincount(torch.tensor([-1]).to("wave"))


def test_products_norms_and_distances():
    check(torch.dot, R(40).abs(), R(40).abs(), rtol=5e-6)  # Sums that do not cancel, so that rounding stays small beside them.
    check(torch.mv, R(3, 4), R(4), rtol=5e-6)
    check(lambda y, a, x: torch.addmv(y, a, x, beta=0.5, alpha=2), R(3), R(3, 4), R(4), rtol=5e-6)
    check(lambda y, a, b: torch.addbmm(y, a, b, alpha=2), R(2, 3), R(4, 2, 5), R(4, 5, 3), rtol=5e-6)
    for p in (1, 2, 3, math.inf):
        check(lambda a, b: torch.cdist(a, b, p=p), R(2, 5, 3), R(2, 6, 3), rtol=1e-5)
    check(lambda v, g: torch._weight_norm(v, g, 0), R(4, 3, 2), R(4, 1, 1), rtol=5e-6)
    check(lambda x: torch.renorm(x, 2, 0, 1.0), R(3, 5), rtol=5e-6)
    check(torch.trace, R(4, 4).abs())
    check(lambda a, b: torch.linalg.cross(a, b), R(4, 3), R(4, 3))
    check(lambda x: x.nansum(1), torch.where(R(4, 5) > 1, math.nan, R(4, 5)))
    assert torch.equal(torch.ones(3, device="wave"), torch.ones(3, device="wave"))
    assert not torch.equal(torch.ones(3, device="wave"), torch.zeros(3, device="wave"))


def test_places():
    index = torch.randint(5, (3, 7))
    for reduce in ("sum", "mean"):
        for include in (True, False):
            check(lambda x, s: x.scatter_reduce(1, index.to(x.device), s, reduce, include_self=include), R(3, 5), R(3, 7), rtol=5e-6)
    at = torch.tensor([0, 3, 11])
    check(lambda x: x.take(at.to(x.device)), R(3, 5))
    check(lambda x, v: x.put(at.to(x.device), v), R(3, 5), R(3))
    check(lambda x: x.unfold(1, 3, 2), R(3, 8))
    check(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), R(2, 2, 4, 4))
    check(lambda x: F.rrelu(x, 0.2, 0.2, training=True), R(3, 5))
    check(lambda x: F.rrelu(x), R(3, 5))


def test_random_choices():
    p = torch.randperm(1000, device="wave").cpu()
    assert torch.equal(p.sort().values, torch.arange(1000)) and not torch.equal(p, torch.arange(1000))
    weights = torch.tensor([0.0, 1.0, 3.0, 0.0, 6.0])
    for replacement in (True, False):
        rows = weights.expand(20000, 5).to("wave").multinomial(2, replacement).cpu()
        found = torch.bincount(rows[:, 0], minlength=5) / 20000
        assert (found - weights / 10).abs().max() < 0.02 and not found[weights == 0].any()
        assert replacement or (rows[:, 0] != rows[:, 1]).all()
    mean = torch.full((20000,), 3.0, device="wave")
    drawn = torch.normal(mean, 2.0).cpu()
    assert abs(drawn.mean() - 3) < 0.1 and abs(drawn.std() - 2) < 0.1
    assert abs(torch.empty(20000, device="wave").cauchy_(1.0).cpu().median() - 1) < 0.1
    assert abs(torch.empty(20000, device="wave").log_normal_(0.5, 0.3).log().mean().item() - 0.5) < 0.02
    assert abs(torch.empty(20000, device="wave").geometric_(0.25).mean().item() - 4) < 0.2
    assert torch.wave.fallbacks() == {}


def test_permutations_that_their_type_does_not_hold():
    for dtype, most in {torch.uint8: 256, torch.int8: 128, torch.float16: 2049, torch.float32: 2**24 + 1}.items():
        if most < 3000:
            assert torch.equal(torch.randperm(most, dtype=dtype, device="wave").sort().values.long().cpu(), torch.arange(most))
        for device in ("cpu", "wave"):
            with pytest.raises(RuntimeError, match="overflow|cannot be greater"):
                torch.randperm(most + 1, dtype=dtype, device=device)
            with pytest.raises(RuntimeError, match="overflow|cannot be greater"):
                torch.randperm(most + 1, out=torch.empty(0, dtype=dtype, device=device))
    with pytest.raises(NotImplementedError, match="randperm"):
        torch.randperm(2, dtype=torch.bool, device="wave")


def test_outer_products_are_added_as_the_cpu_lays_them_out():
    y, a, b = R(4, 3).t(), R(3), R(4)
    for beta, alpha in ((1, 1), (0, 1), (0, 0.5), (0.5, 2), (2, 0)):
        for given in (y, y[:, :1], y.contiguous(), y.half(), y * math.nan if beta == 0 else y):
            expected = torch.addr(given, a, b, beta=beta, alpha=alpha)
            found = torch.addr(given.to("wave"), a.to("wave"), b.to("wave"), beta=beta, alpha=alpha)
            assert found.dtype == expected.dtype and found.stride() == expected.stride()
            torch.testing.assert_close(found.cpu(), expected, rtol=1e-6, atol=1e-6)
    # In place of a narrower type than the product's.
    given = y.half()
    found = given.to("wave").addr_(a.half().to("wave"), b.to("wave"), alpha=0.5)
    torch.testing.assert_close(found.cpu(), given.addr_(a.half(), b, alpha=0.5))
    whole = torch.arange(12).view(3, 4)
    assert torch.equal(torch.addr(whole.to("wave"), whole[0, :3].to("wave"), whole[0].to("wave"), beta=2).cpu(),
                       torch.addr(whole, whole[0, :3], whole[0], beta=2))
    assert torch.wave.fallbacks() == {}


def test_outer_products_that_are_refused():
    for device in ("cpu", "wave"):
        whole = torch.zeros(2, 2, dtype=torch.int64, device=device)
        with pytest.raises(RuntimeError, match="must not be a floating point number"):
            torch.addr(whole, whole[0], whole[0], alpha=0.5)
        with pytest.raises(RuntimeError, match="can't be cast"):
            whole.clone().addr_(whole[0].float(), whole[0])
        with pytest.raises(RuntimeError, match="Expected 1-D argument"):
            torch.addr(whole, whole, whole[0])


@pytest.mark.skipif(torch.__version__ < "2.13", reason="libtorch hands no generators over before")
def test_a_generator_seeds_a_call():
    def draw(seed):
        generator = torch.Generator().manual_seed(seed)
        state = torch.wave.get_rng_state()
        made = [
            torch.rand(9, device="wave", generator=generator), torch.randn(9, device="wave", generator=generator),
            torch.randint(0, 99, (9,), device="wave", generator=generator).float(),
            torch.randperm(9, device="wave", generator=generator).float(),
            torch.empty(9, device="wave").bernoulli_(0.5, generator=generator),
        ]  # fmt: skip
        assert torch.equal(state, torch.wave.get_rng_state())
        return torch.cat(made).cpu()

    assert torch.equal(draw(3), draw(3)) and not torch.equal(draw(3), draw(4))
    generator = torch.Generator().manual_seed(3)
    first, second = (torch.rand(9, device="wave", generator=generator) for _ in range(2))
    assert not torch.equal(first.cpu(), second.cpu())


@pytest.mark.parametrize("count", [1, 7, 300])
def test_nms(count):
    ops = pytest.importorskip("torchvision").ops
    for _ in range(3):
        boxes = torch.rand(count, 4) * 20
        boxes[:, 2:] += boxes[:, :2]
        scores = torch.rand(count)
        for threshold in (0.1, 0.5, 0.9):
            found = ops.nms(boxes.to("wave"), scores.to("wave"), threshold)
            assert torch.equal(found.cpu(), ops.nms(boxes, scores, threshold))
        classes = torch.randint(3, (count,))
        found = ops.batched_nms(boxes.to("wave"), scores.to("wave"), classes.to("wave"), 0.3)
        assert torch.equal(found.cpu(), ops.batched_nms(boxes, scores, classes, 0.3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_pairs_and_mended_values(dtype):
    rtol = {torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    x, y = R(6, 5).to(dtype), R(5).to(dtype)
    holes = torch.where(R(6, 5) > 0.5, math.nan, R(6, 5)).to(dtype)
    for name in "fmax fmin hypot copysign logaddexp logaddexp2".split():
        check(getattr(torch, name), x, y, rtol=rtol)
    check(torch.fmax, holes, x, rtol=rtol)
    check(torch.fmin, x, holes, rtol=rtol)
    check(torch.xlogy, x, y.abs() + 0.1, rtol=rtol)
    check(torch.special.xlog1py, x, y.abs(), rtol=rtol)

    check(torch.logit, x.sigmoid(), rtol=rtol)
    # A limit that every type has exactly: one value may lie on it.
    check(lambda x: torch.logit(x, eps=0.25), x.sigmoid(), rtol=rtol)
    check(lambda x: F.glu(x, 0), x, rtol=rtol)
    check(torch.sinc, x, rtol=rtol)
    bad = torch.stack([holes, x / 0, x])
    check(torch.nan_to_num, bad)
    check(lambda x: torch.nan_to_num(x, 1.5, 7.0, -7.0), bad)
    for function in (torch.signbit, torch.isposinf, torch.isneginf, torch.isinf, torch.isfinite):
        check(function, bad)
    check(torch.fmax, torch.arange(5), torch.tensor([3]))
    check(torch.nan_to_num, torch.arange(5))
