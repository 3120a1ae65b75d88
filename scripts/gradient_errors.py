#!/usr/bin/env python3
"""Of networks, how far all gradients of one training pass are from the same network's in f64, on the CPU or CUDA (f32) and on wave.

    python scripts/gradient_errors.py timm/resnetaa34d timm/starnet_s050 --draws 5 --batch 2 --size 128 --peer cpu

Each draw has other weights and another image. The error is |found - f64| / |f64| in the Euclidean norm. One ReLU whose input is zero up to
rounding, and so has another sign in f64, makes an error a thousand times as large as rounding's: on any device, in some draws.
"""

import argparse
import copy
import pathlib
import statistics
import tempfile

import torch
from bench_networks import build, distance, gradients
from bench_ops_cuda import in_children
from bench_vs_cudnn import made
from measuring import set_up_cuda, without_dropout


def draws(device, name, options):
    """Of each draw a function that runs it on this device in a type, and the file for wave's gradients."""
    for seed in range(options.draws):
        torch.manual_seed(seed)
        model = build(name)
        without_dropout(model)
        image = torch.rand(options.batch, 3, options.size, options.size)
        label = torch.randint(1000, (options.batch,))

        def on(dtype, model=model, image=image, label=label):
            return gradients(copy.deepcopy(model).to(device, dtype), image.to(device, dtype), label.to(device))

        yield on, options.folder / f"{name.replace('/', '-')}-{seed}.pt"


def measure(device, options):
    """Of the peer, in f64 too, the errors of both; of wave, which runs first, the gradients into files."""
    if device == "wave":
        import wave32  # noqa: F401
    if device == "cuda":
        set_up_cuda()
    options.folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name in options.names:
        for on, file in draws(device, name, options):
            if device == "wave":
                torch.save(on(torch.float32).cpu(), file)
                continue
            exact, theirs = on(torch.float64), on(torch.float32)
            errors = [distance(grads.to(exact), exact) for grads in (theirs, torch.load(file))]
            file.unlink()
            found.setdefault(name, []).append(errors)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=224)
    folder = pathlib.Path(tempfile.gettempdir()) / "wave32-gradients"
    parser.add_argument("--folder", type=pathlib.Path, default=folder, help="for gradients, some hundred MB a draw")
    options, _, found = in_children(parser, measure)
    print(f"Batch {options.batch}, {options.size}x{options.size}. Made on {made()}.\n")
    print(
        f"| network | error on {options.peer}, by draw | on wave | medians | wave's median / {options.peer}'s |\n|---|---|---|---|---|"
    )
    for name, both in found.items():
        theirs, ours = zip(*both)
        medians = [statistics.median(row) for row in (theirs, ours)]
        cells = [" ".join(f"{error:.1e}" for error in row) for row in (theirs, ours, medians)]
        print(f"| {name} | {' | '.join(cells)} | {medians[1] / medians[0]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
