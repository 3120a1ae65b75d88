#!/usr/bin/env python3
"""Images a second of the wave device beside PyTorch's CUDA device (eager, TF32 off) on one GPU in one run.

Forward (eval, no gradients) and a training step (SGD with momentum) of torchvision models at full size. Also the
same of wave with the model of `wave32.fuse`, both devices' graphs ("replayed"; of wave32.fuse's model on wave), the
results of one forward and backward pass against CUDA's, the CPU time that an operation takes to launch, and the share
of a training step in which wave's GPU idles. Prints Markdown. Each device has a process of its own, one after the
other: torch cannot serve CUDA and an out-of-tree device in one process.
"""

import argparse
import copy
import functools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from bench_vs_cudnn import made
from measuring import replayed, set_up_cuda, synchronize, timed, without_dropout


def trainer(model, image, label):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(image), label).backward()
        optimizer.step()

    return step


def overhead(device):
    """Microseconds of CPU that a small operation takes to launch."""
    x, y = torch.rand(64, device=device), torch.rand(64, device=device)
    found = {}
    for name, call in (("relu", lambda: torch.relu(x)), ("mul", lambda: x * y), ("add", lambda: x + y)):
        best = 1e9
        for _ in range(5):
            synchronize(device)
            start = time.perf_counter()
            for _ in range(200):
                call()
            best = min(best, (time.perf_counter() - start) / 200)
        found[name] = best * 1e6
    return found


def busy(launches):
    """Seconds in which at least one launch ran."""
    total = end = 0.0
    for _, start, seconds in sorted(launches, key=lambda launch: launch[1]):
        total += max(0.0, start + seconds - max(start, end))
        end = max(end, start + seconds)
    return total


def measure(device, options):
    """Everything of one device: figures, and results to compare."""
    import torchvision.models as tv

    if device == "wave":
        import wave32
        import wave32._compile
    if device == "cuda":
        set_up_cuda()
        # Nothing of the default stream can be captured, and what autograd made there is of it.
        torch.cuda.set_stream(torch.cuda.Stream())
    found = {"name": getattr(torch, device).get_device_name() if device != "cpu" else "CPU"}
    results = {}
    for name in options.models:
        torch.manual_seed(0)
        base = getattr(tv, name)()
        without_dropout(base)
        image = torch.rand(options.batch, 3, options.size, options.size)
        label = torch.randint(1000, (options.batch,))
        model = copy.deepcopy(base).to(device)
        x, y = image.to(device), label.to(device)
        out = model.train()(x)
        F.cross_entropy(out, y).backward()
        results[name] = (out.detach().cpu(), [p.grad.detach().cpu() for p in model.parameters()])
        step = trainer(model, x, y)
        train = timed(device, step, options.seconds)
        figures = {"train": options.batch / train}
        if device == "wave":
            with torch.wave.profile() as profiler:
                step()
                synchronize(device)
            figures["idle"] = max(0.0, 1 - busy(profiler.launches) / train)
            figures["fallbacks"] = dict(torch.wave.fallbacks())
            if options.profile:
                print(profiler.table(rows=15), file=sys.stderr, flush=True)
            if options.compile:
                compiled = torch.compile(model, backend=wave32._compile.backend, mode="reduce-overhead")
                figures["train, compiled"] = options.batch / timed(device, trainer(compiled, x, y), options.seconds)
                del compiled
            step = trainer(wave32.fuse(model), x, y)
            figures["train, wave32.fuse"] = options.batch / timed(device, step, options.seconds)
        if options.graphs and device != "cpu":
            figures["train, replayed"] = options.batch / timed(device, replayed(device, step), options.seconds)
        del step
        model.zero_grad()
        model.eval()
        with torch.no_grad():
            run = functools.partial(model, x)
            if device == "wave":
                run = functools.partial(wave32.fuse(model), x)
                if options.compile:
                    compiled = torch.compile(model, backend=wave32._compile.backend, mode="reduce-overhead")
                    figures["forward, compiled"] = options.batch / timed(device, functools.partial(compiled, x), options.seconds)
                    del compiled
                figures["forward, wave32.fuse"] = options.batch / timed(device, run, options.seconds)
            if options.graphs and device != "cpu":
                run()
                figures["forward, replayed"] = options.batch / timed(device, replayed(device, run), options.seconds)
            del run
            figures["forward"] = options.batch / timed(device, functools.partial(model, x), options.seconds)
        found[name] = figures
        print(f"{device} {name}: {figures}", file=sys.stderr, flush=True)
        del model, x, y, out
    found["overhead"] = overhead(device)
    return found, results


def in_child(device, folder):
    """Runs `measure` in a process of its own."""
    command = [sys.executable, __file__, *sys.argv[1:], "--only", device, "--folder", str(folder)]
    subprocess.run(command, check=True, timeout=1200)
    return json.loads((folder / f"{device}.json").read_text()), torch.load(folder / f"{device}.pt")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["resnet50", "vgg16_bn", "mobilenet_v2"])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--seconds", type=float, default=2.0, help="of timing, each")
    parser.add_argument("--peer", default="cuda", help="the device to compare with: cuda, or cpu to try the script")
    parser.add_argument("--graphs", action="store_true", help="also replay graphs")
    parser.add_argument("--compile", action="store_true", help='also torch.compile(mode="reduce-overhead") on wave')
    parser.add_argument("--profile", action="store_true", help="also print wave's kernels by time")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        found, results = measure(options.only, options)
        torch.save(results, options.folder / f"{options.only}.pt")
        (options.folder / f"{options.only}.json").write_text(json.dumps(found))
        return
    with tempfile.TemporaryDirectory() as folder:
        wave, ours = in_child("wave", Path(folder))
        peer, theirs = in_child(options.peer, Path(folder))
    title = options.peer.upper()
    print(
        f"Batch {options.batch}, {options.size}x{options.size}, f32; wave: {wave['name']}; {title}: {peer['name']}, PyTorch "
        f"{torch.__version__}, eager, TF32 off, cudnn.benchmark on. Made on {made()}.\n\n"
        f"| model | pass | wave images/s | {title} images/s | ratio | GPU idle | largest difference | fallbacks |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for name in options.models:
        (out, grads), (out2, grads2) = ours[name], theirs[name]
        scale = max(g.abs().max().item() for g in grads2)
        differences = {
            "forward": ((out - out2).abs().max() / out2.abs().max()).item(),
            "train": max(
                ((a - b).abs().max() / max(b.abs().max().item(), 1e-3 * scale)).item() for a, b in zip(grads, grads2)
            ),
        }
        for kind in (step + how for step in ("forward", "train") for how in ("", ", compiled", ", wave32.fuse", ", replayed")):
            plain = kind.split(",")[0]
            if kind not in wave[name]:
                continue
            a, b = wave[name][kind], peer[name].get(kind, peer[name][plain])
            idle = f"{wave[name]['idle']:.0%}" if kind == "train" else ""
            falls = ", ".join(wave[name]["fallbacks"]) or "none"
            off = f"{differences[kind]:.1e}" if kind == plain else ""
            print(f"| {name} | {kind} | {a:.0f} | {b:.0f} | {a / b:.2f} | {idle} | {off} | {falls} |")
    print(f"\nCPU microseconds to launch a small operation:\n\n| operation | wave | {title} |\n|---|---|---|")
    for name in wave["overhead"]:
        print(f"| {name} | {wave['overhead'][name]:.1f} | {peer['overhead'][name]:.1f} |")


if __name__ == "__main__":
    main()
