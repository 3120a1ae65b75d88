"""Optimizers on the device against the same on the CPU, and gradient scaling."""

import pytest
import torch

CASES = {
    "sgd": lambda p, **k: torch.optim.SGD(p, lr=0.1, **k),
    "momentum": lambda p, **k: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, **k),
    "dampening": lambda p, **k: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3, maximize=True, **k),
    "nesterov": lambda p, **k: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, **k),
    "adam": lambda p, **k: torch.optim.Adam(p, lr=0.01, **k),
    "adam_decay": lambda p, **k: torch.optim.Adam(p, lr=0.01, weight_decay=0.1, maximize=True, **k),
    "amsgrad": lambda p, **k: torch.optim.Adam(p, lr=0.01, amsgrad=True, **k),
    "adamw": lambda p, **k: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, **k),
    "adamw_amsgrad": lambda p, **k: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, amsgrad=True, **k),
}
# Most launches of a step of 200 tensors, by default and fused: operations, each a few pieces of the device's memory. How many
# pieces depends on what other tests left there.
MAX_LAUNCHES = {
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}, 40, 30),
    "adamw": (torch.optim.AdamW, {"lr": 0.01}, 100, 30),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01}, 48, None),
}
SHAPES = [(7, 5), (33,), (), (2, 3, 3, 3)]


def steps(make, starts, grads, device, **options):
    params = [x.clone().to(device).requires_grad_() for x in starts]
    params[3].data = params[3].data.contiguous(memory_format=torch.channels_last)
    optimizer = make(params, **options)
    for step in grads:
        for param, grad in zip(params, step, strict=True):
            param.grad = grad.clone().to(device).as_strided(grad.shape, grad.stride())
        params[3].grad = params[3].grad.contiguous(memory_format=torch.channels_last)
        optimizer.step()
    return [param.detach().cpu() for param in params]


@pytest.mark.parametrize("name", MAX_LAUNCHES)
def test_a_step_of_many_tensors_is_few_launches(name):
    make, options, default, fused = MAX_LAUNCHES[name]
    for more, bound in (({}, default), ({"fused": True}, fused)):
        if bound is None:
            continue
        params = [torch.randn(64 + 7 * at, device="wave", requires_grad=True) for at in range(200)]
        optimizer = make(params, **options, **more)
        for _ in range(2):
            for param in params:
                param.grad = torch.randn_like(param)
            optimizer.step()
        with torch.wave.profile() as profile:
            optimizer.step()
        assert 0 < len(profile.launches) <= bound, (more, profile.by_kernel())


@pytest.mark.parametrize("way", ["default", "foreach", "fused", "single"])
@pytest.mark.parametrize("name", CASES)
def test_steps(name, way):
    options = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}, "single": {"foreach": False}}
    starts = [torch.randn(shape) for shape in SHAPES]
    grads = [[torch.randn(shape) for shape in SHAPES] for _ in range(4)]
    found = steps(CASES[name], starts, grads, "wave", **options[way])
    assert torch.wave.fallbacks() == {}
    for a, b in zip(found, steps(CASES[name], starts, grads, "cpu"), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["momentum", "adamw"])
def test_strides_of_one_element_do_not_matter(name):
    """The gradient of a depthwise convolution's weight in channels_last."""
    start, grads = torch.randn(6, 1, 3, 3), [torch.randn(6, 1, 3, 3) for _ in range(3)]
    ones = [start.clone().to(device).requires_grad_() for device in ("wave", "cpu")]
    optimizers = [CASES[name]([one], fused=one.device.type == "wave") for one in ones]
    for grad in grads:
        ones[0].grad, ones[1].grad = grad.to("wave").as_strided(grad.shape, (9, 1, 3, 1)), grad
        for optimizer in optimizers:
            optimizer.step()
    assert torch.wave.fallbacks() == {}
    torch.testing.assert_close(ones[0].detach().cpu(), ones[1].detach(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("way", ["fused", "foreach"])
def test_gradient_scaling(way):
    """A step with finite gradients is the unscaled step; one without changes nothing and lowers the scale."""
    p, q = torch.randn(9, device="wave"), torch.randn(4, 3, device="wave")
    expected = [x.cpu() - 0.1 * 2 * x.cpu() for x in (p, q)]
    params = [x.clone().requires_grad_() for x in (p, q)]
    optimizer = torch.optim.SGD(params, lr=0.1, **{way: True})
    scaler = torch.amp.GradScaler("wave", init_scale=1024.0, growth_interval=2)
    for finite in (True, False):
        for x in params:
            x.grad = 2 * x.detach() * scaler.scale(torch.ones((), device="wave"))
        if not finite:
            params[1].grad[2, 1] = float("inf")
        torch.wave.reset_fallbacks()
        scaler.step(optimizer)
        scaler.update()
        for found, e in zip(params, expected, strict=True):
            torch.testing.assert_close(found.detach().cpu(), e)
    assert scaler.get_scale() == 512.0


def test_mixed_precision_training_stays_on_the_device():
    net = torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.SiLU(), torch.nn.Linear(24, 5)).to("wave")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("wave")
    x, y = torch.randn(32, 12, device="wave"), torch.randint(5, (32,)).to("wave")
    losses = []
    for _ in range(8):
        with torch.autocast("wave", torch.float16):
            loss = torch.nn.functional.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert torch.wave.fallbacks() == {}
    assert losses[-1] < losses[0]


def test_sums_of_lists_are_new_lists():
    shapes = [(3, 4), (), (5,), (2, 3, 4, 5)]
    for first, second in ((torch.float32, torch.float32), (torch.float16, torch.float32), (torch.int32, torch.int32)):
        a, b = ([(torch.randn(shape) * 9).to(dtype) for shape in shapes] for dtype in (first, second))
        a[3], b[2] = a[3].to(memory_format=torch.channels_last), b[2].expand(5)
        # The plain operator, one after the other, is the rule.
        expected = [torch.add(x, y, alpha=2) for x, y in zip(a, b)]
        found = torch._foreach_add([x.to("wave") for x in a], [y.to("wave") for y in b], alpha=2)
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype
            torch.testing.assert_close(one.cpu(), other)
