"""`out=` of another type than the result's, for every operator with a kernel: taken or refused as on the CPU."""

import warnings

import pytest
import torch
from wave32 import _fallback, _native

TYPES = [torch.float32, torch.float64, torch.float16, torch.int64, torch.int16, torch.uint8, torch.bool, torch.complex64]
OPERATORS = sorted(
    name
    for name in {*_native.native_operators(), *_native.scalar_operators()}
    if [a.name for a in _fallback.operator(name)._schema.arguments if a.is_out]
)
NUMBERS = {"int": 1, "float": 0.5, "number": 2, "bool": False, "str": "none", "List[int]": [1, 1], "List[float]": [0.5, 0.5]}
# Arguments of some names mean something else.
NAMED = {
    "dim": 0, "reduction": 1, "kernel_size": [2, 2], "stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "ceil_mode": False,
    "output_size": [2, 2], "input_size": [2, 2, 4, 4], "steps": 5, "groups": 1, "k": 1, "rounding_mode": "floor", "reduce": "sum",
}  # fmt: skip


def arguments(name, dtype, rank):
    """Those of a call with tensors of 4 elements a side, without `out`; none where a schema asks for more."""
    tensors = [torch.arange(4**rank).reshape([4] * rank).to(dtype) % 3 for _ in range(5)]
    made = []
    for argument in _fallback.operator(name)._schema.arguments:
        kind = str(argument.type)
        if argument.is_out:
            break
        if argument.name in ("index", "target", "indices"):
            made.append(torch.zeros([4] * rank, dtype=torch.int64))
        elif argument.name in NAMED and kind != "Tensor":
            made.append(NAMED[argument.name])
        elif kind == "Tensor":
            made.append(tensors.pop())
        elif kind == "List[Tensor]":
            made.append([tensors.pop(), tensors.pop()])
        elif kind in NUMBERS:
            made.append(NUMBERS[kind])
        elif kind.startswith("Optional"):
            made.append(argument.default_value)
        else:
            return None
    return made


def moved(value, device):
    if isinstance(value, list):
        return [moved(item, device) for item in value]
    return value.to(device) if isinstance(value, torch.Tensor) else value


def call(name, given, outs, device):
    """The results on the CPU, or the error."""
    op = _fallback.operator(name)
    names = [a.name for a in op._schema.arguments if a.is_out]
    positional, named = [], dict(zip(names, outs))
    for argument, value in zip(op._schema.arguments, given):
        if argument.kwarg_only:
            named[argument.name] = moved(value, device)
        else:
            positional.append(moved(value, device))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            op(*positional, **named)
            return [out.cpu() for out in outs]
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            return error


def right(name, given):
    """Empty tensors of the types that the results have; none where the call is wrong."""
    schema = _fallback.operator(name)._schema
    count = sum(a.is_out for a in schema.arguments)
    for dtype in {t.dtype for t in given if isinstance(t, torch.Tensor)} | {torch.float32, torch.bool, torch.int64}:
        outs = [torch.empty(0, dtype=dtype if n == 0 else torch.int64) for n in range(count)]
        made = call(name, given, outs, "cpu")
        if isinstance(made, list):
            return made
    return None


def cases(name):
    """(arguments, results of their own types) on the CPU, for some types of the operands."""
    for dtype in (torch.float32, torch.int64, torch.uint8, torch.float16, torch.bool):
        for rank in (1, 2, 3, 4):
            given = arguments(name, dtype, rank)
            if given is not None and (like := right(name, given)):
                yield given, like
                break


@pytest.mark.parametrize("name", OPERATORS)
def test_other_types(name):
    for given, like in cases(name):
        for dtype in TYPES:
            pair = []
            for device in ("cpu", "wave"):
                outs = [torch.zeros_like(t, dtype=dtype if n == 0 else t.dtype, device=device) for n, t in enumerate(like)]
                pair.append(call(name, given, outs, device))
            expected, found = pair
            # Of a type that the CPU lacks a kernel for the device may be capable.
            if isinstance(expected, Exception) and "not implemented for" in str(expected):
                continue
            assert isinstance(found, Exception) == isinstance(expected, Exception), (like[0].dtype, dtype, expected, found)


def test_most_operators_are_called_rightly():
    """Those that are not test nothing."""
    called = [name for name in OPERATORS if next(cases(name), None)]
    assert len(called) > 0.8 * len(OPERATORS), sorted(set(OPERATORS) - set(called))
