"""`torch.compile` on the device: the same numbers as without it."""

import copy
import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from wave32 import _compile

nn = torch.nn


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Block(nn.Module):
    """What CNNs and transformers have: convolution, batch norm, attention, dropout."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = torch.relu(self.bn(self.conv(x))).flatten(2).transpose(1, 2)
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return self.head(nn.functional.gelu(x).mean(1))


def step(model, call, x, fresh_seed):
    torch.manual_seed(fresh_seed)
    out = call(x)
    out.square().mean().backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    return [out.detach(), *grads, *model.buffers()]


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("how", ["by default", "wave32"])
def test_a_step_as_in_eager_mode(train, how, fresh_seed):
    torch.manual_seed(fresh_seed)
    model = Block().to("wave").train(train)
    twin = copy.deepcopy(model)
    x = torch.randn(2, 3, 6, 7, device="wave")
    if how == "by default":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = torch.compile(model)
            found = step(model, compiled, x, fresh_seed)
    else:
        compiled = torch.compile(model, backend=_compile.backend)
        found = step(model, compiled, x, fresh_seed)
    for got, want in zip(found, step(twin, twin, x, fresh_seed), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1
    if not train:
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), twin(x), rtol=1e-5, atol=1e-6)


def test_the_default_says_once_what_it_does(monkeypatch):
    monkeypatch.setattr(_compile, "_told", False)
    with pytest.warns(UserWarning, match='backend="wave32"'):
        torch.compile(torch.sin)(torch.ones(3, device="wave"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.compile(torch.cos)(torch.ones(3, device="wave"))


def test_a_checkpoint_drops_the_same_numbers_again(fresh_seed):
    torch.manual_seed(fresh_seed)
    inner = nn.Sequential(nn.Linear(6, 32), nn.Dropout(0.5), nn.Linear(32, 6), nn.Dropout(0.3)).to("wave")
    model = lambda x: checkpoint(inner, x, use_reentrant=False)  # noqa: E731
    x = torch.randn(4, 6, device="wave", requires_grad=True)

    def run(call):
        torch.manual_seed(fresh_seed)
        out = call(x)
        (grad,) = torch.autograd.grad(out.square().sum(), x)
        return out, grad

    for got, want in zip(run(torch.compile(model, backend=_compile.backend)), run(model), strict=True):
        torch.testing.assert_close(got, want)


def test_sizes_that_change(fresh_seed):
    torch.manual_seed(fresh_seed)
    model = nn.Sequential(nn.Linear(7, 9), nn.GELU(), nn.Linear(9, 3)).to("wave")
    compiled = torch.compile(model, backend=_compile.backend, dynamic=True)
    for rows in [2, 5, 11, 30]:
        x = torch.randn(rows, 7, device="wave")
        torch.testing.assert_close(compiled(x), model(x))


def test_autocast_and_an_optimizer(fresh_seed):
    results = []
    for compile in [False, True]:
        torch.manual_seed(fresh_seed)
        model = Block().to("wave")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        call = torch.compile(model, backend=_compile.backend) if compile else model
        x = torch.randn(2, 3, 6, 7, device="wave")
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("wave", dtype=torch.float16):
                loss = call(x).float().square().mean()
            loss.backward()
            optimizer.step()
        results.append([p.detach() for p in model.parameters()])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-3)


def test_options_are_refused():
    with pytest.raises(TypeError, match="takes no options, got mode"):
        _compile.backend(None, [], mode="max-autotune")


def test_tensors_of_the_cpu_stay_inductors():
    """The patch asks for tensors of the device only."""
    assert not _compile._on_device([torch.ones(2), [torch.ones(1)], 3])
    assert _compile._on_device([[torch.ones(1, device="wave")]])
