"""One call on the device and on the CPU: results, gradients, and that nothing fell back."""

import torch
from wave32 import _native

# Functions that PyTorch has of oneMKL on the CPU.
_OF_MKL = "acos acosh asin asinh atan atanh cos cosh digamma erf erfc erfinv exp expm1 log log10 log1p log2 rsqrt sin sinh sqrt tan tanh".split()


def settle_the_cpu():
    """oneMKL chooses a function's code at its first call. Where threads make that call at once, one of them may get code of half
    the digits (github.com/pytorch/pytorch/issues/188792). So one thread makes it, before any test compares."""
    for dtype in (torch.float32, torch.float64):
        for name in _OF_MKL:
            getattr(torch, name)(torch.full((1,), 0.5, dtype=dtype))


def _each(values, change):
    if isinstance(values, torch.Tensor):
        return change(values)
    if isinstance(values, (list, tuple)):
        return type(values)([_each(value, change) for value in values])
    return values


def _tensors(values):
    if isinstance(values, torch.Tensor):
        return [values]
    return [t for value in values for t in _tensors(value)] if isinstance(values, (list, tuple)) else []


def _close(found, expected, rtol, what):
    assert found.device.type == "wave", what
    assert found.dtype == expected.dtype and found.shape == expected.shape, what
    if expected.is_floating_point():
        scale = expected.abs().nan_to_num(posinf=0).max().item() if expected.numel() else 0.0
        torch.testing.assert_close(found.cpu(), expected, rtol=rtol, atol=rtol * scale, equal_nan=True, msg=lambda m: f"{what}: {m}")
    else:
        assert torch.equal(found.cpu(), expected), what


def ran_on_cpu(before):
    """The fallbacks, with their counts, that changed since `dict(_native.fallbacks())` was `before`."""
    return {name: count for name, count in _native.fallbacks() if count != before.get(name)}


def check(function, *arguments, rtol=1e-6, strides=True, fallbacks=()):
    """`function(*arguments)` must be on the device what it is on the CPU, gradients of all float arguments too."""
    before = dict(_native.fallbacks())

    def leaf(tensor, device):
        moved = tensor.detach().clone() if device == "cpu" else tensor.detach().to(device)
        return moved.requires_grad_(tensor.is_floating_point())

    cpu_arguments = _each(arguments, lambda t: leaf(t, "cpu"))
    wave_arguments = _each(arguments, lambda t: leaf(t, "wave"))
    expected = _tensors(function(*cpu_arguments))
    found = _tensors(function(*wave_arguments))
    assert len(found) == len(expected)
    for number, (one, other) in enumerate(zip(found, expected)):
        _close(one.detach(), other.detach(), rtol, f"result {number}")
        if strides and other.numel() > 1 and other.dim() == 4 and other.is_contiguous(memory_format=torch.channels_last):
            assert one.is_contiguous(memory_format=torch.channels_last), f"result {number} is not channels last"
    leaves = [t for t in _tensors(cpu_arguments) if t.requires_grad]
    graded = [number for number, t in enumerate(expected) if t.requires_grad]
    assert graded == [number for number, t in enumerate(found) if t.requires_grad]
    if leaves and graded:
        grads = [torch.randn(expected[number].shape).to(expected[number].dtype) for number in graded]
        others = [t for t in _tensors(wave_arguments) if t.requires_grad]
        want = torch.autograd.grad([expected[n] for n in graded], leaves, grads, allow_unused=True)
        have = torch.autograd.grad([found[n] for n in graded], others, [g.to("wave") for g in grads], allow_unused=True)
        for number, (one, other) in enumerate(zip(have, want)):
            assert (one is None) == (other is None)
            if other is not None:
                _close(one, other, rtol, f"gradient {number}")
    after = ran_on_cpu(before)
    assert set(after) <= set(fallbacks), f"ran on the CPU: {after}"


def seeded(number):
    """A generator of shapes and modes for a test's case, fresh for each run's seed."""
    return torch.Generator().manual_seed(torch.initial_seed() % 2**31 * 1000 + number)


def pick(generator, low, high):
    """A whole number from low to high."""
    return int(torch.randint(low, high + 1, (), generator=generator))
