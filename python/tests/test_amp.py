"""Autocast and GradScaler on whole models, beside f32 on the CPU."""

import copy

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.nn.functional import cross_entropy, interpolate
from torch.utils._python_dispatch import TorchDispatchMode
from wave32 import _autocast


class UNet(nn.Module):
    """Two levels: a skip, a stride, an upsampling."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.norm, self.last = nn.BatchNorm2d(16), nn.Conv2d(24, 5, 1)

    def forward(self, x):
        skip = self.inner(x).relu()
        deep = interpolate(self.norm(self.outer(skip)).relu(), scale_factor=2, mode="bilinear", align_corners=False)
        return self.last(torch.cat([skip, deep], 1)).mean((2, 3))


class Transformer(nn.Module):
    """A vision transformer of one layer."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.layer(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=8),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )


MODELS = {"cnn": cnn, "unet": UNet, "transformer": Transformer}


def train(model, data, device, dtype):
    """Losses of a few steps; f16 with a scaler."""
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    scaler = torch.amp.GradScaler(device, init_scale=256.0, enabled=dtype is torch.float16)
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        with torch.autocast(device, dtype or torch.bfloat16, enabled=dtype is not None):
            output = model(x.to(device))
            assert dtype is None or output.dtype == dtype
            loss = cross_entropy(output, y.to(device))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert torch.isfinite(norm).item()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["f16", "bf16"])
def test_training_under_autocast_is_as_good_as_the_cpu(name, dtype):
    reference = MODELS[name]()
    labels = torch.randint(0, 5, (8,))
    # The same batch each time: there is something to learn.
    data = [(torch.randn(8, 3, 16, 16), labels)] * 6
    exact = train(copy.deepcopy(reference), data, "cpu", None)
    mixed = train(copy.deepcopy(reference), data, "wave", dtype)
    # Rounding of bf16 (2^-9 an operand) over a few layers and steps of Adam, which takes signs of small gradients.
    torch.testing.assert_close(mixed, exact, rtol=0.05, atol=0.05)
    assert mixed[-1] < mixed[0]
    # Attention asks for it; it gives no gradient and is cheap.
    assert set(torch.wave.fallbacks()) <= {"aten::isneginf.out"}


def test_the_first_step_is_as_close_to_f32_as_autocast_on_the_cpu():
    reference = cnn()
    x, y = torch.randn(16, 3, 16, 16), torch.randint(0, 5, (16,))

    def gradient(device, dtype):
        model = copy.deepcopy(reference).to(device)
        with torch.autocast(device, torch.bfloat16, enabled=dtype is not None):
            loss = cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        return torch.cat([p.grad.flatten().cpu() for p in model.parameters()])

    exact = gradient("cpu", None)
    error = [(gradient(device, torch.bfloat16) - exact).norm() / exact.norm() for device in ["wave", "cpu"]]
    # Both round to bf16 at the same places; which way is chance.
    assert error[0] < max(3 * error[1], 0.02), error


def test_a_step_with_infinities_is_skipped_and_the_scale_halved():
    model = cnn().to("wave")
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    scaler = torch.amp.GradScaler("wave", init_scale=2.0**15, growth_interval=2)
    scales, moved = [], []
    for number in range(5):
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.zero_grad()
        with torch.autocast("wave", torch.float16):
            loss = model(torch.randn(4, 3, 16, 16, device="wave")).square().mean()
            loss = loss * float("inf") if number == 1 else loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        moved.append(any((p != q).any().item() for p, q in zip(model.parameters(), before)))
    assert moved == [True, False, True, True, True]
    assert scales == [2.0**15, 2.0**14, 2.0**14, 2.0**15, 2.0**15]
    state = scaler.state_dict()
    fresh = torch.amp.GradScaler("wave")
    fresh.load_state_dict(state)
    assert fresh.get_scale() == scales[-1]


LOWER, FLOAT32, WIDEST = torch.bfloat16, torch.float32, None
# Operators whose autocast is in Rust: a call, the sizes of its tensors, the type that it computes in.
NATIVE = {
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, 2, 1, 2, 2), [(2, 4, 16), (6, 2, 3), (6,)], LOWER),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 0), 1, 1), [(2, 4, 9, 8), (6, 4, 3, 3), (6,)], LOWER),
    "conv3d": (lambda x, w: F.conv3d(x, w, padding=1), [(1, 3, 5, 6, 4), (2, 3, 3, 3, 3)], LOWER),
    "conv_transpose1d": (lambda x, w: F.conv_transpose1d(x, w, None, 2, 1, 1), [(2, 4, 9), (4, 3, 3)], LOWER),
    "conv_transpose2d.input": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, 2, (1, 0), (1, 0), 2, (1, 2)), [(2, 4, 5, 6), (4, 3, 3, 3), (6,)], LOWER
    ),
    "linear": (F.linear, [(3, 7), (5, 7), (5,)], LOWER),
    "matmul": (torch.matmul, [(2, 3, 7), (7, 5)], LOWER),
    "mm": (torch.mm, [(3, 7), (7, 5)], LOWER),
    "bmm": (torch.bmm, [(2, 3, 7), (2, 7, 5)], LOWER),
    "mv": (torch.mv, [(3, 7), (7,)], LOWER),
    "scaled_dot_product_attention": (
        lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask, scale=0.3),
        [(1, 2, 9, 8), (1, 2, 7, 8), (1, 2, 7, 8), (9, 7)], LOWER,
    ),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (7,), w, b, 0.1), [(3, 7), (7,), (7,)], FLOAT32),
    "group_norm": (lambda x, w: F.group_norm(x, 2, w, None, 0.1), [(2, 6, 5), (6,)], FLOAT32),
    "softmax.int": (lambda x: F.softmax(x, -2), [(3, 7, 2)], FLOAT32),
    "log_softmax.int": (lambda x: F.log_softmax(x, -1), [(3, 7)], FLOAT32),
    "cumsum": (lambda x: x.cumsum(1), [(3, 7)], FLOAT32),
    "sum": (torch.sum, [(3, 7, 2)], FLOAT32),
    "sum.dim_IntList": (lambda x: x.sum((0, -1), keepdim=True), [(3, 7, 2)], FLOAT32),
    "prelu": (F.prelu, [(3, 7, 2), (7,)], LOWER),
    **{op.__name__: (op, [(3, 7)], FLOAT32) for op in (torch.exp, torch.expm1)},
    **{
        op.__name__: (lambda x, op=op: op(x.abs() + 0.5), [(3, 7)], FLOAT32)
        for op in (torch.log, torch.log10, torch.log1p, torch.log2, torch.reciprocal, torch.rsqrt)
    },
    "l1_loss": (F.l1_loss, [(3, 7), (3, 7)], FLOAT32),
    "mse_loss": (lambda x, y: F.mse_loss(x, y, reduction="sum"), [(3, 7), (3, 7)], FLOAT32),
    "upsample_nearest2d": (lambda x: F.interpolate(x, scale_factor=(2, 3)), [(2, 3, 4, 5)], FLOAT32),
    "upsample_bilinear2d": (
        lambda x: F.interpolate(x, (7, 9), mode="bilinear", align_corners=True), [(2, 3, 4, 5)], FLOAT32
    ),
    "cat": (lambda x, y: torch.cat([x, y], -1), [(2, 3, 4), (2, 3, 5)], WIDEST),
    "stack": (lambda x, y: torch.stack([x, y], 1), [(2, 3), (2, 3)], WIDEST),
}  # fmt: skip


def test_autocast_of_hot_operators_is_in_rust():
    assert set(_autocast.NATIVE) == set(NATIVE)


@pytest.mark.parametrize("given", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NATIVE)
def test_operands_are_cast(name, given):
    call, sizes, computed = NATIVE[name]
    computed = computed or (FLOAT32 if given is FLOAT32 else LOWER)
    operands = [torch.randn(size).to(given) for size in sizes]
    ours = [operand.to("wave").requires_grad_() for operand in operands]
    theirs = [operand.clone().requires_grad_() for operand in operands]
    with torch.autocast("wave", LOWER):
        result = call(*ours)
    # What it stands for: casts, and the operator on the CPU in more than the type's digits.
    wanted = call(*(operand.to(computed).double() for operand in theirs))
    assert result.dtype is computed
    weight = torch.randn(wanted.shape)
    result.backward(weight.to("wave", result.dtype))
    wanted.backward(weight.to(result.dtype).double())
    close = {"rtol": 0.02, "atol": 0.05} if LOWER in (computed, given) else {"rtol": 4e-3, "atol": 4e-3}
    torch.testing.assert_close(result.detach().cpu().double(), wanted.detach(), **close)
    for own, right in zip(ours, theirs):
        assert own.grad.dtype is given
        # A volume's is the sum of three images' that are rounded: elements may be small differences of large ones.
        rounded = 0.01 * right.grad.abs().max().item() if name == "conv3d" and LOWER in (computed, given) else 0.0
        torch.testing.assert_close(own.grad.cpu(), right.grad, rtol=close["rtol"], atol=close["atol"] + rounded)


def test_a_parameter_is_cast_once():
    weight, x = torch.randn(4, 3, device="wave", requires_grad=True), torch.randn(2, 3, device="wave")
    with torch.autocast("wave", LOWER):
        first, second = F.linear(x, weight), F.linear(x, weight)
        casts = [next(node for node, _ in y.grad_fn.next_functions if node is not None) for y in (first, second)]
        # Not what no one asked a gradient for, which may change: torch's rule.
        assert F.linear(x, weight.detach()).grad_fn is None
    parent = [node.next_functions[0][0] if "TBackward" in node.name() else node for node in casts]
    assert parent[0] is parent[1]
    (first + second).sum().backward()
    assert weight.grad.dtype is torch.float32
    with torch.no_grad():
        weight.mul_(2)
    with torch.autocast("wave", LOWER):
        assert torch.equal(F.linear(x, weight), first * 2)


class Seen(TorchDispatchMode):
    """Notes the names of all operators."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def test_casts_without_gradients_go_through_the_dispatcher():
    """Modes see them, tangents pass, and the casts for gradients are made beside them."""
    weight, x = torch.randn(4, 3, device="wave", requires_grad=True), torch.randn(2, 3, device="wave")
    with torch.autocast("wave", LOWER):
        with torch.no_grad(), Seen() as seen:
            alone = F.linear(x, weight)
        assert alone.grad_fn is None and seen.names.count("aten::_to_copy") == 2, seen.names
        result = F.linear(x, weight)
        assert torch.equal(result, alone)
        result.sum().backward()
        # Two terms in the lower type, whose sum is rounded to it once.
        assert torch.equal(weight.grad, x.to(LOWER).float().sum(0).to(LOWER).float().expand(4, 3))
        with torch.no_grad(), forward_ad.dual_level():
            tangent = torch.randn_like(x)
            moved = forward_ad.unpack_dual(F.linear(forward_ad.make_dual(x, tangent), weight.detach())).tangent
        assert moved.dtype is LOWER
        torch.testing.assert_close(moved, F.linear(tangent, weight.detach()))


def test_a_graph_has_one_cast_of_a_parameter():
    weight, x = torch.randn(3, 3, device="wave", requires_grad=True), torch.randn(2, 3, device="wave", dtype=LOWER)
    graph = torch.wave.Graph()
    with Seen() as seen, torch.wave.graph(graph), torch.no_grad(), torch.autocast("wave", LOWER):
        result = F.linear(F.linear(x, weight), weight)
    assert seen.names.count("aten::_to_copy") == 1, seen.names
    with torch.no_grad():
        weight.mul_(2)
    graph.replay()
    cast = weight.detach().to(LOWER)
    assert torch.equal(result, F.linear(F.linear(x, cast), cast))


def test_the_widest_type_of_a_list():
    wide, half, brain = (torch.randn(2, 3, device="wave", dtype=dtype) for dtype in (torch.float32, torch.float16, torch.bfloat16))
    double, whole = wide.double(), torch.arange(6, device="wave").view(2, 3)
    with torch.autocast("wave", LOWER):
        for join in (torch.cat, torch.stack):
            assert join([half, wide, brain]).dtype is torch.float32
            assert join([half, brain]).dtype is LOWER
            assert join([half, half]).dtype is LOWER
            assert join([half, double]).dtype is torch.float64
            assert join([whole, whole]).dtype is torch.int64
        assert torch.equal(torch.cat([half, wide]), torch.cat([half.float(), wide]))
        out = torch.empty(0, device="wave")
        torch.cat([half, half], out=out)
        assert torch.equal(out, torch.cat([half.float(), half.float()])), "out= is not cast"
        assert whole.sum().dtype is torch.int64 and half.sum(dtype=torch.float16).dtype is torch.float16


def test_types_that_autocast_leaves_alone():
    x, y = torch.randn(3, 4, device="wave", dtype=torch.float64), torch.randn(4, 3, device="wave", dtype=torch.float64)
    whole = torch.tensor([[1, 2], [3, 4]], device="wave")
    with torch.autocast("wave", LOWER):
        assert torch.mm(x, y).dtype is torch.float64
        assert torch.mm(whole, whole).tolist() == [[7, 10], [15, 22]]
        assert F.softmax(x, -1).dtype is torch.float64
        assert F.softmax(x.half(), -1, dtype=torch.float16).dtype is torch.float16
        with torch.autocast("wave", enabled=False):
            assert torch.mm(x.float(), y.float()).dtype is torch.float32


def test_errors_under_autocast_are_those_without():
    x = torch.randn(2, 3, 4, 4, device="wave")
    calls = [
        lambda: F.linear(x, torch.randn(5, 7, device="wave")), lambda: F.softmax(x, 9), lambda: x @ "a",
        lambda: F.conv2d(x, torch.randn(4, 2, 3, 3, device="wave")), lambda: F.layer_norm(x, (5,)),
        lambda: torch.cat([]), lambda: torch.stack([x, x[0]]), lambda: x.sum(7), lambda: F.mse_loss(x, x, reduction="no"),
    ]
    for call in calls:
        with pytest.raises(Exception) as plain:
            call()
        with pytest.raises(plain.type) as cast, torch.autocast("wave", torch.float16):
            call()
        assert str(cast.value) == str(plain.value)
    with pytest.raises(torch.OutOfMemoryError), torch.autocast("wave", torch.float16):
        huge = torch.randn(1, 8, device="wave").expand(1 << 22, 8)
        F.linear(huge, huge)
    with torch.autocast("wave", LOWER):
        assert F.linear(x, x[0, 0]).dtype is LOWER, "autocast goes on after an error"
