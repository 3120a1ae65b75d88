"""Losses and distances."""

from __future__ import annotations

from typing import Any

import torch

from differential.operators import Op, row


def reduction(g: Any) -> dict[str, Any]:
    return {"reduction": g.pick(["mean", "sum", "none"])}


def pair(fill: Any = ("normal",), target: Any = ("normal",), **fixed: Any) -> Any:
    def make(g: Any) -> Any:
        shape, dtype = g.shape(), g.dtype("f")
        kwargs = {name: g.pick(values) for name, values in fixed.items() if g.chance(0.5)}
        sides = g.tensor(shape, dtype, fill, grad=True), g.tensor(shape, dtype, target, grad=g.chance(0.3))
        return sides, {**kwargs, **reduction(g)}

    return make


def classes(g: Any, log: bool = False) -> Any:
    """Scores, targets by number, weights."""
    dtype = g.dtype("f")
    count = g.int(1, 7)
    batch = () if g.chance(0.1) else (0 if g.chance(0.05) else g.int(1, 5),)
    rest = g.shape(0, 2, 0) if batch and g.chance(0.4) else ()
    x = g.tensor((*batch, count, *rest), dtype, grad=True)
    target = g.tensor((*batch, *rest), torch.int64, ("index", count))
    kwargs = reduction(g)
    if g.chance(0.4):
        kwargs["weight"] = g.tensor((count,), dtype, ("between", 0.2, 2), views=False)
    if g.chance(0.4):
        kwargs["ignore_index"] = g.int(-1, count)
    return (x, target), kwargs


def cross_entropy(g: Any) -> Any:
    args, kwargs = classes(g)
    if g.chance(0.3):
        kwargs["label_smoothing"] = 0.2
    if g.chance(0.2):
        x = g.tensors[args[0].index]
        target = g.tensor(x.final_shape(), x.dtype, ("unit",), grad=g.chance(0.3))
        kwargs.pop("ignore_index", None)
        return (args[0], target), kwargs
    return args, kwargs


def binary(logits: bool) -> Any:
    def make(g: Any) -> Any:
        shape, dtype = g.shape(), g.dtype("f")
        x = g.tensor(shape, dtype, ("normal",) if logits else ("between", 0.02, 0.98), grad=True)
        kwargs = reduction(g)
        if g.chance(0.3):
            kwargs["weight"] = g.tensor(g.broadcast(shape), dtype, ("unit",))
        if logits and g.chance(0.3):
            kwargs["pos_weight"] = g.tensor(shape[-1:], dtype, ("unit",))
        return (x, g.tensor(shape, dtype, ("unit",), grad=False)), kwargs

    return make


def three(target: Any, rank: int = 2) -> Any:
    """Two of the same shape and a target of signs."""

    def make(g: Any) -> Any:
        shape, dtype = g.shape(rank, rank, 0.02), g.dtype("f")
        sides = [g.tensor(shape, dtype, grad=True) for _ in range(2)]
        return (*sides, g.tensor(shape[:1], dtype, target)), reduction(g)

    return make


def triplet(g: Any) -> Any:
    shape, dtype = g.shape(2, 2, 0), g.dtype("f")
    return tuple(g.tensor(shape, dtype, grad=True) for _ in range(3)), {"margin": g.pick([0.5, 2.0]), "swap": g.chance(0.3), **reduction(g)}


def kl(g: Any) -> Any:
    shape, dtype = g.shape(1), g.dtype("f")
    sides = g.tensor(shape, dtype, grad=True), g.tensor(shape, dtype, ("between", 0.1, 1), grad=g.chance(0.3))
    return sides, {"log_target": g.chance(0.3), "reduction": g.pick(["mean", "sum", "none", "batchmean"])}


def gaussian(g: Any) -> Any:
    shape, dtype = g.shape(1), g.dtype("f")
    sides = [g.tensor(shape, dtype, grad=True) for _ in range(2)]
    return (*sides, g.tensor(shape, dtype, ("between", 0.3, 2), grad=True)), {"full": g.chance(0.5), **reduction(g)}


def multi(g: Any) -> Any:
    dtype, n, c = g.dtype("f"), g.int(1, 4), g.int(1, 5)
    return (g.tensor((n, c), dtype, grad=True), g.tensor((n,), torch.int64, ("index", c), views=False)), {"margin": g.pick([1.0, 0.5]), **reduction(g)}


def multilabel(g: Any) -> Any:
    dtype, n, c = g.dtype("f"), g.int(1, 4), g.int(1, 5)
    return (g.tensor((n, c), dtype, grad=True), g.tensor((n, c), torch.int64, ("range", -1, c - 1), views=False)), reduction(g)


def ctc(g: Any) -> Any:
    t, n, c, s = g.int(4, 8), g.int(1, 3), g.int(2, 5), g.int(1, 2)
    dtype = g.pick([torch.float32, torch.float64])
    x = g.tensor((t, n, c), dtype, ("between", -3, -0.1), grad=True)
    targets = g.tensor((n, s), torch.int64, ("range", 1, c - 1), views=False)
    return (x, targets, (t,) * n, (s,) * n), {"zero_infinity": True, **reduction(g)}


def similar(g: Any) -> Any:
    shape, dtype = g.shape(1, 3), g.dtype("f")
    return (g.tensor(shape, dtype, grad=True), g.tensor(g.broadcast(shape) if g.chance(0.2) else shape, dtype, grad=True), g.int(-len(shape), len(shape) - 1)), {}


def distance(g: Any) -> Any:
    shape, dtype = g.shape(1, 2), g.dtype("f")
    return tuple(g.tensor(shape, dtype, grad=True) for _ in range(2)), {"p": g.pick([2.0, 1.0, 3.0]), "keepdim": g.chance(0.3)}


def soft_labels(g: Any) -> Any:
    shape, dtype = (g.int(1, 4), g.int(1, 5)), g.dtype("f")
    return (g.tensor(shape, dtype, grad=True), g.tensor(shape, dtype, ("range", 0, 1))), reduction(g)


ROWS: list[Op] = [
    row("F.mse_loss", pair()), row("F.l1_loss", pair()), row("F.smooth_l1_loss", pair(beta=[0.5, 2.0])),
    row("F.huber_loss", pair(delta=[0.5, 2.0])), row("F.poisson_nll_loss", pair(target=("range", 0, 4), full=[True], log_input=[True])),
    row("F.soft_margin_loss", pair(target=("range", -1, 1))), row("F.hinge_embedding_loss", pair(target=("range", 1, 1), margin=[0.5])),
    row("F.nll_loss", classes), row("F.cross_entropy", cross_entropy),
    row("F.binary_cross_entropy", binary(False)), row("F.binary_cross_entropy_with_logits", binary(True)),
    row("F.kl_div", kl), row("F.gaussian_nll_loss", gaussian), row("F.triplet_margin_loss", triplet),
    row("F.cosine_embedding_loss", three(("range", 1, 1))), row("F.margin_ranking_loss", three(("range", 1, 1), 1)),
    row("F.multi_margin_loss", multi), row("F.multilabel_margin_loss", multilabel), row("F.multilabel_soft_margin_loss", soft_labels),
    row("F.ctc_loss", ctc), row("F.cosine_similarity", similar), row("F.pairwise_distance", distance),
    row("F.pdist", lambda g: ((g.tensor((g.int(1, 5), g.int(1, 5)), g.dtype("f"), grad=True), g.pick([2.0, 1.0])), {})),
]
