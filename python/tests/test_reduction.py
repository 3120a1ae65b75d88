"""Reductions, softmax and losses against the CPU, forward and backward, on fresh random inputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

FLOATS = [torch.float32, torch.float16, torch.bfloat16]


def tolerances(dtype: torch.dtype) -> dict[str, float]:
    if not dtype.is_floating_point:
        return {"rtol": 0, "atol": 0}
    bits = torch.finfo(dtype).eps
    return {"rtol": 32 * bits, "atol": 32 * bits}


def native(call: Callable[..., Any], *args: Any) -> Any:
    """The call's result; it must not have run on the CPU."""
    torch.wave.reset_fallbacks()
    result = call(*args)
    assert not torch.wave.fallbacks(), torch.wave.fallbacks()
    return result


def same(call: Callable[[torch.Tensor], Any], x: torch.Tensor, on_device: bool = True) -> None:
    expected = call(x)
    device = x.to("wave")
    found = native(call, device) if on_device else call(device)
    pairs = zip(found, expected) if isinstance(expected, tuple) else [(found, expected)]
    for got, want in pairs:
        assert got.shape == want.shape and got.dtype == want.dtype
        torch.testing.assert_close(got.cpu(), want, equal_nan=True, **tolerances(want.dtype))


def made(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 100, shape).to(dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool])
def test_sums_and_extremes(dtype: torch.dtype) -> None:
    x = made((5, 7, 33), dtype)
    calls = [
        lambda x: x.sum(),
        lambda x: x.sum(1),
        lambda x: x.sum((0, 2), keepdim=True),
        lambda x: x.transpose(0, 2).sum(1),
        lambda x: x.amax((0, 1)),
        lambda x: x.amin(-1, keepdim=True),
        lambda x: x.max(),
        lambda x: x.min(),
        lambda x: x.max(1)[0],
        lambda x: x.min(0, keepdim=True)[0],
        lambda x: x.any(),
        lambda x: x.all(1),
        lambda x: x.any((0, 2)),
        lambda x: x.count_nonzero((0, 2)),
        lambda x: x.aminmax(),
        lambda x: x.cumsum(1),
        lambda x: x.transpose(0, 2).cumsum(0),
    ]
    for call in calls:
        same(call, x)
    if dtype.is_floating_point:
        for call in [lambda x: x.max(1), lambda x: x.min(0), lambda x: x.argmax(), lambda x: x.argmin(2)]:
            wide = torch.randperm(5 * 7 * 33).view(5, 7, 33)
            distinct = (wide % 251).to(dtype) if dtype != torch.float32 else wide.to(dtype)
            expected, found = call(distinct), native(call, distinct.to("wave"))
            values = [expected, found] if isinstance(expected, torch.Tensor) else [expected[0], found[0]]
            torch.testing.assert_close(values[1].cpu(), values[0], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_means_norms_and_spreads(dtype: torch.dtype) -> None:
    x = made((4, 9, 31), dtype) + 0.5
    for call in [
        lambda x: x.mean(),
        lambda x: x.mean((0, 2)),
        lambda x: x.norm(),
        lambda x: x.norm(1, dim=1),
        lambda x: torch.linalg.vector_norm(x, 3.5, dim=(0, 1)),
        lambda x: torch.linalg.vector_norm(x, float("inf"), dim=2, keepdim=True),
        lambda x: x.var(),
        lambda x: x.std(1),
        lambda x: x.var((0, 2), correction=0, keepdim=True),
        lambda x: torch.var_mean(x, 2),
    ]:
        same(call, x)
    if dtype == torch.float32:
        same(lambda x: x.prod(1), 0.9 + 0.1 * x)


def test_odd_calls() -> None:
    same(lambda x: x.sum(0), torch.tensor(3.0))
    same(lambda x: x.max(0), torch.tensor(3.0))
    same(lambda x: x.sum(1), torch.zeros(3, 0))
    same(lambda x: x.sum(0), torch.zeros(3, 0))
    same(lambda x: x.sum(dtype=torch.float64), torch.rand(7))
    same(lambda x: x.mean(), torch.zeros(0))
    same(lambda x: x.softmax(0), torch.tensor(2.0))
    out = torch.empty(0, device="wave")
    x = torch.rand(3, 4)
    torch.sum(x.to("wave"), 1, out=out)
    torch.testing.assert_close(out.cpu(), x.sum(1))
    with pytest.raises((RuntimeError, IndexError)):
        torch.zeros(3, 0, device="wave").max(1)
    with pytest.raises(IndexError):
        torch.zeros(3, device="wave").sum(2)
    nan = torch.tensor([1.0, float("nan"), 3.0, float("nan")])
    same(lambda x: x.max(0), nan)
    same(lambda x: x.argmin(), nan)


def gradients(call: Callable[..., torch.Tensor], *inputs: torch.Tensor, device: str) -> list[torch.Tensor]:
    there = [
        x.detach().to(device).requires_grad_(x.is_floating_point()) if i == 0 else x.to(device)
        for i, x in enumerate(inputs)
    ]
    result = call(*there)
    torch.manual_seed(7)
    result.backward(torch.randn(result.shape).to(result.dtype).to(device))
    return [result.detach().cpu(), there[0].grad.cpu()]


def same_gradients(call: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
    expected = gradients(call, *inputs, device="cpu")
    found = native(lambda: gradients(call, *inputs, device="wave"))
    for got, want in zip(found, expected):
        torch.testing.assert_close(got, want, **tolerances(want.dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax(dtype: torch.dtype) -> None:
    x = made((3, 11, 5, 7), dtype) * 3
    for dim, log in itertools.product((0, 1, -1), (False, True)):
        call = F.log_softmax if log else F.softmax
        same_gradients(lambda x, call=call, dim=dim: call(x, dim), x)
        last = x.to(memory_format=torch.channels_last)
        same_gradients(lambda x, call=call, dim=dim: call(x, dim), last)
    same(lambda x: F.softmax(x, 1, dtype=torch.float32), x)
    row = torch.full((2, 4), -float("inf"))
    row[0, 1] = 2.0
    same(lambda x: F.log_softmax(x, 1), row)
    same(lambda x: F.softmax(x, 1), torch.randn(2, 3001))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(9,), (6, 9), (4, 9, 5, 3), (2, 9, 4)])
def test_cross_entropy(reduction: str, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    items = shape[:1] + shape[2:] if len(shape) > 1 else ()
    target = torch.randint(0, 9, items)
    if len(shape) > 1:
        target.view(-1)[1] = 4
    weight = torch.rand(9) + 0.1
    for given, ignored in itertools.product((None, weight), (-100, 4)):
        if len(shape) == 1 and ignored == 4:
            continue

        def call(x: torch.Tensor, target: torch.Tensor, given=given, ignored=ignored) -> torch.Tensor:
            there = None if given is None else given.to(x.device)
            return F.cross_entropy(x, target, there, ignore_index=ignored, reduction=reduction)

        same_gradients(call, x, target)
    if len(shape) == 4:
        last = x.to(memory_format=torch.channels_last)
        same_gradients(lambda x, t: F.cross_entropy(x, t, reduction=reduction), last, target)
