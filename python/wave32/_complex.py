"""Operators on complex64 as operators on real and imaginary parts, which have kernels; sums and products of complex128 too.

A kernel that refuses complex numbers asks here before the CPU is asked (`INSTEAD`, see `_instead.run_by_name`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from wave32._fallback import operator, run_on_cpu

Pair = tuple[Any, Any]

_PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
# Pairs of bf16: torch 2.15 compares them. No tensor of the device has this type.
_SHORT = getattr(torch, "bcomplex32", None)


def _is_number(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or (value.dim() == 0 and value.device.type == "cpu")


def _result_type(values: list[Any]) -> torch.dtype:
    """Of one operand or two. A tensor without dimensions counts beside one with dimensions as a number does."""
    return torch.result_type(values[0], values[-1])


def _split(value: Any, dtype: torch.dtype) -> Pair:
    """Real and imaginary part, as numbers or as tensors of the device."""
    if _is_number(value):
        number = complex(value.item() if isinstance(value, torch.Tensor) else value)
        return number.real, number.imag
    if value.is_complex():
        real, imaginary = torch.view_as_real(value.to(dtype)).unbind(-1)
        return real, imaginary
    return value.to(_PARTS[dtype]), 0.0


def whole(parts: torch.Tensor) -> torch.Tensor:
    """Complex numbers of pairs along the last dimension."""
    parts = parts.contiguous()
    if any(stride % 2 for stride in parts.stride()[:-1]) or parts.stride(-1) != 1:
        # Strides of dimensions of size 1, which count for torch.
        parts = parts.clone(memory_format=torch.contiguous_format)
    return torch.view_as_complex(parts)


def _elementwise(operands: list[Any], dtype: torch.dtype) -> torch.Tensor:
    """A new result of these operands, numbers among them, with the strides that torch gives such a result."""
    tensors = [x if isinstance(x, torch.Tensor) else torch.empty((), device="cpu") for x in operands]
    return torch.ops.wave.elementwise_empty(tensors, dtype)


def _resize(out: torch.Tensor, like: torch.Tensor) -> None:
    """Gives an `out=` of other sizes those of the result, and its strides."""
    torch.ops.wave.resize_output_(out, like.shape)
    out.as_strided_(like.shape, torch.empty_like(like, device="meta").stride())


def _join(pair: Pair, dtype: torch.dtype, like: list[Any], out: torch.Tensor | None) -> torch.Tensor:
    """A complex tensor of these parts, which were made of operands `like`; into `out` where that is given."""
    real, imaginary = pair
    if out is None:
        out = _elementwise(like, dtype)
    elif out.shape != real.shape:
        _resize(out, _elementwise(like, dtype))
    parts = torch.view_as_real(out)
    parts.select(-1, 0).copy_(real)
    if isinstance(imaginary, torch.Tensor):
        parts.select(-1, 1).copy_(imaginary)
    else:
        parts.select(-1, 1).fill_(imaginary)
    return out


def _pointwise(function: Callable[..., Pair], count: int, wide: bool = False, in_place: bool = False) -> Callable[..., Any]:
    """`function` of the parts of `count` operands, which come first; what follows them is passed on, `out` last."""

    def call(*arguments: Any, out: Any = None, **keywords: Any) -> Any:
        values, rest = list(arguments[:count]), list(arguments[count:])
        if rest and isinstance(rest[-1], torch.Tensor):
            out = rest.pop()
        dtype = _result_type(values)
        known = dtype == torch.complex64 or (wide and dtype == torch.complex128)
        elsewhere = any(not _is_number(value) and value.device.type != "wave" for value in values)
        out = values[0] if in_place else out
        if not known or elsewhere or (out is not None and (out.dtype != dtype or out.device.type != "wave")):
            return NotImplemented
        made = function(*(_split(value, dtype) for value in values), *rest, **keywords)
        if in_place and made[0].shape != values[0].shape:
            return NotImplemented  # The CPU words the error.
        return _join(made, dtype, values, out)

    return call


def _mul(a: Pair, b: Pair) -> Pair:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _scaled(b: Pair, alpha: Any) -> Pair:
    return b if alpha == 1 else _mul(b, (complex(alpha).real, complex(alpha).imag))


def _add(a: Pair, b: Pair, alpha: Any = 1) -> Pair:
    b = _scaled(b, alpha)
    return a[0] + b[0], a[1] + b[1]


def _sub(a: Pair, b: Pair, alpha: Any = 1) -> Pair:
    b = _scaled(b, alpha)
    return a[0] - b[0], a[1] - b[1]


def _tensors(pair: Pair, like: torch.Tensor) -> Pair:
    made = [part if isinstance(part, torch.Tensor) else torch.full((), part, dtype=like.dtype, device="wave") for part in pair]
    return made[0], made[1]


def _div(a: Pair, b: Pair) -> Pair:
    """By the larger part of the divisor first, so that nothing overflows on the way."""
    like = next(part for part in (*a, *b) if isinstance(part, torch.Tensor))
    (c, d), zero = _tensors(b, like), 0.0
    along = c.abs() >= d.abs()
    large, small = torch.where(along, c, d), torch.where(along, d, c)
    ratio = small / large
    scale = large + small * ratio
    real = torch.where(along, a[0] + a[1] * ratio, a[0] * ratio + a[1])
    imaginary = torch.where(along, a[1] - a[0] * ratio, a[1] * ratio - a[0])
    # By zero each part is divided by itself.
    nothing = (c == zero) & (d == zero)
    magnitude = large.abs()
    real = torch.where(nothing, a[0] / magnitude, real / scale)
    return real, torch.where(nothing, a[1] / magnitude, imaginary / scale)


def _neg(z: Pair) -> Pair:
    return -z[0], -z[1]


def _conj(z: Pair) -> Pair:
    return z[0], -z[1]


def _exp(z: Pair) -> Pair:
    size = z[0].exp()
    # A real number stays one, of whatever size.
    return size * z[1].cos(), torch.where(z[1] == 0, z[1], size * z[1].sin())


def _log(z: Pair) -> Pair:
    return torch.hypot(*z).log(), torch.atan2(z[1], z[0])


def _sqrt(z: Pair) -> Pair:
    real, imaginary = z
    half = ((torch.hypot(real, imaginary) + real.abs()) * 0.5).sqrt()
    other = torch.where(half == 0, half, torch.where(imaginary.isinf(), imaginary, imaginary / (2 * half)))
    right = real >= 0
    return torch.where(right, half, other.abs()), torch.where(right, other, torch.copysign(half, imaginary))


def _sin(z: Pair) -> Pair:
    return z[0].sin() * z[1].cosh(), z[0].cos() * z[1].sinh()


def _cos(z: Pair) -> Pair:
    return z[0].cos() * z[1].cosh(), -z[0].sin() * z[1].sinh()


def _sinh(z: Pair) -> Pair:
    return z[0].sinh() * z[1].cos(), z[0].cosh() * z[1].sin()


def _cosh(z: Pair) -> Pair:
    return z[0].cosh() * z[1].cos(), z[0].sinh() * z[1].sin()


def _tanh(z: Pair) -> Pair:
    # tanh = (t (1 + s^2) + i s (1 - t^2)) / (1 + t^2 s^2) with t = tanh(a) and s = tan(b), in terms that stay finite.
    t, s, c = z[0].tanh(), z[1].sin(), z[1].cos()
    below = c * c + t * t * s * s
    one_less = 1 / z[0].clamp(-40, 40).cosh() ** 2
    return t / below, s * c * one_less / below


def _sgn(z: Pair) -> Pair:
    size = torch.hypot(*z)
    none = size == 0
    return torch.where(none, size, z[0] / size), torch.where(none, size, z[1] / size)


def _sigmoid(z: Pair) -> Pair:
    grown = _exp(_neg(z))
    return _div((1.0, 0.0), (grown[0] + 1, grown[1]))


def _power(z: Pair, by: Pair) -> Pair:
    if isinstance(by[0], float) and by[1] == 0.0:
        exponent = by[0]
        if exponent == 0:
            return torch.ones_like(z[0]), torch.zeros_like(z[0])
        if exponent == 0.5:
            return _sqrt(z)
        if exponent == -1:
            return _div((1.0, 0.0), z)
        if exponent == int(exponent) and 0 < exponent <= 8:
            return functools.reduce(_mul, [z] * int(exponent))
    raised = _exp(_mul(_log(z), by))
    # The logarithm of zero has no angle to go on with.
    none = (z[0] == 0) & (z[1] == 0)
    return torch.where(none, 0.0, raised[0]), torch.where(none, 0.0, raised[1])


def _slope_backward(slope: Callable[[Pair], Pair]) -> Callable[[Pair, Pair], Pair]:
    """The gradient by a function whose slope is told by its result."""
    return lambda grad, result: _mul(grad, _conj(slope(result)))


def _compare(equal: bool) -> Callable[..., Any]:
    def call(a: Any, b: Any, out: Any = None) -> Any:
        dtype = _result_type([a, b])
        if (dtype not in _PARTS and dtype != _SHORT) or (out is not None and out.dtype != torch.bool):
            return NotImplemented
        if dtype == _SHORT:
            (ar, ai), (br, bi) = (
                [part.bfloat16() if isinstance(part, torch.Tensor) else part for part in _split(value, torch.complex64)]
                for value in (a, b)
            )
        else:
            (ar, ai), (br, bi) = _split(a, dtype), _split(b, dtype)
        made = (ar == br) & (ai == bi) if equal else (ar != br) | (ai != bi)
        return made if out is None else _into(out, made)

    return call


def _into(out: torch.Tensor, made: torch.Tensor) -> Any:
    if not torch.can_cast(made.dtype, out.dtype):
        return NotImplemented  # The CPU words the error.
    if out.shape != made.shape:
        _resize(out, made)
    return out.copy_(made)


def _of_parts(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """A real result of a complex64."""

    def call(z: torch.Tensor, out: Any = None) -> Any:
        if z.dtype != torch.complex64 or (out is not None and out.is_complex()):
            return NotImplemented
        made = function(*torch.view_as_real(z).unbind(-1))
        # An `out=` that gets other sizes: torch copies a complex result into it.
        return made if out is None else _into(out, made.contiguous())

    return call


def _isnan(z: torch.Tensor) -> Any:
    return torch.view_as_real(z).isnan().any(-1) if z.dtype in _PARTS else NotImplemented


def _reduced(name: str) -> Callable[..., Any]:
    def call(z: torch.Tensor, dims: Any, keep: bool = False, dtype: Any = None, out: Any = None) -> Any:
        if z.dtype not in _PARTS or dtype not in (None, z.dtype) or (out is not None and out.dtype != z.dtype):
            return NotImplemented
        if z.dim() == 0:
            made = z.clone()
        else:
            along = [dim % z.dim() if -z.dim() <= dim < z.dim() else None for dim in dims or range(z.dim())]
            if None in along or len(set(along)) < len(along):
                return NotImplemented  # The CPU words the error.
            made = whole(getattr(torch, name)(torch.view_as_real(z), along, keep))
        return made if out is None else _into(out, made)

    return call


def _cumsum(z: torch.Tensor, dim: int, dtype: Any = None, out: Any = None) -> Any:
    if z.dtype not in _PARTS or dtype not in (None, z.dtype) or out.dtype != z.dtype or not -z.dim() <= dim < z.dim():
        return NotImplemented
    return _into(out, whole(torch.view_as_real(z).cumsum(dim % z.dim())))


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One product of real matrices: rows of (real, imaginary) with blocks that turn them."""
    # Torch leaves conjugation to such products.
    a, b = a.resolve_conj().resolve_neg(), b.resolve_conj().resolve_neg()
    *_, m, k = a.shape
    n = b.shape[-1]
    rows = torch.view_as_real(a.contiguous()).reshape(*a.shape[:-2], m, 2 * k)
    upper = torch.view_as_real(b)
    real, imaginary = upper.unbind(-1)
    lower = torch.stack([-imaginary, real], -1)
    block = torch.stack([upper, lower], -3).reshape(*b.shape[:-2], 2 * k, 2 * n)
    made = torch.matmul(rows, block)
    return whole(made.reshape(*made.shape[:-1], n, 2))


def _product(a: torch.Tensor, b: torch.Tensor, out: Any = None) -> Any:
    fits = a.dtype == b.dtype == torch.complex64 and a.dim() == b.dim() and a.shape[-1] == b.shape[-2]
    if not fits or a.shape[:-2] != b.shape[:-2] or (out is not None and out.dtype != a.dtype):
        return NotImplemented
    made = matmul(a, b)
    return made if out is None else _into(out, made)


def _add_product(y: torch.Tensor, a: torch.Tensor, b: torch.Tensor, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Any:
    made = _product(a, b)
    if made is NotImplemented or y.dtype != made.dtype or (out is not None and out.dtype != made.dtype):
        return NotImplemented
    made = made if alpha == 1 else made * alpha
    if beta != 0:
        made = made + (y if beta == 1 else y * beta)
    return made if out is None else _into(out, made)


def _choose(condition: torch.Tensor, a: torch.Tensor, b: torch.Tensor, out: Any = None) -> Any:
    dtype = _result_type([a, b])
    same = dtype in _PARTS and condition.dtype == torch.bool and not _is_number(condition)
    if not same or (out is not None and out.dtype != dtype):
        return NotImplemented
    (ar, ai), (br, bi) = _split(a, dtype), _split(b, dtype)
    ends = [torch.where(condition, x, y) for x, y in ((ar, br), (ai, bi))]
    return _join((ends[0], ends[1]), dtype, [condition, a, b], out)


def _norm(z: torch.Tensor, order: Any = 2, dims: Any = None, keep: bool = False, dtype: Any = None, out: Any = None) -> Any:
    if z.dtype != torch.complex64 or dtype is not None or (out is not None and out.dtype != torch.float32):
        return NotImplemented
    made = torch.linalg.vector_norm(z.abs(), order, dims, keep)
    return made if out is None else _into(out, made)


def _normal(z: torch.Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Any:
    if z.dtype != torch.complex64 or std < 0:
        return NotImplemented
    parts = torch.view_as_real(z)
    parts.normal_(0.0, std * 0.5**0.5, generator=generator)
    parts.select(-1, 0).add_(mean)
    return z


def _linspace(start: Any, end: Any, steps: int, out: Any) -> Any:
    """Its parts are linspaces of the ends' parts."""
    if out.dtype not in _PARTS or out.device.type != "wave" or steps < 0:
        return NotImplemented
    (real, imaginary), (last, up) = _split(start, out.dtype), _split(end, out.dtype)
    made = torch.empty(steps, 2, dtype=_PARTS[out.dtype], device=out.device)
    torch.linspace(real, last, steps, out=made.select(-1, 0))
    torch.linspace(imaginary, up, steps, out=made.select(-1, 1))
    if out.numel() != steps:
        torch.ops.wave.resize_output_(out, [steps])
    return out.copy_(torch.view_as_complex(made).reshape(out.shape))


def _angle(z: torch.Tensor) -> torch.Tensor:
    if z.dtype == torch.complex64:
        real, imaginary = torch.view_as_real(z).unbind(-1)
        # In the usual order: torch makes a complex result first, which it copies.
        return torch.atan2(imaginary, real).contiguous()
    if z.dtype == torch.float32:
        return torch.where(z < 0, torch.pi, torch.where(z.isnan(), z, 0.0))
    return run_on_cpu(torch.ops.aten.angle.default, z)


def _angle_out(z: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    made = _into(out, _angle(z))
    return run_on_cpu(torch.ops.aten.angle.out, z, out=out) if made is NotImplemented else made


def _of_two_parts(name: str, function: Callable[..., Pair]) -> Callable[..., torch.Tensor]:
    """The `out=` form of `name`, which makes complex numbers of two tensors of floats of one type."""

    def call(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        same = a.is_floating_point() and a.dtype == b.dtype
        if not same or out.dtype != torch.promote_types(a.dtype, torch.complex32):
            return run_on_cpu(operator(name), a, b, out=out)  # Which words the error.
        return _join(function(a, b), out.dtype, [a, b], out)

    return call


def _complex(real: torch.Tensor, imaginary: torch.Tensor) -> Pair:
    return real.broadcast_to(torch.broadcast_shapes(real.shape, imaginary.shape)), imaginary


def _polar(size: torch.Tensor, angle: torch.Tensor) -> Pair:
    return size * angle.cos(), size * angle.sin()


def _conj_physical(z: torch.Tensor, *, out: Any = None) -> torch.Tensor:
    if out is not None and out.dtype != z.dtype:
        return run_on_cpu(torch.ops.aten.conj_physical.out, z, out=out)  # Which words the error.
    if not z.is_complex():
        return z.clone() if out is None else _into(out, z)
    made = torch.empty_like(z) if out is None else out
    if made is not z:
        _into(made, z)
    torch.view_as_real(made).select(-1, 1).neg_()
    return made


def _vdot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.dot(a.conj() if a.is_complex() else a, b)


def _forms(table: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Each function under the names of its plain and its `out` form."""
    return {name + form: function for name, function in table.items() for form in ("", ".out")}


_UNARY = {
    "exp": _exp, "log": _log, "sqrt": _sqrt, "sin": _sin, "cos": _cos, "sinh": _sinh, "cosh": _cosh, "tanh": _tanh,
    "sgn": _sgn, "sigmoid": _sigmoid, "rsqrt": lambda z: _div((1.0, 0.0), _sqrt(z)), "tan": lambda z: _div(_sin(z), _cos(z)),
}  # fmt: skip

# What runs in place of kernels that refuse, unless it refuses as well.
INSTEAD = {
    **_forms({name: _pointwise(function, 1) for name, function in _UNARY.items()}),
    **_forms({"neg": _pointwise(_neg, 1, True), "reciprocal": _pointwise(lambda z: _div((1.0, 0.0), z), 1, True)}),
    **_forms({"abs": _of_parts(torch.hypot), "mm": _product, "bmm": _product}),
    **_forms({"addmm": _add_product, "baddbmm": _add_product, "linalg_vector_norm": _norm}),
    **{f"{name}{form}": _pointwise(function, 2, True, form == "_.Tensor")
       for name, function in (("add", _add), ("sub", _sub), ("mul", _mul), ("div", _div))
       for form in (".Tensor", "_.Tensor", ".out")},
    **{f"{name}_backward{form}": _pointwise(_slope_backward(slope), 2)
       for name, slope in (("tanh", lambda y: _sub((1.0, 0.0), _mul(y, y))), ("sigmoid", lambda y: _mul(y, _sub((1.0, 0.0), y))))
       for form in ("", ".grad_input")},
    "rsub.Tensor": _pointwise(lambda a, b, alpha=1: _sub(b, a, alpha), 2, True),
    "pow.Tensor_Scalar_out": _pointwise(_power, 2),
    "pow.Tensor_Tensor_out": _pointwise(_power, 2),
    **{f"{name}.{form}": _compare(name == "eq") for name in ("eq", "ne") for form in ("Tensor", "Tensor_out", "Scalar_out")},
    "isnan": _isnan,
    "sum.dim_IntList": _reduced("sum"), "sum.IntList_out": _reduced("sum"),
    "mean.dim": _reduced("mean"), "mean.out": _reduced("mean"),
    "cumsum.out": _cumsum,
    "where.self": _choose, "where.self_out": _choose,
    "normal_": _normal,
    "linspace.out": _linspace,
}  # fmt: skip


def table() -> dict[str, Callable[..., Any]]:
    """Operators of aten that have no kernel: their implementation."""
    return {
        "angle": _angle,
        "angle.out": _angle_out,
        "complex.out": _of_two_parts("complex.out", _complex),
        "polar.out": _of_two_parts("polar.out", _polar),
        "_conj_physical": _conj_physical,
        "conj_physical_": lambda z: _conj_physical(z, out=z),
        "conj_physical.out": _conj_physical,
        "vdot": _vdot,
    }
