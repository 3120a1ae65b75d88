"""One case run on one side: the device, the CPU as it is, the CPU on contiguous copies, the CPU in f64."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from differential import outs
from differential.cases import COMPLEX, Case, tensors_in
from differential.operators import OPS, first

ERRORS = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, NotImplementedError, AssertionError, ZeroDivisionError)
WIDE = {True: torch.complex128, False: torch.float64}


@dataclasses.dataclass
class Outcome:
    """What a call gave; tensors are on the CPU, their strides as they were."""

    error: Exception | None = None
    results: list[torch.Tensor] = dataclasses.field(default_factory=list)
    strides: list[tuple[int, ...]] = dataclasses.field(default_factory=list)
    graded: list[bool] = dataclasses.field(default_factory=list)
    devices: list[str] = dataclasses.field(default_factory=list)
    # What is no tensor.
    plain: str = ""
    inputs: list[torch.Tensor] = dataclasses.field(default_factory=list)
    # Before views: what lies beside an input must stay.
    bases: list[torch.Tensor] = dataclasses.field(default_factory=list)
    grads: list[torch.Tensor | None] = dataclasses.field(default_factory=list)
    gaps: bool = True


def widen(value: Any) -> Any:
    """A type, or a tensor, in f64."""
    if isinstance(value, torch.dtype) and (value.is_floating_point or value.is_complex):
        return WIDE[value.is_complex]
    if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
        return value.to(WIDE[value.is_complex()])
    if isinstance(value, (list, tuple)):
        return type(value)([widen(item) for item in value])
    return value


def weights(results: list[torch.Tensor]) -> list[torch.Tensor]:
    """What is differentiated is the sum of the results by these: numbers that every type has."""
    generator = torch.Generator().manual_seed(5)
    return [(torch.randint(-16, 17, t.shape, generator=generator) / 8).to(t.dtype) for t in results]


def run(
    case: Case, device: str, how: str = "as is", like: Outcome | None = None, call: Any = None, rounded: Perturbed | None = None
) -> Outcome:
    """`how` is as is, contiguous or f64; `like` is the CPU's outcome without out=, which says what out= has to be."""
    op, outcome, graded = OPS[case.op], Outcome(), case.mode == "backward"
    try:
        bases, tensors = [], []
        for data in case.tensors:
            base = data.base() if device == "cpu" else data.base().to(device)
            view = data.view(base)
            if how != "as is":
                view = view.contiguous().clone(memory_format=torch.contiguous_format)
            if how == "f64":
                view = widen(view)
                view = rounded.off(view) if rounded else view
            if graded and data.grad and data.is_float:
                view = view.detach().requires_grad_()
            bases.append(base.detach())  # With sizes of its own: some calls change an argument's.
            tensors.append(view)
        keywords: dict[str, Any] = {}
        out = None
        if case.mode == "out" and how == "as is" and like is not None:
            out = outs.make(case, like.results[0], device, tensors)
            keywords["out"] = out.tensor
            if out.replaced is not None:
                tensors[out.replaced[0]] = out.replaced[1]
        change = widen if how == "f64" else (lambda value: value)
        with _wide_default() if how == "f64" else contextlib.nullcontext(), rounded or contextlib.nullcontext():
            if call is None:
                result = op.call(case, tensors, device, change, **keywords)
            else:
                result = call(op, case, tensors, device, change, keywords)
            found = tensors_in(result)
            outcome.plain = "" if found or isinstance(result, (list, tuple)) and not result else repr(result)
            outcome.graded = [t.requires_grad for t in found]
            if graded and any(outcome.graded):
                _differentiate(outcome, found, [t for t in tensors if t.requires_grad])
        outcome.strides = [tuple(t.stride()) for t in found]
        outcome.devices = [t.device.type for t in found]
        outcome.results = [t.detach().cpu() for t in found]
        if how == "as is":
            outcome.bases = [base.detach().cpu() for base in bases]
        outcome.inputs = [t.detach().cpu() for t in tensors]
        if out is not None and out.base is not None:
            outcome.gaps = out.gaps_kept()
        if device not in ("cpu", "meta"):
            # Indices out of range are told at a wait.
            torch.get_device_module(device).synchronize()
    except ERRORS as error:
        outcome.error = error
    return outcome


def _differentiate(outcome: Outcome, found: list[torch.Tensor], leaves: list[torch.Tensor]) -> None:
    roots = [t for t in found if t.requires_grad]
    wanted = [weight.to(root.device) for weight, root in zip(weights(roots), roots)]
    grads = torch.autograd.grad(roots, leaves, wanted, allow_unused=True)
    outcome.grads = [None if g is None else g.detach().cpu() for g in grads]


@contextlib.contextmanager
def _wide_default() -> Iterator[None]:
    """Whole numbers become f64 where they become floats."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def run_wide(case: Case, perturbed: float = 0.0, seed: int = 0) -> Outcome:
    """In f64 on contiguous copies; with `perturbed`, rounded by that much at every step."""
    plain = dataclasses.replace(case, mode="plain") if case.mode == "out" else case
    return run(plain, "cpu", "f64", rounded=Perturbed(perturbed, seed) if perturbed else None)


class Perturbed(TorchDispatchMode):
    """Every operator's result is off by a rounding of `by`: how much the last result moves is how much it may be off."""

    def __init__(self, by: float, seed: int):
        super().__init__()
        self.by, self.generator = by, torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        # A view or what was written stays what it is.
        if any(returned.alias_info is not None for returned in func._schema.returns):
            return made
        return tree_map(self.off, made)

    def off(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype not in (torch.float64, torch.complex128):
            return value
        signs = torch.randint(0, 2, value.shape, generator=self.generator).double() * 2 - 1
        return torch.empty_like(value).copy_(value * (1 + self.by * signs))


def coarsest(case: Case, outcome: Outcome) -> float:
    """The largest rounding among the types of a call."""
    types = [data.dtype for data in case.tensors] + [t.dtype for t in outcome.results]
    types += [value for value in (*case.args, *case.kwargs.values()) if isinstance(value, torch.dtype)]
    found = [torch.finfo(t).eps for t in types if t.is_floating_point or t in COMPLEX]
    return max(found, default=torch.finfo(torch.float32).eps)


def terms(case: Case) -> int:
    """At most how many numbers one element of a result is made of."""
    return max((math.prod(data.final_shape()) for data in case.tensors), default=1)


def written(case: Case) -> int | None:
    return first(case) if case.mode == "inplace" else None
