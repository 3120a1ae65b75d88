"""Resampling that has no kernel of its own: along one axis after another, each place a sum of a few taps.

Taps are gathered, so that an infinity or NaN reaches only what it reaches on the CPU: a product with a matrix of mostly
zeros would spread it over the image.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from wave32._fallback import operator, run_on_cpu

Tensor = torch.Tensor


class _Axis(NamedTuple):
    """How one axis is resampled."""

    filter: str
    size: int
    outs: int
    align: bool
    factor: float | None
    dtype: torch.dtype


class _Taps(NamedTuple):
    """The places that each place of a result is a sum of, and their weights: (taps, places), on the CPU."""

    places: Tensor
    weights: Tensor
    # Where a place has fewer taps, the rest names the place behind the last.
    uneven: bool = False


def _numbers(count: int, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.arange(count, dtype=dtype, device="cpu")


def _scale(axis: _Axis) -> Tensor:
    if axis.align:
        made = (axis.size - 1) / (axis.outs - 1) if axis.outs > 1 else 0.0
    else:
        made = 1.0 / axis.factor if axis.factor is not None and axis.factor > 0 else axis.size / axis.outs
    return torch.tensor(made, dtype=axis.dtype, device="cpu")


def _sources(axis: _Axis) -> Tensor:
    """Where the places of the result lie among those that it is made of."""
    places = _numbers(axis.outs, axis.dtype)
    return _scale(axis) * places if axis.align else _scale(axis) * (places + 0.5) - 0.5


def _linear(axis: _Axis) -> _Taps:
    if axis.size == axis.outs:
        at, part = _numbers(axis.outs), torch.zeros(axis.outs, dtype=axis.dtype, device="cpu")
        return _Taps(torch.stack([at, at]), torch.stack([1 - part, part]))
    source = _sources(axis).clamp(min=0)
    at = source.long().clamp(max=axis.size - 1)
    part = (source - at).clamp(0, 1)
    return _Taps(torch.stack([at, (at + 1).clamp(max=axis.size - 1)]), torch.stack([1 - part, part]))


def _cubics(x: Tensor, sharp: float) -> tuple[Tensor, Tensor]:
    """The cubic kernel at distances below 1, and from 1 to 2."""
    return ((sharp + 2) * x - (sharp + 3)) * x * x + 1, ((sharp * x - 5 * sharp) * x + 8 * sharp) * x - 4 * sharp


def _cubic(axis: _Axis) -> _Taps:
    source = _sources(axis)
    at = source.floor().clamp(max=axis.size - 1)
    part = (source - at).clamp(0, 1)
    places = torch.stack([at + by for by in (-1, 0, 1, 2)]).long().clamp(0, axis.size - 1)
    near, far = _cubics(torch.stack([part, 1 - part]), -0.75)[0], _cubics(torch.stack([part + 1, 2 - part]), -0.75)[1]
    return _Taps(places, torch.stack([far[0], near[0], near[1], far[1]]))


def _smooth(axis: _Axis) -> _Taps:
    """With antialiasing, filters are as wide as the result's places are."""
    scale = _scale(axis)
    wide = scale.clamp(min=1)
    reach = wide * (2 if axis.filter == "smooth_cubic" else 1)
    # Also where corners are aligned, as PyTorch does.
    middle = scale * (_numbers(axis.outs, axis.dtype) + 0.5)
    first, end = (middle - reach + 0.5).long().clamp(min=0), (middle + reach + 0.5).long().clamp(max=axis.size)
    places = first + _numbers(max(int((end - first).max()), 1)).unsqueeze(1)
    x = ((places - middle + 0.5) / wide).abs()
    if axis.filter == "smooth_cubic":
        near, far = _cubics(x, -0.5)
        weights = torch.where(x < 1, near, torch.where(x < 2, far, 0))
    else:
        weights = (1 - x).clamp(min=0)
    weights = torch.where(places < end, weights, 0)
    total = weights.sum(0)
    # A factor may lead places beyond the end: nothing adds up to 0.
    return _Taps(places.where(places < end, axis.size), weights / total.where(total != 0, 1), True)


def _transposed(taps: _Taps, size: int) -> _Taps:
    """The taps of the gradient: each place is a sum of those that it is a tap of."""
    outs = taps.places.shape[1]
    places, order = taps.places.reshape(-1).sort(stable=True)
    known = places < size
    places, order = places[known], order[known]
    counts = torch.bincount(places, minlength=size)
    nth = _numbers(len(places)) - (counts.cumsum(0) - counts)[places]
    shape = max(int(counts.max()), 1), size
    made = torch.full(shape, outs, device="cpu"), torch.zeros(shape, dtype=taps.weights.dtype, device="cpu")
    made[0][nth, places], made[1][nth, places] = order % outs, taps.weights.reshape(-1)[order]
    return _Taps(*made, True)


@functools.lru_cache(maxsize=32)
def _taps(axis: _Axis, back: bool) -> _Taps:
    made = {"linear": _linear, "cubic": _cubic}.get(axis.filter, _smooth)(axis)
    return _transposed(made, axis.size) if back else made


def _sum(x: Tensor, along: int, taps: _Taps) -> Tensor:
    if taps.uneven:
        x = torch.cat([x, torch.zeros_like(x.narrow(along, 0, 1))], along)
    places = taps.places.to(x.device)
    weights = taps.weights.to(x.device).reshape(taps.weights.shape + (1,) * (x.dim() - 1 - along))
    total = x.index_select(along, places[0]).mul_(weights[0])
    for place, weight in zip(places[1:], weights[1:]):
        total.addcmul_(x.index_select(along, place), weight)
    return total


@functools.lru_cache(maxsize=32)
def _fixed(axis: _Axis) -> tuple[_Taps, int]:
    """Weights as whole numbers of so many bits behind the point, as PyTorch's CPU has them for bytes: 16 bits each."""
    taps = _taps(axis, False)
    places, weights = taps.places, taps.weights.clone()
    for k in range(1, len(places)):
        # Taps beyond an edge are that edge's: rounded together.
        double = places[k] == places[k - 1]
        weights[k] += weights[k - 1].where(double, 0)
        weights[k - 1].masked_fill_(double, 0)
    total = weights.sum(0)
    weights /= total.where(total != 0, 1)
    most = float(weights.max())
    bits = next((n for n in range(22) if int(most * 2 ** (n + 1) + 0.5) >= 1 << 15), 22)
    scaled = weights * 2**bits
    return taps._replace(weights=(scaled + scaled.sign() / 2).trunc().to(torch.int32)), bits


def _resample_bytes(name: str, x: Tensor, outs: list[int], mode: tuple[Any, ...]) -> Tensor:
    """In whole numbers, rounded to bytes after each axis."""
    made, factors = x.to(torch.int32), [*mode[1:], *[None] * len(outs)]
    for at in reversed(range(len(outs))):
        axis = _Axis(FILTERS[name], x.shape[2 + at], outs[at], mode[0], factors[at], torch.float64)
        if axis.size != axis.outs:
            taps, bits = _fixed(axis)
            made = _sum(made, 2 + at, taps).add_(1 << (bits - 1)).bitwise_right_shift_(bits).clamp_(0, 255)
    return made


def _resample_floats(name: str, x: Tensor, sizes: list[int], outs: list[int], mode: tuple[Any, ...], back: bool) -> Tensor:
    exact = torch.float64 if x.dtype == torch.float64 else torch.float32
    made, factors = x.to(exact), [*mode[1:], *[None] * len(sizes)]
    # As the CPU goes, from the last axis to the first.
    for at in reversed(range(len(sizes))):
        axis = _Axis(FILTERS[name], sizes[at], outs[at], mode[0], factors[at], exact)
        if axis.size != axis.outs or not axis.filter.startswith("smooth"):
            made = _sum(made, 2 + at, _taps(axis, back))
    return made


def _resample(name: str, x: Tensor, sizes: list[int], outs: list[int], mode: tuple[Any, ...], back: bool) -> Tensor:
    """Makes `sizes` to `outs`; `back`, the gradient of the one of that of the other."""
    if back and FILTERS[name] == "cubic" and sizes == outs:
        return x.clone(memory_format=torch.preserve_format)  # Whatever the factors are, as PyTorch does.
    made = _resample_bytes(name, x, outs, mode) if x.dtype == torch.uint8 else _resample_floats(name, x, sizes, outs, mode, back)
    formats = {2: torch.channels_last, 3: torch.channels_last_3d}
    last = not x.is_contiguous() and x.is_contiguous(memory_format=formats[len(sizes)])
    return made.to(x.dtype).contiguous(memory_format=formats[len(sizes)] if last else torch.contiguous_format)


# Operator: its filter.
FILTERS = {
    "upsample_bicubic2d": "cubic",
    "upsample_trilinear3d": "linear",
    "_upsample_bilinear2d_aa": "smooth_linear",
    "_upsample_bicubic2d_aa": "smooth_cubic",
}


def _forward(name: str, x: Tensor, size: list[int], *mode: Any) -> Tensor:
    if not x.is_floating_point() and (x.dtype != torch.uint8 or FILTERS[name] == "linear"):
        return run_on_cpu(operator(name), x, size, *mode)  # Which words the refusal.
    return _resample(name, x, list(x.shape[2:]), list(size), mode, False)


def _backward(name: str, grad: Tensor, size: list[int], sizes: list[int], *mode: Any) -> Tensor:
    return _resample(name, grad, list(sizes[2:]), list(size), mode, True)


def table() -> dict[str, Callable[..., Tensor]]:
    """Operator of aten that makes a tensor: its implementation."""
    made: dict[str, Callable[..., Tensor]] = {}
    for name in FILTERS:
        made[f"{name}.out"] = functools.partial(_forward, name)
        made[f"{name}_backward.grad_input"] = functools.partial(_backward, name)
    return made
