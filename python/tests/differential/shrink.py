"""A failing case made small: the same kind of mismatch with less.

Hypothesis shrinks what it has drawn itself, in the process that fails. Here a case is a function of (seed, index), and
may kill or hang the process it runs in; so cases are changed directly, and every try runs in a child.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from differential.cases import Case, Data, Ref


def alike(one: Any, other: Any) -> bool:
    """Whether two mismatches are of one kind; errors with the same beginning."""
    def begin(said: str) -> list[str]:
        return said.split()[:6] if "error" in one.kind else []

    return one.kind == other.kind and begin(one.what) == begin(other.what)


def shrink(case: Case, first: Any, run: Callable[[Case], Any], seconds: float) -> tuple[Case, Any]:
    """The smallest case found within the time, and what `run` said of it (`first` where nothing smaller fails)."""
    until, said = time.monotonic() + seconds, first
    tried: set[str] = set()
    progress = True
    while progress:
        progress = False
        for smaller in candidates(case):
            if time.monotonic() > until:
                return case, said
            text = repr(smaller)
            if text in tried:
                continue
            tried.add(text)
            found = run(smaller)
            if found is not None and alike(first, found):
                case, said, progress = smaller, found, True
                break
    return case, said


def candidates(case: Case) -> Iterator[Case]:
    """Simpler cases, the simplest first; those that make no sense fail on both sides and go."""
    if case.mode != "plain":
        yield dataclasses.replace(case, mode="plain", out="")
    if case.out and case.out != "right":
        yield dataclasses.replace(case, out="right")
    for name in case.kwargs:
        yield dataclasses.replace(case, kwargs={k: v for k, v in case.kwargs.items() if k != name})
    yield from _without_views(case)
    yield from _smaller(case)
    yield from _shorter_lists(case)
    yield from _simpler_types(case)
    yield from _simpler_arguments(case)
    yield from _simpler_values(case)


def _with(case: Case, number: int, **changes: Any) -> Case:
    tensors = list(case.tensors)
    tensors[number] = dataclasses.replace(tensors[number], **changes)
    return dataclasses.replace(case, tensors=tuple(tensors))


def _without_views(case: Case) -> Iterator[Case]:
    for n, data in enumerate(case.tensors):
        if data.views:
            yield _with(case, n, shape=data.final_shape(), views=())
    for n, data in enumerate(case.tensors):
        for k in range(len(data.views)):
            kept = data.views[:k] + data.views[k + 1:]
            try:
                dataclasses.replace(data, views=kept).final_shape()
            except (RuntimeError, IndexError):
                continue
            yield _with(case, n, views=kept)


def _smaller(case: Case) -> Iterator[Case]:
    """Sizes: one of them everywhere, then one alone; dimensions dropped."""
    plain = [n for n, data in enumerate(case.tensors) if not data.views and data.fill[0] != "list"]
    sizes = sorted({size for n in plain for size in case.tensors[n].shape if size > 1}, reverse=True)
    for size in sizes:
        for less in sorted({1, 2, size // 2, size - 1} - {0, size}):
            tensors = [
                dataclasses.replace(data, shape=tuple(less if s == size else s for s in data.shape)) if n in plain else data
                for n, data in enumerate(case.tensors)
            ]
            yield dataclasses.replace(case, tensors=tuple(tensors))
    for n in plain:
        shape = case.tensors[n].shape
        for d, size in enumerate(shape):
            for less in sorted({1, size // 2, size - 1} - {size, 0}):
                if less < size:
                    yield _with(case, n, shape=(*shape[:d], less, *shape[d + 1:]))
    for d in range(4):
        if plain and all(len(case.tensors[n].shape) > d for n in plain):
            yield dataclasses.replace(case, tensors=tuple(
                dataclasses.replace(data, shape=(*data.shape[:d], *data.shape[d + 1:])) if n in plain else data
                for n, data in enumerate(case.tensors)
            ))
    for n in plain:
        shape = case.tensors[n].shape
        for d in range(len(shape)):
            yield _with(case, n, shape=(*shape[:d], *shape[d + 1:]))


def _shorter_lists(case: Case) -> Iterator[Case]:
    for n, value in enumerate(case.args):
        if isinstance(value, (list, tuple)) and len(value) > 1:
            for k in range(len(value)):
                yield _argument(case, n, type(value)([*value[:k], *value[k + 1:]]))
    for n in range(len(case.args) - 1, 0, -1):
        yield dataclasses.replace(case, args=case.args[:n])


def _argument(case: Case, n: int, value: Any) -> Case:
    return dataclasses.replace(case, args=(*case.args[:n], value, *case.args[n + 1:]))


def _simpler_types(case: Case) -> Iterator[Case]:
    for dtype in {data.dtype for data in case.tensors if data.is_float and data.dtype is not torch.float32}:
        tensors = [dataclasses.replace(d, dtype=torch.float32) if d.dtype is dtype and d.fill[0] != "list" else d for d in case.tensors]
        yield dataclasses.replace(case, tensors=tuple(tensors))


def _simpler_arguments(case: Case) -> Iterator[Case]:
    def simpler(value: Any) -> list[Any]:
        if isinstance(value, bool):
            return [False] if value else []
        if isinstance(value, int):
            return [less for less in sorted({0, 1, value // 2}, key=abs) if abs(less) < abs(value)]
        if isinstance(value, float) and value == value:
            return [float(less) for less in (0, 1, 2) if less != value and abs(less) <= abs(value)]
        return []

    for n, value in enumerate(case.args):
        for less in simpler(value):
            yield _argument(case, n, less)
        if isinstance(value, (list, tuple)):
            for k, item in enumerate(value):
                for less in simpler(item):
                    yield _argument(case, n, type(value)([*value[:k], less, *value[k + 1:]]))
    for name, value in case.kwargs.items():
        for less in simpler(value):
            yield dataclasses.replace(case, kwargs={**case.kwargs, name: less})


def _simpler_values(case: Case) -> Iterator[Case]:
    used = _used(case.args) | _used(list(case.kwargs.values()))
    for n, data in enumerate(case.tensors):
        if n not in used:
            continue
        if data.fill[0] not in ("list", "zeros", "ones", "arange", "index", "unique"):
            for fill in (("zeros",), ("ones",), ("arange",)):
                yield _with(case, n, fill=fill)
        count = 1
        for size in data.shape:
            count *= size
        if data.fill[0] != "list" and 0 < count <= 8 and not data.dtype.is_complex:
            yield _with(case, n, fill=("list", tuple(data.base().flatten().tolist())))
        if data.fill[0] == "list":
            values = data.fill[1]
            for k, value in enumerate(values):
                for less in _simpler_number(value, data):
                    yield _with(case, n, fill=("list", (*values[:k], less, *values[k + 1:])))


def _simpler_number(value: Any, data: Data) -> list[Any]:
    if isinstance(value, bool):
        return [False] if value else []
    if isinstance(value, int):
        return [less for less in (0, 1) if abs(less) < abs(value)]
    if value != value or value in (float("inf"), float("-inf")):
        return []
    return [less for less in (0.0, 1.0, round(value), round(value, 1)) if len(repr(less)) < len(repr(value)) or abs(less) < abs(value) and less in (0.0, 1.0)]


def _used(value: Any) -> set[int]:
    if isinstance(value, Ref):
        return {value.index}
    if isinstance(value, (list, tuple)):
        return set().union(*map(_used, value)) if value else set()
    return set()


def pruned(case: Case) -> Case:
    """Without the tensors that no argument names."""
    kept = sorted(_used(case.args) | _used(list(case.kwargs.values())))
    number = {old: new for new, old in enumerate(kept)}

    def renamed(value: Any) -> Any:
        if isinstance(value, Ref):
            return Ref(number[value.index])
        if isinstance(value, (list, tuple)):
            return type(value)([renamed(item) for item in value])
        return value

    return dataclasses.replace(
        case, args=renamed(case.args), kwargs={name: renamed(value) for name, value in case.kwargs.items()},
        tensors=tuple(case.tensors[n] for n in kept),
    )
