"""Results of replayed graphs: in the graph's memory while the caller has none left, and never overwritten under its hands."""

import copy

import pytest
import torch
from torch import nn
from wave32 import _replay


@pytest.fixture
def replays(monkeypatch, fresh_compiler):
    """Calls that replayed since the list was cleared: whose they were."""
    made, replay = [], _replay.Graph.replay
    monkeypatch.setattr(_replay.Graph, "replay", lambda graph: (made.append(graph), replay(graph))[1])
    return made


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5)
    )


class Pair:
    """A network, compiled with replays, and its twin in eager mode."""

    def __init__(self, model):
        self.ours = model.to("wave")
        self.twin = copy.deepcopy(self.ours)
        self.compiled = torch.compile(self.ours, mode="reduce-overhead", dynamic=False)

    def backward(self, x):
        for model in (self.compiled, self.twin):
            model(x).square().mean().backward()

    def clear(self):
        for model in (self.ours, self.twin):
            model.zero_grad()

    def check(self):
        for own, right in zip(self.ours.parameters(), self.twin.parameters(), strict=True):
            torch.testing.assert_close(own.grad, right.grad, rtol=1e-3, atol=1e-5)

    def warm_up(self, replays):
        for _ in range(5):
            self.clear()
            replays.clear()
            self.backward(image())
            self.check()
        assert len(replays) == 2, "forward and backward pass are replayed"


def image():
    return torch.randn(4, 3, 9, 9, device="wave")


def test_gradients_are_not_copied(replays):
    pair = Pair(network())
    pair.warm_up(replays)
    before = [p.grad.data_ptr() for p in pair.ours.parameters()]
    for _ in range(3):
        pair.clear()
        pair.backward(image())
        pair.check()
        assert [p.grad.data_ptr() for p in pair.ours.parameters()] == before
        # They are the caller's: it may write to them.
        for p in pair.ours.parameters():
            p.grad.fill_(float("nan"))


def test_gradients_add_up_where_none_are_cleared(replays):
    pair = Pair(network())
    pair.warm_up(replays)
    pair.clear()
    for _ in range(4):
        replays.clear()
        pair.backward(image())
        pair.check()
    assert len(replays) == 2, "it is replayed again, into copies"


def test_a_gradient_that_is_kept_stays_what_it_was(replays):
    pair = Pair(network())
    pair.warm_up(replays)
    kept = pair.ours[5].weight.grad
    values = kept.clone()
    for _ in range(3):
        replays.clear()
        pair.clear()
        pair.backward(image())
        pair.check()
        assert torch.equal(kept, values) and kept.data_ptr() != pair.ours[5].weight.grad.data_ptr()
    assert len(replays) == 2


def test_a_result_without_gradients_that_is_kept(replays):
    pair = Pair(network().eval())
    results = []
    with torch.no_grad():
        for _ in range(8):
            x = image()
            replays.clear()
            results.append((pair.compiled(x), pair.twin(x)))
        assert len(replays) == 1
        for own, right in results:
            torch.testing.assert_close(own, right, rtol=1e-4, atol=1e-5)


class Tied(nn.Module):
    """Two parameters get one gradient, a third the same as a view; a fourth part of a larger tensor."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(torch.randn(size)) for size in ((4, 6), (4, 6), (6, 4)))
        self.d, self.e = (nn.Parameter(torch.randn(2, 6)) for _ in range(2))

    def forward(self, x):
        return (self.a + self.b + self.c.t() + torch.cat([self.d, self.e])) * x


def test_gradients_that_share_memory_are_apart(replays):
    pair = Pair(Tied())
    for _ in range(6):
        pair.clear()
        pair.backward(torch.randn(4, 6, device="wave"))
        pair.check()
        # Each is its own: what is done to one is not done to another.
        for at, p in enumerate(pair.ours.parameters()):
            p.grad.add_(at)
        for at, (own, right) in enumerate(zip(pair.ours.parameters(), pair.twin.parameters(), strict=True)):
            torch.testing.assert_close(own.grad, right.grad + at, rtol=1e-3, atol=1e-5)


def test_memory_of_gradients_is_the_graph_s(replays):
    pair = Pair(nn.Sequential(nn.Flatten(), nn.Linear(243, 4096, bias=False), nn.Linear(4096, 8, bias=False)))
    pair.warm_up(replays)
    pair.clear()
    torch.wave.synchronize()
    before = torch.wave.memory_allocated()
    pair.compiled(image()).square().mean().backward()
    torch.wave.synchronize()
    assert torch.wave.memory_allocated() - before < pair.ours[1].weight.nbytes // 2


def test_results_that_are_more_than_memory(replays):
    """Conjugated lazily, of the CPU, expanded, none."""
    def work(x):
        z = torch.complex(x, x + 1)
        return z.conj(), z.real.sum().expand(3), x[:0], x.t(), x * 2

    compiled = torch.compile(work, mode="reduce-overhead", dynamic=False)
    kept = []
    with torch.no_grad():
        for number in range(7):
            x = torch.randn(3, 4, device="wave")
            replays.clear()
            results = compiled(x)
            for own, right in zip(results, work(x), strict=True):
                torch.testing.assert_close(own.resolve_conj(), right.resolve_conj())
            kept.append((results, [y.resolve_conj().clone() for y in results]) if number == 4 else None)
            del results
    assert len(replays) == 1
    for own, right in zip(*kept[4], strict=True):
        torch.testing.assert_close(own.resolve_conj(), right, rtol=0, atol=0)
