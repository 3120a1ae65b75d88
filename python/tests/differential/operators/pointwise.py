"""Elementwise operators."""

from __future__ import annotations

from typing import Any

import torch

from differential.operators import ELEMENTWISE_OUTS, Op, row


def unary(kinds: str = "fffib", fill: Any = None, **fixed: Any) -> Any:
    def make(g: Any) -> Any:
        dtype = g.dtype(kinds)
        kwargs = {name: g.pick(values) for name, values in fixed.items() if g.chance(0.6)}
        return (g.tensor(g.shape(), dtype, fill or g.fill(dtype), grad=True),), kwargs

    return make


def binary(kinds: str = "fffib", fill: Any = None, other: Any = None, number: bool = True, more: Any = None) -> Any:
    """Two tensors that broadcast, of the same type or not, or a tensor and a number."""

    def make(g: Any) -> Any:
        one = g.dtype(kinds)
        two = one if g.chance(0.6) else g.dtype(kinds)
        shape = g.shape()
        left = g.tensor(shape, one, fill or g.fill(one), grad=True)
        kwargs = more(g) if more else {}
        if number and g.chance(0.2):
            return (left, g.pick(number) if isinstance(number, (tuple, list)) else g.number()), kwargs
        against = () if g.chance(0.1) else g.broadcast(shape)
        return (left, g.tensor(against, two, other or fill or g.fill(two), grad=True)), kwargs

    return make


def whole(fill: Any = None, other: Any = None, kinds: str = "iib", number: Any = (1, 3, 5)) -> Any:
    return binary(kinds, fill, other, number)


def ternary(kinds: str = "fffi", fills: Any = (None, None, None), value: str = "") -> Any:
    def make(g: Any) -> Any:
        first = g.dtype(kinds)
        shape = g.shape()
        mixed = g.chance(0.35)
        made = []
        for n in range(3):
            dtype = g.dtype(kinds) if mixed and n else first
            made.append(g.tensor(shape if n == 0 else g.broadcast(shape), dtype, fills[n] or g.fill(dtype), grad=True))
        kwargs = {value: g.pick([0.5, 2, -1, 1])} if value and g.chance(0.6) else {}
        return tuple(made), kwargs

    return make


def clamp(g: Any) -> Any:
    dtype = g.dtype("ffi")
    shape = g.shape()
    x = g.tensor(shape, dtype, g.fill(dtype), grad=True)
    if g.chance(0.5):
        low, high = g.pick([(-1, 1), (0, None), (None, 0.5), (-2, 3), (1, -1)])
    else:
        types = [dtype if g.chance(0.6) else g.dtype("ffi") for _ in range(2)]
        low, high = (g.tensor(g.broadcast(shape), t, grad=True) if g.chance(0.8) else None for t in types)
        if low is None and high is None:
            low = g.tensor(shape, dtype)
    return (x, low, high), {}


def where(g: Any) -> Any:
    shape = g.shape()
    one = g.dtype("ffib")
    two = one if g.chance(0.6) else g.dtype("ffib")
    condition = g.tensor(shape, torch.bool)
    if g.chance(0.2):
        return (condition, g.tensor(g.broadcast(shape), one, grad=True), g.number()), {}
    sides = [g.tensor(g.broadcast(shape), t, g.fill(t), grad=True) for t in (one, two)]
    return (condition, *sides), {}


def lerp(g: Any) -> Any:
    dtype, shape = g.dtype("f"), g.shape()
    ends = [g.tensor(s, dtype, grad=True) for s in (shape, g.broadcast(shape))]
    return (*ends, g.pick([0.25, 0.5, 2.0]) if g.chance(0.5) else g.tensor(g.broadcast(shape), dtype, ("unit",), grad=True)), {}


def prelu(g: Any) -> Any:
    shape, dtype = g.shape(1, 4), g.dtype("f")
    weight = (shape[1] if len(shape) > 1 else 1,) if g.chance(0.6) else (1,)
    return (g.tensor(shape, dtype, grad=True), g.tensor(weight, dtype, grad=True, views=False)), {}


def glu(g: Any) -> Any:
    shape = list(g.shape(1, 4))
    dim = g.int(0, len(shape) - 1)
    shape[dim] = 2 * min(shape[dim], 8)
    return (g.tensor(tuple(shape), g.dtype("f"), grad=True), dim), {}


_PLAIN = """
abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
sigmoid erf erfc reciprocal square sgn deg2rad rad2deg sinc lgamma digamma i0
""".split()
_JUMPS = "floor ceil round trunc frac sign".split()
_TESTS = "isnan isinf isfinite isposinf isneginf signbit isreal".split()

ROWS: list[Op] = [
    *(row(f"torch.{name}", unary("fffib" if name not in ("neg",) else "ffi"), inplace=f"{name}_", out=True,
          outs=ELEMENTWISE_OUTS, path="") for name in _PLAIN),
    *(row(f"torch.{name}", unary("fffi"), "jumps", inplace=f"{name}_", out=True, outs=ELEMENTWISE_OUTS) for name in _JUMPS),
    *(row(f"torch.{name}", unary("ffib"), "jumps", grad=False, out=name in ("isposinf", "isneginf", "signbit")) for name in _TESTS),
    row("torch.logical_not", unary("fib"), inplace="logical_not_", out=True, grad=False),
    row("torch.bitwise_not", unary("iib", None), inplace="bitwise_not_", out=True, grad=False),
    row("torch.positive", unary("fi")),
    row("torch.nan_to_num", unary("ffi", nan=[0.0, 7.0], posinf=[1.0], neginf=[-3.0]), "native jumps", inplace="nan_to_num_", out=True),
    row("torch.logit", unary("f", ("unit",), eps=[1e-3, 0.1]), inplace="logit_", out=True),
    row("torch.erfinv", unary("f", ("between", -1, 1)), inplace="erfinv_", out=True),
    row("torch.angle", unary("fi"), "jumps", out=True),
    row("torch.relu", unary("ffi"), inplace="relu_"),
    row("torch.round.decimals", lambda g: ((g.tensor(g.shape(), g.dtype("f"), grad=True),), {"decimals": g.int(-1, 3)}), "jumps native",
        path="torch.round"),
    row("F.relu6", unary("f"), inplace="inplace=True"),
    row("F.silu", unary("f"), inplace="inplace=True"),
    row("F.mish", unary("f"), inplace="inplace=True"),
    row("F.gelu", unary("f", approximate=["none", "tanh"])),
    row("F.elu", unary("f", alpha=[0.5, 2.0]), inplace="inplace=True"),
    row("F.celu", unary("f", alpha=[0.5, 2.0]), inplace="inplace=True"),
    row("F.selu", unary("f"), inplace="inplace=True"),
    row("F.softplus", unary("f", beta=[0.5, 2], threshold=[5, 20])),
    row("F.softsign", unary("f")),
    row("F.hardtanh", unary("ffi", min_val=[-0.5, -2.0], max_val=[0.5, 3.0]), inplace="inplace=True"),
    row("F.hardsigmoid", unary("f"), inplace="inplace=True"),
    row("F.hardswish", unary("f"), inplace="inplace=True"),
    row("F.leaky_relu", unary("f", negative_slope=[0.1, 0.0, -0.5]), inplace="inplace=True"),
    row("F.logsigmoid", unary("f")),
    row("F.tanhshrink", unary("f")),
    row("F.softshrink", unary("f", lambd=[0.1, 0.5, 2.0])),
    row("F.hardshrink", unary("f", lambd=[0.1, 0.5, 2.0])),
    row("F.threshold", lambda g: ((g.tensor(g.shape(), g.dtype("ffi"), grad=True), g.pick([0, 1, -1]), g.pick([0, 5, -2])), {}),
        inplace="inplace=True"),
    row("F.prelu", prelu),
    row("F.glu", glu),
    *(row(f"torch.{name}", binary(kinds, more=(lambda g: {"alpha": g.pick([2, -1, 3])} if g.chance(0.2) else {}) if name in ("add", "sub") else None),
          inplace=f"{name}_", out=True, outs=ELEMENTWISE_OUTS)
      for name, kinds in (("add", "fffibc"), ("sub", "fffic"), ("mul", "fffibc"), ("true_divide", "fffibc"))),
    row("torch.div", binary("fffi", None, None, more=lambda g: {}), inplace="div_", out=True, outs=ELEMENTWISE_OUTS),
    *(row(f"torch.div.{mode}", binary("ffi", ("ints",), ("range", 1, 5), (1, 2, 3),
                                      (lambda mode: lambda g: {"rounding_mode": mode})(mode)), "jumps", inplace="div_", out=True, path="torch.div")
      for mode in ("floor", "trunc")),
    *(row(f"torch.{name}", binary("fffi", ("normal",), ("range", 1, 7), (2, 3, 2.5)), "jumps", inplace=f"{name}_", out=True,
          grad=name != "floor_divide", outs=ELEMENTWISE_OUTS) for name in ("floor_divide", "remainder", "fmod")),
    *(row(f"torch.{name}.specials", binary("f", ("special",), ("special",), (2, 0.5, -1.5)), "jumps", path=f"torch.{name}", inplace=f"{name}_")
      for name in ("remainder", "fmod")),
    row("torch.pow", binary("ffi", ("range", 0, 5), ("range", 0, 4), (2, 3, 0, 1, 2.0)), inplace="pow_", out=True),
    row("torch.pow.specials", binary("f", ("special",), ("special",), (2, -1, 0.5, -2, 3)), path="torch.pow", inplace="pow_"),
    row("torch.float_power", binary("ff", ("unit",), ("normal",), (2, 0.5)), out=True),
    *(row(f"torch.{name}", binary("fffib", number=False), out=True, outs=ELEMENTWISE_OUTS, traits="jumps")
      for name in ("maximum", "minimum", "fmax", "fmin")),
    *(row(f"torch.{name}", binary("f", number=False), inplace=f"{name}_" if name in ("atan2", "hypot") else "", out=True)
      for name in ("atan2", "hypot", "logaddexp", "logaddexp2")),
    row("torch.copysign", binary("ffi"), "jumps", inplace="copysign_", out=True),
    row("torch.heaviside", binary("ffi", number=False), "jumps", inplace="heaviside_", out=True, grad=False),
    row("torch.nextafter", binary("f", ("normal",), number=False), "native jumps", inplace="nextafter_", out=True, grad=False),
    row("torch.xlogy", binary("f", ("unit",)), inplace="xlogy_", out=True),
    row("torch.special.xlog1py", binary("f", ("unit",)), out=True),
    row("torch.ldexp", binary("f", ("normal",), ("range", -3, 3), number=False), out=True, inplace="ldexp_"),
    row("torch.rsub", binary("ffi")),
    *(row(f"torch.{name}", binary("fffibc" if name in ("eq", "ne") else "fffib"), "jumps", inplace=f"{name}_", out=True, grad=False,
          outs=ELEMENTWISE_OUTS) for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    *(row(f"torch.logical_{name}", binary("fib", number=False), inplace=f"logical_{name}_", out=True, grad=False) for name in ("and", "or", "xor")),
    *(row(f"torch.bitwise_{name}", whole(), inplace=f"bitwise_{name}_", out=True, grad=False) for name in ("and", "or", "xor")),
    *(row(f"torch.bitwise_{name}_shift", whole(None, ("range", 0, 6), "i", (1, 2, 3)), inplace=f"bitwise_{name}_shift_", out=True, grad=False)
      for name in ("left", "right")),
    *(row(f"torch.{name}", whole(("ints",), ("ints",), "i", False), inplace=f"{name}_", out=True, grad=False) for name in ("gcd", "lcm")),
    row("torch.isclose", binary("fi", number=False, more=lambda g: {"equal_nan": g.chance(0.5)}), "jumps", grad=False),
    row("torch.lerp", lerp, inplace="lerp_", out=True),
    row("torch.addcmul", ternary(value="value"), inplace="addcmul_", out=True),
    row("torch.addcdiv", ternary("f", (None, None, ("between", 0.5, 2)), value="value"), inplace="addcdiv_", out=True),
    row("torch.where", where, "jumps", out=False),
    row("torch.clamp", clamp, "jumps", inplace="clamp_", out=True),
    row("torch.clamp_min", binary("ffi", number=(0, -1, 1)), "jumps", inplace="clamp_min_", out=True),
    row("torch.clamp_max", binary("ffi", number=(0, -1, 1)), "jumps", inplace="clamp_max_", out=True),
]
