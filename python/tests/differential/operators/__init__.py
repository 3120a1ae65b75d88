"""The table of operators: how each is called, and how its arguments are drawn.

A row's `make` draws from a `Gen` and returns (args, kwargs). The rows stand in the files of this folder, one a family.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from differential.cases import Case, Ref, resolve, show

OUTS = ("right", "right", "empty", "strided", "wrong size", "wrong type", "itself")
# Where the result may not lie beside the input's elements: only elementwise operators check that.
ELEMENTWISE_OUTS = (*OUTS, "overlap")


@dataclasses.dataclass(frozen=True)
class Op:
    """A row."""

    # torch.x, F.x, Tensor.x (a method), or [] and []= for indexing.
    name: str
    make: Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]]
    grad: bool = True
    # A method's name, or "inplace=True" for a keyword.
    inplace: str = ""
    out: bool = False
    outs: tuple[str, ...] = OUTS
    # jumps: not continuous, so that f64 at inputs beside these tells nothing; random: only types and shapes;
    # native: means something else in f64, so that the CPU in the same type is what it must be;
    # ties: which of equal elements an index names is open; empty: values are whatever lay there.
    traits: frozenset[str] = frozenset()
    # The path behind a name that has more than one row.
    path: str = ""

    def target(self, case: Case) -> tuple[str, dict[str, Any]]:
        """The path to call, and keywords that come with it."""
        path = self.path or self.name
        if case.mode != "inplace":
            return path, {}
        if self.inplace == "inplace=True":
            return path, {"inplace": True}
        return f"Tensor.{self.inplace}", {}

    def call(self, case: Case, tensors: list[torch.Tensor], device: str, change: Callable[[Any], Any], **more: Any) -> Any:
        path, keywords = self.target(case)
        args = [change(resolve(value, tensors, device)) for value in case.args]
        kwargs = {name: change(resolve(value, tensors, device)) for name, value in case.kwargs.items()}
        return function(path)(*args, **kwargs, **keywords, **more)

    def show(self, case: Case, names: list[str], out: str = "") -> str:
        path, keywords = self.target(case)
        args = [show(value, names) for value in case.args]
        kwargs = [f"{name}={show(value, names)}" for name, value in {**case.kwargs, **keywords}.items()]
        if case.mode == "out":
            kwargs.append(f"out={out}")
        if path == "[]":
            return f"{args[0]}[{', '.join(args[1:])}]"
        if path == "[]=":
            return f"{args[0]}.__setitem__(({', '.join(args[2:])},), {args[1]})"
        if path.startswith("Tensor."):
            return f"{args[0]}.{path.removeprefix('Tensor.')}({', '.join(args[1:] + kwargs)})"
        return f"{path}({', '.join(args + kwargs)})"


def _set_item(x: torch.Tensor, value: Any, *index: Any) -> torch.Tensor:
    x[index] = value
    return x


_SPECIAL_PATHS = {"[]": lambda x, *index: x[index], "[]=": _set_item}
_functions: dict[str, Any] = {}


def function(path: str) -> Any:
    """What a path names."""
    if path not in _functions:
        if path in _SPECIAL_PATHS:
            _functions[path] = _SPECIAL_PATHS[path]
        else:
            found: Any = {"torch": torch, "F": F, "Tensor": torch.Tensor}[path.split(".")[0]]
            for part in path.split(".")[1:]:
                found = getattr(found, part)
            _functions[path] = found
    return _functions[path]


def row(name: str, make: Any, traits: str = "", **keywords: Any) -> Op:
    return Op(name, make, traits=frozenset(traits.split()), **keywords)


def first(case: Case) -> int | None:
    """Which tensor an in-place call writes."""
    found = case.args[0] if case.args else None
    return found.index if isinstance(found, Ref) else None


def _load() -> dict[str, Op]:
    from differential.operators import index, linear, losses, network, pointwise, reduction, rest, shapes

    made: dict[str, Op] = {}
    for family in (pointwise, reduction, linear, network, losses, index, shapes, rest):
        for op in family.ROWS:
            assert op.name not in made, op.name
            made[op.name] = op
    return made


OPS = _load()
NAMES = list(OPS)
