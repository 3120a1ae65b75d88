"""Operators of 16-bit floats in f32 where torch refuses them above the device's kernels: Fourier transforms, `ctc_loss`."""

from __future__ import annotations

import functools
from typing import Any

import torch

from wave32._fallback import operator

NAMES = """fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 fft_hfft2 fft_ihfft2
    fft_fftn fft_ifftn fft_rfftn fft_irfftn fft_hfftn fft_ihfftn ctc_loss.IntList ctc_loss.Tensor""".split()

_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}

# There are no complex numbers of bfloat16.
_NARROWER = {
    torch.float16: {torch.float32: torch.float16, torch.complex64: torch.complex32},
    torch.complex32: {torch.float32: torch.float16, torch.complex64: torch.complex32},
    torch.bfloat16: {torch.float32: torch.bfloat16},
}


def _wide(op: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    if x.dtype not in _WIDER:
        return op.decompose(x, *args, **kwargs)
    made = op.decompose(x.to(_WIDER[x.dtype]), *args, **kwargs)
    return made.to(_NARROWER[x.dtype].get(made.dtype, made.dtype))


def register() -> None:
    """Registers them where autograd is recorded, and where it is not."""
    from wave32._registration import library

    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        into = library("aten", key)
        for name in NAMES:
            into.impl(name, functools.partial(_wide, operator(name)))
