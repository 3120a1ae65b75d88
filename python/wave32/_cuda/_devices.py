"""Names of devices: `cuda` as scripts write and read it, `wave` as torch gets it."""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from typing import Any

import torch

from wave32 import _hooks
from wave32._variables import variable

_Device = torch.device
# A device's type as torch has it.
true_type = _Device.type.__get__
_repr = _Device.__repr__
_str = _Device.__str__

# Py_TPFLAGS_IMMUTABLETYPE of CPython, the same since 3.10.
_IMMUTABLE = 1 << 8

_known: dict[str, torch.device] = {}


def ordinals() -> set[int]:
    """Numbers under which scripts may ask for this process' one device: 0, and torchrun's local rank."""
    rank = os.environ.get("LOCAL_RANK", "")
    return {0, int(rank)} if rank.isdigit() else {0}


def choose_card() -> None:
    """Under torchrun each process takes a card of its own, as long as there are enough (`WAVE32_CARDS`)."""
    rank, cards = max(ordinals()), os.environ.get("WAVE32_CARDS", "").split(",")
    if "LOCAL_RANK" in os.environ and rank < len(cards) and cards[rank]:
        if variable("WAVE32_VISIBLE_DEVICES") is None:
            os.environ["WAVE32_VISIBLE_DEVICES"] = cards[rank]


def _check(ordinal: int) -> None:
    if ordinal not in ordinals():
        raise RuntimeError(
            f"wave32 run: there is no device cuda:{ordinal}: a process has one device, cuda:0. For more cards start one "
            "process each (torchrun)"
        )


def is_cuda(name: str) -> bool:
    """True for `cuda` and `cuda:N`."""
    return name == "cuda" or name.startswith("cuda:")


def kind(name: str) -> str:
    """A type of devices (`cuda`, `cpu`) as torch gets it."""
    return "wave" if name == "cuda" else name


def translate(device: Any) -> Any:
    """A device as torch gets it. What does not name CUDA passes."""
    if isinstance(device, str):
        known = _known.get(device)
        if known is not None:
            return known
        base, _, number = device.partition(":")
        if base not in ("cuda", "wave"):
            return device
        if not number:
            made = _Device("wave")
        else:
            made = _Device(f"{base}:{number}")  # Torch's own complaint about what is no number.
            _check(made.index)
            made = _Device("wave", 0)
        _known[device] = made
        return made
    if isinstance(device, int) and not isinstance(device, bool):
        _check(device)
        return _Device("wave", 0)
    return device


class _Replaces(type):
    """Makes `isinstance(x, Stand-in)` ask for what the class stands in for."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls._real)

    def __subclasscheck__(cls, other: type) -> bool:
        return other is cls or issubclass(other, cls._real)


class device(metaclass=_Replaces):
    """`torch.device`, by CUDA's names as well."""

    _real = _Device

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else kwargs.get("device", kwargs.get("type"))
        index = args[1] if len(args) > 1 else kwargs.get("index")
        if index is not None and first in ("cuda", "wave"):
            return translate(f"{first}:{index}")
        if isinstance(first, (str, int)) and index is None:
            found = translate(first)
            return found if isinstance(found, _Device) else _Device(found)
        return _Device(*args, **kwargs)


device.__module__, device.__qualname__ = "torch", "device"


def asked_by_torch(depth: int = 2) -> bool:
    """True where the caller's caller is torch or wave32 itself."""
    name = sys._getframe(depth).f_globals.get("__name__") or ""
    return name.startswith(("torch.", "wave32.")) or name == "torch"


def _shown_type(self: torch.device) -> str:
    name = true_type(self)
    return "cuda" if name == "wave" and not asked_by_torch() else name


def _shown_str(self: torch.device) -> str:
    text = _str(self)
    return text.replace("wave", "cuda", 1) if text.startswith("wave") and not asked_by_torch() else text


def _shown_repr(self: torch.device) -> str:
    return _repr(self) if asked_by_torch() else _repr(self).replace("'wave'", "'cuda'", 1)


def _flags_word(cls: type) -> Any:
    """The word of a type's structure that holds its flags, found by its value and not by trust in a layout."""
    words = (ctypes.c_ulong * 32).from_address(id(cls))
    found = [i for i in range(32) if words[i] == cls.__flags__]
    return ctypes.c_ulong.from_buffer(words, found[0] * ctypes.sizeof(ctypes.c_ulong)) if len(found) == 1 else None


def _show_cuda() -> None:
    """Gives `torch.device`, a type that CPython guards against change, what scripts are shown."""
    word = _flags_word(_Device) if sys.implementation.name == "cpython" else None
    if word is None or not word.value & _IMMUTABLE:
        warnings.warn("wave32 run: `device.type` will say 'wave': this Python does not let it say 'cuda'", stacklevel=2)
        return
    word.value &= ~_IMMUTABLE
    try:
        _Device.type = property(_shown_type)
        _Device.__str__ = _shown_str
        _Device.__repr__ = _shown_repr
    finally:
        word.value |= _IMMUTABLE


class Generator(metaclass=_Replaces):
    """`torch.Generator`, refusing the device with words that help where it has none."""

    _real = torch.Generator

    def __new__(cls, device: Any = "cpu") -> torch.Generator:
        device = translate(device)
        if isinstance(device, _Device) and true_type(device) == "wave" and "generator" not in _hooks.SETTLED:
            raise RuntimeError(
                "wave32 run: torch.Generator(device='cuda') cannot be had: torch lets no device from outside make one. "
                "Draw with torch.Generator() on the CPU and move, or seed the device with torch.cuda.manual_seed"
            )
        return cls._real(device)


Generator.__module__, Generator.__qualname__ = "torch", "Generator"


def enable() -> None:
    """Replaces `torch.device` and what devices say of themselves."""
    choose_card()
    _show_cuda()
    torch.device = device
    torch.Generator = Generator
