"""What a case is: an operator, its tensors as recipes, its arguments; all of it can be written as Python.

A tensor is built from the text that a reproducer prints, so that a reproducer cannot say something else.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.nn.functional as F

# What the texts of recipes may use.
NAMES = {
    "torch": torch, "F": F, "inf": float("inf"), "nan": float("nan"), "G": lambda seed: torch.Generator().manual_seed(seed),
}
PRELUDE = (
    'import torch, wave32, torch.nn.functional as F; from math import inf, nan; d = "wave"; '
    "G = lambda seed: torch.Generator().manual_seed(seed)"
)

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclasses.dataclass(frozen=True)
class Ref:
    """An argument that is the case's tensor of this number."""

    index: int


@dataclasses.dataclass(frozen=True)
class Device:
    """An argument that is the device under test, or the CPU on the CPU."""


@dataclasses.dataclass(frozen=True)
class Data:
    """A tensor: numbers of a kind (`fill`), then views of them."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    fill: tuple[Any, ...] = ("normal",)
    seed: int = 0
    # Methods with their arguments, applied on the device; "[]" indexes, "channels_last" copies.
    views: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    # Whether a gradient makes sense.
    grad: bool = False

    def text(self) -> str:
        """As Python, with `d` for the device."""
        return f"{self.base_text()}.to(d){self.views_text()}"

    def base_text(self) -> str:
        return values_text(self)

    def views_text(self) -> str:
        made, rank = "", len(self.shape)
        for name, args in self.views:
            if name == "[]":
                made += f"[{', '.join(map(show_index, args))}]"
            elif name == "channels_last":
                made += f".to(memory_format=torch.channels_last{'_3d' if rank == 5 else ''})"
            else:
                made += f".{name}({', '.join(map(show, args))})"
            rank -= name == "select"
        return made

    def base(self) -> torch.Tensor:
        """The numbers on the CPU, before views."""
        return eval(self.base_text(), NAMES)

    def view(self, base: torch.Tensor) -> torch.Tensor:
        for name, args in self.views:
            if name == "channels_last":
                layout = torch.channels_last if base.dim() == 4 else torch.channels_last_3d
                base = base.to(memory_format=layout)
            else:
                base = base[args] if name == "[]" else getattr(base, name)(*args)
        return base

    def final_shape(self) -> tuple[int, ...]:
        return tuple(self.view(torch.empty(self.shape, dtype=self.dtype, device="meta")).shape)

    @property
    def is_float(self) -> bool:
        return self.dtype.is_floating_point or self.dtype.is_complex


@dataclasses.dataclass(frozen=True)
class Case:
    """One call. `mode` is plain, backward, inplace, or out; `out` says what kind of out= it gets."""

    op: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: tuple[Data, ...]
    mode: str = "plain"
    out: str = ""

    def reproducer(self, said: str = "", out: tuple[str, str] = ("", "")) -> str:
        """Three lines of Python. `out` is a statement and an expression, of `outs.text`."""
        from differential.operators import OPS

        names = self.names()
        graded = [n for n, data in enumerate(self.tensors) if self.mode == "backward" and data.grad and data.is_float]
        texts = [data.text() + (".detach().requires_grad_()" if n in graded else "") for n, data in enumerate(self.tensors)]
        made = f"{', '.join(names)} = {', '.join(texts)}" if names else "pass"
        made += f"; {out[0]}" if out[0] else ""
        call = OPS[self.op].show(self, names, out[1])
        if self.mode == "backward":
            call = f"r = {call}; r.backward(torch.ones_like(r)); print({', '.join(f'{names[n]}.grad' for n in graded)})"
        else:
            call = f"print({call})"
        return f"{PRELUDE}\n{made}\n{call}" + (f"  # {said[:240]}" if said else "")

    def names(self) -> list[str]:
        return [chr(ord("a") + n) if n < 13 else f"t{n}" for n in range(len(self.tensors))]


def show(value: Any, names: list[str] | None = None) -> str:
    """An argument as Python."""
    if isinstance(value, Ref):
        return names[value.index] if names else f"t{value.index}"
    if isinstance(value, Device):
        return "d"
    if isinstance(value, slice):
        return f"slice({value.start}, {value.stop}, {value.step})"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(show(item, names) for item in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
    return repr(value)


def show_index(value: Any) -> str:
    if isinstance(value, slice):
        start, stop = ("" if bound is None else bound for bound in (value.start, value.stop))
        return f"{start}:{stop}" + ("" if value.step in (None, 1) else f":{value.step}")
    return "..." if value is Ellipsis else show(value)


# Numbers that break things, of each type. No subnormal ones: Vulkan lets a device flush them.
_SPECIAL = "inf, -inf, nan, 0., -0., 1., -1., 2.5, -0.5, {big}, -{big}, {tiny}, 1e-3"
_BIG = {torch.float16: (65504.0, 6.1e-5), torch.float64: (1e308, 1e-300)}


def values_text(data: Data) -> str:
    """The numbers of a recipe as Python; dtype included."""
    kind, *rest = data.fill
    shape, seed, dtype = data.shape, f"generator=G({data.seed})", data.dtype
    whole = not data.is_float
    cast = "" if dtype is torch.float32 else f".to({dtype})"
    if kind == "list":
        return f"torch.tensor({_floats(rest[0])}, dtype={dtype})" + (f".reshape({shape})" if len(shape) != 1 else "")
    if kind in ("zeros", "ones"):
        return f"torch.{kind}({shape}, dtype={dtype})"
    if kind == "arange":
        count = 1
        for size in shape:
            count *= size
        return f"torch.arange({count}).reshape({shape}).to({dtype})"
    if kind == "index":  # In range of rest[0]; negative ones too where rest[1] says so.
        low = -rest[0] if len(rest) > 1 and rest[1] else 0
        return f"torch.randint({low}, {max(rest[0], low + 1)}, {shape}, {seed})" + ("" if dtype is torch.int64 else f".to({dtype})")
    if kind == "unique":  # Indices that differ along dimension rest[1], in range of rest[0].
        count, dim = rest
        wide = tuple(max(count, size) if d == dim else size for d, size in enumerate(shape))
        return f"torch.rand({wide}, {seed}).argsort({dim}).narrow({dim}, 0, {shape[dim]}){'' if dtype is torch.int64 else f'.to({dtype})'}"
    if kind == "distinct":  # No two equal, also in f16 and as bytes.
        count = 1
        for size in shape:
            count *= size
        scale = "" if whole else " / 8"
        return f"((torch.randperm({count}, {seed}) - {count // 2}){scale}).reshape({shape}).to({dtype})"
    if kind == "range":  # Whole numbers from rest[0] to rest[1].
        return f"torch.randint({rest[0]}, {rest[1] + 1}, {shape}, {seed}).to({dtype})"
    if kind == "unit":
        return f"torch.rand({shape}, {seed}){cast}"
    if kind == "between":
        return f"(torch.rand({shape}, {seed}) * {rest[1] - rest[0]} + {rest[0]}){cast}"
    if kind in ("special", "infs") and whole:
        info = torch.iinfo(dtype) if dtype is not torch.bool else None
        edges = [False, True] if info is None else [info.min, info.min + 1, 0, 1, 2, info.max - 1, info.max]
        return f"torch.tensor({edges}, dtype={dtype})[torch.randint(0, {len(edges)}, {shape}, {seed})]"
    if kind == "special":
        big, tiny = _BIG.get(dtype, (3e38, 1.2e-38))
        return f"torch.tensor([{_SPECIAL.format(big=big, tiny=tiny)}], dtype={dtype})[torch.randint(0, 13, {shape}, {seed})]"
    if kind == "infs":  # Mostly plain numbers.
        extra = f"[torch.randint(0, 12, {shape}, {seed})]"
        return f"torch.tensor([inf, -inf, nan, 0., -0., 1., -1., .5, 2., 3., -2., -.25], dtype={dtype}){extra}"
    if kind == "normal" and whole:
        low, high = (0, 2) if dtype is torch.bool else (0, 10) if dtype is torch.uint8 else (-9, 10)
        return f"torch.randint({low}, {high}, {shape}, {seed})" + ("" if dtype is torch.int64 else f".to({dtype})")
    if kind == "ints":
        low = 0 if dtype in (torch.uint8, torch.bool) else -3
        return f"torch.randint({low}, 4, {shape}, {seed}).to({dtype})"
    if kind == "normal":
        complex_ = dtype.is_complex
        return f"torch.randn({shape}, {'dtype=torch.complex64, ' if complex_ else ''}{seed})" + ("" if dtype is torch.complex64 else cast)
    raise ValueError(f"no such fill: {data.fill}")


def _floats(values: Any) -> str:
    return "[" + ", ".join(repr(value) for value in values) + "]"


def resolve(value: Any, tensors: list[torch.Tensor], device: str) -> Any:
    """An argument with its tensors in place."""
    if isinstance(value, Ref):
        return tensors[value.index]
    if isinstance(value, Device):
        return device
    if isinstance(value, (list, tuple)):
        return type(value)([resolve(item, tensors, device) for item in value])
    return value


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Of a result."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []
