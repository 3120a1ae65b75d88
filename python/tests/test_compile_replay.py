"""`torch.compile` on the device: calls that are replayed as graphs."""

import copy
import gc
import threading
import warnings

import pytest
import torch
from compiling import plain
from wave32 import _replay

nn = torch.nn
pytestmark = pytest.mark.usefixtures("fresh_compiler", "decided_early")


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
    return plain(model, mode="reduce-overhead")


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
