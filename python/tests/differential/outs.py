"""What out= is given. Built from the text that a reproducer prints."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from differential.cases import NAMES, Case
from differential.operators import first

GAP = 7


@dataclasses.dataclass
class Out:
    tensor: torch.Tensor
    # What `tensor` is a view of, with gaps.
    base: torch.Tensor | None = None
    # (number, tensor): an input that lies beside the result.
    replaced: tuple[int, torch.Tensor] | None = None

    def gaps_kept(self) -> bool:
        """Whether what lies between the result's elements is as it was."""
        base = self.base.detach().cpu().clone()
        base[..., 1::2].fill_(GAP)
        return bool((base == GAP).all())


def text(case: Case, like: torch.Tensor, source: torch.Tensor | None, name: str) -> tuple[str, str]:
    """(statement before the call, or nothing; out= itself). `like` is the result that the CPU made without out=; `source`
    the first argument, called `name`."""
    kind, shape, dtype = case.out, tuple(like.shape), like.dtype
    fits = source is not None and source.shape == shape and source.dtype == dtype
    if kind == "empty":
        return "", f"torch.empty(0, dtype={dtype}, device=d)"
    if kind == "wrong size":
        return "", f"torch.full({(*shape, 2)}, {GAP}, device=d).to({dtype})"
    if kind == "wrong type":
        others = {torch.float32: torch.float64, torch.float64: torch.float32, torch.float16: torch.int64, torch.bool: torch.uint8}
        return "", f"torch.full({shape}, {GAP}, device=d).to({others.get(dtype, torch.float32)})"
    if kind == "strided" and like.numel() and shape and dtype is not torch.bool:
        sizes = shape[::-1]
        wide, order = (*sizes[:-1], 2 * sizes[-1] + 1), tuple(range(len(shape)))[::-1]
        return f"o = torch.full({wide}, {GAP}, device=d).to({dtype})", f"o[..., 1::2].permute({order})"
    if kind == "itself" and fits:
        return "", name
    if kind == "overlap" and fits and like.numel():
        made = f"o = torch.empty({like.numel() + 1}, dtype={dtype}, device=d); {name} = o[:-1].view({shape}).copy_({name})"
        return made, f"o[1:].view({shape})"
    return "", f"torch.full({shape}, {GAP}, device=d).to({dtype})"


def make(case: Case, like: torch.Tensor, device: str, tensors: list[torch.Tensor]) -> Out:
    number = first(case)
    source = tensors[number] if number is not None else None
    statement, call = text(case, like, source, "x")
    names: dict[str, Any] = {**NAMES, "d": device, "x": source}
    exec(statement, names)
    replaced = (number, names["x"]) if "x = " in statement and number is not None else None
    base = names.get("o") if case.out == "strided" else None
    return Out(eval(call, names), base, replaced)
