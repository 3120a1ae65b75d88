"""Creation, random numbers (only types and shapes), lists of tensors, complex numbers."""

from __future__ import annotations

from typing import Any

import torch

from differential.cases import COMPLEX, Device
from differential.operators import Op, row


def made(*draws: Any, kinds: str = "ffi") -> Any:
    def make(g: Any) -> Any:
        kwargs: dict[str, Any] = {"device": Device()}
        if g.chance(0.6):
            kwargs["dtype"] = g.dtype(kinds)
        return tuple(draw(g) for draw in draws), kwargs

    return make


def random_like(kinds: str = "f", *draws: Any) -> Any:
    def make(g: Any) -> Any:
        return (g.tensor(g.shape(), g.dtype(kinds), ("unit",), expand=False), *(draw(g) for draw in draws)), {}

    return make


def steps(g: Any) -> Any:
    (start, stop), dtype = g.pick([(0, 5), (-3, 4), (1, 10)]), g.dtype("ffi")
    step = g.pick([1, 2, 3]) if not dtype.is_floating_point else g.pick([0.5, 1, 1.5])
    return (start, stop, step), {"dtype": dtype, "device": Device()}


def lists(other: str, count: int = 2) -> Any:
    """torch._foreach_: lists, or a list and numbers."""

    def make(g: Any) -> Any:
        dtype = g.dtype("fffi") if other != "alone" else g.dtype("f")
        shapes = [g.shape(0, 3) for _ in range(g.int(1, 4))]
        mixed = g.chance(0.15)

        def one() -> Any:
            return [g.tensor(shape, g.dtype("f") if mixed else dtype, ("between", 0.5, 2), expand=False) for shape in shapes]

        if other == "alone":
            return (one(),), {}
        if other == "number":
            return (one(), g.pick([2, 3, 1])), {}
        if other == "numbers":
            return (one(), [g.pick([1, 2, 3]) for _ in shapes]), {}
        return tuple(one() for _ in range(count)), {}

    return make


def foreach(name: str, other: str, count: int = 2) -> Op:
    return row(f"torch._foreach_{name}.{other}", lists(other, count), grad=False, path=f"torch._foreach_{name}")


def complex_pair(g: Any) -> Any:
    dtype, shape = g.pick([torch.float32, torch.float64]), g.shape()
    return (g.tensor(shape, dtype, grad=True), g.tensor(shape, dtype, grad=True)), {}


def of_complex(g: Any) -> Any:
    return (g.tensor(g.shape(), g.pick(COMPLEX), grad=True),), {}


def shape(g: Any) -> Any:
    return g.shape()


ROWS: list[Op] = [
    row("torch.arange", steps, grad=False), row("torch.linspace", made(lambda g: g.int(-2, 2), lambda g: g.int(3, 9), lambda g: g.int(0, 12), kinds="f"), grad=False),
    row("torch.eye", made(lambda g: g.int(0, 6), kinds="ffib"), grad=False), row("torch.zeros", made(shape), grad=False), row("torch.ones", made(shape), grad=False),
    row("torch.full", made(shape, lambda g: g.pick([0, 1, 2.5, -3, True])), grad=False),
    row("torch.tril_indices", lambda g: ((g.int(0, 5), g.int(0, 5), g.int(-2, 2)), {"device": Device()}), grad=False),
    row("torch.rand", made(shape, kinds="f"), "random", grad=False), row("torch.randn", made(shape, kinds="f"), "random", grad=False),
    row("torch.randint", made(lambda g: g.int(-3, 1), lambda g: g.int(2, 9), shape), "random", grad=False),
    row("torch.randperm", made(lambda g: g.int(0, 20), kinds="i"), "random", grad=False),
    row("torch.bernoulli", random_like(), "random", grad=False), row("torch.multinomial", lambda g: ((g.tensor((3, 5), torch.float32, ("between", 0.1, 1)), 2), {}), "random", grad=False),
    row("torch.rand_like", random_like(), "random", grad=False), row("torch.randn_like", random_like(), "random", grad=False),
    row("torch.randint_like", random_like("fi", lambda g: g.int(1, 5)), "random", grad=False),
    *(row(f"Tensor.{name}_", random_like("f"), "random", grad=False) for name in ("uniform", "normal", "exponential", "cauchy", "log_normal")),
    row("Tensor.random_", random_like("fi"), "random", grad=False), row("Tensor.geometric_", random_like("f", lambda g: 0.3), "random", grad=False),
    row("F.dropout", random_like("f", lambda g: 0.5), "random", grad=False), row("F.alpha_dropout", random_like("f", lambda g: 0.5, lambda g: True), "random", grad=False),
    *(foreach(name, other) for name in ("add", "sub", "mul", "div", "maximum") for other in ("number", "numbers", "lists")),
    *(foreach(name, other) for name in ("add_", "mul_", "div_") for other in ("number", "lists")),
    *(foreach(name, "alone") for name in ("sqrt", "neg", "abs", "exp", "reciprocal", "norm", "sqrt_", "zero_")),
    *(foreach(name, "lists", 3) for name in ("addcmul", "addcdiv", "addcmul_", "lerp")),
    row("torch.complex", complex_pair), row("torch.polar", complex_pair), row("torch.view_as_real", of_complex), row("torch.real", of_complex),
    row("torch.imag", of_complex), row("torch.conj", of_complex), row("torch.abs.complex", of_complex, path="torch.abs"),
    row("torch.angle.complex", of_complex, path="torch.angle"), row("torch.exp.complex", of_complex, path="torch.exp"),
    row("torch.sum.complex", of_complex, path="torch.sum"),
]
