"""Cases from (seed, index): the same pair gives the same case in every process."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import torch

from differential.cases import COMPLEX, FLOATS, INTS, Case, Data, Ref

# Larger tensors find little that small ones do not, and cost more.
ELEMENTS = 600


class Gen:
    """What the operators' rows draw their arguments from."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.tensors: list[Data] = []

    def int(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def chance(self, part: float) -> bool:
        return self.rng.random() < part

    def pick(self, values: Any) -> Any:
        return self.rng.choice(values)

    def number(self) -> Any:
        """A Python number."""
        return self.pick([0, 1, -1, 2, 3, 0.5, -1.5, 2.25, 7, True, 0.0, 1e-3, 100])

    def size(self) -> int:
        return self.pick([1, 2, 2, 3, 3, 4, 5, 7, 8, 13])

    def shape(self, low: int = 0, high: int = 4, empty: float = 0.04) -> tuple[int, ...]:
        while True:
            sizes = [self.size() for _ in range(self.int(low, high))]
            if sizes and self.chance(empty):
                sizes[self.int(0, len(sizes) - 1)] = 0
            count = 1
            for size in sizes:
                count *= size
            if count <= ELEMENTS:
                # Now and then more than a workgroup's elements, in one dimension.
                if sizes and count and self.chance(0.03):
                    sizes[-1] = self.pick([257, 513, 1025])
                    sizes[:-1] = [min(size, 2) for size in sizes[:-1]]
                return tuple(sizes)

    def broadcast(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts against this one; now and then one that does not."""
        if self.chance(0.02):
            return tuple(size + 1 for size in shape)
        if self.chance(0.5):
            return shape
        kept = shape[self.int(0, len(shape)):] if shape else ()
        return tuple(1 if self.chance(0.3) else size for size in kept)

    def dtype(self, kinds: str = "f") -> torch.dtype:
        """Of kinds: f float, i whole, b bool, c complex. f32 the most likely."""
        kind = self.pick([k for k in kinds for _ in range({"f": 6, "i": 3, "b": 1, "c": 1}[k])])
        return self.pick({"f": (torch.float32, torch.float32, *FLOATS), "i": INTS, "b": (torch.bool,), "c": COMPLEX}[kind])

    def fill(self, dtype: torch.dtype, special: str = "special") -> tuple[Any, ...]:
        chance = self.rng.random()
        if chance < 0.65:
            return ("normal",)
        return ("ints",) if chance < 0.85 else (special if not dtype.is_complex else "normal",)

    def tensor(
        self, shape: tuple[int, ...], dtype: torch.dtype, fill: tuple[Any, ...] = ("normal",), *, grad: bool = False,
        views: bool = True, expand: bool = True,
    ) -> Ref:
        base, steps = (tuple(shape), ()) if not views or self.chance(0.45) else self.views(tuple(shape), expand)
        if fill[0] == "unique" and steps:
            base, steps = tuple(shape), ()
        self.tensors.append(Data(dtype, base, fill, self.int(0, 999), steps, grad and (dtype.is_floating_point or dtype.is_complex)))
        return Ref(len(self.tensors) - 1)

    def views(self, shape: tuple[int, ...], expand: bool) -> tuple[tuple[int, ...], tuple[Any, ...]]:
        """A base's shape, and views that lead from it to `shape`."""
        rank = len(shape)
        steps: list[tuple[str, tuple[Any, ...]]] = []
        base = list(shape)
        for _ in range(self.pick([1, 1, 2])):
            rank = len(base)
            kind = self.pick(["transpose", "slice", "slice", "expand", "select", "format"])
            if kind == "transpose" and rank >= 2:
                order = list(range(rank))
                self.rng.shuffle(order)
                # base[order[i]] must become the present size i.
                made = [0] * rank
                for place, source in enumerate(order):
                    made[source] = base[place]
                base = made
                steps.insert(0, ("permute", tuple(order)))
            elif kind == "slice" and rank >= 1:
                dim, step, start, tail = self.int(0, rank - 1), self.pick([1, 2, 3]), self.int(0, 2), self.int(0, 2)
                size = base[dim]
                stop = start + (size - 1) * step + 1 if size else start
                base[dim] = max(stop, 0) + tail
                steps.insert(0, ("[]", (*[slice(None)] * dim, slice(start, stop, step))))
            elif kind == "expand" and rank >= 1 and expand:
                dim = self.int(0, rank - 1)
                if base[dim] > 0:
                    steps.insert(0, ("expand", tuple(base)))
                    base[dim] = 1
            elif kind == "select":
                dim = self.int(0, rank)
                count = self.int(1, 3)
                steps.insert(0, ("select", (dim, self.int(0, count - 1))))
                base.insert(dim, count)
            elif kind == "format" and rank in (4, 5) and not steps:
                steps.insert(0, ("channels_last", ()))
        return tuple(base), tuple(steps)


def make(seed: int, index: int, only: list[str] | None = None) -> Case:
    from differential import known
    from differential.operators import NAMES, OPS

    rng = random.Random(f"{seed}:{index}")
    while True:
        case = _draw(OPS[rng.choice(only or NAMES)], rng)
        if not known.avoided(case):
            return case


def _draw(op: Any, rng: random.Random) -> Case:
    gen = Gen(rng)
    args, kwargs = op.make(gen)
    tensors = tuple(gen.tensors)
    graded = op.grad and any(t.grad for t in tensors)
    modes = ["plain"] * 5 + ["backward"] * (4 if graded else 0) + ["inplace"] * (1 if op.inplace else 0) + ["out"] * (2 if op.out else 0)
    mode = rng.choice(modes)
    out = rng.choice(op.outs) if mode == "out" else ""
    if mode == "backward":
        # Which of nan and inf a gradient becomes depends on the order of its products, also between CPU and f64.
        plain = {"special": ("normal",), "infs": ("normal",)}
        tensors = tuple(dataclasses.replace(t, fill=plain.get(t.fill[0], t.fill)) if t.is_float else t for t in tensors)
        if "ties" in op.traits:  # Which of equal elements gets the gradient is open.
            tensors = tuple(dataclasses.replace(t, fill=("distinct",)) if t.is_float else t for t in tensors)
    return Case(op.name, args, kwargs, tensors, mode, out)
