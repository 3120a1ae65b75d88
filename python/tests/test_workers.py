"""Threads, DataLoader workers, and tensors sent between processes."""

import threading

import pytest
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset
from wave32 import _hooks


class Squares(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.full((3,), float(index)), index * index


class OnDevice(Dataset):
    """Holds a tensor of the device, and makes its samples there."""

    def __init__(self):
        self.table = torch.arange(16.0, device="wave")

    def __len__(self):
        return 16

    def __getitem__(self, index):
        return self.table[index] * 2


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")
@pytest.mark.parametrize(("method", "pinned"), [("fork", False), ("fork", True), ("spawn", True)])
def test_data_loader_workers(method, pinned):
    torch.ones(1, device="wave")  # The device is open when the workers start.
    loader = DataLoader(
        Squares(), 4, num_workers=4, multiprocessing_context=method, pin_memory=pinned, persistent_workers=True,
        timeout=100,
    )
    for _ in range(2):
        seen = []
        for x, y in loader:
            seen += (x.to("wave", non_blocking=True).sum(1).cpu() / 3).tolist()
            assert torch.equal(x[:, 0].long() ** 2, y)
        assert seen == list(range(16))


def test_workers_may_use_the_device_where_they_are_spawned():
    loader = DataLoader(OnDevice(), 4, num_workers=1, multiprocessing_context="spawn", timeout=100)
    batches = list(loader)
    assert all(batch.device.type == "wave" for batch in batches)
    assert torch.cat(batches).tolist() == [2.0 * index for index in range(16)]


def test_workers_that_are_forked_are_told():
    dataset = OnDevice()
    with pytest.raises(RuntimeError, match="Cannot re-initialize wave in forked subprocess"):
        list(DataLoader(dataset, 4, num_workers=1, multiprocessing_context="fork", timeout=100))
    assert (dataset.table + 1).sum().item() == 136, "the parent goes on"


def echo(requests, answers, taken):
    import wave32  # noqa: F401

    for _ in range(2):
        value = requests.get(timeout=60)
        answers.put([value[0] * 2, value[1], value[2].requires_grad, str(value[2].device)])
    # What lies in shared memory must be fetched while its owner lives.
    taken.wait(60)


def test_tensors_cross_processes_as_copies():
    context = mp.get_context("spawn")
    requests, answers, taken = context.Queue(), context.Queue(), context.Event()
    child = context.Process(target=echo, args=(requests, answers, taken), daemon=True)
    child.start()
    base = torch.randn(4, 6, device="wave")
    parameter = nn.Parameter(torch.ones(2, device="wave"))
    for x in [base[1:, ::2].t(), torch.empty(0, 3, dtype=torch.float16, device="wave")]:
        requests.put([x, base.cpu(), parameter])
        doubled, same, requires_grad, device = answers.get(timeout=100)
        assert doubled.device.type == "wave" and doubled.dtype == x.dtype
        assert torch.equal(doubled.cpu(), x.cpu() * 2) and torch.equal(same, base.cpu())
        assert requires_grad and device == "wave:0"
    taken.set()
    child.join(60)
    assert child.exitcode == 0


def test_pinning_never_fails():
    x = torch.randn(5)
    assert torch.equal(x.pin_memory().to("wave", non_blocking=True).cpu(), x)
    assert x.pin_memory().is_pinned() == ("pinned" in _hooks.SETTLED or torch.cuda.is_available())


def train(seed):
    """A model of its own for each thread."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(2, 3 + seed, 3), nn.BatchNorm2d(3 + seed), nn.ReLU(), nn.Flatten())
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    x = torch.randn(4, 2, 8, 8, generator=generator)

    def weights(device):
        model.to(device)
        optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
        for _ in range(4):
            optimizer.zero_grad()
            model(x.to(device)).square().mean().backward()
            optimizer.step()
        return [p.detach().cpu().clone() for p in model.parameters()]

    state = {name: value.clone() for name, value in model.state_dict().items()}
    expected = weights("cpu")
    model.load_state_dict(state)
    torch.testing.assert_close(weights("wave"), expected, rtol=1e-4, atol=1e-5)


def transfer(seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(10):
        x = torch.randn(100_000, generator=generator)
        assert torch.equal(x.to("wave").flip(0).cpu(), x.flip(0))


def read_shared(shared, expected):
    for _ in range(20):
        torch.testing.assert_close((shared @ shared.t()).relu().sum(1).cpu(), expected, rtol=1e-4, atol=1e-4)


def memory(_):
    for _ in range(20):
        blocks = [torch.full((n * 1000,), float(n), device="wave") for n in range(1, 6)]
        torch.wave.memory_allocated()
        assert [block.mean().item() for block in blocks] == [1, 2, 3, 4, 5]
        torch.wave.empty_cache()


def errors(_):
    x = torch.ones(4, device="wave")
    for _ in range(20):
        with pytest.raises(RuntimeError):
            x.view(3)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1 << 50, device="wave")


def test_eight_threads_at_once():
    shared = torch.randn(20, 30)
    expected = (shared @ shared.t()).relu().sum(1)
    on_device = shared.to("wave")
    failures = []

    def run(work, argument):
        try:
            barrier.wait(60)
            work(argument)
        except Exception as error:
            failures.append((work.__name__, error))

    def reads(_):
        read_shared(on_device, expected)

    jobs = [(train, 0), (train, 1), (train, 2), (transfer, 3), (reads, 4), (reads, 5), (memory, 6), (errors, 7)]
    barrier = threading.Barrier(len(jobs))
    threads = [threading.Thread(target=run, args=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread hangs"
    assert not failures, failures


def test_one_tensor_takes_gradients_from_eight_threads():
    x = torch.randn(9, 9)
    w = x.to("wave").requires_grad_()
    lock = threading.Lock()

    def work():
        for _ in range(5):
            (gradient,) = torch.autograd.grad((w @ w.t()).relu().sum(), w)
            with lock:
                sums.append(gradient.cpu())

    sums = []
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    v = x.clone().requires_grad_()
    (v @ v.t()).relu().sum().backward()
    assert len(sums) == 40
    for gradient in sums:
        torch.testing.assert_close(gradient, v.grad)
