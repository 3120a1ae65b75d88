"""What a kernel in Rust calls that refuses its arguments: other operators of the device where they will do, else the CPU."""

from __future__ import annotations

from typing import Any

from wave32 import _complex, _foreach, _ordered, _volume
from wave32._fallback import operator, run_on_cpu, shares_memory


def run_by_name(name: str, why: str, arguments: list[Any]) -> Any:
    """As `run_on_cpu`, for kernels in Rust, which pass all arguments in the schema's order."""
    if (of_lists := _foreach.INSTEAD.get(name)) is not None:
        return of_lists(*arguments)
    op = operator(name)
    for table in (_volume.INSTEAD, _ordered.INSTEAD, _complex.INSTEAD):
        instead = table.get(name)
        if instead is None or shares_memory(op, arguments, {}):
            continue
        if (made := instead(*arguments)) is not NotImplemented:
            return made
    positional, keywords = [], {}
    for argument, value in zip(op._schema.arguments, arguments):
        if argument.kwarg_only:
            keywords[argument.name] = value
        else:
            positional.append(value)
    return run_on_cpu(op, *positional, why=why, **keywords)
