"""Filters are prepared (packed, transformed) once while they stay as they are, and again after any write, whoever writes."""

import copy
import gc
import threading

import pytest
import torch
import torch.nn.functional as F

PREPARES = ("pack_", "winograd_filter")


def kernels(work):
    with torch.wave.profile() as profiler:
        result = work()
        torch.wave.synchronize()
    return result, [launch[0] for launch in profiler.launches]


@pytest.fixture(autouse=True)
def nothing_kept():
    """What tests before kept, and how much may be kept since memory ran out in one of them, is not this one's matter."""
    gc.collect()
    torch.wave.empty_cache()


def prepares(names):
    return [name for name in names if name.startswith(PREPARES)]


@pytest.fixture
def layer():
    """An image and filters of which the device prepares the filters."""
    torch.manual_seed(torch.seed() % 2**31)
    x = torch.randn(2, 64, 14, 14, device="wave")
    w = torch.randn(64, 64, 3, 3, device="wave")
    _, names = kernels(lambda: F.conv2d(x, w, padding=1))
    assert prepares(names), names
    return x, w


def settle(x, w):
    """The convolution's result, the same each time; the filters are kept after that."""
    with torch.no_grad():
        # A copy is new to the device: what comes of it was prepared for it.
        right = F.conv2d(x, w.clone(), padding=1).cpu()
        for run in range(4):
            y, names = kernels(lambda: F.conv2d(x, w, padding=1))
            assert torch.equal(y.cpu(), right), f"run {run}"
        assert not prepares(names), names
    oracle = F.conv2d(x.detach().cpu().double(), w.detach().cpu().double(), padding=1)
    assert (right.double() - oracle).norm() <= 2e-5 * oracle.norm()


def sgd(**how):
    def write(w):
        p = torch.nn.Parameter(w)
        assert p.data_ptr() == w.data_ptr()
        p.grad = torch.randn_like(p)
        torch.optim.SGD([p], lr=0.1, momentum=0.9, **how).step()

    return write


def adam(**how):
    def write(w):
        p = torch.nn.Parameter(w)
        p.grad = torch.randn_like(p)
        torch.optim.AdamW([p], lr=0.1, **how).step()

    return write


def by_dlpack(w):
    torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(w)).mul_(-1)


def by_state_dict(w):
    layer = torch.nn.Conv2d(64, 64, 3, bias=False, device="wave")
    layer.weight.data = w
    layer.load_state_dict({"weight": torch.randn(64, 64, 3, 3)})


WRITES = {
    "add_": lambda w: w.add_(1),
    "data": lambda w: w.data.mul_(-2),
    "detach": lambda w: w.detach().neg_(),
    "copy_ from the host": lambda w: w.copy_(torch.randn(w.shape)),
    "copy_ on the device": lambda w: w.copy_(torch.randn_like(w)),
    "copy_ of another type": lambda w: w.copy_(torch.randn_like(w).half()),
    "a view": lambda w: w[3, 5].zero_(),
    "one element": lambda w: w[63, 63, 2].__setitem__(2, 100.0),
    "a flat view": lambda w: w.view(-1)[-1:].fill_(50.0),
    "fill_": lambda w: w.fill_(0.25),
    "zero_": lambda w: w.zero_(),
    "normal_": lambda w: w.normal_(),
    "out=": lambda w: torch.mul(w, 3, out=w),
    "an index": lambda w: w.index_fill_(0, torch.tensor([1, 7], device="wave"), 2.0),
    "masked_fill_": lambda w: w.masked_fill_(w > 0, 1.5),
    "index_put_": lambda w: w.__setitem__((torch.tensor([0, 2]), torch.tensor([3, 1])), 9.0),
    "foreach": lambda w: torch._foreach_mul_([w, torch.ones(3, device="wave")], 2.0),
    "sgd": sgd(foreach=False),
    "sgd, foreach": sgd(foreach=True),
    "sgd, fused": sgd(fused=True),
    "adamw": adam(foreach=False),
    "adamw, fused": adam(fused=True),
    "the storage": lambda w: w.untyped_storage().copy_(torch.randn_like(w).untyped_storage()),
    "a storage of its own": lambda w: w.untyped_storage().fill_(0),
    "dlpack": by_dlpack,
    "state_dict": by_state_dict,
    "init": lambda w: torch.nn.init.kaiming_normal_(w),
    "set_": lambda w: w.set_(torch.randn_like(w)),
}


def written(settle, x, w, how):
    """Settled, written to, and settled again."""
    settle(x, w)
    before = w.cpu()
    with torch.no_grad():
        WRITES[how](w)
    assert not torch.equal(before, w.cpu()), "it wrote nothing"
    settle(x, w)


def at_the_same_place(settle, x, w):
    """Settled with other weights, each where the weights before were."""
    alive = [torch.randn_like(w) for _ in range(40)]
    places, size = [one.data_ptr() for one in alive], w.nbytes
    # Its neighbours stay in use, so its block is neither joined with another nor moved when it is free.
    middle = next(i for i in range(1, 39) if places[i - 1] + size == places[i] == places[i + 1] - size)
    w, alive[middle] = alive[middle], None
    for _ in range(3):
        settle(x, w)
        del w
        other = []
        while (w := torch.randn(64, 64, 3, 3, device="wave")).data_ptr() != places[middle]:
            other.append(w)
            assert len(other) < 100, "memory that is free is not taken again"
    settle(x, w)


@pytest.mark.parametrize("how", WRITES)
def test_any_write_prepares_them_again(layer, how):
    written(settle, *layer, how)


def test_other_memory_at_the_same_place(layer):
    at_the_same_place(settle, *layer)


def test_training_keeps_nothing_and_evaluation_gives_back(layer):
    x, _ = layer
    model = torch.nn.Sequential(*(torch.nn.Conv2d(64, 64, 3, padding=1, bias=False) for _ in range(3))).to("wave")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    def allocated():
        gc.collect()
        torch.wave.synchronize()
        return torch.wave.memory_allocated()

    step()
    first = allocated()
    for _ in range(3):
        step()
    assert allocated() == first, "training keeps filters that it changes"
    with torch.no_grad():
        for _ in range(3):
            model(x)
    assert allocated() > first, "evaluation keeps none"
    step()
    right = copy.deepcopy(model)
    with torch.no_grad():
        assert torch.equal(model(x), right(x))
    del right
    assert allocated() == first
    with torch.no_grad():
        for _ in range(3):
            model(x)
    torch.wave.empty_cache()
    assert allocated() == first, "empty_cache gives them back"


def test_threads(layer):
    x, _ = layer
    wrong = []

    def work(seed):
        host = torch.Generator().manual_seed(seed)
        w = torch.zeros(64, 64, 3, 3, device="wave")
        for _ in range(5):
            values = torch.randn(w.shape, generator=host)
            w.copy_(values)
            results = [F.conv2d(x, w, padding=1).cpu() for _ in range(3)]
            fresh = F.conv2d(x, values.to("wave"), padding=1).cpu()
            if not all(torch.equal(result, fresh) for result in results):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
