"""Two processes with torchrun train one model, as PyTorch's tutorials write it: nccl and the local rank as the device."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group(backend="nccl", device_id=torch.device("cuda", rank))
assert torch.cuda.current_device() == rank and torch.cuda.device_count() == 2
torch.manual_seed(1)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)).cuda(rank)
model = DistributedDataParallel(model, device_ids=[rank], output_device=rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(100 + rank)
for _ in range(2):
    optimizer.zero_grad()
    x = torch.rand(4, 3, 6, 6, device=f"cuda:{rank}")
    nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 0, 1]).cuda()).backward()
    optimizer.step()
total = torch.ones(1, device="cuda") * (rank + 1)
dist.all_reduce(total)
weight = next(model.parameters()).detach().clone()
dist.broadcast(weight, 0)
assert torch.equal(weight, next(model.parameters())), "both have the same weights"
dist.barrier(device_ids=[rank])
dist.destroy_process_group()
# In one write: both ranks share the output.
os.write(1, f"rank {rank} sum {total.item():.0f}\n".encode())
