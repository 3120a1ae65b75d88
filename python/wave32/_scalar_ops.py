"""Operators that take or give a `Scalar`, which libtorch's C ABI cannot carry.

Each row is an operator of aten and a function that calls this device's own operators (`torch.ops.wave`), where
numbers are floats. To add one: define `wave::name(..., float, ...)` in Rust, add a row here.
"""

from __future__ import annotations

from typing import Any

import torch

from wave32 import _native, _pointwise
from wave32._fallback import run_on_cpu

aten = torch.ops.aten


def _local_scalar_dense(self: torch.Tensor) -> Any:
    if self.dtype == torch.bool:
        return bool(torch.ops.wave.read_int(self))
    if self.is_complex():
        real, imaginary = torch.view_as_real(self).unbind(-1)
        return complex(torch.ops.wave.read_float(real), torch.ops.wave.read_float(imaginary))
    if not self.is_floating_point():
        value = torch.ops.wave.read_int(self)
        return value if self.dtype != torch.uint64 else value % (1 << 64)
    if self.dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        return torch.ops.wave.read_float(self)
    return self.cpu().item()


def _is_exact(value: Any) -> bool:
    """A float carries this number."""
    return not isinstance(value, complex) and (isinstance(value, float) or abs(value) <= 1 << 53)


def _fill_scalar(self: torch.Tensor, value: Any) -> torch.Tensor:
    if not _is_exact(value) or self.is_complex():
        return self.copy_(torch.full((), value, dtype=self.dtype))
    return torch.ops.wave.fill_(self, value)


def _fill_tensor(self: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return self.copy_(value)


# Operator of aten: its implementation; pointwise ones are in _pointwise.py.
TABLE = {
    "_local_scalar_dense": _local_scalar_dense,
    "fill_.Scalar": _fill_scalar,
    "fill_.Tensor": _fill_tensor,
}

# Composites that reach for a kernel by device behind the dispatcher's back: to the CPU explicitly, as long as
# there is no kernel.
ON_CPU = ["conj_physical", "conj_physical_", "conj_physical.out"]


def register() -> None:
    """Registers both tables."""
    from wave32 import _index_ops, _reduction_ops
    from wave32._registration import library

    wave = library("aten", "PrivateUse1")
    tables = TABLE | _index_ops.TABLE | _pointwise.table() | _reduction_ops.TABLE
    for name, implementation in tables.items():
        wave.impl(name, implementation)
    native = set(_native.native_operators())
    for name in ON_CPU:
        if name in native:
            continue
        base, _, overload = name.partition(".")
        op = getattr(getattr(aten, base), overload or "default")
        wave.impl(name, lambda *args, _op=op, **kwargs: run_on_cpu(_op, *args, **kwargs))
