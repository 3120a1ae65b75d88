"""Batch norms in compiled training: fused each way, with the numbers of the CPU in double precision."""

import collections
import copy

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from wave32 import _compile, _fuse, _replay

nn, F = torch.nn, torch.nn.functional
pytestmark = pytest.mark.usefixtures("fresh_compiler")


@pytest.fixture
def called(monkeypatch):
    """What the compiled graphs call, by name."""
    boxed, counts = _compile._boxed, collections.Counter()

    def counting(graph, inputs, constants=None):
        run = boxed(graph, inputs, constants)
        names = (getattr(n.target, "__name__", str(n.target)) for n in graph.graph.nodes if n.op == "call_function")
        counts.update(names)
        return run

    monkeypatch.setattr(_compile, "_boxed", counting)
    return counts


class Net(nn.Module):
    """Each activation behind a norm, sums before it, results that two read, and norms with nothing behind them."""

    def __init__(self, flat=True):
        super().__init__()
        self.conv = nn.ModuleList([nn.Conv2d(3 if i == 0 else 32, 32, 3 if i % 2 else 1, padding=i % 2, bias=i == 4) for i in range(7)])
        self.norm = nn.ModuleList([nn.BatchNorm2d(32, momentum=0.2, affine=i != 2) for i in range(7)])
        for norm in self.norm:
            if norm.affine:
                nn.init.uniform_(norm.weight, 0.5, 1.5), nn.init.uniform_(norm.bias)
        self.last, self.flat = nn.Linear(32, 8, bias=False), nn.BatchNorm1d(8, track_running_stats=False) if flat else nn.Identity()

    def forward(self, x):
        x = F.relu(self.norm[0](self.conv[0](x)), inplace=True)
        y = F.relu(self.norm[1](self.conv[1](x)) + x)
        y = F.relu6(y + self.norm[2](self.conv[2](y)))
        z = F.silu(self.norm[3](self.conv[3](y)))
        # Nothing behind either; a sum before a SiLU; a norm's result that is read twice.
        z = F.relu(self.norm[4](self.conv[4](z)) + self.norm[5](self.conv[5](z)))
        w = self.norm[6](self.conv[6](z))
        w = F.silu(w + F.relu(w))
        return self.flat(self.last(w.mean((2, 3))))


def results(net, call, x, steps=3):
    """Results, gradients and running statistics of some steps."""
    found = []
    for at in range(steps):
        leaf = (x + 0.1 * at).to(next(net.parameters())).requires_grad_()
        out = call(leaf)
        out.square().sum().mul(0.05).backward()
        found += [out, leaf.grad, *(p.grad for p in net.parameters() if p.grad is not None)]
        found += [buffer.clone() for buffer in net.buffers() if buffer.is_floating_point()]
        net.zero_grad()
    return [value.detach().cpu().double() for value in found]


def close(found, exact, bound):
    for at, (one, expected) in enumerate(zip(found, exact, strict=True)):
        assert (one - expected).norm() <= bound * expected.norm() + 1e-2 * bound, (at, one.shape)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_training_is_what_it_was(mode, called):
    net, x = Net(), torch.randn(12, 3, 5, 7)
    one = copy.deepcopy(net).to("wave")
    exact = results(net.double(), net, x, 5)
    close(results(one, torch.compile(one, dynamic=False, mode=mode), x, 5), exact, 3e-2)
    assert torch.wave.fallbacks() == {}
    # Of eight norms five have an activation that is fused; the one without statistics is left as it is.
    assert called["batch_norm_act_backward.default"] == 2 and called["batch_norm_sum_backward.default"] == 3, called
    assert called["batch_norm_act.default"] == 7 and called["convolution"] == 7, called
    # One ReLU has no norm before it, one SiLU neither.
    rest = ("copy_.default", "hardtanh_backward.default", "threshold_backward.default", "silu_backward.default")
    assert [called[name] for name in rest] == [0, 0, 1, 1], called
    assert called["add_.Tensor"] == 7


@pytest.mark.sampled(1)
@pytest.mark.parametrize("how", ["float16", "bfloat16", "autocast"])
def test_half(how, called):
    half = torch.float16 if how == "autocast" else getattr(torch, how)
    net, x = Net(flat=False), torch.randn(12, 3, 5, 6)
    if how != "autocast":
        net, x = net.to(half), x.to(half)
    one = copy.deepcopy(net).to("wave")
    exact = results(net.double(), net, x, 1)
    compiled = torch.compile(one, dynamic=False)

    def call(leaf):
        with torch.autocast("wave", torch.float16, enabled=how == "autocast"):
            return compiled(leaf).float()

    # Next to a kink a gradient is another one.
    close(results(one, call, x, 1), exact, 2e-1 if half is torch.float16 else 5e-1)
    assert called["batch_norm_act.default"] == 7, called


def frozen(net):
    """The first layers have no gradients."""
    for module in (net.conv[0], net.norm[0], net.conv[1]):
        module.requires_grad_(False)
    return net


class Shared(nn.Module):
    """One norm behind two convolutions; one in evaluation mode; a checkpoint."""

    def __init__(self):
        super().__init__()
        self.conv = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1) for _ in range(4)])
        self.norm, self.fixed, self.last = nn.BatchNorm2d(8), nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        # What is computed again counts again without a compiler.
        self.last.momentum = 0.0

    def train(self, mode=True):
        super().train(mode)
        self.fixed.eval()
        return self

    def forward(self, x):
        x = F.relu(self.norm(self.conv[0](x)))
        x = F.relu(self.norm(self.conv[1](x)))
        x = F.relu(self.fixed(self.conv[2](x)))
        return checkpoint(lambda x: F.relu(self.last(self.conv[3](x))), x, use_reentrant=False).mean((2, 3))


@pytest.mark.parametrize("kind", ["frozen", "shared", "channels_last", "dynamic", "no gradients"])
def test_what_is_left_as_it_was(kind):
    net = Shared().train() if kind == "shared" else frozen(Net()) if kind == "frozen" else Net()
    x = torch.randn(12, 8 if kind == "shared" else 3, 5, 7)
    one = copy.deepcopy(net).to("wave")
    if kind == "channels_last":
        one = one.to(memory_format=torch.channels_last)
    if kind == "no gradients":
        with torch.no_grad():
            exact, found = net.double()(x.double()), torch.compile(one, dynamic=False)(x.to("wave"))
        values = [found, *one.buffers()], [exact, *net.buffers()]
        return close(*[[value.cpu().double() for value in kind] for kind in values], 1e-4)
    exact = results(net.double(), net, x, 2)
    call = torch.compile(one, dynamic=kind == "dynamic")
    close(results(one, call, x, 2), exact, 3e-2)
    return None


def test_tensors_that_no_launch_takes_are_left_alone(monkeypatch, called):
    monkeypatch.setattr(_fuse, "_most_bytes", lambda: 4 * 12 * 32 * 5 * 7 - 1)
    net, x = Net(), torch.randn(12, 3, 5, 7)
    one = copy.deepcopy(net).to("wave")
    exact = results(net.double(), net, x, 1)
    close(results(one, torch.compile(one, dynamic=False), x, 1), exact, 3e-2)
    assert called["batch_norm_act.default"] == 0 and called["_native_batch_norm_legit.default"] == 7, called


def test_two_steps_at_once():
    """A norm's statistics after two forward passes, and gradients of both: nothing that the second writes is read for the first."""
    net, x = Net(), torch.randn(2, 12, 3, 5, 7)
    one = copy.deepcopy(net).to("wave")
    call, found = torch.compile(one, dynamic=False), []
    for model, run in ((net.double(), net), (one, call)):
        ys = [run(part.to(next(model.parameters()))) for part in x]
        (ys[0].square().sum() + ys[1].square().sum()).mul(0.05).backward()
        values = [*ys, *(p.grad for p in model.parameters()), *model.buffers()]
        found.append([value.detach().cpu().double() for value in values])
    close(found[1], found[0], 3e-2)


def test_replays_read_what_is_left_where_it_lies(monkeypatch):
    """A backward pass copies no operand but what its caller makes, though all of them moved in the calls before."""
    copied, replay = [], _replay.Replayed._replay

    def noted(self, args):
        copied.append((self._kept is None, len(self._copied)))
        return replay(self, args)

    monkeypatch.setattr(_replay.Replayed, "_replay", noted)
    net = Net().to("wave")
    call = torch.compile(net, dynamic=False, mode="reduce-overhead")
    exact = copy.deepcopy(net).cpu().double()
    for at in range(8):
        # Another place at each call.
        x = torch.randn(12, 3, 5, 7)
        place = torch.empty(at * 4096 + 12 * 3 * 5 * 7, device="wave")[-12 * 3 * 5 * 7 :].view(12, 3, 5, 7)
        found = []
        for model, run, leaf in ((exact, exact, x.double()), (net, call, place.copy_(x))):
            model.zero_grad()
            out = run(leaf)
            out.square().sum().mul(0.05).backward()
            found.append([value.detach().cpu().double() for value in (out, *(p.grad for p in model.parameters()), *model.buffers())])
        close(found[1], found[0], 3e-2)
    backward = [count for is_backward, count in copied if is_backward]
    assert len(backward) >= 3 and max(backward) <= 1, copied
