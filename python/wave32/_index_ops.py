"""Indexed operators that libtorch's C ABI cannot carry: with a `Scalar` (see `_scalar_ops`), or with a list of optional
tensors, which it empties for whoever shares the list. Lists that come to Python are copies."""

from __future__ import annotations

from typing import Any

import torch

from wave32 import _ordered
from wave32._fallback import run_on_cpu

aten = torch.ops.aten


def _is_plain(self: torch.Tensor, value: Any, out: torch.Tensor) -> bool:
    """A float carries the value to an operator of the device, which fills or adds in `out`."""
    exact = not isinstance(value, complex) and (isinstance(value, float) or abs(value) <= 1 << 53)
    return exact and not self.is_complex() and out.dtype == self.dtype and out.device == self.device


def _start(self: torch.Tensor, out: torch.Tensor) -> None:
    if out is not self:
        if out.shape != self.shape:
            torch.ops.wave.resize_output_(out, self.shape)
        out.copy_(self)


def _scatter_value(
    self: torch.Tensor, dim: int, index: torch.Tensor, value: Any, *, out: torch.Tensor
) -> torch.Tensor:
    if _is_plain(self, value, out):
        _start(self, out)
        try:
            return torch.ops.wave.scatter_value_(out, dim, index, float(value))
        except NotImplementedError:  # Refused before anything was written.
            pass
    return run_on_cpu(aten.scatter.value_out, self, dim, index, value, out=out)


def _index_add(
    self: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    *,
    alpha: Any = 1,
    out: torch.Tensor,
) -> torch.Tensor:
    scaled = source if alpha == 1 else source * alpha
    if _is_plain(self, alpha, out) and scaled.dtype == self.dtype:
        _start(self, out)
        try:
            return torch.ops.wave.index_add_(out, dim, index, scaled)
        except NotImplementedError:  # Refused before anything was written.
            pass
    return run_on_cpu(aten.index_add.out, self, dim, index, source, alpha=alpha, out=out)


def _index_fill(self: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> torch.Tensor:
    if isinstance(value, complex) and not self.is_complex():
        raise RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not supported")
    return aten.index_fill_.int_Tensor(self, dim, index, torch.full((), value, dtype=self.dtype))


def _index(self: torch.Tensor, indices: list[Any], *, out: torch.Tensor) -> torch.Tensor:
    # Torch has warned of masks of bytes where it computed the result's sizes.
    indices = [index.bool() if index is not None and index.dtype == torch.uint8 else index for index in indices]
    try:
        return torch.ops.wave.index_get(self, indices, out=out)
    except NotImplementedError as refusal:  # Refused before anything was written.
        return run_on_cpu(aten.index.Tensor_out, self, indices, why=str(refusal), out=out)


def _index_put(
    self: torch.Tensor,
    indices: list[Any],
    values: torch.Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> torch.Tensor:
    try:
        if not accumulate and values.numel() > 1 and self.dtype == values.dtype and _ordered.is_on():
            indices, values = _ordered.last_values(self, indices, values)
        return torch.ops.wave.index_put_(self, indices, values, accumulate)
    except NotImplementedError as refusal:  # Refused before anything was written.
        return run_on_cpu(aten._index_put_impl_.default, self, indices, values, accumulate, unsafe, why=str(refusal))


def _masked_select(self: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if mask.dtype != torch.bool or mask.device != self.device or self.dtype.itemsize > 8:
        return run_on_cpu(aten.masked_select.default, self, mask)
    values, mask = torch.broadcast_tensors(self, mask)
    return aten.index.Tensor(values.reshape(-1), [mask.reshape(-1)])


def _masked_scatter(self: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    if mask.dtype == torch.bool and source.dtype == self.dtype and self.dim() and mask.device == self.device:
        places = mask.broadcast_to(self.shape).nonzero().unbind(1)
        count = len(places[0])
        if count <= source.numel():
            return aten._index_put_impl_(self, list(places), source.reshape(-1)[:count])
    return run_on_cpu(aten.masked_scatter_.default, self, mask, source)


# Operator of aten: its implementation.
TABLE = {
    "scatter.value_out": _scatter_value,
    "index_add.out": _index_add,
    "index_fill_.int_Scalar": _index_fill,
    "index.Tensor_out": _index,
    "_index_put_impl_": _index_put,
    "masked_select": _masked_select,
    "masked_scatter_": _masked_scatter,
}
