"""Deterministic mode: of several values for one place the last one stays, as on the CPU.

Writes come in any order on the device, so each source first gets the value of the last one for its place.
"""

from __future__ import annotations

from typing import Any

import torch


def is_on() -> bool:
    """Deterministic mode."""
    return torch.are_deterministic_algorithms_enabled()


def _last(keys: torch.Tensor) -> torch.Tensor:
    """For each key, where the last one that equals it is."""
    ordered, order = keys.sort(stable=True)
    ends = torch.searchsorted(ordered, ordered, right=True) - 1
    # No place is named twice: `order` names each once.
    return torch.ops.wave.index_put_(torch.empty_like(order), [order], order[ends], False)


def _scatter(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, out: torch.Tensor) -> Any:
    fits = x.dim() == index.dim() == source.dim() > 0 and -x.dim() <= dim < x.dim() and index.numel()
    if not is_on() or not fits or any(few > many for few, many in zip(index.shape, source.shape)):
        return NotImplemented
    dim %= x.dim()
    keys = index.long()
    for at, size in enumerate(index.shape):
        if at != dim:
            place = torch.arange(size, device=index.device).reshape([size if d == at else 1 for d in range(x.dim())])
            keys = keys * size + place
    source = source[tuple(slice(0, size) for size in index.shape)]
    values = source.reshape(-1)[_last(keys.reshape(-1))].reshape(index.shape)
    return _any_order(torch.ops.wave.scatter_any, x, dim, index, values, out)


def _index_copy(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, out: torch.Tensor) -> Any:
    if not is_on() or index.dim() != 1 or not -source.dim() <= dim < source.dim() or source.shape[dim] != index.numel():
        return NotImplemented
    values = source.index_select(dim, _last(index.long()))
    return _any_order(torch.ops.wave.index_copy_any, x, dim, index, values, out)


def _any_order(op: Any, x: torch.Tensor, dim: int, index: torch.Tensor, values: torch.Tensor, out: torch.Tensor) -> Any:
    try:
        return op(x, dim, index, values, out=out)
    except NotImplementedError:  # Refused before anything was written; the CPU writes in order.
        return NotImplemented


def last_values(x: torch.Tensor, indices: list[Any], values: torch.Tensor) -> tuple[list[Any], torch.Tensor]:
    """What `index_put_` is to be told so that the order of its writes does not matter."""
    named: list[Any] = []
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            named += index.to(x.device).nonzero().unbind(1)
        else:
            named.append(None if index is None else index.to(x.device))
    dims = [dim for dim, index in enumerate(named) if index is not None]
    if not dims or len(named) > x.dim():
        return indices, values
    picked = torch.broadcast_tensors(*(named[dim] for dim in dims))
    keys = torch.zeros_like(picked[0], dtype=torch.int64)
    for dim, index in zip(dims, picked):
        index = index.long()
        keys = keys * x.shape[dim] + torch.where(index < 0, index + x.shape[dim], index)
    # Where the indices are not next to each other, what they name comes first.
    front = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    rest = [size for dim, size in enumerate(x.shape) if dim not in dims]
    sizes = rest[:front] + list(keys.shape) + rest[front:]
    full = values.broadcast_to(sizes).reshape(rest[:front] + [keys.numel()] + rest[front:])
    chosen = full.index_select(front, _last(keys.reshape(-1))).reshape(sizes)
    return [None if index is None else index for index in named], chosen


# What runs in place of kernels that refuse, unless it refuses as well.
INSTEAD = {"scatter.src_out": _scatter, "index_copy.out": _index_copy}
