"""`wave32.fuse`: batch norms and ReLUs go into the convolutions before them; in training, into one pass."""

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
    torch.wave.reset_fallbacks()
    fused = wave32.fuse(net.to("wave"))
    parts = [type(module).__name__ for module in fused.modules()]
    assert "BatchNorm2d" not in parts and parts.count("ConvReLU") == 4
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
    assert kinds == ["BatchNorm2dActivation"] * 4 + ["BatchNorm2d"] * 2
    assert type(nets["fused"].flat).__name__ == "BatchNorm1dActivation"
    assert sorted(nets["fused"].state_dict()) == sorted(net.state_dict())
    torch.wave.reset_fallbacks()
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
def test_gradients_of_one_norm(dtype, bound, activation, adds):
    norm = nn.BatchNorm2d(5)
    nn.init.uniform_(norm.weight, 1, 6), nn.init.uniform_(norm.bias, -2, 3)

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
    for found, wanted in pairs:
        assert (found.cpu().double() - wanted).norm() <= bound * wanted.norm()


def test_training_takes_fewer_passes():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.SiLU()
    ).to("wave")
    x, launches = torch.randn(2, 3, 9, 11, device="wave"), []
    for one in (net, wave32.fuse(net)):
        one(x).sum().backward()
        with torch.wave.profile() as profiler:
            one(x).sum().backward()
        launches.append(sum(count for name, count, _ in profiler.by_kernel() if name.startswith("ew_")))
    assert launches[0] - launches[1] == 4


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
