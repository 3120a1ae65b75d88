"""Operators on lists of tensors that optimizers call (`torch._foreach_*`), one call of the device's own each.

Lists of other types than f32, f16 and bf16 go through the operators on single tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from wave32 import _native

Tensor = torch.Tensor

_OPS = {name: number for number, name in enumerate(_native.pointwise_ops())}


def _float(value: Any) -> float:
    """A Scalar; refuses those that a float is not."""
    if isinstance(value, complex):
        raise NotImplementedError("a complex number")
    return float(value)


def _foreach(name: str, b: Any = (), c: Any = (), values: Any = (), s: Any = ()) -> Callable[..., None]:
    """In place on a list; b, c, values and s pick from the operator's arguments after it."""
    op = _OPS[name]

    def call(self: list[Tensor], *args: Any, **kwargs: Any) -> None:
        args += tuple(kwargs.values())

        def floats(pick: Any) -> list[float]:
            value = pick(args) if callable(pick) else pick
            return [_float(v) for v in value] if isinstance(value, (list, tuple)) else [_float(value)]

        def tensors(pick: Any) -> list[Tensor]:
            return list(pick(args)) if callable(pick) else []

        torch.ops.wave.foreach_(op, self, tensors(b), tensors(c), floats(values), floats(s))

    return call


def _first(args: Any) -> Any:
    return args[0]


def _number(args: Any) -> Any:
    """The first, which may not be a truth: subtraction refuses those."""
    if isinstance(args[0], bool):
        raise NotImplementedError("a truth")
    return args[0]


def _second(args: Any) -> Any:
    return args[1]


def _third(args: Any) -> Any:
    return args[2] if len(args) > 2 else 1.0


def _second_or_one(args: Any) -> Any:
    return args[1] if len(args) > 1 else 1.0


def _decompose_foreach(name: str) -> Callable[..., None]:
    """One call a tensor: for the types and devices that the list kernels refuse."""
    base, _, overload = name.partition(".")
    method = base.removeprefix("_foreach_")
    single = getattr(torch.Tensor, method, None) or (
        lambda x, *args: x.copy_(getattr(torch, method.removesuffix("_"))(x, *args))
    )

    def call(self: list[Tensor], *args: Any, **kwargs: Any) -> None:
        lists = [isinstance(a, (list, tuple)) for a in args]
        for i, tensor in enumerate(self):
            picked = [a[i] if is_list else a for a, is_list in zip(args, lists, strict=True)]
            if base in ("_foreach_addcmul_", "_foreach_addcdiv_") and len(picked) > 2:
                kwargs = {"value": picked.pop()}
            single(tensor, *picked, **kwargs)

    return call


# Operator: how the list kernel takes its arguments.
_LISTS = {
    "_foreach_add_.Scalar": _foreach("Add", values=_first),
    "_foreach_add_.ScalarList": _foreach("Add", values=_first),
    "_foreach_add_.List": _foreach("AddScaled", b=_first, s=_second_or_one),
    "_foreach_sub_.Scalar": _foreach("Sub", values=_number),
    "_foreach_sub_.List": _foreach("AddScaled", b=_first, s=lambda args: -_second_or_one(args)),
    "_foreach_mul_.Scalar": _foreach("Mul", values=_first),
    "_foreach_mul_.ScalarList": _foreach("Mul", values=_first),
    "_foreach_mul_.List": _foreach("Mul", b=_first),
    "_foreach_div_.Scalar": _foreach("Div", values=_first),
    "_foreach_div_.ScalarList": _foreach("Div", values=_first),
    "_foreach_div_.List": _foreach("Div", b=_first),
    "_foreach_maximum_.List": _foreach("Maximum", b=_first),
    "_foreach_sqrt_": _foreach("Sqrt"),
    "_foreach_neg_": _foreach("Neg"),
    "_foreach_lerp_.Scalar": _foreach("Lerp", b=_first, values=_second),
    "_foreach_addcmul_.Scalar": _foreach("Addcmul", b=_first, c=_second, s=_third),
    "_foreach_addcmul_.ScalarList": _foreach("Addcmul", b=_first, c=_second, s=_third),
    "_foreach_addcdiv_.Scalar": _foreach("Addcdiv", b=_first, c=_second, s=_third),
    "_foreach_addcdiv_.ScalarList": _foreach("Addcdiv", b=_first, c=_second, s=_third),
}


def _list_kernel(name: str, kernel: Callable[..., None]) -> Callable[..., None]:
    otherwise = _decompose_foreach(name)

    def call(self: list[Tensor], *args: Any, **kwargs: Any) -> None:
        try:
            kernel(self, *args, **kwargs)
        except NotImplementedError:
            otherwise(self, *args, **kwargs)

    return call


def _new(self: list[Tensor], others: list[Tensor]) -> list[Tensor]:
    """Tensors for results of the operands' one type."""
    if any(a.dtype != b.dtype for a, b in zip(self, others, strict=True)):
        raise NotImplementedError("two types")
    return [torch.empty_like(x) for x in self]


def _sums(self: list[Tensor], other: list[Tensor], *, alpha: Any = 1) -> list[Tensor]:
    try:
        out = _new(self, other)
        torch.ops.wave.foreach_(_OPS["AddScaled"], out, self, other, [], [_float(alpha)])
        return out
    except NotImplementedError:
        return [torch.add(a, b, alpha=alpha) for a, b in zip(self, other, strict=True)]


def table() -> dict[str, Callable[..., Any]]:
    """Operator of aten: its implementation."""
    return {name: _list_kernel(name, kernel) for name, kernel in _LISTS.items()} | {"_foreach_add.List": _sums}
