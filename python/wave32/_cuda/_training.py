"""Mixed precision, inference mode and `torch.compile`."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.amp import autocast_mode, grad_scaler

from wave32._cuda._devices import kind

_told = False


def _translated(original: Callable[..., Any], default: str | None = None) -> Callable[..., Any]:
    """`original` with its `device_type`, first or by name, as torch gets it."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], str):
            args = (kind(args[0]), *args[1:])
        elif "device_type" in kwargs:
            kwargs["device_type"] = kind(kwargs["device_type"])
        elif default is not None:
            args = (default, *args)
        return original(*args, **kwargs)

    return call


def _enable_autocast() -> None:
    start, cast = autocast_mode.autocast.__init__, autocast_mode._cast
    scaler = grad_scaler.GradScaler.__init__

    @functools.wraps(start)
    def autocast_init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        start(self, kind(device_type), *args, **kwargs)

    @functools.wraps(scaler)
    def scaler_init(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        scaler(self, kind(device), *args, **kwargs)

    autocast_mode.autocast.__init__ = autocast_init
    autocast_mode._cast = lambda value, device_type, dtype: cast(value, kind(device_type), dtype)
    grad_scaler.GradScaler.__init__ = scaler_init
    for name in ["is_autocast_enabled", "get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype"]:
        # Without a device these ask for CUDA's state.
        default = "wave" if name in ("is_autocast_enabled", "set_autocast_enabled") else None
        setattr(torch, name, _translated(getattr(torch, name), default))
    torch._C._is_autocast_available = _translated(torch._C._is_autocast_available)
    torch.get_autocast_gpu_dtype = lambda: torch.get_autocast_dtype("wave")
    torch.set_autocast_gpu_dtype = lambda dtype: torch.set_autocast_dtype("wave", dtype)


def _enable_compile() -> None:
    original = torch.compile

    @functools.wraps(original)
    def compile(model: Any = None, **kwargs: Any) -> Any:
        global _told
        if kwargs.get("backend", "inductor") != "inductor":
            return original(model, **kwargs)
        if not _told:
            _told = True
            warnings.warn("wave32 run: torch.compile has no code generator for this card; running uncompiled", stacklevel=2)
        return (lambda decorated: decorated) if model is None else model

    torch.compile = compile


def _forward_f16_sums() -> None:
    """cuBLAS's switch for sums in f16, which is of matrix products alone. What the user allowed by the device's own stays."""
    original, is_ours = getattr(torch._C, "_set_cublas_allow_fp16_accumulation", None), False
    if original is None:
        return

    @functools.wraps(original)
    def switch(is_allowed: bool) -> None:
        nonlocal is_ours
        original(is_allowed)
        before = torch.wave.allow_fp16_accumulation()
        if before is False or (before == "matmul" and is_ours):
            torch.wave.allow_fp16_accumulation("matmul" if is_allowed else False)
            is_ours = is_allowed

    torch._C._set_cublas_allow_fp16_accumulation = switch


def _enable_inference_mode() -> None:
    """As `no_grad`: views of ordinary tensors, taken in inference mode, fail in torch on a device from outside."""
    mode = torch.autograd.grad_mode.inference_mode

    def enter(self: Any) -> None:
        self.wave32_was_enabled = torch.is_grad_enabled()
        torch._C._set_grad_enabled(self.wave32_was_enabled and not self.mode)

    def leave(self: Any, *_: Any) -> None:
        torch._C._set_grad_enabled(self.wave32_was_enabled)

    mode.__enter__, mode.__exit__ = enter, leave


def enable() -> None:
    """Turns them on."""
    _enable_autocast()
    _enable_inference_mode()
    _enable_compile()
    _forward_f16_sums()
