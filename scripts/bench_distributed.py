#!/usr/bin/env python3
"""Training on several cards of one host with DistributedDataParallel: the wave device beside PyTorch's CUDA device with NCCL.

One process a card, each with the same batch; forward, loss, backward and SGD with momentum in f32 (TF32 off). The share of
perfect scaling is the time of a step on one card alone over that on all. Each figure is the median of the runs, each run the
median of its steps. All ranks' weights must have the same bits at the end. Prints Markdown; `--json` keeps what was measured,
a line a run.
"""

import argparse
import json
import os
import socket
import statistics
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from bench_torch_cuda import trainer
from bench_vs_cudnn import about, heading
from measuring import set_up_cuda, synchronize


def train(rank, options, device, ranks, port, folder):
    if device == "wave":
        os.environ.setdefault("WAVE32_VISIBLE_DEVICES", str(rank))
        import wave32  # noqa: F401
    elif device == "cuda":
        torch.cuda.set_device(rank)
        set_up_cuda()
    import torchvision

    torch.manual_seed(0)
    model = getattr(torchvision.models, options.network)().to(device)
    image = torch.rand(options.batch, 3, options.size, options.size).to(device)
    label = torch.randint(1000, (options.batch,)).to(device)
    if ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("nccl" if device == "cuda" else "wave", rank=rank, world_size=ranks)
        model = torch.nn.parallel.DistributedDataParallel(model)
    step = trainer(model, image, label)
    for _ in range(5):
        step()
    runs = []
    for _ in range(options.runs):
        times = []
        for _ in range(options.steps):
            synchronize(device)
            start = time.perf_counter()
            for _ in range(4):
                step()
            synchronize(device)
            times.append((time.perf_counter() - start) / 4)
        runs.append(statistics.median(times))
    bits = sum(p.detach().cpu().view(torch.int32).sum(dtype=torch.int64).item() for p in model.parameters())
    told = {"seconds": runs, "bits": bits, "torch": torch.__version__}
    if device == "wave":
        told |= {"card": torch.wave.get_device_name(), "fallbacks": torch.wave.fallbacks()}
        told["shared"] = ranks == 1 or dist.group.WORLD._line.peers is not None
    Path(folder, f"{rank}.json").write_text(json.dumps(told))
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


def measured(options, device, ranks):
    with tempfile.TemporaryDirectory() as folder:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        mp.spawn(train, (options, device, ranks, port, folder), nprocs=ranks)
        told = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(ranks)]
    if len({rank["bits"] for rank in told}) > 1:
        raise SystemExit(f"{device}: the ranks' weights differ")
    # All ranks wait for each other: the slowest is the step.
    seconds = statistics.median(max(run) for run in zip(*(rank["seconds"] for rank in told)))
    return told[0] | {"device": device, "ranks": ranks, "seconds": [rank["seconds"] for rank in told], "ms": seconds * 1e3}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="resnet50", help="of torchvision")
    parser.add_argument("--batch", type=int, default=32, help="of each card")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--ranks", type=int, default=2, help="cards")
    parser.add_argument("--steps", type=int, default=10, help="groups of four steps a run")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--devices", nargs="+", default=["wave", "cuda"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    run, rows = heading("scripts/bench_distributed.py", "{card}"), []
    for device in options.devices:
        alone, all_ranks = (measured(options, device, ranks) for ranks in (1, options.ranks))
        rows += [alone, all_ranks]
        share = alone["ms"] / all_ranks["ms"]
        print(f"{device}: {alone['ms']:.1f} ms alone, {all_ranks['ms']:.1f} on {options.ranks}: {share:.2f}", flush=True)
    card = next((row["card"] for row in rows if "card" in row), "-")
    print("\n".join(run).format(card=card))
    print(f"\n| {options.network}, batch {options.batch} a card | alone, ms | {options.ranks} cards, ms | share of perfect scaling |\n|---|---:|---:|---:|")
    for alone, both in zip(rows[::2], rows[1::2]):
        print(f"| {alone['device']} | {alone['ms']:.1f} | {both['ms']:.1f} | {alone['ms'] / both['ms']:.2f} |")
    if options.json:
        head = json.dumps(about("scripts/bench_distributed.py") | {"card": card}, indent=1)
        options.json.write_text("\n".join([head, *map(json.dumps, rows)]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
