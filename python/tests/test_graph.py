"""`torch.wave.Graph`: a replay gives what eager gives, on memory that is nobody else's."""

import copy
import gc

import pytest
import torch
from torch import nn

FLOATS = [torch.float32, torch.float16]


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 12, 3, stride=2), nn.SiLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5),
    ).to("wave")


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(4, 3, 16, 16, generator=generator), torch.randint(5, (4,), generator=generator)


def step(model, optimizer, images, labels):
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "fused momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
    "capturable": lambda p: torch.optim.Adam(p, lr=1e-2, capturable=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_replayed_training_is_eager_training(name):
    model = network()
    optimizer = OPTIMIZERS[name](model.parameters())
    images, labels = (t.to("wave") for t in batch(0))
    for _ in range(2):
        step(model, optimizer, images, labels)
    graph = torch.wave.Graph()
    with torch.wave.graph(graph):
        loss = step(model, optimizer, images, labels)
    eager = copy.deepcopy(model)
    optimizer_of_eager = OPTIMIZERS[name](eager.parameters())
    optimizer_of_eager.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for seed in range(1, 5):
        new = batch(torch.randint(1 << 30, ()).item() + seed)
        images.copy_(new[0])
        labels.copy_(new[1])
        graph.replay()
        expected = step(eager, optimizer_of_eager, *(t.to("wave") for t in new))
        assert torch.equal(loss.cpu(), expected.detach().cpu())
    for found, expected in zip(model.state_dict().values(), eager.state_dict().values()):
        assert torch.equal(found.cpu(), expected.cpu())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_replay_reads_what_its_inputs_hold(dtype):
    x = torch.randn(37, 41, device="wave").to(dtype)
    w = torch.randn(41, 23, device="wave").to(dtype)
    graph = torch.wave.Graph()
    with torch.wave.graph(graph):
        y = torch.softmax(x @ w, 1) + 1
    for _ in range(3):
        x.copy_(torch.randn(37, 41).to(dtype))
        w.mul_(-1)
        y.fill_(float("nan"))
        graph.replay()
        assert torch.equal(y.cpu(), (torch.softmax(x @ w, 1) + 1).cpu())


def test_convolutions_with_kept_filters_see_new_weights():
    conv = nn.Conv2d(32, 32, 3, padding=1).to("wave").eval()
    x = torch.randn(1, 32, 28, 28, device="wave")
    with torch.no_grad():
        for _ in range(4):
            conv(x)
        graph = torch.wave.Graph()
        with torch.wave.graph(graph):
            y = conv(x)
        for _ in range(3):
            conv.weight.copy_(torch.randn(32, 32, 3, 3))
            graph.replay()
            assert torch.equal(y.cpu(), conv(x).cpu())


def test_a_replay_outdates_filters_that_eager_keeps():
    conv = nn.Conv2d(32, 32, 3, padding=1).to("wave").eval()
    x = torch.randn(1, 32, 28, 28, device="wave")
    new = torch.randn_like(conv.weight)
    with torch.no_grad():
        graph = torch.wave.Graph()
        with torch.wave.graph(graph):
            conv.weight.copy_(new)
        for _ in range(3):
            conv(x)
            new.normal_()
            graph.replay()
            expected = nn.functional.conv2d(x.cpu(), new.cpu(), conv.bias.cpu(), padding=1)
            torch.testing.assert_close(conv(x).cpu(), expected, rtol=0, atol=0.01)  # old filters: off by 10 and more


def test_nobody_gets_the_memory_of_a_graph():
    x = torch.ones(1 << 16, device="wave")
    graph = torch.wave.Graph()
    with torch.wave.graph(graph):
        between = x * 2
        y = between + 1
    graph.replay()
    # Freed by the user: what the graph computes in between, its result, and what it reads.
    del between, y, x
    gc.collect()
    others = [torch.full((1 << 16,), 7.0, device="wave") for _ in range(8)]
    graph.replay()
    torch.wave.empty_cache()
    graph.replay()
    assert all((other == 7).all().item() for other in others)


def test_memory_comes_back():
    torch.wave.empty_cache()
    torch.wave.synchronize()
    before = torch.wave.memory_allocated()
    x = torch.randn(1 << 18, device="wave")
    for _ in range(3):
        graph = torch.wave.Graph()
        with torch.wave.graph(graph):
            y = (x + 1) * 2
        graph.replay()
        torch.wave.synchronize()
        assert torch.wave.memory_allocated() > before + x.nbytes
        graph.reset()
        # The result is a tensor as others now.
        assert torch.equal(y.cpu(), ((x + 1) * 2).cpu())
        del y
    del x, graph
    gc.collect()
    torch.wave.empty_cache()
    assert torch.wave.memory_allocated() == before


def test_a_graph_that_reads_another_graphs_memory_holds_it():
    x = torch.randn(1 << 12, device="wave")
    first, second = torch.wave.Graph(), torch.wave.Graph()
    with torch.wave.graph(first):
        y = x * 3
    first.replay()
    with torch.wave.graph(second):
        z = y + 1
    del y
    first.reset()
    torch.wave.empty_cache()
    others = [torch.zeros(1 << 19, device="wave") for _ in range(4)]
    second.replay()
    assert torch.equal(z.cpu(), (x * 3 + 1).cpu())
    assert not any(other.any().item() for other in others)


@pytest.mark.parametrize(
    "what",
    [
        lambda x: x.cpu(),
        lambda x: x.sum().item(),
        lambda x: x.copy_(torch.zeros(40)),
        lambda x: torch.wave.synchronize(),
        lambda x: torch.wave.empty_cache(),
        lambda x: torch.wave.Graph().capture_begin(),
        lambda x: torch.rand(3, device="wave", generator=torch.Generator()),
        lambda x: torch.linalg.svd(x.view(5, 8)),
    ],
)
def test_what_needs_work_to_run_is_refused(what):
    x = torch.ones(40, device="wave")
    graph = torch.wave.Graph()
    with pytest.raises(RuntimeError, match="captur"), torch.wave.graph(graph):
        x.add_(1)
        what(x)
    assert not torch.wave.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="not captured"):
        graph.replay()
    # Nothing ran, and the device goes on.
    assert x.cpu().eq(1).all()


def test_random_operators_draw_anew_as_eager_ones_do(fresh_seed):
    model = nn.Sequential(nn.Linear(6, 40), nn.Dropout(0.3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(40, 3)).to("wave")
    x = torch.randn(7, 6, device="wave")

    def step():
        model.zero_grad(set_to_none=True)
        noisy = model(x + torch.randn_like(x)) * torch.rand(3, device="wave")
        noisy.sum().backward()
        return [noisy.detach(), torch.randperm(9, device="wave"), torch.bernoulli(torch.full((5,), 0.5, device="wave"))]

    step()
    graph = torch.wave.Graph()
    with torch.wave.graph(graph):
        results = step()
    # zero_grad in an eager step takes the graph's gradients away.
    grads = [p.grad for p in model.parameters()]
    torch.manual_seed(fresh_seed)
    found = []
    for _ in range(3):
        graph.replay()
        found.append([t.cpu() for t in results] + [g.cpu() for g in grads])
    after = torch.wave.get_rng_state()
    torch.manual_seed(fresh_seed)
    for one in found:
        expected = [t.cpu() for t in step()] + [p.grad.cpu() for p in model.parameters()]
        assert all(torch.equal(a, b) for a, b in zip(one, expected, strict=True))
    assert torch.equal(torch.wave.get_rng_state(), after)
    assert not torch.equal(found[0][0], found[1][0])


def test_numbers_of_the_cpu_are_part_of_the_graph():
    x = torch.zeros(7, dtype=torch.float16, device="wave")
    graph = torch.wave.Graph()
    with torch.wave.graph(graph):
        x.fill_(2.5)
        y = x + torch.tensor(1.5).to("wave")
    x.zero_()
    graph.replay()
    assert x.tolist() == [2.5] * 7 and y.tolist() == [4.0] * 7


def test_steps_that_a_replay_would_not_repeat_are_refused():
    model = network()
    images, labels = (t.to("wave") for t in batch(3))
    adam = torch.optim.Adam(model.parameters())
    step(model, adam, images, labels)
    with pytest.raises(RuntimeError, match="capturable"), torch.wave.graph(torch.wave.Graph()):
        step(model, adam, images, labels)
    momentum = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with pytest.raises(RuntimeError, match="before the capture"), torch.wave.graph(torch.wave.Graph()):
        step(model, momentum, images, labels)


def test_autocast_that_keeps_casts_is_refused():
    with torch.autocast("wave"), pytest.raises(RuntimeError, match="cache_enabled"):
        torch.wave.Graph().capture_begin()
    model, x = network().eval(), torch.rand(2, 3, 16, 16, device="wave")
    graph = torch.wave.Graph()
    with torch.no_grad(), torch.autocast("wave", cache_enabled=False):
        with torch.wave.graph(graph):
            y = model(x)
        graph.replay()
        assert torch.equal(y.cpu(), model(x).cpu())


def test_an_index_out_of_range_is_told_after_a_replay():
    table, index = torch.randn(10, 4, device="wave"), torch.zeros(3, dtype=torch.int64, device="wave")
    graph = torch.wave.Graph()
    with torch.wave.graph(graph):
        table[index]
    graph.replay()
    torch.wave.synchronize()
    index.fill_(10)
    graph.replay()
    with pytest.raises(IndexError):
        torch.wave.synchronize()


def test_misuse_is_told():
    graph = torch.wave.Graph()
    with pytest.raises(RuntimeError, match="not captured"):
        graph.replay()
    with pytest.raises(RuntimeError, match="no graph"):
        graph.capture_end()
    with torch.wave.graph(graph):
        pass
    graph.replay()
    with pytest.raises(RuntimeError, match="captured before"):
        graph.capture_begin()
    graph.reset()
    graph.reset()


def test_a_capture_that_nobody_ends_goes_with_its_graph():
    x = torch.zeros(4, device="wave")
    graph = torch.wave.Graph()
    graph.capture_begin()
    x.add_(1)
    del graph
    gc.collect()
    assert not torch.wave.is_current_stream_capturing()
    assert x.tolist() == [0.0] * 4


def test_many_replays_and_a_profile():
    x = torch.zeros(64, device="wave")
    graph = torch.wave.Graph()
    with torch.wave.graph(graph):
        for _ in range(600):  # more than one submit holds
            x.add_(1)
    for _ in range(5):
        graph.replay()
    with torch.wave.profile():
        graph.replay()
        with pytest.raises(RuntimeError, match="profil"):
            torch.wave.Graph().capture_begin()
    assert x.eq(3600).all().item()


def test_a_device_given_up_takes_its_graphs_along(run_python):
    said = run_python("""
        x = torch.ones(8, device="wave")
        graph = torch.wave.Graph()
        with torch.wave.graph(graph):
            x.add_(1)
        torch.wave.reopen()
        try:
            graph.replay()
        except RuntimeError as error:
            print(error)
        y = torch.ones(8, device="wave") + 1
        print(y.sum().item())
    """)
    assert "is gone" in said and "16.0" in said, said


def test_graphed_callables_train_as_eager():
    graphed = network()
    eager = copy.deepcopy(graphed)
    sample = torch.rand(4, 3, 16, 16, device="wave")
    states = copy.deepcopy(graphed.state_dict())
    graphed = torch.wave.make_graphed_callables(graphed, (sample,))
    graphed.load_state_dict(states)  # trials moved the means
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (graphed, eager)]
    for seed in range(4):
        images, labels = (t.to("wave") for t in batch(torch.randint(1 << 30, ()).item() + seed))
        losses = [step(m, o, images, labels) for m, o in zip((graphed, eager), optimizers)]
        assert torch.equal(losses[0].cpu(), losses[1].cpu())
    for found, expected in zip(graphed.state_dict().values(), eager.state_dict().values()):
        assert torch.equal(found.cpu(), expected.cpu())
    x = torch.rand(2, 3, 16, 16, device="wave")
    assert torch.equal(graphed.eval()(x).cpu(), eager.eval()(x).cpu()), "another size in the other mode"
    with pytest.raises(ValueError, match="made for"):
        graphed.train()(x)


def test_graphed_functions_pass_gradients_to_inputs():
    def call(a, b):
        return (a * b).sum(1), a.detach() + 1

    a, b = (torch.randn(5, 6, device="wave", requires_grad=True) for _ in range(2))
    replayed = torch.wave.make_graphed_callables(call, (a.detach().clone().requires_grad_(), b.detach().clone().requires_grad_()))
    for _ in range(2):
        a, b = (torch.randn(5, 6, device="wave", requires_grad=True) for _ in range(2))
        products, plus = replayed(a, b)
        assert not plus.requires_grad
        found = torch.autograd.grad(products.square().sum(), (a, b))
        expected = torch.autograd.grad(call(a, b)[0].square().sum(), (a, b))
        for one, other in zip(found, expected):
            torch.testing.assert_close(one.cpu(), other.cpu())
    first, second = replayed(a, b), replayed(b, a)
    second[0].sum().backward()
    with pytest.raises(RuntimeError, match="overwritten"):
        first[0].sum().backward()
