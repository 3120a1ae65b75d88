"""What `torch.cuda.cudart()` gives: the few calls of CUDA's runtime that PyTorch hands out."""

from __future__ import annotations

import enum
from typing import Any

from wave32 import _device
from wave32._cuda._devices import translate


class cudaError(enum.IntEnum):
    """The one answer of these calls."""

    success = 0


def cudaGetErrorString(error: int) -> str:
    """What an answer means."""
    return "no error" if error == cudaError.success else f"error {int(error)} of CUDA, which is not here"


def cudaHostRegister(pointer: int, size: int, flags: int) -> cudaError:
    """Memory stays as it is: copies to the device read memory of any kind."""
    return cudaError.success


def cudaHostUnregister(pointer: int) -> cudaError:
    """See `cudaHostRegister`."""
    return cudaError.success


def cudaProfilerStart() -> cudaError:
    """CUDA's profilers see nothing of this device; `torch.wave.profile` does."""
    return cudaError.success


def cudaProfilerStop() -> cudaError:
    """See `cudaProfilerStart`."""
    return cudaError.success


def cudaMemGetInfo(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes."""
    return _device.mem_get_info(None if device is None else translate(device))
