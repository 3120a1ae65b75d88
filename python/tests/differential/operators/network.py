"""Layers: pooling, norms, softmax, resampling, attention, embedding."""

from __future__ import annotations

from typing import Any

import torch

from differential.operators import Op, row


def image(g: Any, rank: int, dtype: Any = None, most: int = 0, unbatched: float = 0.1, fill: Any = None, low: int = 1) -> Any:
    dtype = dtype or g.dtype("f")
    spatial = tuple(g.int(low, most or {1: 20, 2: 9, 3: 6}[rank]) for _ in range(rank))
    batch = () if g.chance(unbatched) else (0 if g.chance(0.02) else g.int(1, 3),)
    return g.tensor((*batch, g.int(1, 4), *spatial), dtype, fill or g.fill(dtype, "infs"), grad=True)


def _each(g: Any, rank: int, low: int, high: int) -> Any:
    return g.int(low, high) if g.chance(0.6) else tuple(g.int(low, high) for _ in range(rank))


def _windows(g: Any, rank: int) -> dict[str, Any]:
    """What all pooling takes beside the window's size."""
    kwargs: dict[str, Any] = {}
    if g.chance(0.5):
        kwargs["stride"] = _each(g, rank, 1, 3)
    if g.chance(0.4):
        kwargs["padding"] = g.int(0, 1)
    if g.chance(0.3):
        kwargs["ceil_mode"] = True
    return kwargs


def max_pool(rank: int) -> Any:
    def make(g: Any) -> Any:
        # Without equal elements: which of them a gradient goes to is open.
        x = image(g, rank, fill=("distinct",), low=3)
        kwargs = _windows(g, rank)
        if g.chance(0.25):
            kwargs["dilation"] = g.int(1, 2)
        if g.chance(0.3):
            kwargs["return_indices"] = True
        return (x, _each(g, rank, 2, 3)), kwargs

    return make


def avg_pool(rank: int) -> Any:
    def make(g: Any) -> Any:
        kwargs = _windows(g, rank)
        if g.chance(0.3):
            kwargs["count_include_pad"] = False
        if rank > 1 and g.chance(0.2):
            kwargs["divisor_override"] = g.int(1, 5)
        return (image(g, rank, low=2), _each(g, rank, 1, 3)), kwargs

    return make


def adaptive(rank: int, largest: bool = False) -> Any:
    def make(g: Any) -> Any:
        x = image(g, rank, fill=("distinct",) if largest else None)
        size: Any = g.int(1, 5) if g.chance(0.5) else tuple(g.pick([1, 2, 3, None, 7]) for _ in range(rank))
        size = (size if isinstance(size, int) else size[0] or 2) if rank == 1 else size
        return (x, size), {"return_indices": True} if largest and g.chance(0.3) else {}

    return make


def unpool(g: Any) -> Any:
    h, w = g.int(2, 5), g.int(2, 5)
    dtype = g.dtype("f")
    n, c = g.int(1, 2), g.int(1, 3)
    x = g.tensor((n, c, h * w), dtype, grad=True, views=False)
    indices = g.tensor((n, c, h * w), torch.int64, ("unique", 4 * h * w, 2), views=False)
    # As planes of h*w rows of one element, which is what pooling by (1, 1) would give.
    return (x, indices, 4), {}


def batch_norm(g: Any) -> Any:
    dtype = g.dtype("f")
    x = image(g, g.int(1, 3), dtype, unbatched=0, fill=g.pick([("normal",), ("between", 1, 3)]))
    channels = g.tensors[x.index].final_shape()[1]

    def vector(fill: Any = ("normal",), grad: bool = True) -> Any:
        return g.tensor((channels,), dtype, fill, grad=grad, views=False)

    stats = (vector(grad=False), vector(("between", 0.5, 2), False)) if g.chance(0.7) else (None, None)
    kwargs = {"weight": vector(), "bias": vector()} if g.chance(0.7) else {}
    kwargs["training"] = g.chance(0.6) or stats[0] is None
    if g.chance(0.3):
        kwargs["momentum"] = 0.5
    return (x, *stats), kwargs


def layer_norm(of: str) -> Any:
    def make(g: Any) -> Any:
        shape, dtype = g.shape(1, 4), g.dtype("f")
        inner = shape[g.int(0, len(shape) - 1):]
        x = g.tensor(shape, dtype, g.pick([("normal",), ("between", 1, 3)]), grad=True)
        weight = g.tensor(inner, dtype, grad=True) if g.chance(0.6) else None
        if of == "rms":
            return (x, inner, weight), {}
        bias = g.tensor(inner, dtype, grad=True) if g.chance(0.6) else None
        return (x, inner, weight, bias), {"eps": 1e-3} if g.chance(0.3) else {}

    return make


def group_norm(g: Any) -> Any:
    groups, each, dtype = g.int(1, 3), g.int(1, 3), g.dtype("f")
    shape = (g.int(1, 3), groups * each, *g.shape(0, 2))
    x = g.tensor(shape, dtype, grad=True)
    both = g.chance(0.6)
    weight, bias = (g.tensor((groups * each,), dtype, grad=True, views=False) if both else None for _ in range(2))
    return (x, groups, weight, bias), {}


def instance_norm(g: Any) -> Any:
    return (image(g, g.int(1, 3), unbatched=0, low=2, fill=("normal",)),), {}


def softmax(g: Any) -> Any:
    shape, dtype = g.shape(0, 4), g.dtype("f")
    kwargs = {"dtype": g.dtype("f")} if g.chance(0.2) else {}
    return (g.tensor(shape, dtype, g.fill(dtype, "infs"), grad=True), g.int(-len(shape), len(shape) - 1) if shape else 0), kwargs


def interpolate(g: Any) -> Any:
    rank = g.int(1, 3)
    mode = g.pick({1: ["nearest", "linear", "area", "nearest-exact"], 2: ["nearest", "bilinear", "bicubic", "area", "nearest-exact"],
                   3: ["nearest", "trilinear", "area", "nearest-exact"]}[rank])
    dtype = g.dtype("ffffffi") if rank == 2 else g.dtype("f")
    x = image(g, rank, dtype, unbatched=0)
    kwargs: dict[str, Any] = {"mode": mode}
    if g.chance(0.5):
        kwargs["size"] = g.int(1, 12) if rank == 1 or g.chance(0.3) else tuple(g.int(1, 12 if rank == 2 else 6) for _ in range(rank))
    else:
        kwargs["scale_factor"] = g.pick([2, 0.5, 1.5, 2.3, 3, 0.7])
        if g.chance(0.3):
            kwargs["recompute_scale_factor"] = True
    if "linear" in mode or mode == "bicubic":
        kwargs["align_corners"] = g.chance(0.5)
    if mode in ("bilinear", "bicubic") and g.chance(0.3):
        kwargs["antialias"] = True
    return (x,), kwargs


def grid_sample(g: Any) -> Any:
    rank, dtype = g.int(2, 3), g.dtype("f")
    x = image(g, rank, dtype, 5, unbatched=0, fill=("normal",))
    batch = g.tensors[x.index].final_shape()[0]
    grid = g.tensor((batch, *(g.int(1, 4) for _ in range(rank)), rank), dtype, ("between", -1.3, 1.3), grad=True)
    modes = ["bilinear", "nearest", "bicubic"][: 3 if rank == 2 else 2]
    kwargs = {"mode": g.pick(modes), "padding_mode": g.pick(["zeros", "border", "reflection"]), "align_corners": g.chance(0.5)}
    return (x, grid), kwargs


def embedding(g: Any) -> Any:
    rows, width, dtype = g.int(1, 9), g.int(1, 8), g.dtype("f")
    indices = g.tensor(g.shape(0, 3), g.pick([torch.int64, torch.int32]), ("index", rows))
    kwargs = {"padding_idx": g.int(0, rows - 1)} if g.chance(0.3) else {}
    if g.chance(0.1):
        kwargs["scale_grad_by_freq"] = True
    return (indices, g.tensor((rows, width), dtype, grad=True)), kwargs


def embedding_bag(g: Any) -> Any:
    rows, width, dtype = g.int(1, 9), g.int(1, 8), g.pick([torch.float32, torch.float64])
    indices = g.tensor((g.int(1, 4), g.int(1, 5)), torch.int64, ("index", rows))
    mode = g.pick(["sum", "mean", "max"])
    weight = g.tensor((rows, width), dtype, ("distinct",) if mode == "max" else ("normal",), grad=True, views=False)
    return (indices, weight), {"mode": mode}


def attention(g: Any) -> Any:
    batch, dtype = (g.int(1, 2), g.int(1, 3)), g.dtype("f")
    length, keys, width, value = g.int(1, 6), g.int(1, 6), g.pick([2, 4, 8]), g.pick([2, 4])
    q, k = (g.tensor((*batch, n, width), dtype, grad=True) for n in (length, keys))
    v = g.tensor((*batch, keys, value), dtype, grad=True)
    kwargs: dict[str, Any] = {}
    if g.chance(0.3):
        kwargs["is_causal"] = True
    elif g.chance(0.4):
        kwargs["attn_mask"] = g.tensor((length, keys), dtype)
    if g.chance(0.2):
        kwargs["scale"] = 0.3
    return (q, k, v), kwargs


def padded(g: Any) -> Any:
    mode = g.pick(["constant", "constant", "reflect", "replicate", "circular"])
    dtype = g.dtype("fffib") if mode == "constant" else g.dtype("f")
    if mode == "constant":
        shape = g.shape(1, 4)
        count = g.int(1, len(shape))
        amounts = tuple(g.int(-1, 3) for _ in range(2 * count))
        return (g.tensor(shape, dtype, g.fill(dtype, "infs"), grad=True), amounts, mode, g.pick([None, 0, 1.5, -1])), {}
    rank = g.int(1, 3)
    amounts = tuple(g.int(-1 if g.chance(0.1) else 0, 2) for _ in range(2 * rank))
    return (image(g, rank, dtype, low=2), amounts, mode), {}


def shuffle(g: Any) -> Any:
    r = g.int(1, 3)
    return (g.tensor((*g.shape(0, 1), g.int(1, 2) * r * r, g.int(1, 4), g.int(1, 4)), g.dtype("fffi"), grad=True), r), {}


def unshuffle(g: Any) -> Any:
    r = g.int(1, 3)
    return (g.tensor((*g.shape(0, 1), g.int(1, 3), r * g.int(1, 3), r * g.int(1, 3)), g.dtype("fffi"), grad=True), r), {}


def unfold(g: Any) -> Any:
    kwargs = {"dilation": 1, "padding": g.int(0, 1), "stride": g.int(1, 2)}
    return (image(g, 2, low=3), g.int(1, 3)), kwargs


def fold(g: Any) -> Any:
    h, w, k = g.int(2, 4), g.int(2, 4), g.int(1, 2)
    columns = (h - k + 1) * (w - k + 1)
    return (g.tensor((g.int(1, 2), g.int(1, 2) * k * k, columns), g.dtype("f"), grad=True), (h, w), k), {}


def lp_pool(g: Any) -> Any:
    return (image(g, 2, low=3, fill=("between", 0.5, 2)), g.pick([1.0, 2.0, 3.0]), 2), {}


def local_response(g: Any) -> Any:
    return (image(g, 2, unbatched=0, fill=("normal",)), g.int(1, 4)), {}


def normalize(g: Any) -> Any:
    return (g.tensor(g.shape(1, 4), g.dtype("f"), grad=True),), {"p": g.pick([2.0, 1.0]), "dim": 0}


def affine_grid(g: Any) -> Any:
    n = g.int(1, 2)
    return (g.tensor((n, 2, 3), g.dtype("f"), grad=True), [n, 1, g.int(1, 5), g.int(1, 5)]), {"align_corners": g.chance(0.5)}


ROWS: list[Op] = [
    *(row(f"F.max_pool{rank}d", max_pool(rank), "jumps") for rank in (1, 2, 3)),
    *(row(f"F.avg_pool{rank}d", avg_pool(rank)) for rank in (1, 2, 3)),
    *(row(f"F.adaptive_avg_pool{rank}d", adaptive(rank)) for rank in (1, 2, 3)),
    *(row(f"F.adaptive_max_pool{rank}d", adaptive(rank, True), "jumps") for rank in (1, 2, 3)),
    row("F.lp_pool2d", lp_pool), row("F.max_unpool1d", unpool, "jumps"),
    row("F.batch_norm", batch_norm), row("F.layer_norm", layer_norm("layer")), row("F.rms_norm", layer_norm("rms")),
    row("F.group_norm", group_norm), row("F.instance_norm", instance_norm), row("F.local_response_norm", local_response),
    row("F.normalize", normalize),
    row("F.softmax", softmax), row("F.log_softmax", softmax), row("F.softmin", softmax),
    row("F.interpolate", interpolate), row("F.grid_sample", grid_sample), row("F.affine_grid", affine_grid),
    row("F.embedding", embedding), row("F.embedding_bag", embedding_bag),
    row("F.scaled_dot_product_attention", attention),
    row("F.pad", padded), row("F.pixel_shuffle", shuffle), row("F.pixel_unshuffle", unshuffle),
    row("F.unfold", unfold), row("F.fold", fold),
]
