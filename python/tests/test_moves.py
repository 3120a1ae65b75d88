"""Tensors, storages and modules that go from device to device, also where the caller does not want to wait."""

import copy

import pytest
import torch
from torch import nn


@pytest.mark.parametrize("dtype", [None, torch.float64, torch.float16, torch.int32])
def test_to_the_cpu_without_waiting(dtype):
    x = torch.randn(5, 7) * 9
    for view in (lambda t: t, lambda t: t.t(), lambda t: t[1:, ::2], lambda t: t[:0]):
        found, expected = view(x.to("wave")).to("cpu", dtype, non_blocking=True), view(x).to("cpu", dtype, copy=True)
        assert found.device.type == "cpu" and found.dtype == expected.dtype
        assert found.stride() == expected.stride()
        assert torch.equal(found, expected)
    # What the copy is made of changes right after: it is a copy.
    wave = x.to("wave")
    found = wave.to("cpu", non_blocking=True)
    wave.zero_()
    assert torch.equal(found, x)


def test_other_ways_to_the_cpu():
    x = torch.arange(12.0)
    wave = x.to("wave")
    assert torch.equal(wave.type(torch.int64, non_blocking=True).cpu(), x.long())
    storage = wave.untyped_storage().to(device=torch.device("cpu"), non_blocking=True)
    assert storage.device.type == "cpu" and bytes(storage.tolist()) == x.numpy().tobytes()
    last = torch.randn(2, 3, 4, 5).to("wave", memory_format=torch.channels_last)
    assert last.to("cpu", non_blocking=True).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(torch.empty(12).copy_(wave, non_blocking=True), x)


def test_gradients_go_back():
    leaf = torch.randn(4, device="wave", requires_grad=True)
    (leaf.to("cpu", torch.float64, non_blocking=True) * torch.arange(4.0, dtype=torch.float64)).sum().backward()
    assert leaf.grad.dtype == torch.float32 and leaf.grad.tolist() == [0, 1, 2, 3]


def test_modules_and_their_states():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    states = {name: value.clone() for name, value in model.state_dict().items()}
    model.to("wave", non_blocking=True)
    moved = {name: value.to("cpu", non_blocking=True) for name, value in model.state_dict().items()}
    model.to("cpu", non_blocking=True)
    for name, value in states.items():
        assert torch.equal(moved[name], value) and torch.equal(model.state_dict()[name], value)
        assert model.state_dict()[name].device.type == "cpu"


def test_two_tensors_on_one_storage():
    a = torch.arange(6.0, device="wave")
    b = torch.empty(0, device="wave").set_(a)
    assert a.is_set_to(b) and not a.is_set_to(a[1:]) and not a.is_set_to(a.clone())


def test_operands_of_another_device_are_refused():
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    wave = x.to("wave")
    for call in (lambda: wave @ y, lambda: y @ wave, lambda: wave + y, lambda: torch.where(wave > 0, wave, y),
                 lambda: nn.functional.linear(wave, y), lambda: torch.cat([wave, y]), lambda: wave.copysign(y),
                 lambda: torch.logcumsumexp(wave, 0, out=torch.empty(3, 3)), lambda: wave.nextafter_(y)):  # fmt: skip
        with pytest.raises(RuntimeError, match="on the same device|expected device wave:0 but found cpu"):
            call()
    # A tensor without dimensions is a number, and indices may lie on the CPU, as with CUDA.
    assert torch.equal((wave * torch.tensor(2.0)).cpu(), x * 2)
    at = torch.tensor([2, 0])
    assert torch.equal(wave[at].cpu(), x[at])
    wave[at] = 1.0
    x[at] = 1.0
    assert torch.equal(wave.cpu(), x)


def test_deep_copies_are_of_the_device():
    model = nn.Linear(2, 2).to("wave")
    twin = copy.deepcopy(model).to("cpu", non_blocking=True)
    assert torch.equal(twin.weight, model.weight.cpu())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no second device here")
def test_to_and_from_another_device() -> None:
    x = torch.randn(5, 7, device="cuda")
    for there in (x, x.t(), x[:, ::2], x.half()):
        here = there.to("wave")
        assert torch.equal(here.cpu(), there.cpu()) and torch.equal(here.to("cuda"), there)
        gaps = torch.zeros(there.shape[0], 2 * there.shape[1], device="wave", dtype=torch.float64)[:, ::2]
        assert torch.equal(gaps.copy_(there).cpu(), there.double().cpu())
        assert torch.equal(torch.zeros_like(there, dtype=torch.float64).copy_(gaps), there.double())
    assert torch.nn.Linear(3, 4).cuda().to("wave").to("cuda").weight.device.type == "cuda"
    for mixed in (lambda: x + x.to("wave"), lambda: x.to("wave") + x, lambda: x.to("wave").mul_(x[0, 0])):
        with pytest.raises(RuntimeError, match="same device"):
            mixed()
