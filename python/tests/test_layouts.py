"""Results lie in memory as the CPU's do: channels last stays, and elementwise results keep their operands' order."""

import pytest
import torch
import torch.nn.functional as F
from against_cpu import pick, seeded

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}

# On four dimensions, channels a multiple of four, images of even sizes.
IMAGES = {
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "batch_norm_eval": lambda x: F.batch_norm(x, x.detach().mean((0, 2, 3)), x.detach().var((0, 2, 3))),
    "group_norm": lambda x: F.group_norm(x, 2),
    "instance_norm": lambda x: F.instance_norm(x),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "roll": lambda x: x.roll(1, 1),
    "roll_two": lambda x: x.roll((1, 2), (1, 3)),
    "roll_flat": lambda x: x.roll(3),
    "avg_pool": lambda x: F.avg_pool2d(x, 2),
    "max_pool": lambda x: F.max_pool2d(x, 2),
    "adaptive_avg": lambda x: F.adaptive_avg_pool2d(x, 2),
    "adaptive_one": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive_max": lambda x: F.adaptive_max_pool2d(x, 2),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "reflect": lambda x: F.pad(x, (1, 1, 1, 1), "reflect"),
    "replicate": lambda x: F.pad(x, (1, 1, 1, 1), "replicate"),
    "zeros": lambda x: F.pad(x, (1, 1, 1, 1)),
    "circular": lambda x: F.pad(x, (1, 1, 1, 1), "circular"),
    "softmax": lambda x: x.softmax(1),
    "cumsum": lambda x: x.cumsum(1),
    "flip": lambda x: x.flip(1),
    "tril": lambda x: x.tril(),
    "prelu": lambda x: F.prelu(x, torch.full((x.shape[1],), 0.25, device=x.device)),
    "mish": lambda x: F.mish(x),
    "hardswish": lambda x: F.hardswish(x),
    "log_sigmoid": lambda x: F.logsigmoid(x),
    "hardtanh": lambda x: F.hardtanh(x),
    "leaky_relu": lambda x: F.leaky_relu(x),
    "elu": lambda x: F.elu(x),
    "gelu": lambda x: F.gelu(x),
    "silu": lambda x: F.silu(x),
    "softplus": lambda x: F.softplus(x),
    "relu": lambda x: F.relu(x),
    "dropout": lambda x: F.dropout(x, 0.0),
    "glu": lambda x: F.glu(x, 1),
    "normalize": lambda x: F.normalize(x),
    "cat": lambda x: torch.cat([x, x], 1),
    "gather": lambda x: x.gather(1, torch.zeros(x.shape, dtype=torch.int64, device=x.device)),
    "index_select": lambda x: x.index_select(1, torch.tensor([0, 1], device=x.device)),
    "index": lambda x: x[:, torch.tensor([0, 1], device=x.device)],
    "sort": lambda x: x.sort(1).values,
    "topk": lambda x: x.topk(2, 1).values,
    "sum": lambda x: x.sum(1),
    "mean": lambda x: x.mean((2, 3), keepdim=True),
    "var": lambda x: x.var(1, keepdim=True),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "clone": lambda x: x.clone(),
    "half": lambda x: x.half(),
    "zeros_like": lambda x: torch.zeros_like(x) + x,
    "rand_like": lambda x: torch.rand_like(x) * 0 + x,
}

VOLUMES = {
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "group_norm": lambda x: F.group_norm(x, 2),
    "reflect": lambda x: F.pad(x, (1, 1, 1, 1, 1, 1), "reflect"),
    "replicate": lambda x: F.pad(x, (1, 1, 1, 1, 1, 1), "replicate"),
    "roll": lambda x: x.roll(1, 1),
    "relu": lambda x: F.relu(x),
}

CONVOLUTIONS = [
    (F.conv2d, (2, 3, 5, 6), (4, 3, 3, 3)),
    (F.conv2d, (2, 3, 5, 6), (4, 3, 1, 1)),
    (F.conv_transpose2d, (2, 3, 5, 6), (3, 4, 3, 3)),
    (F.conv3d, (2, 3, 3, 4, 5), (4, 3, 2, 2, 2)),
    (F.conv_transpose3d, (2, 3, 3, 2, 4), (3, 4, 2, 1, 2)),
]

UNARY = [
    "abs", "neg", "exp", "sqrt", "relu", "sigmoid", "isinf", "isnan", "isfinite", "logical_not", "sign", "floor", "erf",
    "square", "reciprocal", "tanh", "sin", "clone", "signbit", "frac", "log1p", "bool", "double",
]  # fmt: skip
BINARY = [
    "add", "sub", "mul", "div", "maximum", "eq", "lt", "logical_and", "logical_xor", "atan2", "pow", "fmod", "hypot",
    "copysign", "heaviside", "true_divide", "floor_divide", "remainder", "fmax", "logaddexp", "xlogy", "ldexp",
]  # fmt: skip


def same(found, expected, what, rtol=1e-4):
    assert found.dtype == expected.dtype and found.shape == expected.shape, what
    assert found.stride() == expected.stride(), f"{what}: strides {found.stride()}, on the CPU {expected.stride()}"
    torch.testing.assert_close(found.cpu(), expected, rtol=rtol, atol=rtol, equal_nan=True, msg=lambda m: f"{what}: {m}")


def both(function, leaves, what):
    """Results and gradients, of contiguous gradients, on both devices."""
    kept = []
    for device in ("cpu", "wave"):
        inputs = [leaf.detach().to(device).requires_grad_() for leaf in leaves]
        made = function(*inputs)
        grad = torch.linspace(-1, 1, made.numel()).reshape(made.shape).to(made.dtype)
        kept.append([made.detach(), *torch.autograd.grad(made, inputs, grad.to(device))])
    for number, (expected, found) in enumerate(zip(*kept)):
        same(found, expected, f"{what}, {'gradient' if number else 'result'} {number}", 1e-3)


@pytest.mark.parametrize("name", IMAGES)
def test_images(name):
    x = torch.randn(2, 8, 4, 6)
    # Away from where a slope jumps, and no two alike.
    x = x + x.sign() * 0.01
    both(IMAGES[name], [x.contiguous(memory_format=torch.channels_last)], name)
    if name not in ("roll_flat", "half"):
        both(lambda x: IMAGES[name](x[:, :4]), [x.contiguous(memory_format=torch.channels_last)], f"{name} of a slice")
    both(IMAGES[name], [x], f"{name}, channels first")


@pytest.mark.parametrize("name", VOLUMES)
def test_volumes(name):
    both(VOLUMES[name], [torch.randn(2, 4, 3, 2, 4).contiguous(memory_format=torch.channels_last_3d)], name)


@pytest.mark.parametrize("number", range(len(CONVOLUTIONS)))
def test_convolutions(number):
    function, sizes, weights = CONVOLUTIONS[number]
    x, w = torch.randn(sizes), torch.randn(weights)
    for first, second in ((False, False), (False, True), (True, False), (True, True)):
        leaves = [t.contiguous(memory_format=LAST[t.dim()]) if last else t for t, last in ((x, first), (w, second))]
        both(function, leaves, f"{function.__name__} of {sizes}, last: {first}, {second}")


def test_a_network_in_channels_last_can_be_viewed():
    m = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).to("wave", memory_format=torch.channels_last)
    y = m(torch.randn(2, 3, 4, 5, device="wave").to(memory_format=torch.channels_last))
    assert y.permute(0, 2, 3, 1).view(-1, 8).shape == (12, 8)


def laid(generator, sizes):
    """A tensor of these sizes in a random order of dimensions, with gaps or expanded here and there."""
    order = torch.randperm(len(sizes), generator=generator).tolist()
    whole = torch.rand([sizes[d] + (pick(generator, 0, 3) == 0) for d in order], generator=generator) + 0.5
    x = whole.permute([order.index(d) for d in range(len(sizes))])
    x = x[tuple(slice(0, size) for size in sizes)]
    if pick(generator, 0, 4) == 0:
        x = x.narrow(pick(generator, 0, len(sizes) - 1), 0, 1).expand(sizes)
    return x


def operand(generator, sizes):
    """One that broadcasts to the sizes."""
    own = [1 if pick(generator, 0, 3) == 0 else size for size in sizes]
    return laid(generator, own)[(0,) * pick(generator, 0, 1) if own[0] == 1 else ()]


@pytest.mark.parametrize("number", range(16))
def test_elementwise(number):
    generator = seeded(number)
    sizes = [pick(generator, 1, 4) for _ in range(pick(generator, 1, 5))]
    a, b, c = laid(generator, sizes), operand(generator, sizes), operand(generator, sizes)
    # The device has the same strides, gaps and all.
    x, y, z = (
        torch.empty(0).set_(t.untyped_storage()).to("wave").as_strided(t.shape, t.stride(), t.storage_offset()) for t in (a, b, c)
    )
    what = f"{[(t.shape, t.stride()) for t in (a, b, c)]}"
    for name in UNARY:
        same(getattr(x, name)(), getattr(a, name)(), f"{name} {what}")
    for name in BINARY:
        same(getattr(torch, name)(x, y), getattr(torch, name)(a, b), f"{name} {what}")
        same(getattr(torch, name)(y, x), getattr(torch, name)(b, a), f"{name} turned {what}")
    for name, function in {
        "number": lambda a, b, c: a + 2,
        "compared": lambda a, b, c: a > 1,
        "alpha": lambda a, b, c: torch.add(a, b, alpha=2),
        "where": lambda a, b, c: torch.where(b > 1, a, c),
        "addcmul": lambda a, b, c: torch.addcmul(a, b, c),
        "lerp": lambda a, b, c: torch.lerp(a, b, c),
        "clamp": lambda a, b, c: torch.clamp(a, 0.7, 1.2),
        "types": lambda a, b, c: a + b.half(),
        "masked": lambda a, b, c: a.masked_fill(b > 1, 0.0),
        "gelu": lambda a, b, c: F.gelu(a),
        "empty out": lambda a, b, c: torch.mul(a, b, out=torch.empty(0, device=a.device)),
        "empty out of one": lambda a, b, c: torch.abs(a, out=torch.empty(0, device=a.device)),
        "nonzero": lambda a, b, c: (a > 1).nonzero(),
        "like": lambda a, b, c: torch.ones_like(a),
    }.items():
        same(function(x, y, z), function(a, b, c), f"{name} {what}", 1e-2 if name == "types" else 1e-4)
