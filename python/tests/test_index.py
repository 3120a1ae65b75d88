"""Indexing, concatenation and padding against the CPU."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from against_cpu import check, pick, seeded
from wave32 import _native as native

DTYPES = [
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16, torch.uint8,
    torch.bool,
]
# Where autograd itself adds gradients up.
ADD = ["aten::add.out", "aten::add.Tensor"]


def values(shape, dtype):
    return torch.randn(shape).mul(20).to(dtype) if dtype.is_floating_point else torch.randint(0, 9, shape).to(dtype)


def sums(dtype):
    return {torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(dtype, 1e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_select_gather_scatter(dim, dtype):
    x = values((5, 7, 6), dtype).transpose(0, 2)
    size = x.shape[dim]
    names = torch.randint(0, size, (9,))
    check(lambda x, i: x.index_select(dim, i), x, names, rtol=sums(dtype))
    check(lambda x, i: x.index_select(dim, i), x, names.int(), rtol=sums(dtype))
    wide = torch.randint(0, size, (4, 5, 3))
    check(lambda x, i: x.gather(dim, i), x, wide, rtol=sums(dtype))
    source = values((6, 7, 5), dtype)
    order = torch.stack([torch.randperm(size) for _ in range(210 // size)]).reshape(210 // size, size)
    order = torch.movedim(order.reshape(*[n for d, n in enumerate(x.shape) if d != dim % 3], size), -1, dim)
    check(lambda x, i, s: x.scatter(dim, i, s), x, order, source)
    check(lambda x, i: x.scatter(dim, i, 1), x, order[:2, :3, :2])
    if dtype != torch.bool:
        check(lambda x, i, s: x.scatter_add(dim, i, s), x, wide, source[:4, :5, :3], rtol=sums(dtype))
        with torch.no_grad():  # Sources beyond the indices are allowed, but have no gradient.
            check(lambda x, i, s: x.scatter_add(dim, i, s), x, wide, values((6, 7, 5), dtype), rtol=sums(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_index_add_copy_fill(dtype):
    x, names = values((6, 5, 4), dtype), torch.randperm(5)[:3]
    source = values((6, 3, 4), dtype)
    check(lambda x, i, s: x.index_copy(1, i, s), x, names, source)
    check(lambda x, i: x.index_fill(-2, i, 1), x, names)
    if dtype != torch.bool:
        twice = torch.tensor([1, 4, 1])
        check(lambda x, i, s: x.index_add(1, i, s), x, twice, source, rtol=sums(dtype))
    scalar = values((), dtype)
    check(lambda x, i, s: x.index_copy(0, i, s), scalar, torch.tensor([0]), values((), dtype))


INDEXED = {
    "list": lambda i, j: (i,),
    "pair": lambda i, j: (i, j),
    "outer": lambda i, j: (i[:, None], j[None]),
    "apart": lambda i, j: (i, slice(None), j),
    "last": lambda i, j: (Ellipsis, j),
    "slices": lambda i, j: (slice(1, 4), i, slice(None, None, 2)),
    "scalar": lambda i, j: (i, 2, j),
    "negative": lambda i, j: (i, j),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", INDEXED)
def test_indexing(form, dtype):
    x = values((5, 6, 7), dtype)
    i, j = torch.randint(-5 if form == "negative" else 0, 5, (8,)), torch.randint(0, 5, (8,))
    check(lambda x, i, j: x[INDEXED[form](i, j)], x, i, j, rtol=sums(dtype))
    shape = x[INDEXED[form](i, j)].shape

    def put(x, i, j, v):
        return x.index_put([k if isinstance(k, torch.Tensor) else None for k in INDEXED[form](i, j)], v, True)

    if dtype != torch.bool and form in ("list", "pair", "outer"):
        check(put, x, i, j, values(shape, dtype), rtol=sums(dtype))

    def assign(x, i, j):
        y = x.clone()
        y[INDEXED[form](i, j)] = 1
        return y

    check(assign, x, i, j)


def test_index_lists_stay_whole():
    # The backward pass uses the list of indices twice.
    x, i = torch.randn(5, 4), torch.tensor([3, 1])
    check(lambda x, i, v: x.index_put((i,), v), x, i, torch.randn(2, 4))
    check(lambda x, i, v: x.index_put((i,), v, accumulate=True), x, i, torch.randn(2, 4))


def test_operands_that_are_written():
    def outcome(change, device):
        x = torch.arange(9).flip(0).to(device)
        try:
            change(x)
        except RuntimeError as refusal:
            return str(refusal)
        return x.cpu().tolist()

    def assign(x, index, value):
        x[index] = value

    for change in (lambda x: assign(x, x, 1), lambda x: assign(x, x.clone(), x), lambda x: assign(x, x[:4], x[5:])):
        assert outcome(change, "wave") == outcome(change, "cpu")
    mask = torch.rand(3, 4) > 0.5
    there = mask.to("wave")
    mask[mask.clone()], there[there] = False, False
    assert torch.equal(there.cpu(), mask)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_masks(dtype):
    x, mask = values((4, 5, 3), dtype), torch.rand(4, 5) > 0.5
    check(lambda x, m: x[m], x, mask)

    def assign(x, m, v):
        y = x.clone()
        y[m] = v
        return y

    with torch.no_grad():  # One value: no waiting for how many places there are.
        value = values((), dtype)
        check(lambda x, m, v: x.index_put((m,), v), x, mask, value)
        check(lambda x, m, v: x.index_put((m,), v), x, mask[:, 0], value)
    check(assign, x, mask, values((int(mask.sum()), 3), dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nonzero_and_masked_moves(dtype):
    x = values((6, 7, 5), dtype) * (torch.rand(6, 7, 5) > 0.7)
    x = x.to(dtype).transpose(0, 1)
    check(lambda x: x.nonzero(), x)
    check(lambda x: torch.where(x), x[0])
    for other in (x[:0], x[0, 0, 0], torch.zeros(3, dtype=dtype)):
        check(lambda x: x.nonzero(), other)
    mask = torch.rand(7, 1, 5) > 0.5
    check(lambda x, m: x.masked_select(m), x, mask)
    with torch.no_grad():
        check(lambda x, m, s: x.masked_scatter(m, s), x, mask, values((300,), dtype))


def test_bad_indices_raise_and_touch_nothing():
    x = torch.arange(4.0).to("wave")
    for bad in (4, -5, 1 << 40):
        i = torch.tensor([1, bad]).to("wave")
        for use in (lambda: x[i], lambda: x.index_select(0, i), lambda: x.scatter_(0, i, x[:2] * 1)):
            with pytest.raises(IndexError, match="out of range"):
                use()
                torch.wave.synchronize()
        x.copy_(torch.arange(4.0))
    assert torch.equal(x.cpu(), torch.arange(4.0))
    scores = torch.randn(3, 5).to("wave")
    for bad in (5, -1):
        with pytest.raises(IndexError, match="out of range"):
            F.cross_entropy(scores, torch.tensor([0, bad, 2]).to("wave")).item()
    assert F.cross_entropy(scores, torch.tensor([0, -100, 2]).to("wave")).isfinite().item()
    with pytest.raises(IndexError):
        x.index_select(3, torch.tensor([0]).to("wave"))
    # Places count even where there is nothing to take.
    empty = torch.zeros(0, 3).to("wave")
    assert empty.index_select(1, torch.tensor([2, 0]).to("wave")).shape == (0, 2)
    torch.wave.synchronize()
    with pytest.raises(IndexError, match="out of range"):
        empty.index_select(1, torch.tensor([0, 3]).to("wave"))
        torch.wave.synchronize()


def test_blocking_operators_raise_their_own_errors():
    x, i = torch.arange(4.0).to("wave"), torch.tensor([1, 4]).to("wave")
    assert not native.block_launches(True)
    try:
        for use in (lambda: x[i], lambda: x.__setitem__(i, 0), lambda: x.index_fill_(0, i, 2), lambda: x.gather(0, i)):
            with pytest.raises(IndexError, match="out of range"):
                use()
            assert x[1].item() in (0, 1, 2)  # The next is none the worse for it.
    finally:
        assert native.block_launches(False)


def test_masks_of_bytes_are_warned_of_once_each():
    x, mask = torch.arange(6.0).reshape(3, 2), torch.tensor([1, 0, 1], dtype=torch.uint8)
    for use in (lambda x, m: x[m], lambda x, m: x[m, :1], lambda x, m: x.index_put_((m,), x[m], accumulate=True)):
        counts = []
        for device in ("cpu", "wave"):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                use(x.to(device, copy=True), mask.to(device))
            counts.append(len([w for w in told if "deprecated" in str(w.message)]))
        assert counts[0] == counts[1] > 0


def test_a_complex_number_does_not_fill():
    for dtype in (torch.int64, torch.uint8, torch.float32):
        for device in ("cpu", "wave"):
            with pytest.raises(RuntimeError, match="Converting complex Scalar to non-complex"):
                torch.ones(2, 2, dtype=dtype, device=device).index_fill_(1, torch.tensor([0], device=device), 1 + 1j)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_embedding(dtype):
    table, words = torch.randn(11, 6).to(dtype), torch.randint(0, 11, (4, 9))
    check(lambda t, w: F.embedding(w, t), table, words, rtol=sums(dtype))
    check(lambda t, w: F.embedding(w, t, padding_idx=3), table, words, rtol=sums(dtype))


def test_sums_repeat_bit_for_bit():
    names, source = torch.randint(0, 40, (20000,)).to("wave"), torch.randn(20000, 3).to("wave")
    runs = [torch.zeros(40, 3).to("wave").index_add(0, names, source).cpu() for _ in range(3)]
    assert torch.equal(runs[0], runs[1]) and torch.equal(runs[0], runs[2])
    torch.testing.assert_close(runs[0], torch.zeros(40, 3).index_add(0, names.cpu(), source.cpu()), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cat_and_order(dtype):
    random = seeded(1)
    x, y = values((3, 4, 5), dtype), values((3, 4, 5), dtype).transpose(0, 2).contiguous().transpose(0, 2)
    for dim in range(-3, 3):
        check(lambda x, y: torch.cat([x, y, x], dim), x, y, rtol=sums(dtype), fallbacks=ADD)
        check(lambda x, y: torch.stack([x, y], dim), x, y)
        check(lambda x: x.flip(dim, 0) if dim % 3 else x.flip(0), x)
        check(lambda x: x.roll((pick(seeded(2), -9, 9), 2), (dim, (dim + 1) % 3)), x)
    check(lambda x: x.roll(7), y)
    turns = pick(random, 0, 3)
    check(lambda x: torch.rot90(x, turns), x)
    for diagonal in (-2, 0, 1):
        check(lambda x: x.tril(diagonal), y)
        check(lambda x: x.triu(diagonal), y)
    check(lambda x: F.channel_shuffle(x, 3), values((2, 6, 3, 2), dtype))


def test_cat_of_types_and_empties():
    check(lambda *p: torch.cat(p), torch.randn(3, 2), torch.arange(4).reshape(2, 2), torch.randn(1, 2).half())
    check(lambda *p: torch.cat(p), torch.empty(0), torch.randn(2, 3), torch.empty(0, 3))
    check(lambda *p: torch.cat(p, 1), *[torch.randn(2, n, 4, 4).contiguous(memory_format=torch.channels_last) for n in (3, 1, 5)])
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        torch.cat([torch.zeros(1, 4).to("wave"), torch.zeros(2, 5).to("wave")])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad(mode, dtype):
    for shape, sides in [
        ((2, 3, 7), (3, 1)), ((2, 5, 6), (0, 4)), ((2, 3, 5, 6), (1, 2, 3, 4)), ((3, 5, 6), (2, 0, 1, 1)),
        ((1, 2, 4, 3, 5), (2, 1, 0, 2, 3, 1)), ((2, 3, 5, 6), (-1, 2, 1, -2)),
    ]:
        if mode == "circular" and min(sides) < 0 or (mode != "constant" and len(shape) == len(sides) // 2 + 1 and mode == "circular"):
            continue
        check(lambda x: F.pad(x, sides, mode=mode), torch.randn(shape).to(dtype), rtol=sums(dtype) * 4,
              fallbacks=ADD)
    with pytest.raises(RuntimeError):
        F.pad(torch.zeros(1, 1, 3, 3).to("wave"), (5, 5, 5, 5), mode="reflect")
