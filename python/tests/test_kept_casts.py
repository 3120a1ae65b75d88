"""Under autocast the casts of weights are cached while the weights do not change, and made again after any write."""

import gc

import pytest
import torch
import torch.nn.functional as F
from test_kept_filters import WRITES, at_the_same_place, kernels, nothing_kept, written  # noqa: F401


def casts(names):
    return [name for name in names if name.startswith("cast_to_")]


@pytest.fixture(params=[torch.float16, torch.bfloat16], ids=str)
def layer(request):
    """Operands that need no cast themselves, and weights in f32 that do."""
    torch.manual_seed(torch.seed() % 2**31)
    return torch.randn(8, 64, device="wave", dtype=request.param), torch.randn(64, 64, 3, 3, device="wave")


def settle(x, w):
    """The layer's result, the same each time; the casts are kept after that."""
    conv = torch.randn(2, 64, 9, 9, device="wave", dtype=x.dtype)

    def forward(w):
        with torch.autocast("wave", x.dtype):
            return F.conv2d(conv, w, w[:, 0, 0, 0].contiguous()), F.linear(x, w.flatten(1)[:, :64].contiguous())

    with torch.no_grad():
        right = forward(w.clone())
        for run in range(4):
            results, names = kernels(lambda: forward(w))
            assert all(torch.equal(a, b) for a, b in zip(results, right, strict=True)), f"run {run}"
        # Of the parts, which are new each time: none is kept.
        assert len(casts(names)) == 2, names
    with torch.no_grad():
        oracle = F.conv2d(conv.cpu().double(), w.cpu().to(x.dtype).double(), w[:, 0, 0, 0].cpu().to(x.dtype).double())
    bound = 2e-3 if x.dtype == torch.float16 else 1e-2
    assert (right[0].cpu().double() - oracle).norm() <= bound * oracle.norm()


@pytest.mark.parametrize("how", WRITES)
def test_any_write_casts_them_again(layer, how):
    written(settle, *layer, how)


def test_other_memory_at_the_same_place(layer):
    at_the_same_place(settle, *layer)


def model_of(layers=3):
    return torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(layers))).to("wave")


def evaluate(model, x):
    with torch.no_grad(), torch.autocast("wave", torch.float16):
        return model(x)


def allocated():
    gc.collect()
    torch.wave.synchronize()
    return torch.wave.memory_allocated()


def test_strides_and_dense_views_of_other_shapes():
    x = torch.randn(4, 64, device="wave", dtype=torch.float16)
    w = torch.randn(64, 64, device="wave")
    for view in (w, w.t(), w.view(64, 64), w.t(), w):
        right = F.linear(x, view.half())
        for _ in range(3):
            with torch.autocast("wave", torch.float16):
                assert torch.equal(F.linear(x, view), right)
    images = w.view(16, 16, 4, 4).to(memory_format=torch.channels_last)
    y = torch.randn(1, 16, 8, 8, device="wave", dtype=torch.float16)
    for view in (images, w.view(16, 16, 4, 4), images):
        right = F.conv2d(y, view.half())
        for _ in range(3):
            with torch.autocast("wave", torch.float16):
                assert torch.equal(F.conv2d(y, view), right)


def test_memory_comes_back():
    x, before = torch.randn(4, 256, device="wave", dtype=torch.float16), allocated()
    model = model_of()
    with_model = allocated()
    for _ in range(3):
        evaluate(model, x)
    bytes_kept = allocated() - with_model
    assert bytes_kept >= 3 * 2 * 256 * 256, "nothing is kept"
    torch.wave.empty_cache()
    assert allocated() == with_model, "empty_cache gives them back"
    for _ in range(3):
        evaluate(model, x)
    del model
    assert allocated() <= before + (with_model - before) // 100, "they go with their weights"


def test_training_keeps_none():
    model, x = model_of(), torch.randn(4, 256, device="wave", dtype=torch.float16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step():
        optimizer.zero_grad()
        with torch.autocast("wave", torch.float16):
            loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()

    step()
    first = allocated()
    for _ in range(3):
        step()
    assert allocated() == first
    for _ in range(3):
        evaluate(model, x)
    assert allocated() > first
    step()
    assert allocated() == first, "casts of what has changed are kept"


def test_gradients_of_weights_whose_casts_are_kept():
    """Forward passes of one step share the cast; each has its own gradient."""
    model, x = model_of(1), torch.randn(4, 256, device="wave", dtype=torch.float16)
    oracle = torch.nn.Linear(256, 256)
    oracle.load_state_dict({name: value.cpu() for name, value in model[0].state_dict().items()})
    for _ in range(4):
        with torch.autocast("wave", torch.float16):
            model(x).sum().backward()
        oracle(x.cpu().float()).sum().backward()
    for mine, right in zip(model.parameters(), oracle.parameters(), strict=True):
        assert mine.grad.dtype == torch.float32
        assert (mine.grad.cpu() - right.grad).norm() <= 3e-3 * right.grad.norm()


def test_a_pass_is_not_disturbed_by_a_write_after_it():
    """What the forward pass has saved stays as it was, although the weight's cast is kept no longer."""
    w = torch.randn(64, 64, device="wave")
    x = torch.randn(4, 64, device="wave", requires_grad=True)
    right = torch.ones(4, 64) @ w.cpu().half().float()
    for _ in range(3):
        with torch.autocast("wave", torch.float16):
            y = F.linear(x, w)
    w.zero_()
    # What takes the room of blocks that are free.
    others = [torch.full((64, 64), 7.0, device="wave", dtype=torch.float16) for _ in range(8)]
    y.float().sum().backward()
    assert (x.grad.cpu() - right).norm() <= 2e-3 * right.norm()
    assert all((other == 7).all() for other in others)


def test_inference_mode_before_training():
    model, x = model_of(1), torch.randn(4, 256, device="wave", dtype=torch.float16)
    for _ in range(3):
        with torch.inference_mode(), torch.autocast("wave", torch.float16):
            model(x)
    model.requires_grad_(False)
    leaf = torch.randn(4, 256, device="wave", requires_grad=True)
    with torch.autocast("wave", torch.float16):
        model(leaf).float().sum().backward()
    assert leaf.grad.isfinite().all()


def test_graphs_cast_anew():
    """A graph's replay sees the weights as they are then."""
    model, x = model_of(1), torch.randn(4, 256, device="wave", dtype=torch.float16)
    for _ in range(3):
        evaluate(model, x)
    graph = torch.wave.Graph()
    with torch.wave.graph(graph):
        y = evaluate(model, x)
    with torch.no_grad():
        model[0].weight.normal_()
    graph.replay()
    assert torch.equal(y, evaluate(model, x))


def test_as_much_is_kept_after_an_allocation_that_no_room_could_be_made_for():
    x = torch.randn(4, 256, device="wave", dtype=torch.float16)
    for model in (model_of(1), model_of(6)):
        for _ in range(3):
            evaluate(model, x)
        assert not casts(kernels(lambda: evaluate(model, x))[1])
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(2**46, device="wave")


def test_without_room_all_is_cast_anew():
    model, x = model_of(), torch.randn(4, 256, device="wave", dtype=torch.float16)
    right = evaluate(model, x)

    def casts_of_last():
        for _ in range(3):
            assert torch.equal(evaluate(model, x), right)
        return casts(kernels(lambda: evaluate(model, x))[1])

    assert not casts_of_last()
    torch.wave.set_memory_cap(torch.wave.memory_reserved())
    try:
        held = []
        with pytest.raises(torch.OutOfMemoryError):
            while True:
                # Less than a cast takes: one that makes way has room for it, wherever it lies.
                held.append(torch.empty(2**13, device="wave"))
        del held
        assert casts_of_last(), "as much is kept as before memory ran out"
    finally:
        torch.wave.set_memory_cap(None)
        torch.wave.empty_cache()
    assert not casts_of_last(), "empty_cache does not start over"
