#!/usr/bin/env python3
"""Of networks, how far all gradients of one training pass are from the same network's in f64, on the CPU or CUDA (f32) and on wave.

    python scripts/gradient_errors.py timm/resnetaa34d timm/starnet_s050 --draws 5 --batch 2 --size 128

Each draw has other weights and another image. The error is |found - f64| / |f64| in the Euclidean norm. One ReLU whose input is zero up to
rounding, and so has another sign in f64, makes an error a thousand times as large as rounding's: on any device, in some draws.
"""

import argparse
import copy
import statistics

import torch
from bench_networks import build, distance, gradients
from bench_vs_cudnn import made
from measuring import set_up_cuda, without_dropout


def errors(name, seed, peer, options):
    """Of the peer and of wave."""
    torch.manual_seed(seed)
    model = build(name)
    without_dropout(model)
    image = torch.rand(options.batch, 3, options.size, options.size)
    label = torch.randint(1000, (options.batch,))

    def on(device, dtype):
        return gradients(copy.deepcopy(model).to(device, dtype), image.to(device, dtype), label.to(device)).cpu().double()

    exact = on(peer, torch.float64)
    return [distance(on(device, torch.float32), exact) for device in (peer, "wave")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=224)
    options = parser.parse_args()
    peer = "cuda" if torch.cuda.is_available() else "cpu"
    if peer == "cuda":
        set_up_cuda()
    import wave32  # noqa: F401

    print(f"Batch {options.batch}, {options.size}x{options.size}. Made on {made()}.\n")
    print(f"| network | error on {peer}, by draw | on wave | medians | wave's median / {peer}'s |\n|---|---|---|---|---|")
    for name in options.names:
        both = [errors(name, seed, peer, options) for seed in range(options.draws)]
        theirs, ours = zip(*both)
        medians = [statistics.median(row) for row in (theirs, ours)]
        cells = [" ".join(f"{error:.1e}" for error in row) for row in (theirs, ours, medians)]
        print(f"| {name} | {' | '.join(cells)} | {medians[1] / medians[0]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
