"""Sparse tensors (COO), as gradients of embeddings are: indices and values are tensors of the device.

What a sparse tensor is made of, torch's functions for the CPU read and change without looking at an element. Sums and
conversions are made of dense operators; the rest runs on the CPU, counted.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from wave32 import _sparse_layouts
from wave32._fallback import run_on_cpu

Tensor = torch.Tensor

aten = torch.ops.aten

STRUCTURE = """_sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors empty.memory_format empty_like sparse_dim
    dense_dim _dimI _dimV _nnz is_coalesced _coalesced_ _indices _values indices values sparse_resize_
    sparse_resize_and_clear_ resize_as_sparse_ copy_ copy_sparse_to_sparse_ clone zero_ zeros.out unsqueeze permute
    _sparse_broadcast_to view_as_real view_as_complex is_pinned _pin_memory sum sum.dim_IntList nan_to_num nan_to_num.out
    nan_to_num_""".split()


def _is_sparse(x: Any) -> bool:
    return isinstance(x, Tensor) and x.layout == torch.sparse_coo


def _make(indices: Tensor, values: Tensor, like: Tensor, coalesced: bool) -> Tensor:
    return aten._sparse_coo_tensor_unsafe.default(indices, values, like.shape, is_coalesced=coalesced)


def _strides(sizes: Any) -> list[int]:
    made = [1]
    for size in reversed(sizes[1:]):
        made.insert(0, made[0] * size)
    return made


def _coalesce(x: Tensor) -> Tensor:
    """Each place once, in order."""
    indices, values, rank = x._indices(), x._values(), x.sparse_dim()
    if rank == 0 or values.dtype == torch.bool:
        return run_on_cpu(aten._coalesce.default, x)
    strides = _strides(x.shape[:rank])
    keys = indices[0] * strides[0]
    for row, stride in zip(indices[1:], strides[1:]):
        keys = keys + row * stride
    places, groups = torch.unique(keys, return_inverse=True)
    summed = values.new_zeros((len(places), *values.shape[1:])).index_add_(0, groups, values)
    rows = [(places // stride) % size for stride, size in zip(strides, x.shape[:rank])]
    return _make(torch.stack(rows), summed, x, True)


def _places(x: Tensor) -> tuple[Tensor, ...]:
    return x._indices().unbind(0)


def _into_dense(to: Tensor, x: Tensor, alpha: Any = 1) -> Tensor:
    """`to += alpha * x`."""
    values = x._values().to(to.dtype)
    return to.index_put_(_places(x), values if alpha == 1 else values * alpha, accumulate=True)


def _fits(x: Tensor, y: Tensor) -> bool:
    return (
        x.shape == y.shape and x.device == y.device and all(t.sparse_dim() > 0 for t in (x, y) if _is_sparse(t))
    )


def _add(x: Tensor, y: Tensor, *, alpha: Any = 1) -> Tensor:
    unlike = _is_sparse(x) and (not _is_sparse(y) or x.sparse_dim() != y.sparse_dim())
    if unlike or not _fits(x, y):
        return run_on_cpu(aten.add.Tensor, x, y, alpha=alpha)
    dtype = torch.result_type(x, y)
    if not _is_sparse(x):
        return _into_dense(x.to(dtype, copy=True), y, alpha)
    values = torch.cat([x._values().to(dtype), y._values().to(dtype) * alpha])
    return _make(torch.cat([x._indices(), y._indices()], 1), values, x, False)


def _add_into(x: Tensor, y: Tensor, *, alpha: Any = 1) -> Tensor:
    if not _is_sparse(x) and _fits(x, y) and torch.can_cast(torch.result_type(x, y), x.dtype):
        return _into_dense(x, y, alpha)
    if _is_sparse(x) and _is_sparse(y) and _fits(x, y) and x.dtype == y.dtype and x.sparse_dim() == y.sparse_dim():
        return x.copy_(_add(x, y, alpha=alpha))
    return run_on_cpu(aten.add_.Tensor, x, y, alpha=alpha)


def _add_out(x: Tensor, y: Tensor, *, alpha: Any = 1, out: Tensor) -> Tensor:
    return _add_into(x, y, alpha=alpha) if out is x else run_on_cpu(aten.add.out, x, y, alpha=alpha, out=out)


def _to_dense(x: Tensor, dtype: torch.dtype | None = None, masked_grad: bool | None = None) -> Tensor:
    if x.sparse_dim() == 0 or x.dtype == torch.bool:
        return run_on_cpu(aten._to_dense.default, x, dtype, masked_grad)
    made = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    return _into_dense(made, x).to(dtype or x.dtype)


def _sparse_mask(x: Tensor, mask: Tensor) -> Tensor:
    if _is_sparse(x) or x.shape != mask.shape or mask.sparse_dim() == 0:
        return run_on_cpu(aten.sparse_mask.default, x, mask)
    return _make(mask._indices().clone(), x[_places(mask)], mask, mask.is_coalesced())


def _is_scaled(x: Any, y: Any) -> bool:
    """`x` is sparse and `y` a number, which Python may hand over as one."""
    return _is_sparse(x) and (not isinstance(y, Tensor) or (y.dim() == 0 and not _is_sparse(y)))


def _by(op: Any, x: Tensor, y: Any) -> Tensor:
    """A sparse tensor times or by a number."""
    if not _is_scaled(x, y):
        return run_on_cpu(op, x, y)
    return _make(x._indices(), op(x._values(), y), x, x.is_coalesced())


def _by_into(op: Any, x: Tensor, y: Any) -> Tensor:
    if not _is_scaled(x, y):
        return run_on_cpu(op, x, y)
    op(x._values(), y)
    return x


def _to_copy(
    x: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
    non_blocking: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    def moved(part: Tensor, dtype: Any) -> Tensor:
        return part.to(device=device or part.device, dtype=dtype or part.dtype, copy=True)

    return _make(moved(x._indices(), None), moved(x._values(), dtype), x, x.is_coalesced())


def register() -> None:
    """Registers them; whatever has none runs on the CPU."""
    own = {
        "_coalesce": _coalesce,
        "add.Tensor": _add,
        "add_.Tensor": _add_into,
        "add.out": _add_out,
        "_to_dense": _to_dense,
        "sparse_mask": _sparse_mask,
        "_to_copy": _to_copy,
        "mul.Tensor": functools.partial(_by, aten.mul.Tensor),
        "div.Tensor": functools.partial(_by, aten.div.Tensor),
        "mul_.Tensor": functools.partial(_by_into, aten.mul_.Tensor),
        "div_.Tensor": functools.partial(_by_into, aten.div_.Tensor),
        "sub.Tensor": lambda x, y, *, alpha=1: _add(x, y, alpha=-alpha),
        "neg": lambda x: _make(x._indices(), -x._values(), x, x.is_coalesced()),
    }
    _sparse_layouts.register("Sparse", STRUCTURE + _sparse_layouts.UNARY, own)
