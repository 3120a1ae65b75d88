"""Registers name, hooks, guard, kernels, fallback and patches with torch, in the order that torch needs."""

from __future__ import annotations

import atexit
import functools
import os
import warnings

import torch

from wave32 import (
    _attention,
    _autocast,
    _device,
    _fallback,
    _hooks,
    _moves,
    _native,
    _patches,
    _recurrent,
    _scalar_ops,
    _sparse,
    _sparse_layouts,
    _wide,
)
from wave32._libraries import VERSION

NAME = "wave"


class _Hooks(torch._C._acc.PrivateUse1Hooks):
    def is_available(self) -> bool:
        return torch.wave.is_available()

    def has_primary_context(self, device_index: int) -> bool:
        return torch.wave.is_initialized()

    def is_built(self) -> bool:
        return True


class _Guard(torch._C._acc.DeviceGuard):
    # Only until `_native.settle_guard`, or for good in a torch newer than those it knows. Torch asks from within
    # operators, and an exception raised there is lost: no bytecode runs in this call, so that Ctrl-C is not taken in it.
    type_ = staticmethod(functools.partial(getattr, torch._C._autograd.DeviceType, "PrivateUse1"))


def version(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers[:2]))


def register() -> None:
    """Makes `wave` a device of this process. Opens nothing: that is the first use's business."""
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _device)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    torch._C._acc.register_python_privateuseone_hook(_Hooks())
    torch._C._acc.register_python_privateuseone_device_guard(_Guard())
    _native.register_kernels()
    oldest, newest = _native.torch_versions()
    known = oldest <= VERSION <= newest
    if VERSION > newest:
        warnings.warn(
            f"wave32 was tried with torch {version(oldest)} to {version(newest)}, and this is {version(VERSION)}: it works "
            "without what reaches into torch's insides; look for a newer wave32",
            stacklevel=2,
        )
    if known:
        _native.settle_guard()
    _fallback.register()
    _scalar_ops.register()
    _recurrent.register()
    _autocast.register(known)
    if known:
        _hooks.settle()
    _moves.register()
    _sparse.register()
    _sparse_layouts.register_compressed()
    _wide.register()
    _attention.register()
    if known:
        _scalar_ops.unbox()
    _patches.apply()
    if torch.distributed.is_available():
        from wave32 import _distributed

        _distributed.register()
    # Before torch and the interpreter tear themselves down; a fork's exit leaves its parent's device alone.
    atexit.register(_native.close)
    os.register_at_fork(after_in_child=_device._forget)
