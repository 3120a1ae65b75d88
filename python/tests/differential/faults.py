"""Faults planted in one operator of the device under test, for the fuzzer's own test."""

from __future__ import annotations

import os
import time
from typing import Any

import torch

KINDS = ("value", "type", "shape", "no error", "error", "hang", "abort", "beside")


def planted(spec: str | None) -> Any:
    """`KIND:OPERATOR`: a stand-in for the operator's call on the device; None where nothing is planted."""
    if not spec:
        return None
    kind, _, name = spec.partition(":")
    assert kind in KINDS, kind

    def call(op: Any, case: Any, tensors: list[Any], device: str, change: Any, keywords: dict[str, Any]) -> Any:
        def real() -> Any:
            return op.call(case, tensors, device, change, **keywords)

        if op.name != name:
            return real()
        if kind == "hang":
            time.sleep(10**6)
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
        if kind == "beside" and tensors[0].numel():
            tensors[0].view(-1)[0] = 42
        if kind == "value" and made.numel() and made.is_floating_point():
            # One element, by a hundredth.
            off = torch.zeros(made.shape, dtype=made.dtype, device=made.device)
            off.view(-1)[-1] = 0.01
            return made + off
        return made

    return call
