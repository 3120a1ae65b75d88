"""Reductions, running sums, order."""

from __future__ import annotations

from typing import Any

import torch

from differential.operators import Op, row


def dims(g: Any, rank: int) -> Any:
    """None, a dimension, or several."""
    if rank == 0:
        return g.pick([None, 0, -1])
    if g.chance(0.03):
        return rank  # Out of range.
    some = g.rng.sample(range(rank), g.int(1, rank))
    return g.pick([some[0], some[0] - rank, tuple(some)])


def reduce(kinds: str = "fffib", dtype: bool = False, whole: bool = True, several: bool = True, fill: Any = None, low: int = 0,
           empty: float = 0.04, keepdim: bool = True, **fixed: Any) -> Any:
    """`dtype`: whether dtype= is known; `whole`: whether the call may come without dimensions; `several`: or with many."""

    def make(g: Any) -> Any:
        shape, of = g.shape(low, 4, empty), g.dtype(kinds)
        x = g.tensor(shape, of, fill or g.fill(of, "infs"), grad=True)
        kwargs = {name: g.pick(values) for name, values in fixed.items() if g.chance(0.5)}
        args: tuple[Any, ...] = (x,)
        if not whole or g.chance(0.75):
            dim = dims(g, len(shape))
            dim = dim if several or not isinstance(dim, tuple) else dim[0]
            if dim is not None or several:
                args = (x, dim if dim is not None else ())
                if keepdim:
                    kwargs["keepdim"] = g.chance(0.5)
            elif not whole:
                args = (x, 0)
        if dtype and g.chance(0.25):
            kwargs["dtype"] = g.dtype("ffi") if not of.is_floating_point else g.dtype("f")
        return args, kwargs

    return make


def along(kinds: str = "fffi", fill: Any = None, dtype: bool = False, low: int = 0, **fixed: Any) -> Any:
    """A tensor and one dimension."""

    def make(g: Any) -> Any:
        shape, of = g.shape(low, 4), g.dtype(kinds)
        x = g.tensor(shape, of, fill or g.fill(of, "infs"), grad=True)
        kwargs = {name: g.pick(values) for name, values in fixed.items() if g.chance(0.5)}
        if dtype and g.chance(0.25):
            kwargs["dtype"] = g.dtype("f") if of.is_floating_point else g.dtype("ffi")
        return (x, g.int(-len(shape), len(shape) - 1) if shape else 0), kwargs

    return make


def norm(g: Any) -> Any:
    shape, of = g.shape(0, 4), g.dtype("f")
    order = g.pick([2, 2, 1, 0, 3, 2.5, float("inf"), float("-inf")])
    x = g.tensor(shape, of, grad=True)
    if g.chance(0.4):
        return (x, order), {}
    return (x, order, dims(g, len(shape)), g.chance(0.5)), {}


def kth(g: Any) -> Any:
    shape, of = g.shape(1, 3, 0), g.dtype("ffi")
    dim = g.int(0, len(shape) - 1)
    return (g.tensor(shape, of, ("distinct",), grad=True), g.int(1, shape[dim]), dim, g.chance(0.5)), {}


def topk(g: Any) -> Any:
    shape, of = g.shape(1, 3), g.dtype("ffi")
    dim = g.int(0, len(shape) - 1)
    fill = ("distinct",) if g.chance(0.7) else g.fill(of, "infs")
    return (g.tensor(shape, of, fill, grad=True), g.int(0, shape[dim]), dim, g.chance(0.5)), {}


def quantile(g: Any) -> Any:
    shape = g.shape(1, 3, 0)
    dtype = g.pick([torch.float32, torch.float64])
    q = g.pick([0.0, 0.3, 0.5, 1.0]) if g.chance(0.5) else g.tensor((3,), dtype, ("unit",), views=False)
    kwargs = {"interpolation": g.pick(["linear", "lower", "higher", "nearest", "midpoint"])} if g.chance(0.5) else {}
    return (g.tensor(shape, dtype, grad=True), q, g.int(0, len(shape) - 1)), kwargs


def searchsorted(g: Any) -> Any:
    of = g.dtype("ffi")
    boundaries = g.tensor((g.size(),), of, ("arange",), views=False)
    return (boundaries, g.tensor(g.shape(), of, ("ints",))), {"right": g.chance(0.5)}


def bucketize(g: Any) -> Any:
    (boundaries, values), kwargs = searchsorted(g)
    return (values, boundaries), kwargs


def cdist(g: Any) -> Any:
    dtype, batch, width = g.dtype("f"), g.shape(0, 2), g.size()
    return (*(g.tensor((*batch, g.size(), width), dtype, grad=True) for _ in range(2)),), {"p": g.pick([2.0, 1.0, 0.0, 3.0, float("inf")])}


def diff(g: Any) -> Any:
    shape = g.shape(1, 3, 0)
    return (g.tensor(shape, g.dtype("ffib"), grad=True), g.int(1, 2), g.int(0, len(shape) - 1)), {}


def isin(g: Any) -> Any:
    dtype = g.dtype("fi")
    return (g.tensor(g.shape(), dtype, ("ints",)), g.tensor(g.shape(), dtype, ("ints",))), {"invert": g.chance(0.5)}


def bincount(g: Any) -> Any:
    size = g.int(0, 30)
    kwargs = {"minlength": g.pick([0, 3, 12])}
    if g.chance(0.4):
        kwargs["weights"] = g.tensor((size,), g.dtype("fi"))
    return (g.tensor((size,), g.dtype("i"), ("range", 0, 9)),), kwargs


ROWS: list[Op] = [
    row("torch.sum", reduce("fffibc", dtype=True), out=False),
    row("torch.mean", reduce("f", dtype=True), out=False),
    row("torch.nansum", reduce("ffi", dtype=True)),
    row("torch.nanmean", reduce("f")),
    row("torch.prod", reduce("ffi", dtype=True, several=False, fill=("between", 0.5, 2.0))),
    row("torch.prod.whole", reduce("i", several=False, fill=("ints",)), path="torch.prod"),
    row("torch.amax", reduce("fffib"), "jumps", out=True), row("torch.amin", reduce("fffib"), "jumps", out=True),
    row("torch.max", reduce("fffib", several=False), "jumps ties"), row("torch.min", reduce("fffib", several=False), "jumps ties"),
    row("torch.argmax", reduce("ffi", several=False, fill=("distinct",)), "jumps", grad=False),
    row("torch.argmin", reduce("ffi", several=False, fill=("distinct",)), "jumps", grad=False),
    row("torch.aminmax", lambda g: ((g.tensor(g.shape(), g.dtype("ffib"), grad=True),), {}), "jumps"),
    row("torch.any", reduce("ffib"), grad=False), row("torch.all", reduce("ffib"), grad=False),
    row("torch.count_nonzero", reduce("ffib", keepdim=False), grad=False),
    row("torch.var", reduce("f", correction=[0, 2], empty=0.0)), row("torch.std", reduce("f", correction=[0, 2], empty=0.0)),
    row("torch.var_mean", reduce("f", correction=[0, 2], empty=0.0)), row("torch.std_mean", reduce("f", correction=[0, 2], empty=0.0)),
    row("torch.logsumexp", reduce("fff", whole=False)),
    row("torch.norm", norm), row("torch.linalg.vector_norm", norm),
    row("torch.median", reduce("ffi", several=False, fill=("distinct",), empty=0.0), "ties jumps"),
    row("torch.nanmedian", reduce("ffi", several=False, fill=("distinct",), empty=0.0), "ties jumps"),
    row("torch.mode", reduce("ffi", several=False, whole=False, fill=("distinct",), empty=0.0), "ties jumps"),
    row("torch.kthvalue", kth, "ties jumps"), row("torch.topk", topk, "ties jumps"),
    row("torch.cumsum", along("fffib", dtype=True), inplace="cumsum_", out=True),
    row("torch.cumprod", along("ffi", ("between", 0.5, 1.5), dtype=True), inplace="cumprod_", out=True),
    row("torch.cummax", along("ffi", ("distinct",)), "jumps"), row("torch.cummin", along("ffi", ("distinct",)), "jumps"),
    row("torch.logcumsumexp", along("f"), out=True),
    row("torch.sort", along("fffib", None, stable=[True], descending=[True]), "ties jumps"),
    row("torch.argsort", lambda g: (lambda a: ((a[0][0],), {"dim": a[0][1], **a[1]}))(along("ffi", ("distinct",), stable=[True], descending=[True])(g)),
        "jumps ties", grad=False),
    row("torch.msort", lambda g: ((g.tensor(g.shape(1), g.dtype("ffi"), grad=True),), {}), "jumps"),
    row("torch.unique", lambda g: ((g.tensor(g.shape(), g.dtype("ffib"), ("ints",)),),
                                   {"return_inverse": g.chance(0.5), "return_counts": g.chance(0.5)}), grad=False),
    row("torch.unique_consecutive", lambda g: ((g.tensor(g.shape(), g.dtype("ffib"), ("ints",)),), {"return_counts": g.chance(0.5)}), grad=False),
    row("torch.quantile", quantile), row("torch.nanquantile", quantile),
    row("torch.searchsorted", searchsorted, "jumps", grad=False), row("torch.bucketize", bucketize, "jumps", grad=False),
    row("torch.cdist", cdist), row("torch.dist", lambda g: ((lambda s, t: (g.tensor(s, t, grad=True), g.tensor(s, t, grad=True)))(g.shape(), g.dtype("f")), {"p": g.pick([2, 1, 3])})),
    row("torch.diff", diff), row("torch.isin", isin, "jumps", grad=False), row("torch.bincount", bincount, grad=False),
    row("torch.renorm", lambda g: ((g.tensor(g.shape(2, 3, 0), g.dtype("f"), grad=True), g.pick([1, 2, 3]), 0, 1.5), {}), inplace="renorm_"),
    row("torch.histc", lambda g: ((g.tensor(g.shape(1, 2), torch.float32, ("ints",)),), {"bins": 5, "min": -3, "max": 4}), "jumps", grad=False),
    row("torch.trapezoid", lambda g: ((g.tensor(g.shape(1, 3, 0), g.dtype("f"), grad=True),), {"dx": 0.5})),
]
