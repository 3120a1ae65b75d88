"""Layer and group norm against the CPU, forward and backward, on fresh random inputs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

TYPES = [torch.float32, torch.float16, torch.bfloat16]


def results(call: Callable[..., torch.Tensor], inputs: list[torch.Tensor], device: str) -> list[torch.Tensor]:
    there = [x.detach().to(device).requires_grad_() for x in inputs]
    y = call(*there)
    torch.manual_seed(3)
    y.backward(torch.randn(y.shape).to(y.dtype).to(device))
    return [y.detach().cpu(), *(x.grad.cpu() for x in there)]


def check(call: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
    # The reference is f64: in 16 bits the CPU rounds in places where the device does not, and in f32 its group norm of channels_last
    # tensors loses up to 1.3e-5 of the largest value.
    wide = results(call, [x.double() for x in inputs], "cpu")
    torch.wave.reset_fallbacks()
    found = results(call, list(inputs), "wave")
    assert not torch.wave.fallbacks(), torch.wave.fallbacks()
    for got, want, like in zip(found, wide, [inputs[0], *inputs]):
        assert got.dtype == like.dtype and got.shape == want.shape
        eps = torch.finfo(like.dtype).eps
        scale = want.abs().max().item()
        torch.testing.assert_close(got.double(), want, rtol=16 * eps, atol=(4 * eps + 2e-6) * max(scale, 1e-3))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape, normalized", [((5, 33), 1), ((2, 3, 4, 9), 2), ((700, 8), 1), ((3, 5), 2)])
def test_layer_norm(dtype: torch.dtype, shape: tuple[int, ...], normalized: int) -> None:
    x = (torch.randn(shape) * 2 + 1).to(dtype)
    sizes = shape[len(shape) - normalized :]
    weight, bias = torch.randn(sizes), torch.randn(sizes)
    check(lambda x, w, b: F.layer_norm(x, sizes, w, b), x, weight.to(dtype), bias.to(dtype))
    check(lambda x: F.layer_norm(x, sizes), x)
    check(lambda x, w: F.layer_norm(x, sizes, w), x.transpose(0, 1).contiguous().transpose(0, 1), weight.to(dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape, groups", [((2, 12, 5, 7), 4), ((3, 6, 11), 6), ((2, 8, 40, 40), 1), ((4, 24), 3)])
def test_group_norm(dtype: torch.dtype, shape: tuple[int, ...], groups: int) -> None:
    x = (torch.randn(shape) * 2 + 1).to(dtype)
    weight, bias = torch.randn(shape[1]).to(dtype), torch.randn(shape[1]).to(dtype)
    check(lambda x, w, b: F.group_norm(x, groups, w, b), x, weight, bias)
    check(lambda x: F.group_norm(x, groups), x)
    if len(shape) == 4:
        check(lambda x, w, b: F.group_norm(x, groups, w, b), x.to(memory_format=torch.channels_last), weight, bias)


def test_frozen_parameters_and_empty_batches() -> None:
    x = torch.randn(2, 6, 5, device="wave", requires_grad=True)
    weight = torch.rand(6, device="wave")
    y = F.group_norm(x, 2, weight)
    y.sum().backward()
    assert weight.grad is None and x.grad.shape == x.shape
    assert F.layer_norm(torch.randn(0, 4, device="wave"), (4,)).shape == (0, 4)
    with pytest.raises(RuntimeError):
        F.layer_norm(torch.randn(2, 4, device="wave"), (5,))
    with pytest.raises((RuntimeError, ValueError)):
        F.group_norm(torch.randn(2, 4, device="wave"), 3)
