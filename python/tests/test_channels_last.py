"""`torch.wave.channels_last`: tensors that keep their channels last, and those that do not."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

LAST = torch.channels_last


@pytest.fixture(autouse=True)
def restored():
    before = torch.wave.channels_last()
    yield
    torch.wave.channels_last(before)


def test_a_switch_that_tells_what_was():
    assert torch.wave.channels_last(False) in (True, False)
    assert torch.wave.channels_last() is False
    assert torch.wave.channels_last(True) is False
    assert torch.wave.channels_last(None) is True


def network():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=16), nn.GroupNorm(4, 16),
        nn.MaxPool2d(2), nn.ConvTranspose2d(16, 8, 2, stride=2), nn.SiLU(), nn.Conv2d(8, 4, 1), nn.AdaptiveAvgPool2d(3),
    )


def trained(last, x):
    """Results, gradients and parameters of three steps, and the launches of the last one."""
    net = network().to("wave", memory_format=LAST if last else torch.contiguous_format)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    x = x.to("wave", memory_format=LAST if last else torch.contiguous_format).requires_grad_()
    found = []
    for _ in range(3):
        optimizer.zero_grad()
        x.grad = None
        with torch.wave.profile() as profile:
            y = net(x)
            y.square().sum().backward()
            optimizer.step()
        found += [y.detach(), x.grad]
    return [*found, *(p.detach() for p in net.parameters())], len(profile.launches)


def test_what_is_not_kept_costs_nothing():
    x = torch.randn(2, 3, 12, 20)
    expected, launches = trained(False, x)
    kept, more = trained(True, x)
    assert more > launches and kept[0].is_contiguous(memory_format=LAST)
    torch.wave.channels_last(False)
    found, same = trained(True, x)
    assert same == launches
    for one, other in zip(found, expected, strict=True):
        assert one.is_contiguous() and torch.equal(one, other)
    for one, other in zip(kept, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_where_it_is_not_kept():
    torch.wave.channels_last(False)
    x = torch.randn(2, 3, 4, 5)
    on = x.to("wave")
    for made in (
        x.to("wave", memory_format=LAST), on.to(memory_format=LAST), on.contiguous(memory_format=LAST), on.clone(memory_format=LAST),
        on.to(torch.float16, memory_format=LAST).float(), torch.empty_like(on, memory_format=LAST).copy_(on),
        torch.empty(0, device="wave").resize_(2, 3, 4, 5, memory_format=LAST).copy_(on),
    ):
        assert made.is_contiguous() and made.shape == x.shape
        torch.testing.assert_close(made.cpu(), x, rtol=1e-3, atol=1e-3)
    assert torch.empty(2, 3, 4, 5, 6, device="wave", memory_format=torch.channels_last_3d).is_contiguous()
    # What others laid out so stays so, but results of convolutions and their gradients do not follow it.
    last = x.contiguous(memory_format=LAST).to("wave")
    assert last.is_contiguous(memory_format=LAST) and not last.is_contiguous()
    weight = torch.randn(6, 3, 3, 3).contiguous(memory_format=LAST)
    leaves = [last.requires_grad_(), weight.to("wave").requires_grad_()]
    for one, other in ((last, leaves[1]), (on, leaves[1]), (last, weight.to("wave").contiguous())):
        assert torch.conv2d(one, other, padding=1).is_contiguous()
    y = torch.conv2d(*leaves, padding=1)
    dy = torch.randn(y.shape)
    grads = torch.autograd.grad(y, leaves, dy.to("wave"))
    plain = [x.clone().requires_grad_(), weight.detach().requires_grad_()]
    expected = torch.conv2d(*plain, padding=1)
    torch.testing.assert_close(y.cpu(), expected, rtol=1e-4, atol=1e-4)
    for one, other in zip(grads, torch.autograd.grad(expected, plain, dy), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-4)
    assert torch.wave.fallbacks() == {}


@pytest.mark.parametrize("value", ["0", "1", ""])
def test_the_environment_says_it_for_a_process(value):
    script = "import torch, wave32; print(torch.wave.channels_last())"
    environment = {**os.environ, "WAVE32_CHANNELS_LAST": value}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and done.stdout.strip() == str(value != "0"), done.stderr


def strides(made):
    return [None if one is None else one.stride() for one in (made if isinstance(made, tuple) else (made,))]


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("sizes", [(5, 6), (3, 5, 6)])
def test_what_traces_knows_where_results_lie(sizes, transposed, keep):
    formats = [torch.contiguous_format, LAST if len(sizes) == 2 else torch.channels_last_3d]
    rest = [[1] * len(sizes), [1] * len(sizes), [1] * len(sizes), transposed, [0] * len(sizes), 1]
    laid = [[torch.randn(4, 4, *size).to("wave").contiguous(memory_format=format) for format in formats] for size in (sizes, (3,) * len(sizes))]
    torch.wave.channels_last(keep)
    for x in laid[0]:
        for weight in laid[1]:
            real = torch.ops.aten.convolution(x, weight, None, *rest)
            back = torch.ops.aten.convolution_backward(real, x, weight, None, *rest, [True, True, False])
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                x_, weight_ = mode.from_tensor(x), mode.from_tensor(weight)
                traced = torch.ops.aten.convolution(x_, weight_, None, *rest)
                assert strides(traced) == strides(real)
                assert strides(torch.ops.aten.convolution_backward(traced, x_, weight_, None, *rest, [True, True, False])) == strides(back)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("train", [True, False])
def test_compiled_and_flattened(fresh_compiler, train, mode):
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(1), nn.Linear(24, 5))
    net = net.to("wave", memory_format=LAST).train(train)
    x = torch.randn(2, 3, 4, 5).to("wave", memory_format=LAST)
    results = []
    for call in (net, torch.compile(copy.deepcopy(net), mode=mode)):
        with torch.set_grad_enabled(train):
            for _ in range(4):
                y = call(x)
                grads = torch.autograd.grad(y.square().sum(), list(call.parameters())) if train else ()
        results.append([y, *grads])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
