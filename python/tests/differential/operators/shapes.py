"""Operators that move elements: joins, splits, views, copies and conversions."""

from __future__ import annotations

from typing import Any

import torch

from differential.operators import Op, row

ANY = "fffibc"


def of(g: Any, low: int = 0, kinds: str = ANY, high: int = 4) -> Any:
    """(tensor, shape)"""
    shape, dtype = g.shape(low, high), g.dtype(kinds)
    return g.tensor(shape, dtype, g.fill(dtype), grad=True), shape


def dim_of(g: Any, shape: Any, more: int = 0) -> int:
    rank = len(shape) + more
    return g.int(-rank, rank - 1) if rank else 0


def cat(g: Any) -> Any:
    shape, dtype = g.shape(1, 4), g.dtype(ANY)
    dim, mixed = g.int(0, len(shape) - 1), g.chance(0.25)
    parts = []
    for _ in range(g.int(1, 4)):
        size = (*shape[:dim], g.size() if g.chance(0.5) else shape[dim], *shape[dim + 1:])
        parts.append(g.tensor((0,) if g.chance(0.03) else size, g.dtype(ANY) if mixed else dtype, grad=True))
    return (parts, dim), {}


def same(more: int = 0, dim: bool = True) -> Any:
    """A list of tensors of one shape."""

    def make(g: Any) -> Any:
        shape, dtype = g.shape(0 if more else 1, 3), g.dtype(ANY)
        parts = [g.tensor(shape, dtype, grad=True) for _ in range(g.int(1, 4))]
        return (parts, dim_of(g, shape, more)) if dim else (parts,), {}

    return make


def with_dim(low: int = 1, *more: Any) -> Any:
    def make(g: Any) -> Any:
        x, shape = of(g, low)
        return (x, *(draw(g) for draw in more), dim_of(g, shape)), {}

    return make


def roll(g: Any) -> Any:
    x, shape = of(g)
    if g.chance(0.3) or not shape:
        return (x, g.int(-4, 4)), {}
    dims = tuple(g.rng.sample(range(len(shape)), g.int(1, len(shape))))
    return (x, tuple(g.int(-4, 4) for _ in dims), dims), {}


def some_dims(g: Any) -> Any:
    x, shape = of(g)
    return (x, tuple(g.rng.sample(range(len(shape)), g.int(0, len(shape))))), {}


def permutation(g: Any) -> Any:
    x, shape = of(g)
    return (x, tuple(g.rng.sample(range(len(shape)), len(shape)))), {}


def two_dims(g: Any) -> Any:
    x, shape = of(g, 1)
    return (x, dim_of(g, shape), dim_of(g, shape)), {}


def rot90(g: Any) -> Any:
    x, shape = of(g, 2)
    return (x, g.int(-1, 3), g.rng.sample(range(len(shape)), 2)), {}


def repeat(g: Any) -> Any:
    x, shape = of(g, 0, ANY, 3)
    return (x, tuple(g.int(0 if g.chance(0.1) else 1, 3) for _ in range(len(shape) + g.int(0, 1)))), {}


def expand(g: Any) -> Any:
    shape, dtype = g.shape(0, 3), g.dtype(ANY)
    x = g.tensor(tuple(1 if g.chance(0.4) else size for size in shape), dtype, grad=True)
    return (x, (*((2,) if g.chance(0.3) else ()), *shape)), {}


def reshaped(g: Any) -> Any:
    x, shape = of(g, 1)
    count = 1
    for size in shape:
        count *= size
    first = g.pick([n for n in range(1, 9) if count % n == 0])
    sizes: tuple[int, ...] = (first, -1) if g.chance(0.5) and count else (first, count // first)
    return (x, sizes if g.chance(0.97) else (count + 1,)), {}


def narrow(g: Any) -> Any:
    x, shape = of(g, 1)
    dim = g.int(0, len(shape) - 1)
    start = g.int(0, shape[dim])
    return (x, dim, start, g.int(0, shape[dim] - start)), {}


def unfold(g: Any) -> Any:
    x, shape = of(g, 1, ANY, 3)
    dim = g.int(0, len(shape) - 1)
    return (x, dim, g.int(1, max(shape[dim], 1)), g.int(1, 3)), {}


def diagonal(g: Any) -> Any:
    x, shape = of(g, 2)
    one, two = g.rng.sample(range(len(shape)), 2)
    return (x, g.int(-2, 2), one, two), {}


def triangle(g: Any) -> Any:
    return (of(g, 2)[0], g.int(-3, 3)), {}


def converted(g: Any) -> Any:
    """From any type to any; what does not fit a whole type is open, so there the numbers are small."""
    source, target = g.dtype("ffibc"), g.dtype("ffibc")
    plain = target in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8) and source.is_floating_point
    fill = ("between", 0, 100) if plain else g.fill(source)
    args = (g.tensor(g.shape(), source, fill, grad=True), target)
    return args, {"copy": True} if g.chance(0.2) else {}


def laid_out(g: Any) -> Any:
    shape, dtype = g.shape(4, 4), g.dtype(ANY)
    x = g.tensor(shape, dtype, grad=True)
    return (x,), {"memory_format": g.pick([torch.channels_last, torch.contiguous_format, torch.preserve_format])}


def contiguous(g: Any) -> Any:
    args, kwargs = laid_out(g)
    return args, {} if kwargs["memory_format"] is torch.preserve_format else kwargs


def like(numbers: bool = False) -> Any:
    def make(g: Any) -> Any:
        x, _ = of(g)
        kwargs = {"dtype": g.dtype("fib")} if g.chance(0.3) else {}
        return (x, g.pick([0, 1, 2.5, -3])) if numbers else (x,), kwargs

    return make


def copied(g: Any) -> Any:
    """x.copy_(y), of other types too."""
    shape, source, target = g.shape(), g.dtype("ffib"), g.dtype("ffib")
    whole = source.is_floating_point and not target.is_floating_point
    x = g.tensor(shape, target, expand=g.chance(0.1))
    return (x, g.tensor(g.broadcast(shape), source, ("between", 0, 100) if whole else g.fill(source))), {}


def filled(g: Any) -> Any:
    return (g.tensor(g.shape(), g.dtype("ffib"), expand=False), g.number()), {}


def meshgrid(g: Any) -> Any:
    dtype = g.dtype("fi")
    return tuple(g.tensor((g.int(1, 4),), dtype, grad=True) for _ in range(g.int(1, 3))), {"indexing": g.pick(["ij", "xy"])}


def vector_or_matrix(g: Any) -> Any:
    return (g.tensor(g.shape(1, 2), g.dtype(ANY), grad=True), g.int(-2, 2)), {}


def splits(g: Any) -> Any:
    x, shape = of(g, 1)
    dim = g.int(0, len(shape) - 1)
    if g.chance(0.5):
        return (x, g.int(1, 4), dim), {}
    first = g.int(0, shape[dim])
    return (x, [first, shape[dim] - first], dim), {}


def bits(g: Any) -> Any:
    source = g.pick([torch.float32, torch.int32, torch.float16, torch.int16, torch.int64, torch.float64, torch.uint8, torch.int8])
    target = g.pick([torch.int32, torch.float32, torch.uint8, torch.int16, torch.float64])
    return (g.tensor((*g.shape(0, 2), 8), source), target), {}


ROWS: list[Op] = [
    row("torch.cat", cat, out=True), row("torch.stack", same(1), out=True), row("torch.hstack", same(dim=False)),
    row("torch.vstack", same(dim=False)), row("torch.dstack", same(dim=False)),
    row("torch.split", splits), row("torch.chunk", lambda g: (lambda a: ((a[0], g.int(1, 4), dim_of(g, a[1])), {}))(of(g, 1))),
    row("torch.unbind", with_dim()), row("torch.tensor_split", with_dim(1, lambda g: g.int(1, 4))),
    row("torch.roll", roll), row("torch.flip", some_dims), row("torch.fliplr", lambda g: ((of(g, 2)[0],), {})), row("torch.rot90", rot90),
    row("Tensor.repeat", repeat), row("torch.tile", repeat), row("Tensor.expand", expand), row("torch.broadcast_to", expand),
    row("torch.permute", permutation), row("torch.transpose", two_dims, inplace="transpose_"), row("torch.movedim", two_dims),
    row("Tensor.view", reshaped), row("torch.reshape", reshaped), row("torch.flatten", lambda g: ((of(g)[0],), {})),
    row("torch.squeeze", lambda g: ((of(g)[0],), {}), inplace="squeeze_"),
    row("torch.unsqueeze", lambda g: (lambda a: ((a[0], dim_of(g, a[1], 1)), {}))(of(g)), inplace="unsqueeze_"),
    row("torch.narrow", narrow), row("Tensor.unfold", unfold), row("torch.diagonal", diagonal),
    row("torch.tril", triangle, inplace="tril_", out=True), row("torch.triu", triangle, inplace="triu_", out=True),
    row("torch.diag", vector_or_matrix), row("torch.diag_embed", vector_or_matrix), row("torch.meshgrid", meshgrid),
    row("torch.cartesian_prod", lambda g: (meshgrid(g)[0], {})),
    row("Tensor.to", converted), row("Tensor.to.format", laid_out, path="Tensor.to"), row("Tensor.contiguous", contiguous), row("torch.clone", laid_out),
    row("Tensor.copy_", copied, grad=False), row("Tensor.fill_", filled, grad=False),
    row("torch.zeros_like", like()), row("torch.ones_like", like()), row("torch.full_like", like(True), grad=False),
    row("torch.empty_like", like(), "empty", grad=False),
    row("Tensor.view.bits", bits, path="Tensor.view", grad=False),
    row("Tensor.tolist", lambda g: ((of(g)[0],), {}), grad=False), row("Tensor.zero_", lambda g: ((of(g)[0],), {}), grad=False),
]
