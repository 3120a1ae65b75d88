"""Generators, pinned memory and growing storages of the device: what torch asks a C++ object for.

Which entry of that object's table is which is found out by calling what ends there while every entry tells its number:
torch's own refuses, and names itself. Where something is otherwise, torch's own entry stays, and the refusal.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from wave32 import _native

# What could be taken: "generator", "pinned", "resize".
SETTLED: set[str] = set()


def _reached(call: Callable[[], Any], name: str) -> int | None:
    """The entry where `call` ends with a refusal of the function `name`."""
    _native.last_hook()
    try:
        call()
    except RuntimeError as refusal:
        at = _native.last_hook()
        return at if f"`{name}`" in str(refusal) else None
    return None


def _asked() -> int | None:
    """The entry that is asked whether memory is pinned."""
    _native.last_hook()
    return None if torch.empty(1, device="cpu").is_pinned() else _native.last_hook()


def _grow() -> None:
    torch.empty(0, dtype=torch.uint8, device="wave").untyped_storage().resize_(8)


def _is_right(what: str) -> bool:
    """A trial of what needs no device."""
    try:
        if what == "generator":
            made = torch.Generator("wave").manual_seed(5)
            return made.device.type == "wave" and made.initial_seed() == 5 and made.clone_state().device == made.device
        if what == "pinned":
            pinned = torch.empty(3, device="cpu", pin_memory=True)
            return pinned[1:].is_pinned() and not torch.empty(3, device="cpu").is_pinned()
    except RuntimeError:
        return False
    return True


def has_cuda() -> bool:
    """Whether torch's own CUDA or ROCm has a device. Does not start the driver, after which this process could not fork."""
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        return torch.cuda.is_available()
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def settle() -> None:
    """Finds the entries and takes them. Once, before anything else of torch is registered for pinned memory."""
    try:
        _native.trace_hooks()
    except (RuntimeError, NotImplementedError):
        return
    found: dict[str, Any] = {}
    try:
        found["generator"] = _reached(lambda: torch.Generator(device="wave"), "getNewGenerator")
        found["resize"] = _reached(_grow, "resizePrivateUse1Bytes")
        if not has_cuda():
            allocator = _reached(lambda: torch.empty(1, device="cpu", pin_memory=True), "getPinnedMemoryAllocator")
            asked = _asked()
            found["pinned"] = None if allocator is None or asked is None else (allocator, asked)
    finally:
        SETTLED.update(_native.settle_hooks(**found))
    wrong = {what for what in SETTLED if not _is_right(what)}
    if wrong:
        SETTLED.difference_update(wrong)
        _native.settle_hooks(**{what: place for what, place in found.items() if what in SETTLED})
