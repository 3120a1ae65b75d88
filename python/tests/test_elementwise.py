"""Elementwise operators against PyTorch on the CPU, on random inputs, without fallbacks."""

import pytest
import torch
import torch.nn.functional as F

FLOAT = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}

pytestmark = pytest.mark.usefixtures("on_the_device")


def same(found, expected, tolerance=None):
    assert found.device.type == "wave"
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    limit = TOLERANCE.get(expected.dtype, 0) if tolerance is None else tolerance
    torch.testing.assert_close(found.cpu(), expected, rtol=limit, atol=limit, equal_nan=True)


def check(function, *inputs, tolerance=None):
    """The same on both devices, and out= and in place where a method has them."""
    on_wave = [x.to("wave") if isinstance(x, torch.Tensor) else x for x in inputs]
    same(function(*on_wave), function(*inputs), tolerance)


UNARY = """abs neg sign floor ceil round trunc frac exp expm1 exp2 log1p sin cos tan atan sinh cosh tanh asinh erf erfc
sigmoid logical_not isnan isinf isfinite square sgn positive deg2rad""".split()
POSITIVE = "log log2 log10 sqrt rsqrt reciprocal".split()


@pytest.mark.parametrize("name", UNARY + POSITIVE)
def test_functions(name):
    function = getattr(torch, name)
    for dtype in FLOAT:
        x = torch.randn(7, 5, 9).mul(2).to(dtype)
        if name in POSITIVE:
            x = x.abs() + 0.01
        check(function, x)
        check(function, x.transpose(0, 2))
        check(function, x[:, ::2])
        out = torch.empty(0, device="wave", dtype=function(x).dtype)
        same(function(x.to("wave"), out=out) if name not in ("isnan", "isinf", "isfinite", "square", "positive")
             else function(x.to("wave")), function(x))
    if name not in ("frac",):
        # The CPU of torch 2.10 has inf for cosh(89), which is 2.2e38.
        whole = torch.randint(1, 89, (33,))
        check(function, whole)


@pytest.mark.parametrize("name", ["asin", "acos", "atanh", "erfinv"])
def test_functions_of_the_unit_interval(name):
    check(getattr(torch, name), torch.rand(1001) * 1.98 - 0.99, tolerance=5e-6)


BINARY = "add sub mul div floor_divide remainder fmod maximum minimum".split()


@pytest.mark.parametrize("name", BINARY)
def test_arithmetic(name):
    function = getattr(torch, name)
    for dtype in FLOAT:
        limit = 0.51 if dtype != torch.float32 else 1e-5
        x, y = (torch.randn(4, 6, 5, 3).mul(9).to(dtype) for _ in range(2))
        y = torch.where(y.abs() < 0.1, 1, y)
        check(function, x, y, tolerance=limit)
        check(function, x.to(memory_format=torch.channels_last), y[:1, :, :1, :1], tolerance=limit)
        check(function, x, y[0, :, 0, 0][:, None, None], tolerance=limit)
        if name not in ("maximum", "minimum"):
            check(function, x, 3, tolerance=limit)
            check(function, x, 2.5, tolerance=limit)
    i, j = torch.randint(-50, 50, (31,)), torch.randint(1, 20, (31,)) * torch.tensor([1, -1, 1]).repeat(11)[:31]
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8):
        check(function, i.to(dtype), j.to(dtype))
        check(function, i.to(dtype), torch.randn(31).abs() + 0.5, tolerance=1e-5)
    x, y = torch.randn(5, 7), torch.rand(5, 7) + 0.5
    z = x.to("wave")
    getattr(z, f"{name}_")(y.to("wave")) if hasattr(z, f"{name}_") else z.copy_(function(x, y))
    same(z, function(x, y), 1e-5)


def test_promotion_is_torchs():
    kinds = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]
    for a in kinds:
        for b in kinds:
            x, y = (torch.rand(5).mul(9).to(dtype) for dtype in (a, b))
            for function in (torch.mul, torch.add, torch.div, torch.eq, torch.lt, torch.maximum):
                for u, v in ((x, y), (x, y[0]), (x[0], y), (x[0], y[0])):
                    check(function, u, v, tolerance=0.02)
        for number in (2, 2.5, True):
            for function in (torch.mul, torch.add, torch.div, torch.gt):
                check(function, torch.rand(5).mul(9).to(a), number, tolerance=0.02)
                check(function, torch.rand(()).mul(9).to(a), number, tolerance=0.02)
    x = torch.randn(3)
    same(x.to("wave") * torch.tensor(2.0, dtype=torch.float64), x * 2)
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.ones(3, dtype=torch.int64, device="wave").mul_(torch.ones(3, device="wave") / 2)
    with pytest.raises(RuntimeError):
        torch.ones(3, device="wave") * torch.ones(4, device="wave")
    with pytest.raises(RuntimeError):
        torch.ones(3, device="wave") * torch.ones(3)


def test_add_and_sub_with_alpha():
    x, y = torch.randn(5, 1, 7), torch.randn(4, 1)
    check(lambda x, y: torch.add(x, y, alpha=-2.5), x, y)
    check(lambda x, y: torch.sub(x, y, alpha=3), x, y)
    check(lambda x: 1 - x, x)
    check(lambda x: torch.rsub(x, 2.5, alpha=2), x)
    check(lambda x: x - 1, torch.randint(9, (5,)))
    check(lambda x: x + 0.5, torch.randint(9, (5,)))
    z = x.to("wave")
    z.add_(y[:1].to("wave"), alpha=2).sub_(1).add_(0.25)
    same(z, x.add(y[:1], alpha=2).sub(1).add(0.25))
    with pytest.raises(RuntimeError, match="doesn't match"):
        z[0].add_(torch.ones(3, 1, 7, device="wave"))


def test_comparisons_logic_and_choices():
    x, y = torch.randn(6, 5).round(), torch.randn(5).round()
    x[0, 0] = y[1] = float("nan")
    for name in "eq ne lt le gt ge logical_and logical_or logical_xor".split():
        check(getattr(torch, name), x, y)
        check(getattr(torch, name), x.nan_to_num().long(), y.nan_to_num().long())
    for name in "eq ne lt le gt ge".split():
        check(getattr(torch, name), x, 1)
        check(getattr(torch, name), x.nan_to_num().long(), 0.5)
    check(torch.where, x > 0, x, y)
    check(torch.where, x > 0, x, torch.tensor(2.0))
    check(lambda c, x: torch.where(c, x, 0.0), x > 0, x)
    check(lambda x, m: x.masked_fill(m, -9.5), x, y > 0)
    check(lambda x, m: x.masked_fill(m, float("-inf")), x, y > 0)
    check(lambda x: x.clamp(-1, 0.5), x)
    check(lambda x: x.clamp(min=-0.5), x)
    check(lambda x: x.clamp(max=0), x)
    check(lambda x: x.clamp(min=0.5), torch.arange(-3, 3))
    check(lambda x, y: x.clamp(-y.abs(), y.abs()), x, y)
    i, j = torch.randint(-99, 99, (40,)), torch.randint(0, 7, (40,))
    for name in "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift".split():
        check(getattr(torch, name), i, j)
        check(getattr(torch, name), i.int(), 3)
    check(torch.bitwise_not, i)
    check(torch.bitwise_not, i > 0)
    check(lambda a, b: (a > 0) & (b > 3) | ~(a > 5), i, j)


def test_powers_and_mixtures():
    x, y, z = (torch.rand(6, 5) + 0.1 for _ in range(3))
    check(torch.pow, x, y)
    for exponent in (2, 3, 0.5, -1, -2.5, 0, 1):
        check(torch.pow, x, exponent)
    check(lambda y: 2**y, y)
    check(lambda y: torch.pow(2, y), torch.arange(9))
    check(torch.pow, torch.randint(-5, 5, (9,)), 3)
    check(lambda *a: torch.addcmul(*a, value=-0.5), x, y, z)
    check(lambda *a: torch.addcdiv(*a, value=0.7), x, y, z)
    check(torch.lerp, x, y, 0.3)
    check(torch.lerp, x, y, z)
    check(torch.atan2, x - 0.5, y - 0.5)
    for mode in (None, "floor", "trunc"):
        check(lambda x, y: torch.div(x, y, rounding_mode=mode), x * 9, y)


ACTIVATIONS = {
    "relu": F.relu, "relu6": F.relu6, "leaky_relu": lambda x: F.leaky_relu(x, 0.1), "elu": lambda x: F.elu(x, 0.7),
    "celu": lambda x: F.celu(x, 1.3), "selu": F.selu, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "mish": F.mish, "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid, "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.7), "sigmoid": torch.sigmoid,
    "tanh": torch.tanh, "softplus": lambda x: F.softplus(x, 2, 3), "logsigmoid": F.logsigmoid,
    "hardshrink": F.hardshrink, "softshrink": F.softshrink, "threshold": lambda x: F.threshold(x, 0.1, 20),
    "relu_": lambda x: F.relu(x * 1, inplace=True), "elu_": lambda x: F.elu(x * 1, inplace=True),
    "silu_": lambda x: F.silu(x * 1, inplace=True), "hardswish_": lambda x: F.hardswish(x * 1, inplace=True),
    "leaky_relu_": lambda x: F.leaky_relu(x * 1, inplace=True), "relu6_": lambda x: F.relu6(x * 1, inplace=True),
    "abs": torch.abs, "square": torch.square, "sqrt": lambda x: torch.sqrt(x.abs() + 1), "exp": torch.exp,
    "sin": torch.sin, "cos": torch.cos, "log": lambda x: torch.log(x.abs() + 1), "erf": torch.erf,
    "pow": lambda x: (x.abs() + 1) ** 1.7, "div": lambda x: 2 / (x + 9), "clamp": lambda x: x.clamp(-0.5, 0.5),
    "where": lambda x: torch.where(x > 0, x * 2, -x), "rsqrt": lambda x: (x * x + 1).rsqrt(),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_forward_and_backward(name):
    function = ACTIVATIONS[name]
    for shape in ((3, 4, 5, 7), (2, 6, 4, 4)):
        x, g = torch.randn(shape) * 2, torch.randn(shape)
        found, expected = (a.clone().requires_grad_() for a in (x.to("wave"), x))
        y, z = function(found), function(expected)
        same(y.detach(), z.detach(), 3e-6)
        y.backward(g.to("wave"))
        z.backward(g)
        same(found.grad, expected.grad, 1e-5)


def test_prelu():
    x, w = torch.randn(3, 4, 5, 5), torch.rand(4)
    results = []
    for device in ("wave", "cpu"):
        a, b = (t.to(device).requires_grad_() for t in (x, w))
        y = F.prelu(a, b)
        results.append((y.detach(), *torch.autograd.grad(y, a, torch.ones_like(y))))
    for found, expected in zip(*results, strict=True):
        same(found, expected)


LOSSES = {
    "mse": F.mse_loss, "smooth_l1": F.smooth_l1_loss, "huber": lambda *a, **k: F.huber_loss(*a, delta=0.7, **k),
    "l1": F.l1_loss, "bce": lambda x, y, **k: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), **k),
    "bce_logits": lambda x, y, **k: F.binary_cross_entropy_with_logits(x, y.sigmoid(), **k),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_element_by_element(name):
    x, y, g = (torch.randn(4, 9) for _ in range(3))
    found, expected = (a.clone().requires_grad_() for a in (x.to("wave"), x))
    a = LOSSES[name](found, y.to("wave"), reduction="none")
    b = LOSSES[name](expected, y, reduction="none")
    same(a.detach(), b.detach(), 3e-6)
    a.backward(g.to("wave"))
    b.backward(g)
    same(found.grad, expected.grad, 1e-5)


def test_fills_and_ranges():
    for dtype in (torch.float32, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool, torch.bfloat16):
        same(torch.full((5, 7), 3, dtype=dtype, device="wave"), torch.full((5, 7), 3, dtype=dtype))
        same(torch.ones(33, dtype=dtype, device="wave"), torch.ones(33, dtype=dtype))
        z = torch.zeros(5, 7, dtype=dtype, device="wave")
        z[:, ::2] = 1
        e = torch.zeros(5, 7, dtype=dtype)
        e[:, ::2] = 1
        same(z, e)
    for arguments in ((10,), (2, 17, 3), (5, -7, -2), (0, 1, 0.1), (1.5, 9)):
        same(torch.arange(*arguments, device="wave"), torch.arange(*arguments), 1e-6)
    same(torch.linspace(-2, 3, 17, device="wave"), torch.linspace(-2, 3, 17), 1e-6)
    same(torch.eye(4, 6, device="wave"), torch.eye(4, 6))


def test_overlaps_are_safe():
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.zeros(1, device="wave").expand(4).mul_(torch.ones(4, device="wave"))
    x = torch.randn(6, 6)
    y = x.to("wave")
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.add(y, y.t(), out=y)
    # Where gaps hide from PyTorch what is shared, what was there is read.
    wide = torch.zeros(6, 7, device="wave")
    wide[:, :6] = y
    torch.add(wide[:, :6], wide[:, :6].t(), out=wide[:, :6])
    same(wide[:, :6], x + x.t())


def test_large_integers_do_not_pass_through_floats():
    big = 2**60 + 1
    x = torch.full((3,), big, device="wave")
    assert (x == big).all().item()
    assert (x + 1).tolist() == [big + 1] * 3


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_reduced(name, reduction):
    x, y = torch.randn(6, 11), torch.randn(6, 11)
    found, expected = (a.clone().requires_grad_() for a in (x.to("wave"), x))
    a = LOSSES[name](found, y.to("wave"), reduction=reduction)
    b = LOSSES[name](expected, y, reduction=reduction)
    same(a.detach(), b.detach(), 1e-5)
    a.backward()
    b.backward()
    same(found.grad, expected.grad, 1e-5)
    weight = torch.rand(11)
    if name == "bce":
        p = x.sigmoid()
        same(
            F.binary_cross_entropy(p.to("wave"), p.flip(0).to("wave"), weight.to("wave"), reduction=reduction),
            F.binary_cross_entropy(p, p.flip(0), weight, reduction=reduction), 1e-5,
        )


def test_numbers_beside_tensors_without_dimensions():
    for x in (torch.rand(()), torch.rand(()).half(), torch.tensor(3)):
        for function in (
            lambda x: x + 2.5, lambda x: x * 2.5, lambda x: 2 + x, lambda x: 1.5 - x, lambda x: x / 2, lambda x: x > 0.5,
            lambda x: x + True, lambda x: x.clamp(max=2.5), lambda x: x**2, lambda x: torch.add(x, 3, alpha=2),
        ):
            check(function, x)
    for function in (lambda x: x + 2.5, lambda x: x + 2, lambda x: x + True, lambda x: x * 2, lambda x: x == 1):
        check(function, torch.tensor([True, False]))
        check(function, torch.tensor(True))
    number = torch.tensor(0.5, dtype=torch.float64)
    check(lambda x: x + number, torch.rand(()))
    check(lambda x: x + number, torch.rand(3))
    with pytest.raises(RuntimeError, match="two bool tensors"):
        torch.ones(2, dtype=torch.bool, device="wave") - True


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rests_by_numbers_that_halves_do_not_hold(dtype):
    x = torch.linspace(-9, 9, 301).to(dtype)
    for function in (torch.fmod, torch.remainder):
        for by in (2.3, -0.7, 3):
            assert torch.equal(function(x.to("wave"), by).cpu(), function(x, by))
            assert torch.equal(function(x, torch.tensor(by)), function(x.to("wave"), torch.tensor(by)).cpu())
