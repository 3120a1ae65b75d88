"""Results in tensors that are given: `out=`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# As C++ names types, and some messages of PyTorch's.
_CXX = {
    torch.float32: "float", torch.float64: "double", torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16",
    torch.int64: "long int", torch.int32: "int", torch.int16: "short int", torch.int8: "signed char",
    torch.uint8: "unsigned char",
}  # fmt: skip


def _check_out(out: torch.Tensor, result: torch.Tensor) -> None:
    if out.device != result.device:
        found = f"{result.device} and {out.device}"
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {found}!")
    if out.dtype != result.dtype:
        wanted, given = (_CXX.get(x.dtype, str(x.dtype)[6:]) for x in (result, out))
        raise RuntimeError(f"Expected out tensor to have dtype {wanted}, but got {given} instead")


def into_given(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with its results in given tensors, which come by name and in order."""

    def call(*arguments: Any, **keywords: Any) -> Any:
        outs = [keywords.pop(name) for name in ("out", "grad_input", "values", "indices") if name in keywords]
        results = function(*arguments, **keywords)
        for out, result in zip(outs, results if isinstance(results, tuple) else (results,)):
            _check_out(out, result)
            if out.shape != result.shape:
                torch.ops.wave.resize_output_(out, result.shape)
            out.copy_(result)
        return outs[0] if len(outs) == 1 else tuple(outs)

    return call
