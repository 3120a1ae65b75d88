"""Operators without a kernel: on the CPU and back."""

from __future__ import annotations

import functools
import re
import warnings
from typing import Any, NamedTuple

import torch

from wave32 import _native, _overlap
from wave32._libraries import library

NO_KERNEL = "it has no kernel yet"
SHARED = "what it writes shares memory"


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


# Sums and products in the type itself are too coarse here: computed in f32, whatever the CPU's kernel takes.
_IMPRECISE = ("aten::grid_sampler_3d", "aten::grid_sampler_3d_backward")

# How CPU kernels say that they have no 16-bit floats. Those of Fourier transforms say it otherwise, and are to be heard.
_NO_HALVES = re.compile(
    "not implemented for '(Half|BFloat16|ComplexHalf)'|Low precision dtypes|handle types other than"
)

_WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
}

# CPU tensors beside the device's: indices, and lengths that kernels read on the host. Everything else is a mistake.
_TAKES_BOTH = frozenset(
    f"aten::{name}"
    for name in """index index.Tensor index.Tensor_out _index_put_impl_ index_put_ index_put copy_ _copy_from set_.source_Tensor
        _ctc_loss _ctc_loss.Tensor _ctc_loss_backward _ctc_loss_backward.Tensor _pack_padded_sequence
        _pack_padded_sequence_backward _pad_packed_sequence is_set_to _to_copy""".split()
)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return [value] if isinstance(value, torch.Tensor) else []


def _refuse_mixed_devices(name: str, tensors: list[torch.Tensor], written: list[torch.Tensor]) -> None:
    if name in _TAKES_BOTH or name.startswith("aten::index"):
        return
    results = {id(tensor) for tensor in written}
    for tensor in tensors:
        # One element of the CPU's is a number to read; nothing is written there.
        if tensor.device.type != "wave" and (tensor.dim() > 0 or id(tensor) in results):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, wave:0 and "
                f"{tensor.device}! (when calling {name})"
            )


def _alike(value: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU with the same strides, gaps and repetitions: they decide about those of results."""
    strides = value.stride()
    if torch.empty_like(value, device="meta").stride() == strides:
        return value.cpu()
    once = value
    for dim, (size, stride) in enumerate(zip(value.shape, strides)):
        once = once.narrow(dim, 0, 1) if stride == 0 and size > 1 else once
    made = torch.empty_strided(once.shape, strides, dtype=value.dtype, device="cpu").copy_(once)
    return made.as_strided(value.shape, strides)


def _refuse_results_elsewhere(name: str, written: list[torch.Tensor]) -> None:
    """A result without dimensions is no number that may lie on the CPU."""
    for tensor in written:
        if tensor.device.type == "cpu" and name not in _TAKES_BOTH:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but got out on {tensor.device}, and others on wave:0 "
                f"(when calling {name})"
            )


class _Copies:
    """Tensors of the device and their copies on the CPU, each copied once."""

    def __init__(self, operands: list[torch.Tensor], written: list[torch.Tensor]) -> None:
        self.written = {id(tensor) for tensor in written}
        self.shared = _overlap.Shared(operands, self.written)
        self.pairs: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, torch.device) and value.type == "wave":
            return torch.device("cpu")
        if isinstance(value, torch.Generator) and value.device.type == "wave":
            seed = torch.empty((), dtype=torch.int64, device="wave").random_(generator=value)
            return torch.Generator().manual_seed(int(seed))
        if not isinstance(value, torch.Tensor) or value.device.type != "wave":
            return value
        if id(value) not in self.pairs:
            self.pairs[id(value)] = value, self._copy(value)
        return self.pairs[id(value)][1]

    def _copy(self, value: torch.Tensor) -> torch.Tensor:
        if id(value) in self.shared.views:
            return self.shared.views[id(value)]
        if value.layout != torch.strided:
            return value.cpu()
        if id(value) not in self.written:
            return _alike(value)
        # Some of the CPU's kernels write wrongly where elements are not in order.
        return value.cpu().contiguous()

    def write_back(self, value: Any) -> None:
        if not isinstance(value, torch.Tensor) or id(value) not in self.pairs:
            return
        copy = self.pairs[id(value)][1]
        if self.shared.write_back(value):
            return
        if copy.layout not in (torch.strided, torch.sparse_coo):
            value.resize_as_sparse_(copy).copy_(copy)
        elif copy.layout != torch.strided:
            value.copy_(copy)
        elif copy.shape != value.shape:
            value.resize_(copy.shape).as_strided_(copy.shape, torch.empty_like(copy).stride()).copy_(copy)
        else:
            value.copy_(copy)

    def back(self, results: Any) -> Any:
        originals = {id(copy): original for original, copy in self.pairs.values()}

        def to_wave(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            original = originals.get(id(value))
            return value.to("wave") if original is None else original

        return _map(results, to_wave)


def _narrow_type(args: Any, kwargs: dict[str, Any]) -> dict[torch.dtype, torch.dtype]:
    """What results in f32 stand for: the 16-bit type of all floats among the arguments, or that which is asked for."""
    given = [*args, *kwargs.values()]
    asked = next((value for value in given if isinstance(value, torch.dtype)), None)
    floats = {t.dtype for t in _tensors(given) if t.dim() and (t.is_floating_point() or t.is_complex())}
    floats = {asked} if asked is not None else floats or {t.dtype for t in _tensors(given)} & set(_WIDER)
    if floats <= {torch.float16, torch.complex32}:
        return {torch.float32: torch.float16, torch.complex64: torch.complex32}
    return {torch.float32: torch.bfloat16} if floats == {torch.bfloat16} else {}


def _run_wide(op: Any, args: Any, kwargs: dict[str, Any], written: list[torch.Tensor]) -> Any:
    """Calls `op` in f32 on the CPU for arguments of 16-bit floats, of which it writes `written`."""
    wide: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def widen(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return _WIDER.get(value, value)
        if not isinstance(value, torch.Tensor) or value.dtype not in _WIDER:
            return value
        if id(value) not in wide:
            wide[id(value)] = value, value.to(_WIDER[value.dtype])
        return wide[id(value)][1]

    results = op(*_map(args, widen), **{key: _map(value, widen) for key, value in kwargs.items()})
    for value in written:
        if id(value) in wide:
            copy = wide[id(value)][1]
            (value if copy.shape == value.shape else value.resize_(copy.shape)).copy_(copy)
    originals = {id(copy): value for value, copy in wide.values()}
    narrower = _narrow_type(args, kwargs)

    def narrow(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        original = originals.get(id(value))
        return value.to(narrower.get(value.dtype, value.dtype)) if original is None else original

    return _map(results, narrow)


def _run(op: Any, name: str, args: Any, kwargs: dict[str, Any], written: list[torch.Tensor]) -> Any:
    if not any(tensor.dtype in _WIDER for tensor in _tensors([*args, *kwargs.values()])):
        return op(*args, **kwargs)
    if name not in _IMPRECISE:
        try:
            return op(*args, **kwargs)
        except RuntimeError as refusal:
            if not _NO_HALVES.search(str(refusal)):
                raise
    return _run_wide(op, args, kwargs, written)


def _written_of(shape: _Shape, args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    written = _tensors([args[position] for position in shape.written if position < len(args)])
    return written + _tensors([kwargs[name] for name in shape.written_names if name in kwargs])


def shares_memory(op: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether what `op` writes lies in memory that it also reads, or writes twice, other than element by element. Operators
    made of others would not refuse that, or write too early what they have yet to read."""
    shape = _shape(op)
    return bool(shape.written) and _overlap.shares(_written_of(shape, args, kwargs), _tensors([*args, *kwargs.values()]))


def apart(op: Any, function: Any) -> Any:
    """`function` in place of `op`; the CPU, as it does with memory that operands share."""
    if not _shape(op).written:
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if shares_memory(op, args, kwargs):
            return run_on_cpu(op, *args, why=SHARED, **kwargs)
        return function(*args, **kwargs)

    return call


def run_on_cpu(op: Any, *args: Any, why: str = NO_KERNEL, **kwargs: Any) -> Any:
    """Calls `op` with copies on the CPU; what it wrote or made comes back to the device."""
    shape = _shape(op)
    if shape.is_view:
        raise NotImplementedError(f"wave: {shape.name} is a view, which a copy on the CPU cannot be")
    written = _written_of(shape, args, kwargs)
    _refuse_mixed_devices(shape.name, _tensors([*args, *kwargs.values()]), written)
    told = _native.count_fallback(shape.name, why)
    if told:
        warnings.warn(told, stacklevel=2)
    _refuse_results_elsewhere(shape.name, written)
    copies = _Copies(_tensors([*args, *kwargs.values()]), written)
    cpu_args = [
        torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None, device="cpu")
        if position in shape.tensors and isinstance(value, (bool, int, float, complex))
        else _map(value, copies.of)
        for position, value in enumerate(args)
    ]
    cpu_kwargs = {name: _map(value, copies.of) for name, value in kwargs.items() if name != "pin_memory"}
    results = _run(op, shape.name, cpu_args, cpu_kwargs, [copies.of(tensor) for tensor in written])
    for tensor in written:
        copies.write_back(tensor)
    return copies.back(results)


def operator(name: str) -> Any:
    """`add.out` of aten."""
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def register() -> None:
    """Makes every operator without a kernel run so."""
    library("_", "PrivateUse1").fallback(run_on_cpu, "PrivateUse1")
