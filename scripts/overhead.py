#!/usr/bin/env python3
"""CPU microseconds of small operations on the wave device beside PyTorch's CPU device, best of many runs (Markdown)."""

import argparse
import time

import torch
import torch.nn.functional as F
import wave32  # noqa: F401
from bench_vs_cudnn import made


def operations(device):
    """Name and call of each, on 4x4 matrices."""
    x, y, w = (torch.randn(4, 4, device=device) for _ in range(3))
    strided, bias = torch.randn(4, 8, device=device)[:, ::2], torch.randn(4, device=device)
    image, filters = torch.randn(1, 4, 4, 4, device=device), torch.randn(4, 4, 3, 3, device=device)
    return {
        "empty": lambda: torch.empty(4, 4, device=device),
        "view": lambda: x.view(16),
        "relu": lambda: torch.relu(x),
        "relu_": lambda: x.relu_(),
        "mul": lambda: x * y,
        "mul_": lambda: x.mul_(y),
        "add": lambda: x + y,
        "add_": lambda: x.add_(y),
        "add a number": lambda: x + 1.0,
        "mul by a number": lambda: x * 2.0,
        "eq, strided": lambda: strided == y,
        "exp": lambda: torch.exp(x),
        "sigmoid": lambda: torch.sigmoid(x),
        "sum": lambda: x.sum(),
        "mm": lambda: x @ w,
        "linear": lambda: F.linear(x, w, bias),
        "conv2d": lambda: torch.conv2d(image, filters),
        "fill_": lambda: x.fill_(1.0),
        "copy_": lambda: x.copy_(y),
    }


def microseconds(call, calls=50, runs=100):
    """The fastest run's time of a call; what was launched is waited for between runs."""
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, time.perf_counter() - start)
        torch.wave.synchronize()
    return best / calls * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", help="default: all")
    options = parser.parse_args()
    print(
        f"PyTorch {torch.__version__}, {torch.wave.get_device_name()}. Made on {made()}.\n\n"
        "| operation | cpu | wave | beyond |\n|---|---|---|---|"
    )
    wave, cpu = operations("wave"), operations("cpu")
    for name in options.only or wave:
        ours, theirs = microseconds(wave[name]), microseconds(cpu[name])
        print(f"| {name} | {theirs:.1f} | {ours:.1f} | {ours - theirs:.1f} |", flush=True)


if __name__ == "__main__":
    main()
