"""Elementwise operators with `Scalar` arguments, on this device's own operators (see _scalar_ops.py).

What they cannot do (complex numbers, functions of f64) they refuse, and the call runs on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from wave32 import _native
from wave32._fallback import run_on_cpu

aten = torch.ops.aten
Tensor = torch.Tensor
SAME, FLOAT, TRUTH = 0, 1, 2

_OPS = {name: number for number, name in enumerate(_native.pointwise_ops())}


def _float(value: Any) -> float:
    """What the device's operators take for a Scalar; refuses what a float cannot hold."""
    if type(value) is float:
        return value
    if isinstance(value, complex):
        raise NotImplementedError("a complex number")
    exact = float(value)
    if isinstance(value, int) and int(exact) != value:
        raise NotImplementedError("a whole number past 53 bits")
    return exact


def _promoted(tensor: Tensor, *scalars: Any) -> torch.dtype | None:
    """The type to compute in where the numbers decide it; None where the tensors do."""
    if tensor.is_floating_point() or all(isinstance(s, int) and not isinstance(s, bool) for s in scalars) and (
        tensor.dtype is not torch.bool
    ):
        return None
    dtype = tensor.dtype
    for scalar in scalars:
        dtype = torch.promote_types(dtype, torch.result_type(torch.empty((), dtype=dtype), scalar))
    return dtype


def _write(
    op: int, rule: int, out: Tensor, a: Any, b: Any = 0.0, c: Any = 0.0, s: Any = 0.0, t: Any = 0.0,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """out = op(a, b, c): tensors or numbers, parameters s and t."""
    tensors, values = [], []
    for x in (a, b, c):
        is_tensor = isinstance(x, Tensor)
        tensors.append(x if is_tensor else None)
        values.append(0.0 if is_tensor else _float(x))
    return torch.ops.wave.pointwise_out(op, rule, *tensors, values, _float(s), _float(t), dtype, out)


def _guarded(op: Any, implementation: Callable[..., Any]) -> Callable[..., Any]:
    """The implementation, or the CPU where it refuses."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return implementation(*args, **kwargs)
        except NotImplementedError as refusal:
            why = str(refusal)
        return run_on_cpu(op, *args, why=why, **kwargs)

    return call


def _compare(name: str) -> Callable[..., Tensor]:
    op = _OPS[name]
    return lambda self, other, *, out: _write(op, TRUTH, out, self, other, dtype=_promoted(self, other))


# Of add and sub; libtorch gives a number for a tensor that wraps one.
def _add(self: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    if isinstance(other, Tensor) and isinstance(self, Tensor):
        return torch.ops.wave.add(self, other, _float(alpha))
    if isinstance(self, Tensor):
        return torch.ops.wave.add_number(self, _float(other * alpha), _promoted(self, other))
    dtype = _promoted(other, self) or other.dtype
    return _add_out(self, other, alpha=alpha, out=torch.empty_like(other, dtype=dtype))


def _add_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    if isinstance(other, Tensor):
        return torch.ops.wave.add_(self, other, _float(alpha))
    return torch.ops.wave.add_number_(self, _float(other * alpha), _promoted(self, other))


def _add_out(self: Any, other: Any, *, alpha: Any = 1, out: Tensor) -> Tensor:
    if isinstance(other, Tensor) and isinstance(self, Tensor):
        return torch.ops.wave.add_out(self, other, _float(alpha), out)
    if isinstance(self, Tensor):
        return _write(_OPS["Add"], SAME, out, self, other * alpha, dtype=_promoted(self, other))
    return _write(_OPS["AddScaled"], SAME, out, self, other, s=alpha, dtype=_promoted(other, self))


def _no_truth(self: Any, other: Any) -> None:
    if getattr(self, "dtype", None) is torch.bool and (
        isinstance(other, bool) or getattr(other, "dtype", None) is torch.bool
    ):
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
            "`logical_xor()` operator instead."
        )


def _sub(self: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    _no_truth(self, other)
    return _add(self, other, alpha=-alpha)


def _sub_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    _no_truth(self, other)
    return _add_(self, other, alpha=-alpha)


def _sub_out(self: Any, other: Any, *, alpha: Any = 1, out: Tensor) -> Tensor:
    _no_truth(self, other)
    return _add_out(self, other, alpha=-alpha, out=out)


def _rsub(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    _no_truth(self, other)
    return _add(other, self, alpha=-alpha)


def _clamp(self: Tensor, min: Any = None, max: Any = None, *, out: Tensor) -> Tensor:
    if min is None or max is None:
        op, bound = ("Minimum", max) if min is None else ("Maximum", min)
        return _write(_OPS[op], SAME, out, self, bound, dtype=_promoted(self, bound))
    return _write(_OPS["Clamp"], SAME, out, self, min, max, dtype=_promoted(self, min, max))


def _pow(self: Tensor, exponent: Any, *, out: Tensor) -> Tensor:
    dtype = _promoted(self, exponent)
    if exponent == 2:
        return _write(_OPS["Mul"], SAME, out, self, self, dtype=dtype)
    if exponent == 1:
        return _write(_OPS["Identity"], SAME, out, self, dtype=dtype)
    return _write(_OPS["Pow"], SAME, out, self, exponent, dtype=dtype)


def _arange(start: Any, end: Any, step: Any = 1, *, out: Tensor) -> Tensor:
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    whole = all(isinstance(number, int) for number in (start, end, step))
    length = -((start - end) // step) if whole else math.ceil((end - start) / step)
    if not out.is_floating_point():
        start, step = int(start), int(step)
    if out.numel() != length:
        out.resize_(length)
    return torch.ops.wave.arange_(out, _float(start), _float(step))


def _linspace(start: Any, end: Any, steps: int, *, out: Tensor) -> Tensor:
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    if out.numel() != steps:
        out.resize_(steps)
    return torch.ops.wave.linspace_(out, _float(start), _float(end))


def _hardtanh(self: Tensor, min_val: Any = -1, max_val: Any = 1, *, out: Tensor | None = None) -> Tensor:
    return _write(_OPS["Clamp"], SAME, torch.empty_like(self) if out is None else out, self, min_val, max_val)


def _hardtanh_backward(
    grad_output: Tensor, self: Tensor, min_val: Any, max_val: Any, *, grad_input: Tensor | None = None
) -> Tensor:
    to = torch.empty_like(self) if grad_input is None else grad_input
    return _write(_OPS["HardtanhBackward"], SAME, to, grad_output, self, s=min_val, t=max_val)


def _elu_backward(
    grad_output: Tensor, alpha: Any, scale: Any, input_scale: Any, is_result: bool, self_or_result: Tensor, *,
    grad_input: Tensor,
) -> Tensor:
    op = _OPS["EluBackwardOfResult" if is_result else "EluBackward"]
    return _write(op, SAME, grad_input, grad_output, self_or_result, input_scale, s=alpha * scale, t=scale)


def _backward(name: str) -> Callable[..., Tensor]:
    """Of the gradient, the input and up to two parameters."""
    op = _OPS[name]

    def call(grad_output: Tensor, self: Tensor, s: Any, t: Any = 0.0, *, grad_input: Tensor) -> Tensor:
        return _write(op, SAME, grad_input, grad_output, self, s=s, t=t)

    return call


def _activation(name: str, *defaults: Any) -> Callable[..., Tensor]:
    """Of the input and up to two parameters."""
    op = _OPS[name]

    def call(self: Tensor, *parameters: Any, out: Tensor) -> Tensor:
        given = (*parameters, *defaults[len(parameters) :], 0.0, 0.0)
        return _write(op, SAME, out, self, s=given[0], t=given[1])

    return call


def _elu(self: Tensor, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1, *, out: Tensor) -> Tensor:
    return _write(_OPS["Elu"], SAME, out, self, 0.0, input_scale, s=alpha * scale, t=scale)


def _masked_fill(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    if not self.is_floating_point() and isinstance(value, float):
        raise RuntimeError(f"value cannot be converted to type {self.dtype} without overflow")
    return torch.ops.wave.masked_fill_(self, mask, _float(value))


def _leaky_relu_backward(
    grad_output: Tensor, self: Tensor, negative_slope: Any, self_is_result: bool, *, grad_input: Tensor
) -> Tensor:
    return _write(_OPS["LeakyReluBackward"], SAME, grad_input, grad_output, self, s=negative_slope)


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
    "_foreach_sub_.Scalar": _foreach("Sub", values=_first),
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


_TABLE: dict[str, Callable[..., Any]] = {
    "add.Tensor": _add,
    "add_.Tensor": _add_,
    "add.out": _add_out,
    "sub.Tensor": _sub,
    "sub_.Tensor": _sub_,
    "sub.out": _sub_out,
    "rsub.Tensor": _rsub,
    "clamp.out": _clamp,
    "clamp_min.out": lambda self, min, *, out: _clamp(self, min, None, out=out),
    "clamp_max.out": lambda self, max, *, out: _clamp(self, None, max, out=out),
    "pow.Tensor_Scalar_out": _pow,
    "pow.Scalar_out": lambda self, exponent, *, out: _write(
        _OPS["Pow"], SAME, out, self, exponent, dtype=_promoted(exponent, self)
    ),
    "eq.Scalar_out": _compare("Eq"),
    "ne.Scalar_out": _compare("Ne"),
    "lt.Scalar_out": _compare("Lt"),
    "le.Scalar_out": _compare("Le"),
    "gt.Scalar_out": _compare("Gt"),
    "ge.Scalar_out": _compare("Ge"),
    "addcmul.out": lambda self, tensor1, tensor2, *, value=1, out: _write(
        _OPS["Addcmul"], SAME, out, self, tensor1, tensor2, s=value
    ),
    "addcdiv.out": lambda self, tensor1, tensor2, *, value=1, out: _write(
        _OPS["Addcdiv"], SAME, out, self, tensor1, tensor2, s=value
    ),
    "lerp.Scalar_out": lambda self, end, weight, *, out: _write(_OPS["Lerp"], SAME, out, self, end, weight),
    "masked_fill_.Scalar": _masked_fill,
    "arange.start_out": _arange,
    "linspace.out": _linspace,
    "threshold.out": lambda self, threshold, value, *, out: _write(
        _OPS["Threshold"], SAME, out, self, s=threshold, t=value
    ),
    "threshold_backward.grad_input": _backward("ThresholdBackward"),
    "leaky_relu.out": _activation("LeakyRelu", 0.01),
    "leaky_relu_backward.grad_input": _leaky_relu_backward,
    "elu.out": _elu,
    "elu_backward.grad_input": _elu_backward,
    "hardtanh": _hardtanh,
    "hardtanh_": lambda self, min_val=-1, max_val=1: _hardtanh(self, min_val, max_val, out=self),
    "hardtanh.out": _hardtanh,
    "hardtanh_backward": _hardtanh_backward,
    "hardtanh_backward.grad_input": _hardtanh_backward,
    "softplus.out": _activation("Softplus", 1, 20),
    "softplus_backward.grad_input": _backward("SoftplusBackward"),
    "hardshrink.out": _activation("Hardshrink", 0.5),
    "hardshrink_backward.grad_input": _backward("ShrinkBackward"),
    "softshrink.out": _activation("Softshrink", 0.5),
    "softshrink_backward.grad_input": _backward("ShrinkBackward"),
}


def table() -> dict[str, Callable[..., Any]]:
    """Operator of aten: its implementation."""
    made = {}
    for name, implementation in _TABLE.items():
        base, _, overload = name.partition(".")
        made[name] = _guarded(getattr(getattr(aten, base), overload or "default"), implementation)
    for name, kernel in _LISTS.items():
        made[name] = _list_kernel(name, kernel)
    return made
