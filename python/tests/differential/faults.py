"""Faults planted in one operator of the device under test, for the fuzzer's own test."""

from __future__ import annotations

import os
import time
from typing import Any

import torch

KINDS = ("values", "type", "shape", "strides", "no error", "error", "hang", "abort", "beside", "starved")


def planted(specs: list[str] | None) -> Any:
    """`KIND:OPERATOR` of each: a stand-in for the operators' call on the device; None where nothing is planted."""
    if not specs:
        return None
    kinds = {name: kind for kind, _, name in (spec.partition(":") for spec in specs)}
    assert set(kinds.values()) <= set(KINDS), kinds

    def call(op: Any, case: Any, tensors: list[Any], device: str, change: Any, keywords: dict[str, Any]) -> Any:
        def real() -> Any:
            return op.call(case, tensors, device, change, **keywords)

        return _faulty(kinds[op.name], real, tensors) if op.name in kinds else real()

    return call


def _faulty(kind: str, real: Any, tensors: list[torch.Tensor]) -> Any:
    if kind == "hang":
        time.sleep(10**6)
    if kind == "starved":  # Five on one processor.
        own = os.getpid()
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        is_other = any(os.fork() == 0 for _ in range(4))
        while not is_other or os.getppid() == own:
            pass
        os._exit(0)
    if kind == "abort":
        os.abort()
    if kind == "error":
        raise RuntimeError("planted")
    if kind == "no error":
        try:
            return real()
        except RuntimeError:
            return torch.zeros(1)
    made = real()
    if kind == "type":
        return made.to(torch.float16 if made.dtype is torch.float64 else torch.float64)
    if kind == "shape":
        return made.unsqueeze(0)
    if kind == "strides":
        return made.mT.contiguous().mT if made.dim() > 1 else made
    if kind == "beside" and tensors[0].numel():
        tensors[0].view(-1)[0] = 42
    if kind == "values" and made.numel() and made.is_floating_point():
        # One element, by a five-thousandth: nothing of f16, much of f32.
        off = torch.ones(made.shape, dtype=made.dtype, device=made.device)
        off.view(-1)[-1] = 1.0002
        return made * off
    return made
