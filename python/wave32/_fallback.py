"""Operators without a kernel: on the CPU and back."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch

from wave32 import _native, _volume

NO_KERNEL = "it has no kernel yet"


class _Shape(NamedTuple):
    """What a schema says about calling it elsewhere."""

    name: str
    written: tuple[int, ...]
    written_names: tuple[str, ...]
    is_view: bool
    # Positions of tensors that arrive as Python numbers, which the operator called by hand would refuse.
    tensors: frozenset[int]


_shapes: dict[Any, _Shape] = {}


# Arguments that kernels write although their schemas do not say so.
_UNMARKED = {
    "aten::native_batch_norm": ("running_mean", "running_var"),
    "aten::batch_norm_update_stats": ("running_mean", "running_var"),
    "aten::batch_norm_gather_stats": ("running_mean", "running_var"),
    "aten::batch_norm_gather_stats_with_counts": ("running_mean", "running_var"),
}


def _written(schema: Any) -> list[tuple[int, str]]:
    """Position and name of the arguments that an operator writes."""
    unmarked = _UNMARKED.get(schema.name, ())
    return [
        (position, argument.name)
        for position, argument in enumerate(schema.arguments)
        if argument.name in unmarked or (argument.alias_info is not None and argument.alias_info.is_write)
    ]


def _shape(op: Any) -> _Shape:
    known = _shapes.get(op)
    if known is None:
        schema = op._schema
        written = _written(schema)
        known = _Shape(
            schema.name + (f".{schema.overload_name}" if schema.overload_name else ""),
            tuple(i for i, _ in written),
            tuple(name for _, name in written),
            any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns),
            frozenset(
                position
                for position, argument in enumerate(schema.arguments)
                if str(argument.type) == "Tensor" and not torch._C._should_allow_numbers_as_tensors(
                    schema.name.split("::")[1]
                )
            ),
        )
        _shapes[op] = known
    return known


def _map(value: Any, change: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_map(item, change) for item in value])
    return change(value)


def run_on_cpu(op: Any, *args: Any, why: str = NO_KERNEL, **kwargs: Any) -> Any:
    """Calls `op` with copies on the CPU; what it wrote or made comes back to the device."""
    shape = _shape(op)
    if shape.is_view:
        raise NotImplementedError(f"wave: {shape.name} is a view, which a copy on the CPU cannot be")
    told = _native.count_fallback(shape.name, why)
    if told:
        warnings.warn(told, stacklevel=2)
    copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    written = [args[position] for position in shape.written if position < len(args)]
    written += [kwargs[name] for name in shape.written_names if name in kwargs]
    written_ids: set[int] = set()
    _map(written, lambda value: written_ids.add(id(value)))

    def to_cpu(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.device.type == "wave":
            if id(value) not in copies:
                copy = value.cpu()
                # Some of the CPU's kernels write wrongly where elements are not in order.
                copies[id(value)] = (value, copy.contiguous() if id(value) in written_ids else copy)
            return copies[id(value)][1]
        if isinstance(value, torch.device) and value.type == "wave":
            return torch.device("cpu")
        return value

    cpu_args = [
        torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
        if position in shape.tensors and isinstance(value, (bool, int, float, complex))
        else _map(value, to_cpu)
        for position, value in enumerate(args)
    ]
    cpu_kwargs = {name: _map(value, to_cpu) for name, value in kwargs.items() if name != "pin_memory"}
    results = op(*cpu_args, **cpu_kwargs)

    def write_back(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and id(value) in copies:
            copy = copies[id(value)][1]
            if copy.shape != value.shape:
                value.resize_(copy.shape)
            value.copy_(copy)
        return value

    _map(written, write_back)
    originals = {id(copy): original for original, copy in copies.values()}

    def to_wave(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        original = originals.get(id(value))
        return value.to("wave") if original is None else original

    return _map(results, to_wave)


def operator(name: str) -> Any:
    """`add.out` of aten."""
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def run_by_name(name: str, why: str, arguments: list[Any]) -> Any:
    """As `run_on_cpu`, for kernels in Rust, which pass all arguments in the schema's order."""
    instead = _volume.INSTEAD.get(name)
    if instead is not None and (made := instead(*arguments)) is not NotImplemented:
        return made
    op = operator(name)
    positional, keywords = [], {}
    for argument, value in zip(op._schema.arguments, arguments):
        if argument.kwarg_only:
            keywords[argument.name] = value
        else:
            positional.append(value)
    return run_on_cpu(op, *positional, why=why, **keywords)


def register() -> None:
    """Makes every operator without a kernel run so."""
    from wave32._registration import library

    library("_", "PrivateUse1").fallback(run_on_cpu, "PrivateUse1")
