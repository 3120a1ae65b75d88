"""Checkpoints: written as from CUDA, so that they load anywhere, and read from CUDA onto the device."""

from __future__ import annotations

from typing import Any

import torch

from wave32._cuda._devices import is_cuda, translate


def _tag(storage: Any) -> str | None:
    return "cuda:0" if storage.device.type == "wave" else None


def _restore(storage: Any, location: str) -> Any:
    return storage.to(device=translate(location)) if is_cuda(location) else None


def enable() -> None:
    """Registers the two, before torch's own."""
    torch.serialization.register_package(5, _tag, _restore)
