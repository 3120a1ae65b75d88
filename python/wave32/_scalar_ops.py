"""Operators that libtorch's C ABI does not reach: those with a `Scalar`, and those that need a hint.

Kernels with a `Scalar` are Rust functions in a `scalar_ops!` table; each is registered here as a builtin that Python
calls, and `unbox` has C++ call them and the others without Python. Add rows there, not here.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from wave32 import _attention, _autocast, _complex, _composites, _fft, _foreach, _index_ops, _native, _regions
from wave32._fallback import apart, operator, run_on_cpu, shares_memory
from wave32._libraries import library


def _fill_tensor(self: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    if value.dim() != 0:
        return run_on_cpu(torch.ops.aten.fill_.Tensor, self, value)  # Which words the error.
    if value.device != self.device:
        return self.fill_(value.item())
    own = value.untyped_storage()._cdata == self.untyped_storage()._cdata
    return self.copy_(value.clone() if own else value)


# Composites that ask for the device, or reach for its kernel behind the dispatcher's back: to the CPU explicitly, as
# long as there is no kernel.
ON_CPU = ["mode.values", "linalg_inv_ex"]


def _otherwise(name: str, op: Any) -> Any:
    """What a kernel that refuses calls: of lists one operator a tensor, complex numbers by their parts, else the CPU."""
    if (of_lists := _foreach.INSTEAD.get(name)) is not None:
        # Of lists every pair would have to be looked at, which takes longer than the kernels.
        return lambda *args, why, **kwargs: of_lists(*args, **kwargs)
    instead, fallback = _complex.INSTEAD.get(name), functools.partial(run_on_cpu, op)
    if instead is None:
        return fallback

    def call(*args: Any, why: str, **kwargs: Any) -> Any:
        made = NotImplemented if shares_memory(op, args, kwargs) else instead(*args, **kwargs)
        return fallback(*args, why=why, **kwargs) if made is NotImplemented else made

    return call


def register() -> None:
    """Registers them."""
    wave = library("aten", "PrivateUse1")
    wave.impl("fill_.Tensor", _fill_tensor)
    tables = _index_ops.TABLE | _composites.table() | _attention.table() | _complex.table() | _fft.table()
    for name, implementation in tables.items():
        wave.impl(name, apart(operator(name), implementation))
    library("torchvision", "PrivateUse1").impl("nms", _composites.nms)
    _regions.register()
    for name in _native.scalar_operators():
        op = operator(name)
        arguments = op._schema.arguments
        defaults = [argument.default_value for argument in arguments]
        wave.impl(name, _native.scalar_kernel(name, [a.name for a in arguments], defaults, _otherwise(name, op)))
    native = set(_native.native_operators())
    for name in ON_CPU:
        if name not in native:
            wave.impl(name, functools.partial(run_on_cpu, operator(name)))


# Operators whose kernels C++ calls as it calls its own.
UNBOXED: list[str] = []


def unbox() -> None:
    """Has C++ call the device's kernels as it calls its own: without a stack of arguments, without Python."""
    for key, names in (("PrivateUse1", _native.kernels()), ("AutocastPrivateUse1", _autocast.NATIVE)):
        schemas = {}
        for name in names:
            try:
                schemas[name] = str(operator(name)._schema)
            except AttributeError:  # No operator of this torch.
                continue
        made = _native.unbox(int(getattr(torch._C.DispatchKey, key)), schemas)
        UNBOXED.extend(name if key == "PrivateUse1" else f"autocast {name}" for name in made)
