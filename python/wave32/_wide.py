"""`ctc_loss` of 16-bit floats in f32: torch refuses them above the device's kernels. Fourier transforms of them stay refused,
as on the CPU: what CUDA takes (halves, of lengths that are powers of 2) is neither."""

from __future__ import annotations

import functools
from typing import Any

import torch

from wave32._fallback import operator
from wave32._libraries import library

NAMES = ["ctc_loss.IntList", "ctc_loss.Tensor"]

_WIDER = (torch.float16, torch.bfloat16)


def _wide(op: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    if x.dtype not in _WIDER:
        return op.decompose(x, *args, **kwargs)
    return op.decompose(x.float(), *args, **kwargs).to(x.dtype)


def register() -> None:
    """Registers them where autograd is recorded, and where it is not."""
    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        into = library("aten", key)
        for name in NAMES:
            into.impl(name, functools.partial(_wide, operator(name)))
