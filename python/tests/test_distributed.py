"""Two processes with half a batch each train as one process with the whole."""

import os
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 3


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


def worker(rank, port, seed, folder):
    import wave32  # noqa: F401

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("wave", rank=rank, world_size=2)
    images, labels = data(seed)
    half = slice(4 * rank, 4 * rank + 4)
    model = DistributedDataParallel(network().to("wave"))
    steps(model, images[half].to("wave"), labels[half].to("wave"))
    gathered = [torch.zeros(2, device="wave") for _ in range(2)]
    dist.all_gather(gathered, torch.tensor([rank, 7.0], device="wave"))
    assert [t.tolist() for t in gathered] == [[0.0, 7.0], [1.0, 7.0]]
    if rank == 0:
        torch.save([p.detach().cpu() for p in model.parameters()], os.path.join(folder, "weights.pt"))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_available(), reason="this PyTorch has no torch.distributed")
def test_two_processes_train_as_one(tmp_path):
    seed = int.from_bytes(os.urandom(3), "big")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(worker, args=(port, seed, str(tmp_path)), nprocs=2)
    single = network()
    steps(single, *data(seed))
    for found, expected in zip(torch.load(tmp_path / "weights.pt"), single.parameters()):
        torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-5, msg=f"seed {seed}")
