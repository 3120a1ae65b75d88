"""`torch.compile` on the device: what does not depend on operands is computed once."""

import pytest
import torch
from compiling import plain
from wave32 import _constants, _graph_fusion

pytestmark = pytest.mark.usefixtures("fresh_compiler", "decided_early")


@pytest.fixture
def graphs(monkeypatch):
    """Graphs that were compiled, as they are called."""
    made, quicken = [], _graph_fusion.quicken
    monkeypatch.setattr(_graph_fusion, "quicken", lambda module: (made.append(module), quicken(module)))
    return made


def targets(module):
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


def masked(x):
    """A mask as Swin's: written by pieces, in place, of a tensor that is like the operand."""
    mask = x.new_zeros(6, 6)
    for count, rows in enumerate((slice(0, -2), slice(-2, -1), slice(-1, None))):
        mask[rows, rows] = count
    between = mask[:, None] - mask[..., None]
    return mask, between.masked_fill(between != 0, -100.0).masked_fill(between == 0, 0.5)


def test_constants_are_computed_once(graphs):
    def body(x):
        return (x * masked(x)[1] + torch.arange(6, device=x.device)).relu()

    compiled = plain(body)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(6, 6, 6, device="wave")
            assert torch.equal(compiled(x), body(x))
    assert len(targets(graphs[0])) == 3, targets(graphs[0])
    # With gradients nothing is folded, and the mask is right.
    x.requires_grad_()
    assert torch.equal(compiled(x), body(x))


def test_constants_that_are_returned_are_the_callers_own(graphs):
    def body(x):
        mask, between = masked(x)
        table = torch.arange(12, dtype=torch.float32, device=x.device).view(3, 4) + 1
        return mask, between[0], table.t(), table, x + table.sum(), torch.full((2,), 3.0, device=x.device)

    compiled = plain(body)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(4, device="wave")
            found, wanted = compiled(x), body(x)
            for got, want in zip(found, wanted, strict=True):
                assert torch.equal(got, want) and got.stride() == want.stride()
            for got in found:
                got.fill_(-7.0)


@pytest.mark.parametrize("device", ["wave", "cpu"])
def test_constants_that_are_written_to_later(device):
    def body(x):
        count = torch.ones(4, 3, device=device) + 1
        twice = count * 2
        count[1:] += x.to(device)
        part = twice[2]
        part.mul_(x.to(device)[0])
        return (count.to("wave") + x[0] * 3, twice.to("wave") + 1, twice)

    compiled = plain(body)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(3, 3, device="wave")
            for got, want in zip(compiled(x), body(x), strict=True):
                assert torch.equal(got, want) and got.device == want.device
                got.zero_()


def test_constants_of_the_cpu_are_folded(graphs):
    def body(x):
        rows = torch.arange(6).view(2, 3).flip(0).float() * 2 + torch.tensor([1.0, 2.0, 3.0])
        return x + rows.to("wave")

    compiled = plain(body)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(2, 3, device="wave")
            assert torch.equal(compiled(x), body(x))
    assert len(targets(graphs[0])) == 1, targets(graphs[0])


def test_constants_that_are_too_large_are_computed_each_time(graphs, monkeypatch):
    monkeypatch.setattr(_constants, "_MOST", 4000)

    def body(x):
        small = torch.arange(900, device="wave").float().sin(), torch.arange(2000, device="wave").cos().sum()
        return x + small[0] + small[1] + torch.zeros(1024, 900, device="wave")

    compiled = plain(body)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(900, device="wave")
            assert torch.equal(compiled(x), body(x))
    calls = targets(graphs[0])
    # The last is made anew.
    assert not [call for call in calls if "sin" in call or "cos" in call] and [call for call in calls if "zeros" in call], calls


def test_what_depends_on_sizes_or_chance_is_no_constant():
    def body(x):
        return x + torch.arange(x.shape[0], device="wave")[:, None] + torch.arange(3, device="wave")

    compiled, by_chance = plain(body, dynamic=True), plain(lambda x: x + torch.rand(8, device="wave"))
    with torch.no_grad():
        for rows in (4, 7, 5):
            x = torch.randn(rows, 3, device="wave")
            assert torch.equal(compiled(x), body(x))
        x = torch.zeros(8, device="wave")
        assert not torch.equal(by_chance(x), by_chance(x))
