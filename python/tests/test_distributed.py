"""Several processes with a part of the batch each train as one process with the whole; collectives say what they should;
a rank that dies, hangs or goes another way ends the others soon."""

import os
import signal
import socket
import sys
import threading
import time
import types
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from wave32 import _distributed

STEPS = 3

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this PyTorch has no torch.distributed")


def fresh_seed():
    return int.from_bytes(os.urandom(3), "big")


def spawn(work, ranks, *args):
    """Runs `work(rank, port, ...)` in that many processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, args=(port, *args), nprocs=ranks)


def join(rank, ranks, port, timeout=60):
    import wave32  # noqa: F401

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("wave", rank=rank, world_size=ranks, timeout=timedelta(seconds=timeout))


def is_shared():
    """Whether the default group's tensors went through shared memory."""
    return dist.group.WORLD._line.peers is not None


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))


def data(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(8, 3, 6, 6, generator=generator), torch.randint(5, (8,), generator=generator)


def steps(model, images, labels):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


def train(rank, port, seed, folder):
    join(rank, 2, port)
    images, labels = data(seed)
    half = slice(4 * rank, 4 * rank + 4)
    # Small buckets: several are on their way at once.
    model = DistributedDataParallel(network().to("wave"), bucket_cap_mb=0.002)
    steps(model, images[half].to("wave"), labels[half].to("wave"))
    assert is_shared()
    torch.save([p.detach().cpu() for p in model.parameters()], os.path.join(folder, f"weights{rank}.pt"))
    dist.barrier()
    dist.destroy_process_group()


def test_two_processes_train_as_one(tmp_path):
    seed = fresh_seed()
    spawn(train, 2, seed, str(tmp_path))
    single = network()
    steps(single, *data(seed))
    both = [torch.load(tmp_path / f"weights{rank}.pt") for rank in range(2)]
    for found, other, expected in zip(*both, single.parameters()):
        assert torch.equal(found, other), "both ranks have the same bits"
        torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-5, msg=f"seed {seed}")


OPERATIONS = {
    dist.ReduceOp.SUM: lambda stack: stack.sum(0),
    dist.ReduceOp.AVG: lambda stack: stack.sum(0) / len(stack),
    dist.ReduceOp.PRODUCT: lambda stack: stack.prod(0),
    dist.ReduceOp.MIN: lambda stack: stack.amin(0),
    dist.ReduceOp.MAX: lambda stack: stack.amax(0),
}


def close(found, expected, what):
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-5}.get(found.dtype, 0)
    assert found.device.type == "wave", what
    expected = expected.to(found.dtype)
    torch.testing.assert_close(found.cpu(), expected, rtol=tolerance, atol=tolerance, msg=lambda m: f"{what}: {m}")


def collectives(rank, port, ranks, seed, shared):
    os.environ["WAVE32_SHARED_MEMORY"] = "1" if shared else "0"
    join(rank, ranks, port)

    def inputs(number, shape, dtype):
        """One tensor for each rank: every rank knows all."""
        generator = torch.Generator().manual_seed(seed + number)
        draw = torch.randint(-4, 5, (ranks, *shape), generator=generator).to(dtype)
        return draw + torch.rand(draw.shape, generator=generator).to(dtype) if dtype.is_floating_point else draw

    # Longer than a piece of the ring (4 MiB) and than it all; an odd length; nothing; and not in a row.
    shapes = [(7,), (0,), (33, 5), (3, 1 << 20)] if shared else [(7,), (33, 5)]
    types = [torch.float32, torch.float16, torch.int64] + ([torch.bfloat16] if shared else [])
    number = 0
    for dtype in types:
        for shape in shapes if dtype == torch.float32 else shapes[:3]:
            number += 1
            every = inputs(number, shape, dtype)
            what = f"seed {seed}, {dtype}, {shape}"
            for operation, expected in OPERATIONS.items():
                if operation == dist.ReduceOp.AVG and not dtype.is_floating_point:
                    continue
                tensor = every[rank].to("wave")
                if len(shape) > 1 and shape[0] == 33:
                    tensor = tensor.t().contiguous().t()
                work = dist.all_reduce(tensor, operation, async_op=True)
                # Other work goes on, and its memory is not the group's.
                torch.full((1 << 16,), 7.0, device="wave").add_(1)
                work.wait()
                wide = torch.float64 if dtype.is_floating_point else dtype
                close(tensor, expected(every.to(wide)), f"{what}, {operation}")
            gathered = [torch.full(shape, 99, dtype=dtype, device="wave") for _ in range(ranks)]
            dist.all_gather(gathered, every[rank].to("wave"))
            for found, expected in zip(gathered, every):
                close(found, expected, f"{what}, all_gather")
            whole = torch.full((ranks * shape[0], *shape[1:]), 99, dtype=dtype, device="wave")
            dist.all_gather_into_tensor(whole, every[rank].to("wave"))
            close(whole, every.reshape(whole.shape), f"{what}, all_gather_into_tensor")
            for root in range(ranks):
                tensor = every[rank].to("wave")
                dist.broadcast(tensor, root)
                close(tensor, every[root], f"{what}, broadcast from {root}")
            parts = torch.stack([inputs(1000 * number + r, shape, dtype) for r in range(ranks)])
            found = torch.full(shape, 99, dtype=dtype, device="wave")
            dist.reduce_scatter(found, [part.to("wave") for part in parts[rank]])
            close(found, parts[:, rank].to(torch.float64).sum(0), f"{what}, reduce_scatter")
            found.fill_(99)
            whole = parts[rank].reshape(ranks * shape[0], *shape[1:]).to("wave")
            dist.reduce_scatter_tensor(found, whole)
            close(found, parts[:, rank].to(torch.float64).sum(0), f"{what}, reduce_scatter_tensor")
    # The average of parts, and what has another length on every rank, nothing on one.
    parts = torch.stack([inputs(5000 + r, (6,), torch.float32) for r in range(ranks)])
    found = torch.full((6,), 99.0, device="wave")
    dist.reduce_scatter(found, [part.to("wave") for part in parts[rank]][:1] * ranks, dist.ReduceOp.AVG)
    close(found, parts[:, 0].to(torch.float64).mean(0), f"seed {seed}, averages of parts")
    if shared:
        uneven = [torch.full((3 * r,), 99.0, device="wave") for r in range(ranks)]
        dist.all_gather(uneven, torch.arange(3.0 * rank, device="wave"))
        assert [t.tolist() for t in uneven] == [torch.arange(3.0 * r).tolist() for r in range(ranks)]
        found = torch.full((3 * rank,), 99.0, device="wave")
        dist.reduce_scatter(found, [torch.full((3 * r,), float(r + rank), device="wave") for r in range(ranks)])
        assert found.tolist() == [float(sum(rank + r for r in range(ranks)))] * 3 * rank
    # Numbers of the CPU in the same group, in the order of the calls.
    number = torch.tensor([rank])
    dist.all_reduce(number)
    assert number.item() == sum(range(ranks))
    # Neighbours, both ways at once.
    right, left = (rank + 1) % ranks, (rank - 1) % ranks
    got = torch.zeros(5, device="wave")
    sent = dist.isend(torch.full((5,), float(rank), device="wave"), right)
    received = dist.irecv(got, left)
    sent.wait(), received.wait()
    assert got.tolist() == [left] * 5
    # A group of some ranks has memory of its own.
    some = dist.new_group([0, ranks - 1])
    if rank in (0, ranks - 1):
        tensor = torch.tensor([float(rank)], device="wave")
        dist.all_reduce(tensor, group=some)
        assert tensor.item() == ranks - 1
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(ranks)]
    assert is_shared() == shared
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("shared", [True, False])
def test_collectives(shared):
    spawn(collectives, 3, 3, fresh_seed(), shared)


class Slow:
    """Makes the interpreter's end last."""

    def __del__(self):
        time.sleep(2)


def leaves(rank, port, way):
    os.environ["WAVE32_SHARED_MEMORY"] = "0"
    join(rank, 2, port)
    tensor = torch.ones(2, device="wave")
    dist.all_reduce(tensor)
    # Of a module: it lives longest.
    sys.modules["slow"] = types.ModuleType("slow")
    sys.modules["slow"].value = Slow()
    if rank == 1:
        # Rank 0's interpreter is at its end when its operation is done.
        time.sleep(1)
    if way == "all_reduce":
        dist.all_reduce(tensor, async_op=True)
    else:
        (dist.irecv if rank == 0 else dist.send)(tensor, 1 - rank)


@pytest.mark.parametrize("way", ["all_reduce", "irecv"])
def test_a_program_may_end_while_an_operation_runs(way):
    spawn(leaves, 2, way)


def goes_wrong(rank, port, way, folder):
    join(rank, 2, port, timeout=4)
    tensor = torch.ones(3 << 20, device="wave")
    dist.all_reduce(tensor)
    if rank == 1 and way == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1 and way == "stops":
        os.kill(os.getpid(), signal.SIGSTOP)
    if rank == 1 and way == "stays away":
        time.sleep(60)
    start = time.monotonic()
    # If every rank has called the operation, the error is raised when the result is read.
    with pytest.raises(RuntimeError) as raised:
        other = torch.ones(7, device="wave") if way == "differs" and rank == 1 else tensor
        dist.all_reduce(other)
        other.sum().item()
    with open(os.path.join(folder, f"{rank}.txt"), "w") as file:
        file.write(f"{time.monotonic() - start:.2f} {raised.value}")
    # Later operations of the group fail at once. The device can still be used.
    start = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="earlier operation"):
        dist.all_reduce(tensor)
    assert time.monotonic() - start < 1
    assert torch.ones(5, device="wave").sum().item() == 5
    os._exit(0)


@pytest.mark.parametrize(
    "way, said, within",
    [
        ("dies", "has ended", 5),
        ("stops", "it hangs", 10),
        ("stays away", "it hangs", 10),
        ("differs", "different collectives", 10),
    ],
)
def test_a_rank_that_goes_wrong_ends_the_others_soon(tmp_path, way, said, within):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = mp.get_context("spawn")
    ranks = [context.Process(target=goes_wrong, args=(r, port, way, str(tmp_path))) for r in range(2)]
    try:
        for rank in ranks:
            rank.start()
        ranks[0].join(120)
        assert ranks[0].exitcode == 0
        took, text = (tmp_path / "0.txt").read_text().split(" ", 1)
        assert said in text and "rank 1" in text, text
        assert float(took) < within, text
        if way == "differs":
            ranks[1].join(120)
            assert ranks[1].exitcode == 0, "the other is told as well"
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()


class FullQueue:
    """Peers whose device takes a launch only when all that the device was told to wait for was received, or the group was given
    up."""

    def __init__(self, fails_at):
        self.fails_at, self.were_launched, self.received, self.ordered = fails_at, None, 0, 0
        self.changed = threading.Condition()

    def _set(self, name, value):
        with self.changed:
            setattr(self, name, value)
            self.changed.notify_all()

    def _wait_for(self, predicate, why):
        with self.changed:
            assert self.changed.wait_for(predicate, 10), why

    def order(self, operation):
        self._set("ordered", operation)

    def launch(self):
        is_free = lambda: self.received >= self.ordered or self.were_launched is not None  # noqa: E731
        self._wait_for(is_free, "the thread that receives waits for this one")
        # It has come to its own operation's result by now.
        time.sleep(0.1)

    def receive(self, operation, messages, seconds):
        # The first one, and the one that fails, when their results are about to be launched.
        if operation in (1, self.fails_at):
            self._wait_for(lambda: self.ordered >= operation, "nobody launches the result")
        if operation == self.fails_at:
            raise RuntimeError("different collectives")
        self._set("received", operation)

    def give_up(self, operation, were_launched, why):
        self._set("were_launched", were_launched)

    def reach(self, operation):
        pass

    def all_reach(self, operation, seconds):
        pass

    def send(self, operation, regions, seconds):
        pass


# The last operations of the batches whose results are launched together; which operation fails.
@pytest.mark.parametrize("batches, fails_at", [([2], 1), ([2], 2), ([2], None), ([1, 3], None), ([1, 3], 3)])
def test_a_launch_that_waits_for_other_ranks_does_not_hold_up_who_receives(batches, fails_at):
    line = _distributed._Line(4)
    line.peers = FullQueue(fails_at)
    operations = [
        _distributed._Operation([], line.peers.launch, send=[None], receive=[None]) for _ in range(batches[-1])
    ]
    for operation in operations:
        line.add(operation)
    for last in batches:
        line.settle(operations[last - 1])
    for operation in operations:
        operation.future.wait()
    # The group tells the device that launched results are wrong.
    assert line.peers.were_launched is (True if fails_at else None)
    if fails_at:
        with pytest.raises(dist.DistBackendError, match="earlier operation.*different collectives"):
            line.add(_distributed._Operation([])).future.wait()
    line.end()


def sharded(rank, port, seed, folder):
    from torch.distributed.fsdp import fully_shard

    join(rank, 2, port)
    model = network().to("wave")
    mesh = dist.init_device_mesh("wave", (2,))
    for layer in (model[0], model[3]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    images, labels = data(seed)
    half = slice(4 * rank, 4 * rank + 4)
    steps(model, images[half].to("wave"), labels[half].to("wave"))
    assert is_shared()
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    state = get_model_state_dict(model)
    checkpoint.save(state, checkpoint_id=os.path.join(folder, "checkpoint"))
    whole = [p.full_tensor().detach().cpu() for p in model.parameters()]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    state = get_model_state_dict(model)
    checkpoint.load(state, checkpoint_id=os.path.join(folder, "checkpoint"))
    set_model_state_dict(model, state)
    for found, expected in zip(model.parameters(), whole):
        assert torch.equal(found.full_tensor().detach().cpu(), expected)
    if rank == 0:
        torch.save(whole, os.path.join(folder, "weights.pt"))
    dist.barrier()
    dist.destroy_process_group()


def test_sharded_parameters_train_as_whole_ones(tmp_path):
    seed = fresh_seed()
    spawn(sharded, 2, seed, str(tmp_path))
    single = network()
    steps(single, *data(seed))
    for found, expected in zip(torch.load(tmp_path / "weights.pt"), single.parameters()):
        torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-5, msg=f"seed {seed}")
