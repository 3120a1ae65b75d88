"""`torch.compile` on the device: the same numbers as without it."""

import copy
import gc
import threading
import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from wave32 import _compile, _constants, _graph_fusion, _replay

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


class Small(nn.Module):
    """Convolution, batch norm and a product: all that it computes can be captured."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(torch.relu(self.bn(self.conv(x))).mean((2, 3)))


@pytest.fixture
def replays(monkeypatch):
    """How often a graph was replayed."""
    counted = [0]
    original = torch.wave.Graph.replay

    def replay(self):
        counted[0] += 1
        original(self)

    monkeypatch.setattr(torch.wave.Graph, "replay", replay)
    return counted


def replaying(model):
    return torch.compile(model, backend=_compile.backend, mode="reduce-overhead", dynamic=False)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_replayed_training_is_eager_training(replays, accumulate):
    model = Small().to("wave")
    twin = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, twin)]
    compiled, kept = replaying(model), []
    for step in range(9):
        x = torch.randn(4, 3, 6, 7, device="wave")
        outs = []
        for call, optimizer in zip((compiled, twin), optimizers):
            outs.append(call(x))
            outs[-1].square().mean().backward()
            if step % accumulate == accumulate - 1:
                optimizer.step()
                optimizer.zero_grad()
        kept.append((outs[0].detach(), outs[1].detach()))
    assert replays[0] >= 9, "forward from the third call on, backward from the fourth"
    # What earlier calls gave is not overwritten.
    for found, expected in kept:
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    for found, expected in zip(model.state_dict().values(), twin.state_dict().values()):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def renew(model, step, head, bias):
    """New weights: in place at every fourth step, and at one step each another parameter and other memory."""
    if step % 4 == 3:
        model.conv.weight.normal_()
    if step == head:
        model.head.weight = nn.Parameter(torch.randn_like(model.head.weight))
    if step == bias:
        model.head.bias.data = torch.randn(5, device="wave")


def test_replayed_inference_sees_new_weights(replays):
    model = Small().to("wave").eval()
    compiled = replaying(model)
    with torch.no_grad():
        for step in range(12):
            renew(model, step, head=6, bias=9)
            x = torch.randn(2, 3, 5, 5, device="wave")
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)
    assert replays[0] >= 6


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_an_operand_that_moves_late_overwrites_nothing(mode, replays, quick):
    """Not the tensor either that was there at the capture."""
    compiled = plain(lambda x: x.exp() + 1, mode=mode)
    x, other = (torch.randn(5, device="wave") for _ in range(2))
    before = x.clone()
    with torch.no_grad():
        for _ in range(7):
            compiled(x)
        count = replays[0]
        assert count and torch.equal(compiled(other), other.exp() + 1) and replays[0] == count + 1
        assert torch.equal(x, before) and torch.equal(compiled(x), x.exp() + 1)


def test_a_backward_pass_whose_forward_was_replayed_again_is_refused(replays):
    model = Small().to("wave")
    compiled = replaying(model)
    for _ in range(6):
        compiled(torch.randn(2, 3, 5, 5, device="wave")).sum().backward()
    first, second = (compiled(torch.randn(2, 3, 5, 5, device="wave")) for _ in range(2))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        first.sum().backward()
    second.sum().backward()


def test_two_backward_passes_of_one_forward_pass(replays):
    model = Small().to("wave")
    twin = copy.deepcopy(model)
    compiled = replaying(model)
    for _ in range(6):
        x = torch.randn(2, 3, 5, 5, device="wave")
        for call in (compiled, twin):
            loss = call(x).square().sum()
            loss.backward(retain_graph=True)
            loss.backward()
    assert replays[0] > 8
    for found, expected in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "body",
    [
        lambda x: nn.functional.dropout(x, 0.5) * 0 + x,
        lambda x: x + x.cpu().sum().to("wave"),
        lambda x: torch.linalg.svdvals(x.flatten(1)) + 1,
    ],
)
def test_what_cannot_be_captured_runs_eagerly(body, replays):
    compiled = replaying(lambda x: body(torch.relu(x)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(5):
            x = torch.randn(4, 6, device="wave")
            torch.testing.assert_close(compiled(x), body(torch.relu(x)), rtol=1e-4, atol=1e-5)
    assert not torch.wave.is_current_stream_capturing()


def test_an_operand_that_is_written_to(replays):
    def count(x, total):
        total.add_(x.sum())
        return x + total

    compiled = replaying(count)
    same, moving = torch.zeros((), device="wave"), [torch.zeros((), device="wave") for _ in range(8)]
    expected = torch.zeros((), device="wave")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(8):
            x = torch.randn(5, device="wave")
            torch.testing.assert_close(compiled(x, same), count(x, expected))
            torch.testing.assert_close(same, expected)
        assert replays[0] >= 5
        torch._dynamo.reset()
        compiled = replaying(count)
        for total in moving:
            x = torch.randn(5, device="wave")
            compiled(x, total)
            torch.testing.assert_close(total, x.sum())


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
    compiled = torch.compile(model, backend=_compile.backend, mode=mode, dynamic=False)
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


@pytest.fixture
def graphs(monkeypatch):
    """Graphs that were compiled, as they are called."""
    made, quicken = [], _graph_fusion.quicken
    monkeypatch.setattr(_graph_fusion, "quicken", lambda module: (made.append(module), quicken(module)))
    return made


def targets(module):
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


def plain(call, **how):
    """Compiled by default."""
    return torch.compile(call, backend=_compile.backend, **{"dynamic": False, **how})


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


@pytest.fixture(autouse=True)
def decided_early(monkeypatch):
    """Fewer calls are timed than users' are."""
    monkeypatch.setattr(_replay, "_TIMED", 4)


@pytest.fixture
def quick(monkeypatch):
    """A replay counts as quicker than calls without, as it may not be on a machine that is busy."""
    monkeypatch.setattr(_replay, "_SHARE", float("inf"))


def settled(compiled, *shape, calls=10):
    """Called so often that it replays, if it ever does."""
    for _ in range(calls):
        compiled(torch.randn(*shape, device="wave"))


def test_inference_is_replayed_by_default(quick, replays):
    model = Small().to("wave").eval()
    compiled, twin, kept = plain(model), plain(copy.deepcopy(model)), []
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(16):
            renew(model, step, head=8, bias=12)
            x = torch.randn(2, 3, 5, 5, device="wave")
            kept.append((compiled(x), model(x)))
        assert replays[0] >= 8
        # Results are not overwritten by calls behind them.
        assert all(torch.equal(*pair) for pair in kept)
        del twin
        with torch.inference_mode():
            assert torch.equal(compiled(x), model(x))
        with torch.wave.profile() as times:
            compiled(x)
    assert times.launches, "operator by operator, while somebody looks"


def test_replays_that_are_not_quicker_are_dropped(monkeypatch, replays):
    monkeypatch.setattr(_replay, "_SHARE", 0.0)
    model = Small().to("wave").eval()
    compiled = plain(model)
    with torch.no_grad():
        settled(compiled, 2, 3, 5, 5, calls=3)
        gc.collect()
        before = torch.wave.memory_allocated()
        settled(compiled, 2, 3, 5, 5, calls=11)
        assert replays[0] == 1 + _replay._TIMED and torch.wave.memory_allocated() <= before + 8192
    assert not _replay._default


def test_replays_by_default_keep_little_memory(quick, replays, monkeypatch):
    model, other = Small().to("wave").eval(), nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten()).to("wave")
    compiled = plain(model)
    with torch.no_grad():
        settled(compiled, 2, 3, 5, 5)
        assert replays[0] > 0 and sum(one.bytes for one in _replay._default) > 0
        # Room for one.
        monkeypatch.setattr(_replay, "_MOST", sum(one.bytes for one in _replay._default))
        second = plain(other)
        settled(second, 2, 3, 5, 5, calls=2)
        gc.collect()
        count, before = replays[0], torch.wave.memory_allocated()
        settled(second, 2, 3, 5, 5)
        assert replays[0] == count and torch.wave.memory_allocated() <= before + 8192 and len(_replay._default) == 1
        x = torch.randn(2, 3, 5, 5, device="wave")
        assert torch.equal(second(x), other(x)) and torch.equal(compiled(x), model(x)) and replays[0] == count + 1
        # Where the first is gone, there is room again.
        del compiled, model, second
        torch._dynamo.reset()
        gc.collect()
        assert not _replay._default and torch.wave.memory_allocated() < before
        settled(plain(other), 2, 3, 5, 5)
        assert replays[0] > count + 1


def test_modules_of_one_class_in_turn(quick, replays):
    """Dynamo compiles one function for all of them."""
    models = [Small().to("wave").eval() for _ in range(3)]
    compiled = [plain(model) for model in models]
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(2, 3, 5, 5, device="wave")
            assert all(torch.equal(call(x), model(x)) for call, model in zip(compiled, models, strict=True))
    assert not replays[0]


def test_a_replay_knows_the_switches(quick, replays):
    conv = nn.Conv2d(64, 64, 3, padding=1).to("wave")
    compiled = plain(conv)
    x = torch.randn(1, 64, 24, 24, device="wave")
    before = torch.wave.winograd()
    try:
        with torch.no_grad():
            torch.wave.winograd(True)
            settled(compiled, 1, 64, 24, 24)
            transformed = conv(x)
            assert torch.equal(compiled(x), transformed)
            torch.wave.winograd(False)
            direct = conv(x)
            assert not torch.equal(direct, transformed), "the test needs a problem that is transformed"
            count = replays[0]
            assert torch.equal(compiled(x), direct) and torch.equal(compiled(x), direct) and replays[0] == count + 2
    finally:
        torch.wave.winograd(before)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_a_capture_around_a_replay(mode, quick, replays):
    model = Small().to("wave").eval()
    compiled, x = plain(model, mode=mode), torch.randn(2, 3, 5, 5, device="wave")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(x)
        for calls in (0, 8):
            settled(compiled, 2, 3, 5, 5, calls=calls)
            graph = torch.wave.Graph()
            with torch.wave.graph(graph):
                y = compiled(x)
            x.normal_()
            graph.replay()
            assert torch.equal(y, model(x))
        count = replays[0]
        assert torch.equal(compiled(x), model(x)) and replays[0] == count + 1


def test_the_first_call_in_a_capture(quick):
    """What is captured has not run: no constant is kept of it."""
    compiled, x, graph = plain(lambda x: x + torch.arange(6, device="wave").sin()), torch.randn(6, device="wave"), torch.wave.Graph()
    plain(lambda x: x + 1)(x)
    with torch.no_grad():
        with torch.wave.graph(graph):
            y = compiled(x)
        expected = x + torch.arange(6, device="wave").sin()
        assert torch.equal(compiled(x), expected)
        graph.replay()
        assert torch.equal(y, expected)


def test_two_threads_call_one_function(quick, replays):
    model = Small().to("wave").eval()
    compiled, right, start = plain(model), [], threading.Barrier(3)
    with torch.no_grad():
        settled(compiled, 2, 3, 5, 5)

    def work():
        start.wait()
        with torch.no_grad():
            for _ in range(60):
                x = torch.randn(2, 3, 5, 5, device="wave")
                right.append(torch.equal(compiled(x), model(x)))

    count, workers = replays[0], [threading.Thread(target=work) for _ in range(3)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    assert len(right) == 180 and all(right) and replays[0] > count


def test_nothing_is_captured_beside_another_thread(quick, replays):
    """Its work would become part of the graph."""
    compiled, stop = plain(Small().to("wave").eval()), threading.Event()
    worker = threading.Thread(target=stop.wait)
    worker.start()
    with torch.no_grad():
        try:
            settled(compiled, 2, 3, 5, 5)
            assert not replays[0]
        finally:
            stop.set()
            worker.join()
        settled(compiled, 2, 3, 5, 5)
    assert replays[0] > 0


def test_results_with_gaps_and_sizes_that_change(quick, replays):
    def body(x):
        y = x * 2
        one, two = y.chunk(2, 1)
        return one, two, (y + 1).expand(2, *y.shape), (y - 1).t(), y[:, ::2] + 1

    compiled = plain(body, dynamic=None)
    with torch.no_grad():
        for rows in (3, 3, 3, 3, 3, 3, 3, 3, 4, 5, 5, 3):
            x = torch.randn(rows, 6, device="wave")
            for got, want in zip(compiled(x), body(x), strict=True):
                assert torch.equal(got, want) and got.stride() == want.stride()
    assert replays[0] > 0


def test_replays_draw_new_numbers(quick, replays, monkeypatch):
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5)).to("wave")
    compiled, x = plain(model), torch.randn(4, 8, device="wave")
    with torch.no_grad():
        settled(compiled, 4, 8)
        torch.manual_seed(3)
        found = [compiled(x) for _ in range(3)]
        assert replays[0] > 3
        torch.manual_seed(3)
        with torch.wave.profile():
            wanted = [compiled(x) for _ in range(3)]
    assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True)) and not torch.equal(found[0], found[1])


def test_buffers_are_written_to_by_replays_and_operands_are_not(quick, replays):
    model = Small().to("wave").train()
    twin = copy.deepcopy(model)
    compiled = plain(model)
    with torch.no_grad():
        for _ in range(9):
            x = torch.randn(2, 3, 5, 5, device="wave")
            assert torch.equal(compiled(x), twin(x))
        for name, buffer in twin.named_buffers():
            assert torch.equal(model.get_buffer(name), buffer), name
        count, total = replays[0], torch.zeros(4, device="wave")
        assert count > 0
        add = plain(lambda x, total: total.add_(x) * 2)
        for step in range(9):
            add(torch.ones(4, device="wave"), total)
            assert torch.equal(total, torch.full((4,), step + 1.0, device="wave"))
        assert replays[0] == count


def test_a_device_that_was_given_up(run_python):
    out = run_python("""
        from wave32 import _compile, _replay
        _replay._SHARE, _replay._TIMED = float("inf"), 4
        body = lambda x: (x + torch.arange(6, device="wave").sin()).exp()
        compiled = torch.compile(body, backend=_compile.backend, dynamic=False)
        with torch.no_grad():
            for _ in range(2):
                for _ in range(9):
                    x = torch.randn(6, device="wave")
                    assert torch.equal(compiled(x), body(x))
                assert len(_replay._default) == 1 and list(_replay._default)[0]._graph is not None
                torch.wave.reopen()
        print("right")
    """)
    assert "right" in out
