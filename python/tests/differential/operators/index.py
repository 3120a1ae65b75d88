"""Operators with indices and masks."""

from __future__ import annotations

from typing import Any

import torch

from differential.operators import Op, row

# Now and then an index is out of range: both devices have to say so.
WRONG = 0.03


def source(g: Any, low: int = 1, kinds: str = "fffib") -> Any:
    """(tensor, shape, dtype, one of its dimensions)"""
    shape, dtype = g.shape(low, 3), g.dtype(kinds)
    x = g.tensor(shape, dtype, g.fill(dtype, "infs"), grad=True)
    return x, shape, dtype, g.int(0, len(shape) - 1) if shape else 0


def indices(g: Any, shape: Any, size: int, negative: bool = False, wrong: bool = True, kinds: Any = (torch.int64,)) -> Any:
    if wrong and g.chance(WRONG):
        size += 2
    return g.tensor(shape, g.pick(kinds), ("index", max(size, 1), negative))


def index_select(g: Any) -> Any:
    x, shape, _, dim = source(g)
    return (x, dim, indices(g, (g.int(0, 5),), shape[dim], kinds=(torch.int64, torch.int32))), {}


def gather(g: Any) -> Any:
    x, shape, _, dim = source(g)
    where = tuple(g.int(0, 6) if d == dim else g.int(1, size) if size else 0 for d, size in enumerate(shape))
    return (x, dim, indices(g, where, shape[dim])), {}


def take_along(g: Any) -> Any:
    x, shape, _, dim = source(g)
    where = tuple(g.int(1, 6) if d == dim else size for d, size in enumerate(shape))
    return (x, indices(g, where, shape[dim], True), dim), {}


def take(g: Any) -> Any:
    x, shape, _, _ = source(g)
    count = 1
    for size in shape:
        count *= size
    return (x, indices(g, g.shape(0, 2), count, True)), {}


def scatter(add: bool, source_is: str = "tensor") -> Any:
    """Where nothing is summed, no two go to one place: which of them stays is open."""

    def make(g: Any) -> Any:
        x, shape, dtype, dim = source(g, kinds="fffi")
        where = tuple(g.int(1, size) if size else 0 for size in shape)
        if add:
            where_to = indices(g, where, shape[dim])
        else:
            where_to = g.tensor(where, torch.int64, ("unique", shape[dim], dim), views=False)
        if source_is == "number":
            return (x, dim, where_to, g.pick([0, 1, 2.5, -1])), {}
        return (x, dim, where_to, g.tensor(where, dtype, grad=True)), {}

    return make


def scatter_reduce(g: Any) -> Any:
    args, _ = scatter(True)(g)
    return (*args, g.pick(["sum", "mean", "amax", "amin", "prod"])), {"include_self": g.chance(0.5)}


def index_add(g: Any) -> Any:
    x, shape, dtype, dim = source(g, kinds="fffi")
    count = g.int(0, 5)
    more = g.tensor((*shape[:dim], count, *shape[dim + 1:]), dtype, grad=True)
    return (x, dim, indices(g, (count,), shape[dim], kinds=(torch.int64, torch.int32)), more), {"alpha": 2} if g.chance(0.3) else {}


def index_copy(g: Any) -> Any:
    x, shape, dtype, dim = source(g)
    count = g.int(0, shape[dim])
    more = g.tensor((*shape[:dim], count, *shape[dim + 1:]), dtype, grad=True)
    return (x, dim, g.tensor((count,), torch.int64, ("unique", shape[dim], 0), views=False), more), {}


def index_fill(g: Any) -> Any:
    x, shape, _, dim = source(g)
    return (x, dim, indices(g, (g.int(0, 4),), shape[dim]), g.pick([0, 1, -2, 1.5])), {}


def index_reduce(g: Any) -> Any:
    args, _ = index_add(g)
    return (*args, g.pick(["mean", "amax", "amin", "prod"])), {"include_self": g.chance(0.5)}


def index_of(g: Any, shape: Any, written: bool) -> Any:
    """Numbers, slices, masks and tensors of indices, as between brackets."""
    made: list[Any] = []
    dim, masks = 0, 0
    count = (g.int(1, 3),) if g.chance(0.8) else ()
    while dim < len(shape):
        size = shape[dim]
        kind = g.pick(["slice", "all", "number", "tensor", "tensor", "mask", "none", "stop"])
        if kind == "stop":
            break
        if kind == "none":
            if masks < 2:
                masks += 1
                made.append(None)
            continue
        if kind == "mask" and not written and dim + 1 <= len(shape):
            # Not written: that takes as many values as the mask has ones.
            made.append(g.tensor((size,), torch.bool))
            dim += 1
            if dim < len(shape):
                made.append(Ellipsis)
            break
        if kind == "number" and size:
            made.append(g.int(-size, size - 1))
        elif kind == "tensor" and size:
            fill = ("unique", size, 0) if written and count and count[0] <= size else None
            index = g.tensor(count, torch.int64, fill, views=False) if fill else indices(g, count, size, True)
            made.append(index)
        elif kind == "slice":
            made.append(slice(g.int(0, 2), None if g.chance(0.5) else size, g.int(1, 2)))
        else:
            made.append(slice(None))
        dim += 1
    return made


def get_item(g: Any) -> Any:
    x, shape, _, _ = source(g, 0)
    return (x, *index_of(g, shape, False)), {}


def set_item(g: Any) -> Any:
    x, shape, dtype, _ = source(g)
    if g.chance(0.3):
        mask = g.tensor(shape, torch.bool)
        return (x, g.number() if g.chance(0.7) else g.tensor((), dtype), mask), {}
    index = index_of(g, shape, True)
    # Two tensors of indices could meet in one place.
    if sum(hasattr(part, "index") and not isinstance(part, slice) for part in index) > 1:
        index = index[:1]
    return (x, g.number() if g.chance(0.5) else g.tensor((), dtype if g.chance(0.7) else g.dtype("fi")), *index), {}


def index_put(g: Any) -> Any:
    x, shape, dtype, _ = source(g, kinds="fffi")
    count = g.int(0, 6)
    return (x, [indices(g, (count,), shape[0], True)], g.tensor((count, *shape[1:]) if g.chance(0.6) else (), dtype, grad=True), True), {}


def put(g: Any) -> Any:
    x, shape, dtype, _ = source(g, kinds="fffi")
    total = 1
    for size in shape:
        total *= size
    count = g.int(0, min(5, total))
    return (x, g.tensor((count,), torch.int64, ("unique", max(total, 1), 0), views=False), g.tensor((count,), dtype, grad=True)), {}


def masked(what: str) -> Any:
    def make(g: Any) -> Any:
        x, shape, dtype, _ = source(g, 0)
        mask = g.tensor(g.broadcast(shape), torch.bool)
        if what == "select":
            return (x, mask), {}
        if what == "fill":
            return (x, mask, g.number() if g.chance(0.7) else g.tensor((), g.dtype("fi"), grad=True)), {}
        total = 1
        for size in shape:
            total *= size
        return (x, mask, g.tensor((total,), dtype, grad=True)), {}

    return make


def one_hot(g: Any) -> Any:
    return (g.tensor(g.shape(0, 2), torch.int64, ("index", 5)), g.pick([-1, 5, 7, 3])), {}


def repeat_interleave(g: Any) -> Any:
    x, shape, _, dim = source(g)
    repeats = g.int(0, 3) if g.chance(0.5) else g.tensor((shape[dim],), torch.int64, ("range", 0, 3), views=False)
    return (x, repeats, dim), {}


def diagonal_scatter(g: Any) -> Any:
    n, dtype = g.int(1, 6), g.dtype("fffi")
    return (g.tensor((n, n), dtype, grad=True), g.tensor((n,), dtype, grad=True)), {}


def select_scatter(g: Any) -> Any:
    x, shape, dtype, dim = source(g)
    return (x, g.tensor((*shape[:dim], *shape[dim + 1:]), dtype, grad=True), dim, 0), {}


def slice_scatter(g: Any) -> Any:
    x, shape, dtype, dim = source(g)
    return (x, g.tensor((*shape[:dim], (shape[dim] + 1) // 2, *shape[dim + 1:]), dtype, grad=True), dim, 0, None, 2), {}


ROWS: list[Op] = [
    row("torch.index_select", index_select, out=True), row("torch.gather", gather, out=True), row("torch.take_along_dim", take_along, out=True),
    row("torch.take", take, out=True),
    row("torch.scatter", scatter(False), inplace="scatter_"), row("torch.scatter.number", scatter(False, "number"), path="torch.scatter", inplace="scatter_"),
    row("torch.scatter_add", scatter(True), inplace="scatter_add_"), row("torch.scatter_reduce", scatter_reduce, inplace="scatter_reduce_"),
    row("torch.index_add", index_add, inplace="index_add_"), row("torch.index_copy", index_copy, inplace="index_copy_"),
    row("torch.index_fill", index_fill, inplace="index_fill_"), row("torch.index_reduce", index_reduce, inplace="index_reduce_"),
    row("[]", get_item), row("[]=", set_item, grad=False), row("torch.index_put", index_put, inplace="index_put_"),
    row("torch.put", put, inplace="put_"),
    row("torch.masked_select", masked("select"), out=False), row("torch.masked_fill", masked("fill"), inplace="masked_fill_"),
    row("torch.masked_scatter", masked("scatter"), inplace="masked_scatter_"),
    row("torch.nonzero", lambda g: ((source(g, 0)[0],), {}), grad=False), row("torch.argwhere", lambda g: ((source(g, 0)[0],), {}), grad=False),
    row("F.one_hot", one_hot, grad=False), row("torch.repeat_interleave", repeat_interleave),
    row("torch.diagonal_scatter", diagonal_scatter), row("torch.select_scatter", select_scatter), row("torch.slice_scatter", slice_scatter),
]
