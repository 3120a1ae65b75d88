"""`torch.compile` on the device: the same numbers as without it."""

import copy
import warnings

import pytest
import torch
from compiling import plain
from torch.utils.checkpoint import checkpoint
from wave32 import _compile, _graph_fusion

nn = torch.nn
pytestmark = pytest.mark.usefixtures("fresh_compiler", "decided_early")


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


class Activated(nn.Module):
    """An activation behind a convolution, a group norm, products of two and three dimensions, with a bias and without."""

    def __init__(self, activation):
        super().__init__()
        self.activation = activation
        self.conv, self.up = nn.Conv2d(4, 8, 3, padding=1), nn.ConvTranspose2d(8, 8, 2, 2)
        self.norm, self.one, self.two = nn.GroupNorm(2, 8), nn.Linear(8, 12), nn.Linear(12, 6, bias=False)

    def forward(self, x):
        act = self.activation
        x = act(self.norm(act(self.up(act(self.conv(x))))))
        x = act(self.one(x.flatten(2).transpose(1, 2).contiguous()))
        y = act(x[0] @ x[1, :12])
        # Not these: something lies in between, something else reads it.
        kept = self.two(x)
        return y, act(self.one(y[:, :8])[1:]), kept, act(kept)


ACTIVATIONS = {
    "relu": torch.relu, "relu6": nn.ReLU6(), "silu": nn.SiLU(), "hardswish": nn.Hardswish(inplace=True), "gelu": nn.GELU(),
    "leaky_relu1": nn.LeakyReLU(), "leaky_relu20": nn.LeakyReLU(0.2, inplace=True), None: nn.GELU("tanh"), "": torch.tanh,
}  # fmt: skip


class Residual(nn.Module):
    """Batch norms and an activation, with a sum in between and without."""

    def __init__(self, activation):
        super().__init__()
        self.activation, self.convs = activation, nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm2d(8, affine=index != 1) for index in range(3))
        for norm in self.norms:
            nn.init.normal_(norm.running_mean), nn.init.uniform_(norm.running_var, 0.5, 2)

    def forward(self, x):
        y = self.activation(self.norms[0](self.convs[0](x)))
        y = self.norms[1](self.convs[1](y))
        y += x
        y = self.activation(y)
        # Not this: its sum is with a smaller tensor, which the kernel does not take; the result is the plain operators'.
        return self.activation(x[:, :1] + self.norms[2](self.convs[2](y)))


def counted(monkeypatch):
    """What is fused from here on: functions and activations; none for an activation that is not."""
    from wave32 import _graph_fusion

    found, original = [], _graph_fusion._fused

    def counting(node, name):
        made = original(node, name)
        found.append(None if made is None else (made[0].__name__, name))
        return made

    monkeypatch.setattr(_graph_fusion, "_fused", counting)
    return found


def same(found, wanted, dtype):
    bound = {torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 8e-2}[dtype]
    torch.testing.assert_close(found, wanted, rtol=bound, atol=bound)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("activation", ["relu", "relu6", "silu", "gelu", ""])
def test_batch_norms_sums_and_activations_are_one_pass(activation, mode, dtype, monkeypatch, fresh_seed):
    torch.manual_seed(fresh_seed)
    model = Residual(ACTIVATIONS[activation]).eval().to("wave", dtype)
    found, compiled = counted(monkeypatch), torch.compile(model, backend=_compile.backend, mode=mode)
    with torch.no_grad():
        for memory in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(3, 8, 6, 7, device="wave", dtype=dtype).to(memory_format=memory)
            for _ in range(4 if mode else 1):
                same(compiled(x), model(x), dtype)
            assert compiled(x).stride() == model(x).stride()
        # Other statistics are seen, by a replay too.
        model.norms[1].running_mean.add_(1.0)
        same(compiled(x), model(x), dtype)
    made = [one for one in found if one is not None]
    assert (
        made and set(made) == {("batch_norm", activation)} and len(made) % 3 == 0
        if activation in ("relu", "relu6", "silu")
        else not made
    )


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_run_in_the_launch_before_them(activation, mode, dtype, monkeypatch, fresh_seed):
    torch.manual_seed(fresh_seed)
    model = Activated(ACTIVATIONS[activation]).eval().to("wave", dtype)
    x, found = torch.randn(3, 4, 6, 7, device="wave", dtype=dtype), counted(monkeypatch)
    compiled = torch.compile(model, backend=_compile.backend, mode=mode)
    with torch.no_grad():
        for _ in range(4 if mode else 1):
            for got, want in zip(compiled(x), model(x), strict=True):
                same(got, want, dtype)
    made = [one for one in found if one is not None]
    of_norms = [("group_norm", activation)] if activation in ("relu", "relu6", "silu") else []
    # In place, what was kept is the activation's result.
    products = 3 if getattr(model.activation, "inplace", False) else 2
    wanted = [("convolution", activation)] * 2 + of_norms + [("product", activation)] * products
    assert sorted(made) == (sorted(wanted) if activation else []), found
    # Where gradients are asked for, the activation's operand is kept.
    count = len(found)
    compiled(x)[3].sum().backward()
    assert len(found) == count


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
    with pytest.raises(TypeError, match="takes no options, got options"):
        _compile.backend(None, [], options={"a": 1})


def test_tensors_of_the_cpu_stay_inductors():
    """The patch asks for tensors of the device only."""
    assert not _compile._on_device([torch.ones(2), [torch.ones(1)], 3])
    assert _compile._on_device([[torch.ones(1, device="wave")]])


def test_modes_and_options():
    with pytest.raises(Exception, match="modes"):
        torch.compile(torch.sin, backend=_compile.backend, mode="max-autotune")(torch.ones(2, device="wave"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(torch.sin, mode="reduce-overhead")
        for _ in range(4):
            assert torch.equal(compiled(torch.ones(3, device="wave")), torch.ones(3, device="wave").sin())


class Attends(nn.Module):
    """Heads before rows and behind, shared keys, masks of both kinds, a scale; 260 elements a head are not the kernel's."""

    def __init__(self):
        super().__init__()
        self.heads, self.wide = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 260)

    def forward(self, x, mask):
        attend = nn.functional.scaled_dot_product_attention
        split = x.unflatten(-1, (2, 8)).transpose(1, 2)
        added = torch.zeros(mask.shape, device=x.device, dtype=x.dtype).masked_fill(~mask, -3.0)
        wide = self.wide(x)[:, None]
        made = [
            attend(split, split, split, is_causal=True).transpose(1, 2).flatten(2),
            attend(split, split[:, :1], split[:, :1], enable_gqa=True),
            attend(split.contiguous(), split, split, mask, scale=0.3),
            attend(split, split, split[..., :4], added),
            attend(wide, wide, wide),
        ]
        return self.heads(x, x, x, need_weights=False)[0], *made


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_attention_stays_one_operator(mode, dtype, monkeypatch, fresh_seed):
    from wave32 import _graph_fusion

    torch.manual_seed(fresh_seed)
    model, calls = Attends().eval().to("wave", dtype), []
    original = _graph_fusion.fuse

    def counting(graph):
        calls.extend(node for node in graph.graph.nodes if node.target is torch.ops.wave.attention_whole.default)
        return original(graph)

    monkeypatch.setattr(_graph_fusion, "fuse", counting)
    compiled = plain(model, mode=mode)
    # No query that looks at nothing.
    x, mask = (
        torch.randn(3, 9, 16).to("wave", dtype),
        ((torch.rand(3, 1, 9, 9) < 0.8) | torch.eye(9, dtype=torch.bool)).to("wave"),
    )
    with torch.no_grad():
        for _ in range(4 if mode else 1):
            for found, wanted in zip(compiled(x, mask), model(x, mask), strict=True):
                same(found, wanted, dtype)
                assert found.stride() == wanted.stride()
        assert len(calls) == 5
        # Of sizes that change it is decomposed, and right.
        flexible = torch.compile(model, backend=_compile.backend, dynamic=True)
        for rows in (5, 12):
            looks = (torch.rand(3, 1, rows, rows) < 0.8) | torch.eye(rows, dtype=torch.bool)
            operands = torch.randn(3, rows, 16).to("wave", dtype), looks.to("wave")
            for found, wanted in zip(flexible(*operands), model(*operands), strict=True):
                same(found, wanted, dtype)
    # With gradients too.
    leaf, twin = (x.clone().requires_grad_() for _ in range(2))
    sum(y.float().square().sum() for y in compiled(leaf, mask)).backward()
    sum(y.float().square().sum() for y in model(twin, mask)).backward()
    assert (leaf.grad - twin.grad).norm() <= (1e-4 if dtype == torch.float32 else 3e-2) * twin.grad.norm()


class Taken(nn.Module):
    """Linear layers of two and three dimensions, one whose result has two readers, one behind a transpose; and every function that
    compiled graphs call by PyTorch's own way."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = nn.Linear(8, 8), nn.Linear(8, 6, bias=False), nn.Linear(5, 8)
        self.conv = nn.Conv2d(8, 4, 1)

    def forward(self, x):
        y = self.one(x)
        z = self.two(y).sum(-1) + self.two(y[0]).select(1, 2)
        wide = self.three(x.transpose(1, 2)).transpose(1, 2)
        bent = nn.functional.gelu(wide, approximate="tanh") * 2 - torch.relu(torch.sub(y, 1, alpha=3)).sum() / 7
        image = self.conv(bent.permute(0, 2, 1).unsqueeze(2)) / (1 + y.mean(1).view(3, 8, 1, 1)[:, :4])
        mixed = torch.bmm(x, x.transpose(1, 2)).expand(3, 5, 5)
        return torch.cat([z.flatten(), image.flatten(), mixed.flatten(), torch.add(y, x, alpha=0.5).flatten(), torch.mm(x[0], x[1].t()).flatten()])


@pytest.mark.parametrize("train", [False, True], ids=["without gradients", "with gradients"])
def test_linear_layers_stay_one_call(train, monkeypatch, fresh_seed):
    graphs, quicken = [], _graph_fusion.quicken
    monkeypatch.setattr(_graph_fusion, "quicken", lambda module: (quicken(module), graphs.append(module)))
    torch.manual_seed(fresh_seed)
    model, x = Taken().to("wave"), torch.randn(3, 5, 8).to("wave")
    compiled = torch.compile(model, backend=_compile.backend)
    with torch.set_grad_enabled(train):
        expected, found = model(x), compiled(x)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    if train:
        weights = tuple(model.parameters())
        for a, b in zip(torch.autograd.grad(found.square().sum(), weights), torch.autograd.grad(expected.square().sum(), weights)):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * b.abs().max().item())
    calls = [node.target for node in graphs[0].graph.nodes if node.op == "call_function"]
    # `torch.mm` with a transposed matrix is one too.
    assert calls.count(nn.functional.linear) == 5, calls
    taken_apart = (torch.ops.aten.addmm.default, torch.addmm, torch.mm)
    assert not [target for target in calls if target in taken_apart], calls
    assert torch.convolution in calls and torch.cat in calls and torch.ops.aten.cat.default not in calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("batch_first", [True, False])
def test_heads_are_eagers(batch_first, dtype, fresh_seed):
    torch.manual_seed(fresh_seed)
    model = nn.MultiheadAttention(16, 2, batch_first=batch_first).eval().to("wave", dtype)

    def body(x, mask):
        return model(x, x, x, need_weights=False)[0], model(x, x, x, attn_mask=mask)[0], model(x, x, x.flip(0), need_weights=False)[0]

    compiled, x, mask = plain(body), torch.randn(5, 5, 16).to("wave", dtype), torch.zeros(5, 5).to("wave", dtype)
    with torch.no_grad():
        for _ in range(2):
            for got, want in zip(compiled(x, mask), body(x, mask), strict=True):
                same(got, want, dtype)
        whole = plain(lambda x: model(x, x, x, need_weights=False)[0])
        assert torch.equal(whole(x), model(x, x, x, need_weights=False)[0])
        count = []
        for call in (whole, lambda x: model(x, x, x, need_weights=False)[0]):
            with torch.wave.profile() as times:
                call(x)
            count.append(len(times.launches))
    assert count[0] <= count[1], count
