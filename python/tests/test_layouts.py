"""Results lie in memory as the CPU's do: channels last stays, and elementwise results keep their operands' order."""

import pytest
import torch
import torch.nn.functional as F
from against_cpu import pick, seeded
from wave32._fallback import run_on_cpu

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
    "roll_still": lambda x: x.roll((1, 0), (1, 2)),
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


def laid_out(x, order):
    """A copy whose dimensions, from the outermost in, are these."""
    return x.permute(order).contiguous().permute([order.index(dim) for dim in range(x.dim())])


def results(function, *operands):
    """Results on both devices, of operands that have the same strides, gaps and repetitions."""
    given = [[], []]
    for x in operands:
        base = x if x._base is None else x._base
        moved = base.to("wave").as_strided(x.shape, x.stride(), x.storage_offset())
        assert moved.stride() == x.stride()
        given[0].append(x)
        given[1].append(moved)
    return [function(*inputs) for inputs in given]


@pytest.mark.parametrize("function", (F.conv1d, F.conv_transpose1d))
def test_signals(function):
    # A permuted weight makes channels last of a signal as of an image; a permuted input does not.
    x, w = torch.randn(2, 3, 7), torch.randn(3, 3, 2)
    both(function, [x, laid_out(w, (0, 2, 1))], "a permuted weight")
    both(function, [laid_out(x, (0, 2, 1)), w], "a permuted input")
    both(function, [x[0], laid_out(w, (0, 2, 1))], "no batch")
    # Of what is contiguous and permuted at once, the strides that mean nothing decide.
    w = torch.randn(1, 2, 1) if function is F.conv_transpose1d else torch.randn(2, 1, 1)
    expected, found = results(function, torch.randn(1, 9, 1).permute(0, 2, 1), w)
    same(found, expected, "a single channel")


def test_batch_norm_without_height_and_width():
    x = torch.randn(2, 4, 4, 1, 1).permute(0, 2, 1, 3, 4)
    for function in (
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda x: F.batch_norm(x, torch.zeros(4, device=x.device), torch.ones(4, device=x.device)),
    ):
        expected, found = results(function, x)
        same(found, expected, "batch_norm")
    expected, found = results(lambda x: F.batch_norm(x, None, None, training=True), torch.randn(1, 1, 7, 2).permute(0, 3, 2, 1))
    same(found, expected, "batch_norm of an image of one column")


@pytest.mark.parametrize("name", ("binary_cross_entropy", "huber_loss"))
def test_losses_lie_as_predictions(name):
    loss = getattr(F, name)
    y = torch.rand(3, 3, 2, 3).contiguous(memory_format=torch.channels_last)
    for x in (torch.rand(3, 1, 2, 3).expand(3, 3, 2, 3), laid_out(torch.rand(3, 3, 2, 3), (1, 0, 3, 2))):
        expected, found = results(lambda x, y: loss(x, y, reduction="none"), x, y)
        same(found, expected, name)
    if name == "huber_loss":
        expected, found = results(lambda x, y: loss(x, y, reduction="none"), torch.tensor(0.5), torch.rand(8, 1, 3).permute(2, 1, 0))
        same(found, expected, "of a number")
        assert loss(torch.rand(2, device="wave"), torch.rand(2, device="wave", dtype=torch.float64)).dtype == torch.float32


CONTIGUOUS = {
    "grid_sample": (lambda x: F.grid_sample(torch.arange(6.0, device=x.device).reshape(2, 3, 1, 1), x), (2, 2, 4, 2)),
    "take": (lambda x: torch.take(torch.arange(9.0, device=x.device), (x > 0).long()), (2, 7)),
    "unfold": (lambda x: F.unfold(x, 1), (2, 3, 4, 5)),
    "bucketize": (lambda x: torch.bucketize(x, torch.tensor([-0.5, 0.5], device=x.device)), (2, 3, 4)),
    "searchsorted": (lambda x: torch.searchsorted(torch.tensor([-0.5, 0.5], device=x.device), x), (2, 3, 4)),
}


@pytest.mark.parametrize("name", CONTIGUOUS)
def test_what_is_contiguous_of_permuted_operands(name):
    function, sizes = CONTIGUOUS[name]
    for order in ((*range(len(sizes))[::-1],), (1, 0, *range(2, len(sizes)))):
        expected, found = results(function, laid_out(torch.randn(sizes), order))
        same(found, expected, f"{name} {order}")
        assert found.is_contiguous()


ORDERED = {
    "angle": lambda x, y: torch.angle(x),
    "angle of complex numbers": lambda x, y: torch.angle(torch.complex(x, y)),
    "size of complex numbers": lambda x, y: torch.complex(x, y).abs(),
    "complex": lambda x, y: torch.complex(x, y),
    "complex with a number": lambda x, y: torch.complex(x, torch.tensor(2.0, device=x.device)),
    "polar": lambda x, y: torch.polar(x, y),
    "complex sum": lambda x, y: torch.complex(x, x) + y,
    "complex product with a number": lambda x, y: x * torch.tensor(2j, device=x.device),
    "complex choice": lambda x, y: torch.where(y > 0, torch.complex(x[:1], x[:1]), 1j),
}


@pytest.mark.parametrize("name", ORDERED)
def test_complex_numbers(name):
    for order in ((2, 1, 0), (1, 0, 2), (0, 1, 2)):
        x, y = laid_out(torch.rand(3, 4, 2), order), laid_out(torch.rand(4, 2) - 0.5, (1, 0))
        expected, found = results(ORDERED[name], x, y)
        same(found, expected, f"{name} {order}")


OUTS = {
    "i0": (torch.i0, (), torch.float32),
    "angle": (torch.angle, (), torch.float32),
    "sub": (lambda x, out: torch.sub(x, torch.zeros((), dtype=torch.complex128, device=x.device), out=out), (), torch.complex64),
    "polar": (lambda x, out: torch.polar(x, x, out=out), (), torch.complex64),
    "lcm": (lambda x, out: torch.lcm(x.long(), torch.tensor(2, device=x.device), out=out), (), torch.int64),
    "take": (lambda x, out: torch.take(x, torch.zeros_like(x, dtype=torch.int64), out=out), (), torch.float32),
}


@pytest.mark.parametrize("name", OUTS)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_an_out_of_other_sizes_gets_the_results_strides(name):
    function, sizes, dtype = OUTS[name]
    x = laid_out(torch.rand(2, 3, 4, 5) * 4, (3, 0, 2, 1))
    for sizes in ((0,), (2, 3, 4, 5, 2), (7,)):
        expected, found = results(lambda x: function(x, out=torch.zeros(sizes, dtype=dtype, device=x.device)), x)
        same(found, expected, f"{name} into {sizes}")


def test_gaps_count_on_the_cpu():
    # Of doubles, which have no kernel: by its strides such a weight is none whose channels come last, without its gaps it is.
    x, w = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(3, 1, 8, dtype=torch.float64)
    expected, found = results(F.conv1d, x, w[:, :, 1:8:3].permute(0, 2, 1))
    same(found, expected, "conv1d")


def test_what_is_repeated_counts_on_the_cpu():
    # An operand whose strides are 0 does not decide about the order of dimensions.
    x, y = torch.randint(1, 9, (2, 1, 3)).expand(2, 4, 3), laid_out(torch.randint(1, 9, (2, 4, 3)), (2, 1, 0))
    expected, found = results(torch.gcd, x, y)
    same(found, expected, "gcd")
    moved = x._base.to("wave").expand(2, 4, 3), laid_out(y.to("wave"), (2, 1, 0))
    same(run_on_cpu(torch.ops.aten.add.Tensor, *moved), x + y, "add")


@pytest.mark.parametrize("masked", (False, True))
def test_attention_lies_as_its_query(masked):
    k, v = torch.randn(2, 3, 6, 4), torch.randn(2, 3, 6, 4)
    mask = [torch.randn(5, 6)] if masked else []
    for order in ((0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3), (0, 3, 1, 2)):
        q = laid_out(torch.randn(2, 3, 5, 4), order)
        expected, found = results(F.scaled_dot_product_attention, q, k, v, *mask)
        same(found, expected, f"attention {order}")
        same(*results(F.scaled_dot_product_attention, q[0], k[0], v[0])[::-1], f"attention {order} without a batch")
        same(*results(F.scaled_dot_product_attention, q, k, v[..., :2])[::-1], f"attention {order}, other values")
    leaves = [laid_out(torch.randn(2, 3, 5, 4), (0, 2, 1, 3)), k, v]
    grads = []
    for device in ("cpu", "wave"):
        inputs = [leaf.to(device).requires_grad_() for leaf in leaves]
        grads.append(torch.autograd.grad(F.scaled_dot_product_attention(*inputs).square().sum(), inputs))
    for expected, found in zip(*grads):
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-4)
    # Heads go together again by a view.
    q = torch.randn(2, 5, 3, 4, device="wave").transpose(1, 2)
    made = F.scaled_dot_product_attention(q, k.to("wave"), v.to("wave"))
    assert made.transpose(1, 2).view(2, 5, 12).shape == (2, 5, 12)


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


def test_patches_are_rearranged_in_few_launches():
    # Five dimensions that do not merge, as mobile vision transformers have them; kernels address four.
    x = torch.randn(2, 64, 8, 2, 6, 2)
    moved = x.to("wave")
    with torch.wave.profile() as profiler:
        found = moved.permute(0, 1, 3, 5, 2, 4).contiguous() + 1
    assert sum(count for _, count, _ in profiler.by_kernel()) <= 3
    assert torch.equal(found.cpu(), x.permute(0, 1, 3, 5, 2, 4).contiguous() + 1)
