"""Functions of f64 on devices that have it, against the CPU's, without fallbacks."""

import math

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.skipif(not torch.wave.get_device_properties().has_float64, reason="the device has no f64")


# Functions of one number, and where to try them.
DOUBLES = {
    "exp": (-30, 30), "expm1": (-3, 3), "exp2": (-30, 30), "log": (1e-3, 1e3), "log2": (1e-3, 1e3), "log10": (1e-3, 1e3),
    "log1p": (-0.99, 3), "sqrt": (0, 9), "rsqrt": (1e-3, 9), "reciprocal": (0.1, 9), "sin": (-50, 50), "cos": (-50, 50),
    "tan": (-1.5, 1.5), "asin": (-1, 1), "acos": (-1, 1), "atan": (-30, 30), "sinh": (-5, 5), "cosh": (-5, 5),
    "tanh": (-3, 3), "asinh": (-30, 30), "acosh": (1, 30), "atanh": (-0.99, 0.99), "erf": (-4, 4), "erfc": (-4, 26),
    "erfinv": (-1, 1), "sigmoid": (-30, 30), "floor": (-9, 9), "ceil": (-9, 9), "round": (-9, 9), "trunc": (-9, 9),
    "frac": (-9, 9), "logit": (0.01, 0.99), "sinc": (-9, 9), "abs": (-9, 9), "sign": (-9, 9),
}  # fmt: skip
ACTIVATIONS = """silu mish gelu softplus logsigmoid elu selu celu leaky_relu hardswish hardsigmoid hardshrink softshrink
    relu6 tanhshrink hardtanh relu""".split()
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, 1e300, -1e300, 1e-300, 2.0, 709.5, 1e22, 1048576.5, 3e9]


def close(found, expected, limit=3e-15):
    assert found.device.type == "wave" and found.dtype == expected.dtype == torch.float64
    torch.testing.assert_close(found.cpu(), expected, rtol=limit, atol=limit, equal_nan=True)


@pytest.mark.parametrize("name", DOUBLES)
def test_functions_of_doubles(name, on_the_device):
    low, high = DOUBLES[name]
    function = getattr(torch, name)
    x = torch.rand(4099, dtype=torch.float64) * (high - low) + low
    for given in (x, x[::3], torch.tensor(SPECIAL, dtype=torch.float64)):
        expected = function(given)
        close(function(given.to("wave")), expected, 1e-13 if name in ("erfinv", "logit", "sinc") else 3e-15)
    # Of whole numbers where that is the default.
    out = torch.empty(0, dtype=torch.float64, device="wave")
    close(function(x.to("wave"), out=out), function(x), 1e-13 if name in ("erfinv", "logit", "sinc") else 3e-15)


def test_the_gradient_of_hardswish_where_it_cancels(on_the_device):
    """x / 3 + 1 / 2 near its zero: what the quotient is off by is all there is."""
    for dtype in (torch.float64, torch.float32):
        x = torch.cat([torch.linspace(-1.501, -1.499, 4001, dtype=dtype), torch.linspace(-3, 3, 4001, dtype=dtype)[1:-1]])
        found = torch.ops.aten.hardswish_backward(torch.ones_like(x).to("wave"), x.to("wave"))
        assert torch.equal(found.cpu(), x / 3 + 0.5)


@pytest.mark.parametrize("name", ["pow", "atan2", "fmod", "remainder", "floor_divide", "hypot", "xlogy", "logaddexp", "copysign"])
def test_functions_of_two_doubles(name, on_the_device):
    function = getattr(torch, name)
    x = torch.randn(4099, dtype=torch.float64) * 9
    y = torch.randn(4099, dtype=torch.float64) * 3
    special = torch.tensor(SPECIAL, dtype=torch.float64)
    a, b = special.repeat(len(special)), special.repeat_interleave(len(special))
    for u, v in ((x.abs(), y), (x, y.round() + 0.5), (a, b)):
        if name == "xlogy":
            v = v.abs()
        if name in ("floor_divide", "fmod", "remainder") and u is a:
            # The CPU's own of infinities, and of numbers 2^1000 apart, are not to be relied on.
            kept = a.isfinite() & b.isfinite() & (a.abs() < 1e200) & (b.abs() > 1e-200)
            u, v = a[kept], b[kept]
        close(function(u.to("wave"), v.to("wave")), function(u, v), 1e-13 if name == "pow" else 3e-15)
    if name == "fmod":
        for u, v in ((1e300, 1e-300), (-1e300, 3.0), (1e22, 1e-5), (5e-300, 3e-300), (1e300, 0.7)):
            found = torch.fmod(*(torch.tensor([t], dtype=torch.float64, device="wave") for t in (u, v)))
            assert found.item() == math.fmod(u, v)
    if name == "pow":
        for number in (3, 0.5, -2, 2.5):
            close(x.abs().to("wave") ** number, x.abs() ** number, 1e-13)
            close(2.5 ** y.to("wave"), 2.5**y, 1e-13)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_doubles(name, on_the_device):
    function = getattr(F, name)
    x = torch.randn(2049, dtype=torch.float64) * 4
    weights = torch.randn(2049, dtype=torch.float64)
    grads = []
    for device in ("cpu", "wave"):
        leaf = x.clone().to(device).requires_grad_()
        y = function(leaf)
        (y * weights.to(device)).sum().backward()
        grads.append((y.detach(), leaf.grad))
    for found, expected in zip(grads[1], grads[0]):
        # The CPU's hardsigmoid has a sixth in f32.
        close(found, expected, 1e-7 if name == "hardsigmoid" else 1e-13)


def test_sines_of_large_doubles(on_the_device):
    # Each power of two has its own bits of 2 / pi.
    x = (torch.rand(2000, dtype=torch.float64) + 1) * 2.0 ** torch.linspace(0, 1023, 2000, dtype=torch.float64).floor()
    x = torch.cat([x, torch.pi / 2 * torch.arange(1.0, 2000.0, dtype=torch.float64)])
    for function in (torch.sin, torch.cos):
        close(function(x.to("wave")), function(x), 1e-15)


def test_losses_of_doubles_train(on_the_device):
    torch.manual_seed(torch.initial_seed())
    x, y = torch.randn(64, 5, dtype=torch.float64), torch.rand(64, 1, dtype=torch.float64)
    made = []
    for device in ("cpu", "wave"):
        w = torch.linspace(-1, 1, 5, dtype=torch.float64, device=device).unsqueeze(1).requires_grad_()
        p = ((x.to(device).unsqueeze(2) * w).sum(1)).sigmoid()
        losses = [f(p, y.to(device)) for f in (F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy)]
        sum(losses).backward()
        made.append((sum(losses).detach().reshape(1), w.grad))
    for found, expected in zip(made[1], made[0]):
        close(found, expected, 1e-12)
