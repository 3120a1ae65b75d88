"""Tensors that go to another device or storage, where torch asks a device for what it has none of."""

from __future__ import annotations

import functools
from typing import Any

import torch

from wave32 import _native
from wave32._hooks import SETTLED
from wave32._libraries import VERSION, library

aten = torch.ops.aten


def _to_copy(self: torch.Tensor, **how: Any) -> torch.Tensor:
    """`x.to(...)`. Towards the CPU, torch would take pinned memory for a copy that does not wait: ours waits."""
    device = how.get("device")
    if device is not None and device.type == "cpu":
        how["non_blocking"] = False
    return aten._to_copy.default.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), self, **how)


def _patch_storage_to() -> None:
    """The same of `storage.to("cpu", non_blocking=True)`."""
    original = torch.storage._to

    @functools.wraps(original)
    def to(self: torch.UntypedStorage, device: torch.device, non_blocking: bool = False) -> torch.UntypedStorage:
        return original(self, device, non_blocking and self.device.type != "wave")

    torch.storage._to = to


def register() -> None:
    """Registers what moves tensors."""
    if VERSION >= (2, 15):
        # It asks the device whether `parameter.data = moved` is possible.
        _native.share_parameters()
    if "pinned" not in SETTLED:
        if not _native.wait_for_copies():
            library("aten", "PrivateUse1").impl("_to_copy", _to_copy)
        _patch_storage_to()
