"""`wave32.fuse`: batch norms and activations go into the convolutions before them, activations into linear layers and group norms; in
training, a batch norm and what follows it into one pass."""

import copy

import pytest
import torch
import torch.nn.functional as F
import wave32
from torch import nn


class Net(nn.Module):
    """Every kind of ReLU, a result used twice, a convolution used twice, a padding that cannot be fused."""

    def __init__(self):
        super().__init__()
        self.one, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.two, self.relu = nn.Conv2d(8, 8, 3, groups=2), nn.ReLU(inplace=True)
        self.twice, self.odd = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect")
        self.same, self.up = nn.Conv2d(8, 8, 3, padding="same"), nn.ConvTranspose2d(8, 6, 2, 2)
        self.norm_up = nn.BatchNorm2d(6)
        for norm in (self.norm, self.norm_up):
            norm.running_mean.uniform_(-0.3, 0.3), norm.running_var.uniform_(0.5, 2)
            nn.init.uniform_(norm.weight, 0.5, 1.5), nn.init.uniform_(norm.bias, -0.3, 0.3)

    def forward(self, x):
        x = self.relu(self.norm(self.one(x)))
        x = self.two(x).relu()
        x = F.relu(self.twice(x)) + self.twice(x)
        y = self.odd(x)
        x = torch.relu(y) + y + torch.relu(self.same(x))
        return F.relu(self.norm_up(self.up(x)))


def test_fused_is_what_it_was():
    net = Net().eval()
    x = torch.randn(2, 3, 9, 11)
    expected = net(x)
    fused = wave32.fuse(net.to("wave"))
    parts = [type(module).__name__ for module in fused.modules()]
    assert "BatchNorm2d" not in parts and parts.count("ConvActivation") == 4
    with torch.no_grad():
        torch.testing.assert_close(fused(x.to("wave")).cpu(), expected, rtol=1e-5, atol=1e-5)
    # With gradients, and elsewhere, it is the plain operators.
    leaf = x.to("wave").requires_grad_()
    fused(leaf).sum().backward()
    torch.testing.assert_close(fused.cpu()(x), expected, rtol=1e-5, atol=1e-5)
    x.requires_grad_()
    net.cpu()(x).sum().backward()
    torch.testing.assert_close(leaf.grad.cpu(), x.grad, rtol=1e-4, atol=1e-4)
    assert torch.wave.fallbacks() == {}


class Block(nn.Module):
    """A residual block: the sum first or last, in place or not, a ReLU behind it in every spelling or none."""

    def __init__(self, width, spelling, down):
        super().__init__()
        self.spelling, self.relu, self.stays = spelling, nn.ReLU(), nn.ReLU(inplace=True)
        self.one, self.two = nn.Conv2d(width, 16, 1), nn.Conv2d(16, 32, 3 - 2 * (spelling % 2), padding=1 - spelling % 2)
        self.norms = nn.ModuleList([nn.BatchNorm2d(16), nn.BatchNorm2d(32)])
        self.down = nn.Conv2d(width, 32, 1) if down else None

    def forward(self, x):
        y = self.norms[1](self.two(self.stays(self.norms[0](self.one(x)))))
        x = x if self.down is None else self.down(x)
        match self.spelling:
            case 0:
                return self.relu(y + x)
            case 1:
                y += x
                return self.stays(y)
            case 2:
                return torch.add(x, y)
            case 3:
                return x.add(y).relu()
            case _:
                return torch.relu_(y.add_(x))


def residual_net():
    blocks = [Block(32 if at else 8, at, down=at == 0) for at in range(5)]
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2), *blocks).eval()
    for norm in (m for m in net.modules() if isinstance(m, nn.BatchNorm2d)):
        norm.running_mean.uniform_(-0.3, 0.3), norm.running_var.uniform_(0.5, 2)
    return net


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_residual_is_added_where_it_is_stored(dtype):
    net, x = residual_net().to(dtype).float(), torch.randn(2, 3, 22, 26).to(dtype).float()
    with torch.no_grad():
        expected = net(x)
    on, x_on = net.to("wave", dtype), x.to("wave", dtype)
    fused = wave32.fuse(on)
    kinds = [type(module).__name__ for module in fused.modules()]
    assert kinds.count("ConvSum") == 5 and kinds.count("ConvActivation") == 5 and "add" not in fused.code
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 3e-2, "atol": 5e-2}
    with torch.no_grad():
        for _ in range(2):  # Of the second pass filters are prepared.
            torch.testing.assert_close(fused(x_on).cpu().float(), expected, **tolerance)
        with torch.wave.profile() as profiler:
            fused(x_on)
    assert not [name for name, *_ in profiler.by_kernel() if name.startswith("ew_")], "no pass of its own"
    torch.testing.assert_close(fused(x_on).detach().cpu().float(), expected, **tolerance)
    assert torch.wave.fallbacks() == {}
    if dtype == torch.float32:
        torch.testing.assert_close(fused.cpu()(x), expected, **tolerance)


class Kept(nn.Module):
    """What is added is read again, or is the caller's, or a view, or is read by what is between."""

    def __init__(self, how):
        super().__init__()
        self.how, self.a, self.b, self.c = how, nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)

    def forward(self, x):
        y = self.a(x)
        match self.how:
            case "read later":
                z = torch.relu(self.b(y) + y)
                return z * self.c(y)
            case "given back":
                return torch.relu(self.b(y) + y), y
            case "the caller's":
                return torch.relu(y + x)
            case "a view":
                kept = y[:, :4]
                return torch.cat([torch.relu(self.b(x) + y), kept], 1)
            case "what the convolution reads":
                return self.b(y) + y
            case "written between":
                z = self.b(x)
                y.mul_(2)
                return z + y
            case "of other sizes":
                return self.b(x) + self.c(x).mean((2, 3), keepdim=True)
            case _:
                return self.b(self.c(x)) + self.b(y)


@pytest.mark.parametrize(
    "how", ["read later", "given back", "the caller's", "a view", "what the convolution reads", "written between", "of other sizes", "twice"]
)
def test_what_is_read_elsewhere_is_left_alone(how):
    net, x = Kept(how).eval(), torch.randn(2, 8, 5, 7)
    fused, given = wave32.fuse(net.to("wave")), x.to("wave")
    assert "ConvSum" not in [type(module).__name__ for module in fused.modules()]
    with torch.no_grad():
        got, expected = fused(given), net.cpu()(x)
    for a, b in zip(*[(t if isinstance(t, tuple) else (t,)) for t in (got, expected)]):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-5, atol=1e-5)
    assert torch.equal(given.cpu(), x)


def test_a_sum_that_cannot_be_stored_there():
    conv = nn.Conv2d(8, 8, 1)
    x, added = torch.randn(2, 8, 5, 7), torch.randn(2, 8, 5, 7)
    both = wave32._fuse.ConvSum(conv.to("wave"), "relu")
    expected = torch.relu(conv.cpu()(x) + added).detach()
    conv.to("wave")
    with torch.no_grad():
        on = x.to("wave")
        # Its own input; one element that is repeated; another type; channels last.
        torch.testing.assert_close(both(on, on).cpu(), torch.relu(conv(on) + on).cpu())
        assert torch.equal(on.cpu(), x)
        one = torch.ones(1, 8, 1, 1, device="wave")
        torch.testing.assert_close(both(on, one).cpu(), torch.relu(conv(on) + 1).cpu())
        assert float(one.sum()) == 8
        last = added.to("wave").contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(both(on, last).cpu(), expected, rtol=1e-5, atol=1e-5)
        with pytest.raises((NotImplementedError, RuntimeError)):
            torch.ops.wave.convolution_sum_(added.double().to("wave"), on, conv.weight, conv.bias, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, "relu")


def test_half_and_refusals():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    x = torch.randn(2, 3, 9, 11)
    expected = net(x)
    with torch.no_grad():
        half = wave32.fuse(net).half().to("wave")(x.half().to("wave"))
        with torch.autocast("wave", torch.float16):
            cast = wave32.fuse(net).to("wave")(x.to("wave"))
    for found in (half, cast):
        torch.testing.assert_close(found.float().cpu(), expected, rtol=5e-3, atol=5e-3)


class Several(nn.Module):
    """What is fused for inference: a convolution and an activation, a sum, a group norm, a linear layer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(16, 16, 1)
        self.bn1, self.bn2 = nn.BatchNorm2d(16), nn.BatchNorm2d(16)
        self.norm, self.linear = nn.GroupNorm(4, 16), nn.Linear(16, 12)
        for bn in (self.bn1, self.bn2):
            nn.init.uniform_(bn.running_mean, -1, 1)
            nn.init.uniform_(bn.running_var, 0.5, 2)

    def forward(self, x):
        x = torch.relu(self.bn1(self.first(x)))
        x = torch.relu(self.bn2(self.second(x)) + x)
        x = nn.functional.silu(self.norm(x))
        return nn.functional.gelu(self.linear(x.mean((2, 3))))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast(dtype):
    """Fused, too, in its type; types of results are those of the plain operators; weights that change are cast anew."""
    net, x = Several().eval(), torch.randn(2, 8, 9, 12)
    plain, fused = copy.deepcopy(net).to("wave"), wave32.fuse(net).to("wave")
    bound = 4e-3 if dtype == torch.float16 else 3e-2

    def run(model):
        with torch.no_grad(), torch.autocast("wave", dtype):
            return model(x.to("wave"))

    for _ in range(4):
        with torch.no_grad():
            expected = net.double()(x.double())
        for model in (plain, fused):
            found = run(model)
            assert found.dtype == run(plain).dtype
            assert (found.cpu().double() - expected).norm() <= bound * expected.norm()
    with torch.wave.profile() as profiler:
        run(fused)
    names = [launch[0] for launch in profiler.launches]
    assert not [name for name in names if name.startswith(("bn_inference", "ew_fast_act"))], names
    # Those of activations alone: weights and biases are kept.
    assert len([name for name in names if name.startswith("cast_to_")]) <= 3, names
    with torch.no_grad():
        for model in (fused, plain):
            model.linear.get_submodule("linear" if model is fused else "").weight.mul_(-1.5)
        net.linear.weight.mul_(-1.5)
        expected = net(x.double())
    assert (run(fused).cpu().double() - expected).norm() <= bound * expected.norm()
    # With gradients the plain operators run.
    with torch.autocast("wave", dtype):
        fused(x.to("wave")).float().sum().backward()
    assert all(p.grad is not None for p in fused.parameters())


class Trained(nn.Module):
    """What is fused for training: each activation, sums before it. And what is not."""

    def __init__(self):
        super().__init__()
        self.conv = nn.ModuleList([nn.Conv2d(3 if i == 0 else 8, 8, 3, padding=1, bias=False) for i in range(6)])
        self.norm = nn.ModuleList(
            [nn.BatchNorm2d(8, momentum=None if i == 1 else 0.2, affine=i != 2) for i in range(6)]
        )
        self.relu, self.relu6, self.silu = nn.ReLU(inplace=True), nn.ReLU6(), nn.SiLU()
        self.last, self.flat = nn.Linear(8, 4, bias=False), nn.BatchNorm1d(4, track_running_stats=False)

    def forward(self, x):
        x = self.relu(self.norm[0](self.conv[0](x)))
        y = self.norm[1](self.conv[1](x))
        y += x
        y = self.relu6(y)
        z = self.silu(self.norm[2](self.conv[2](y)))
        z = F.relu(z + self.norm[3](self.conv[3](z)))
        # Used twice; a sum before a SiLU; written in place into what is not the norm's.
        w = self.norm[4](self.conv[4](z))
        w = w + F.silu(w)
        v = z * 2
        v += self.norm[5](self.conv[5](w))
        v = self.silu(torch.relu(v) + v)
        return torch.relu(self.flat(self.last(v.mean((2, 3)))))


def test_training_is_what_it_was():
    net = Trained()
    x, found = torch.randn(4, 3, 9, 11), {}
    nets = {
        "cpu": copy.deepcopy(net).double(),
        "plain": copy.deepcopy(net).to("wave"),
        "fused": wave32.fuse(net.to("wave")),
    }
    kinds = [type(nets["fused"].get_submodule(f"norm.{i}")).__name__ for i in range(6)]
    # The last two have no activation, and take the statistics that come with their convolutions.
    assert kinds == ["BatchNorm2dActivation"] * 6
    assert type(nets["fused"].flat).__name__ == "BatchNorm1dActivation"
    assert sorted(nets["fused"].state_dict()) == sorted(net.state_dict())
    for name, one in nets.items():
        out = one(x.double() if name == "cpu" else x.to("wave"))
        out.square().sum().backward()
        buffers = [dict(one.named_buffers())[key] for key, _ in net.named_buffers()]
        grads = [dict(one.named_parameters())[key].grad for key, _ in net.named_parameters()]
        found[name] = [[t.detach().cpu().double() for t in kind] for kind in ([out, *buffers], grads)]
    # A gradient next to a kink may be another one; values may not.
    for name in ("plain", "fused"):
        for bound, kind, exact in zip((1e-5, 5e-2), found[name], found["cpu"]):
            for one, expected in zip(kind, exact, strict=True):
                assert (one - expected).norm() <= bound * expected.norm() + 1e-6, name
    assert torch.wave.fallbacks() == {}
    nets["fused"].eval(), nets["plain"].eval()
    nets["plain"].load_state_dict(nets["fused"].state_dict())
    with torch.no_grad():
        torch.testing.assert_close(nets["fused"](x.to("wave")), nets["plain"](x.to("wave")), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("activation", [nn.ReLU(), nn.ReLU6(), nn.SiLU()])
@pytest.mark.parametrize("dtype, bound", [(torch.float32, 1e-5), (torch.float16, 5e-3), (torch.bfloat16, 4e-2)])
@pytest.mark.parametrize("whole", [False, True])
def test_gradients_of_one_norm(dtype, bound, activation, adds, whole):
    norm = nn.BatchNorm2d(5)
    nn.init.uniform_(norm.weight, 1, 6), nn.init.uniform_(norm.bias, -2, 3)
    norm.to(dtype if whole else torch.float32)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.act = norm, activation

        def forward(self, x, z):
            return self.act(self.norm(x) + z) if adds else self.act(self.norm(x))

    fused = wave32.fuse(Block().to("wave"))
    assert ("Activation" in type(fused.norm).__name__) == (not adds or not isinstance(activation, nn.SiLU))
    x, z, grad = (torch.randn(3, 5, 6, 7).to(dtype) for _ in range(3))
    leaves = [t.to("wave").requires_grad_() for t in (x, z)]
    y = fused(*leaves)
    # Which side of 6 an operand is on, its rounded result does not tell.
    grad[(y.detach().cpu().float() - 6).abs() < 0.05] = 0
    y.backward(grad.to("wave"))
    # The kinks are where the device saw them.
    exact = [t.double().requires_grad_() for t in (x, z)]
    twin = copy.deepcopy(norm).cpu().double().train()
    before = F.batch_norm(exact[0], None, None, twin.weight, twin.bias, True, 0.1, twin.eps) + (exact[1] if adds else 0)
    seen = y.detach().cpu().double()
    if isinstance(activation, nn.SiLU):
        expected = F.silu(before)
    else:
        most = 6.0 if isinstance(activation, nn.ReLU6) else torch.inf
        expected = torch.where((seen > 0) & (seen < most), before, before.detach().clamp(0, most))
    expected.backward(grad.double())
    pairs = [
        (y.detach(), expected.detach()),
        (leaves[0].grad, exact[0].grad),
        (fused.norm.weight.grad, twin.weight.grad),
    ]
    pairs += [(fused.norm.bias.grad, twin.bias.grad)] + [(leaves[1].grad, exact[1].grad)] * adds
    assert fused.norm.weight.grad.dtype == fused.norm.weight.dtype
    for found, wanted in pairs:
        assert (found.cpu().double() - wanted).norm() <= bound * wanted.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_training_takes_fewer_passes(dtype):
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.SiLU()
    ).to("wave", dtype)
    x, launches = torch.randn(2, 3, 9, 11, device="wave", dtype=dtype), []
    for one in (net, wave32.fuse(net)):
        one(x).sum().backward()
        with torch.wave.profile() as profiler:
            one(x).sum().backward()
        launches.append(sum(count for name, count, _ in profiler.by_kernel() if name.startswith("ew_")))
    assert launches[0] - launches[1] == 4


class Bottleneck(nn.Module):
    """Convolutions of which kernels of the device count the statistics: of one tap and of nine, with a bias, strided, without an
    activation behind the norm."""

    def __init__(self):
        super().__init__()
        self.conv = nn.ModuleList([
            nn.Conv2d(32, 64, 1, bias=False), nn.Conv2d(64, 64, 3, 2, 1), nn.Conv2d(64, 128, 1, bias=False),
            nn.Conv2d(32, 128, 1, 2, bias=False),
        ])  # fmt: skip
        self.norm = nn.ModuleList([nn.BatchNorm2d(c, momentum=0.3) for c in (64, 64, 128, 128)])
        for norm in self.norm:
            nn.init.uniform_(norm.bias)

    def forward(self, x):
        # No kinks, next to which gradients may be other ones.
        y = F.silu(self.norm[0](self.conv[0](x)))
        y = F.silu(self.norm[1](self.conv[1](y)))
        return self.norm[2](self.conv[2](y)) + self.norm[3](self.conv[3](x))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("how", ["float32", "float16", "bfloat16", "autocast"])
def test_statistics_come_with_the_convolution(how):
    half = torch.float16 if how == "autocast" else getattr(torch, how)
    bound = {torch.float32: 2e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}[half]
    dtype, auto = (torch.float32, True) if how == "autocast" else (half, False)
    net, x = Bottleneck().to(dtype), torch.randn(3, 32, 14, 18, dtype=dtype)
    if how == "float32":
        nn.init.constant_(net.conv[1].bias, 40.0)  # Far from zero: squares would cancel.
    # Kernels of Winograd count nothing.
    before, found, sums = torch.wave.winograd(False), [], []
    try:
        for one in (copy.deepcopy(net).double(), copy.deepcopy(net).to("wave"), wave32.fuse(net.to("wave"))):
            on_card = next(one.parameters()).device.type == "wave"
            leaf = x.to(next(one.parameters())).requires_grad_()
            with torch.wave.profile() as profiler:
                with torch.autocast("wave", torch.float16, enabled=auto and on_card):
                    out = one(leaf)
                (out.float() if on_card else out).square().sum().mul(0.01).backward()
            sums.append(sum(count for name, count, _ in profiler.by_kernel() if name.startswith("bn_sums_x")))
            parameters, buffers = dict(one.named_parameters()), dict(one.named_buffers())
            values = [out, leaf.grad, *(parameters[name].grad for name, _ in net.named_parameters() if "conv.1.bias" not in name)]
            values += [buffers[name] for name, _ in net.named_buffers()]
            found.append([value.detach().cpu().double() for value in values])
    finally:
        torch.wave.winograd(before)
    exact, plain, fused = found
    for name, one in (("plain", plain), ("fused", fused)):
        for value, expected in zip(one, exact, strict=True):
            assert (value - expected).norm() <= bound * expected.norm() + 1e-6, (name, value.shape)
    # Which kernels a device takes for the strided ones is its own.
    assert sums[1] == 4 and sums[2] <= 2, sums


def test_a_convolution_counts_only_where_that_is_the_same():
    net = nn.Sequential(nn.Conv2d(32, 64, 1, padding="same"), nn.BatchNorm2d(64), nn.ReLU()).to("wave")
    assert type(wave32.fuse(net).get_submodule("0")) is nn.Conv2d
    net[0].padding = (0, 0)
    # For fewer pixels a plan that cannot count saves more.
    fused, x = wave32.fuse(net), torch.randn(2, 32, 32, 32, device="wave")
    assert type(fused.get_submodule("0")).__name__ == "Conv2dStatistics"
    conv = fused.get_submodule("0")
    counted, version = conv(x)._wave_statistics
    assert counted.shape[::2] == (64, 4) and version == 0
    # Of another layout, and in evaluation, it is a convolution as ever.
    last = x.to(memory_format=torch.channels_last)
    assert not hasattr(conv(last), "_wave_statistics")
    torch.testing.assert_close(fused(last), net(last), rtol=1e-4, atol=1e-4)
    # A result that a hook wrote to, or replaced, has other statistics.
    for hook in (lambda module, args, y: y.mul_(torch.arange(32.0, device="wave")), lambda module, args, y: y * y):
        with conv.register_forward_hook(hook), net[0].register_forward_hook(hook):
            torch.testing.assert_close(fused(x), net(x), rtol=1e-4, atol=1e-4)
    fused.eval(), net.eval()
    assert not hasattr(conv(x), "_wave_statistics")
    net.load_state_dict(fused.state_dict())
    torch.testing.assert_close(fused(x), net(x), rtol=1e-4, atol=1e-4)


class Residual(nn.Module):
    """A sum that a convolution and the next sum read: both gradients of it are added in its own backward pass."""

    def __init__(self):
        super().__init__()
        self.conv = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(4)])
        self.norm = nn.ModuleList([nn.BatchNorm2d(8) for _ in range(4)])

    def forward(self, x):
        for conv, norm in zip(self.conv, self.norm):
            x = F.relu(norm(conv(x)) + x)
        return x


def test_gradients_meet_in_the_backward_pass():
    net, x, found, launches = Residual(), torch.randn(3, 8, 6, 10), [], []
    for one in (copy.deepcopy(net).double(), copy.deepcopy(net).to("wave"), wave32.fuse(net.to("wave"))):
        leaf = x.to(next(one.parameters())).requires_grad_()
        with torch.wave.profile() as profiler:
            one(leaf).square().sum().backward()
        launches.append(sum(count for name, count, _ in profiler.by_kernel() if name.startswith("ew_")))
        grads = [leaf.grad] + [dict(one.named_parameters())[name].grad for name, _ in net.named_parameters()]
        found.append([grad.cpu().double() for grad in grads])
    exact, plain, fused = found
    for one in (plain, fused):
        # A gradient next to a kink may be another one.
        assert all((a - b).norm() <= 5e-2 * b.norm() + 1e-6 for a, b in zip(one, exact, strict=True))
    # Four sums and their ReLUs, forward and back, and three times two gradients of a sum.
    assert launches[1] - launches[2] == 4 * 3 + 3


def test_a_fused_result_is_written_in_place():
    class Doubled(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm2d(4)

        def forward(self, x):
            return F.silu(self.norm(x)).mul_(2)

    net, x, grads = Doubled().to("wave"), torch.randn(2, 4, 5, 6), []
    for one in (net, wave32.fuse(net)):
        leaf = x.to("wave").requires_grad_()
        one(leaf).square().sum().backward()
        grads.append(leaf.grad.cpu())
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)


def test_a_model_of_two_minds_is_refused():
    class Dropped(nn.Module):
        def forward(self, x):
            return F.dropout(x, 0.5, self.training)

    with pytest.raises(ValueError, match="evaluation mode"):
        wave32.fuse(Dropped())
