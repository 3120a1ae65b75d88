"""Sparse tensors, of coordinates (as gradients of embeddings are) and compressed, against PyTorch on the CPU."""

import copy

import pytest
import torch
from torch import nn


def pair(shape=(4, 5), dense=(), count=9, dtype=torch.float32):
    """The same tensor on the CPU and on the device, some places given more than once."""
    indices = torch.stack([torch.randint(size, (count,)) for size in shape])
    values = (torch.randn(count, *dense) * 8).to(dtype)
    made = [torch.sparse_coo_tensor(indices.to(d), values.to(d), (*shape, *dense)) for d in ("cpu", "wave")]
    assert made[1].device.type == "wave" and made[1].is_sparse
    return made


def same(found, expected, rtol=1e-6):
    assert found.device.type == "wave" and found.layout == expected.layout and found.dtype == expected.dtype
    if expected.is_sparse:
        assert found.is_coalesced() == expected.is_coalesced() and found.sparse_dim() == expected.sparse_dim()
        found, expected = found.to_dense(), expected.to_dense()
    torch.testing.assert_close(found.cpu(), expected, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("shape, dense", [((7,), ()), ((4, 5), ()), ((6,), (3,)), ((2, 3, 4), (2, 2))])
def test_what_a_tensor_is_made_of(shape, dense):
    x, wave = pair(shape, dense)
    assert wave.sparse_dim() == len(shape) and wave.dense_dim() == len(dense) and wave._nnz() == 9
    assert wave.shape == x.shape and not wave.is_coalesced()
    assert torch.equal(wave._indices().cpu(), x._indices()) and torch.equal(wave._values().cpu(), x._values())
    once, expected = wave.coalesce(), x.coalesce()
    assert once.is_coalesced() and torch.equal(once.indices().cpu(), expected.indices())
    torch.testing.assert_close(once.values().cpu(), expected.values(), rtol=1e-6, atol=1e-5)
    same(wave.to_dense(), x.to_dense())
    same(wave.clone(), x)
    same(wave.double(), x.double())
    assert torch.equal(wave.cpu().to_dense(), x.to_dense()) and not wave.cpu().is_cuda
    same(x.to("wave"), x)
    assert torch.wave.fallbacks() == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_sums_and_multiples(dtype):
    (x, wave), (y, other) = pair(dtype=dtype), pair(dtype=dtype)
    dense = torch.randn(4, 5).mul(8).to(dtype)
    same(wave + other, x + y)
    same(wave - other, x - y)
    same(torch.add(wave, other, alpha=3), torch.add(x, y, alpha=3))
    same(dense.to("wave") + wave, dense + x)
    with pytest.raises(RuntimeError, match="Use add"):
        wave + dense.to("wave")
    same(wave * 2, x * 2)
    same(-wave, -x)
    if dtype.is_floating_point:
        same(wave / 3, x / 3)
    into, expected = dense.to("wave"), dense.clone()
    same(into.add_(wave, alpha=2), expected.add_(x, alpha=2))
    # Through a view, whose base is written.
    base, twin = torch.zeros(5, 4, dtype=dtype), torch.zeros(5, 4, dtype=dtype, device="wave")
    base.t().add_(x)
    twin.t().add_(wave)
    same(twin, base)
    same(wave.mul_(2), x.mul_(2))
    same(wave.add_(other), x.add_(y))
    same(wave.zero_(), x.zero_())
    assert set(torch.wave.fallbacks()) == {"aten::add.Tensor"}  # Which words the refusal.


def test_differences_of_two_types():
    x, y = torch.tensor([1, 1, 1], dtype=torch.int8), torch.tensor([1, 0, 2], dtype=torch.uint8)
    found = x.to("wave") - y.to("wave").to_sparse()
    assert found.dtype == torch.int16 and torch.equal(found.cpu(), x - y)


def test_masks_by_places():
    x, wave = pair()
    dense = torch.randn(4, 5)
    same(dense.to("wave").sparse_mask(wave.coalesce()), dense.sparse_mask(x.coalesce()))


def test_the_rest_runs_on_the_cpu():
    x, wave = pair()
    same(wave.abs(), x.abs())
    same(wave.sum(), x.sum())
    same(torch.sparse.sum(wave), torch.sparse.sum(x))
    same(torch.sparse.mm(wave, torch.ones(5, 2, device="wave")), torch.sparse.mm(x, torch.ones(5, 2)))
    same(x.to_dense().to("wave").to_sparse(), x.to_dense().to_sparse())
    same(wave.t(), x.t())
    # What is made of operators on the values is not copied.
    assert torch.wave.fallbacks().keys() == {"aten::addmm", "aten::_to_sparse"}
    assert "wave:0" in repr(wave)


OPTIMIZERS = {
    "sparse_adam": lambda p: torch.optim.SparseAdam(p, lr=0.1),
    "maximizing": lambda p: torch.optim.SparseAdam(p, lr=0.1, maximize=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "sgd_each": lambda p: torch.optim.SGD(p, lr=0.01, foreach=False),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("bag", [False, True])
def test_embeddings_are_trained(name, bag):
    reference = nn.EmbeddingBag(7, 3, sparse=True, mode="sum") if bag else nn.Embedding(7, 3, sparse=True)
    model = copy.deepcopy(reference).to("wave")
    weights = torch.arange(1.0, 4.0)
    ends = []
    for module, device in ((reference, "cpu"), (model, "wave")):
        optimizer = OPTIMIZERS[name](module.parameters())
        torch.manual_seed(3)
        for _ in range(3):
            optimizer.zero_grad()
            for _ in range(2):  # Gradients of both are summed.
                (module(torch.randint(7, (2, 4)).to(device)).square() * weights.to(device)).sum().backward()
            assert module.weight.grad.is_sparse and module.weight.grad.device.type == device
            optimizer.step()
        ends.append(module.weight.detach().cpu())
    # Terms as large as the largest weight may cancel.
    torch.testing.assert_close(ends[1], ends[0], rtol=0, atol=5e-6 * ends[0].abs().max().item())


def test_scaled_gradients():
    model = nn.Embedding(7, 3, sparse=True).to("wave")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("wave", init_scale=4.0)
    scaler.scale(model(torch.tensor([1, 2, 1], device="wave")).sum()).backward()
    scaler.unscale_(optimizer)
    expected = torch.zeros(7, 3)
    expected[1], expected[2] = 2, 1
    assert torch.equal(model.weight.grad.to_dense().cpu(), expected)
    before = model.weight.detach().cpu()
    scaler.step(optimizer)
    torch.testing.assert_close(model.weight.detach().cpu(), before - 0.1 * expected)
    scaler.update()
    # An infinity is found, and the step left out.
    optimizer.zero_grad()
    (scaler.scale(model(torch.tensor([1], device="wave")).sum()) * torch.inf).backward()
    scaler.unscale_(optimizer)
    before = model.weight.detach().cpu()
    scaler.step(optimizer)
    assert torch.equal(model.weight.detach().cpu(), before)
