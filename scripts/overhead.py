#!/usr/bin/env python3
"""CPU microseconds of small operations on the wave device beside PyTorch's CPU device, best of many runs (Markdown).

With --cuda: of calls on `wave`, and of the same on `cuda` once scripts' `cuda` is `wave`, as under `wave32 run`.
"""

import argparse
import json
import time

import torch
import torch.nn.functional as F
import wave32  # noqa: F401
from bench_vs_cudnn import about


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


def translated(device):
    """Calls in which `wave32 run` translates names, and one in which it does not (`relu`)."""
    x, module = torch.randn(4, device=device), torch.nn.Linear(2, 2, device=device)
    return {
        "relu": lambda: torch.relu(x),
        "empty": lambda: torch.empty(4, device=device),
        "zeros": lambda: torch.zeros(4, device=device),
        "x.to, where it is": lambda: x.to(device),
        "module.to, where it is": lambda: module.to(device),
        "x.device": lambda: x.device,
        "x.device.type": lambda: x.device.type,
        "x.is_cuda": lambda: x.is_cuda,
    }


def microseconds(call, runs, calls=50):
    """The fastest run's time of a call; what was launched is waited for between runs."""
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, time.perf_counter() - start)
        torch.wave.synchronize()
    return best / calls * 1e6


def times(calls, options):
    return {name: microseconds(calls[name], options.runs) for name in options.only or calls}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", help="default: all")
    parser.add_argument("--cuda", action="store_true", help="what `cuda` for `wave` costs")
    parser.add_argument("--runs", type=int, default=100, help="runs of 50 calls (100)")
    parser.add_argument("--json", help="where to write the same")
    options = parser.parse_args()
    head = about("scripts/overhead.py" + " --cuda" * options.cuda)
    head |= {"device": torch.wave.get_device_name(), "torch": torch.__version__, "runs": options.runs}
    if options.cuda:
        columns = ("wave", "cuda")
        before = times(translated("wave"), options)
        from wave32._cuda import enable

        enable()
        after = times(translated("cuda"), options)
    else:
        columns = ("cpu", "wave")
        # By turns, so that a busy minute falls on both.
        before, after, calls = {}, {}, {device: operations(device) for device in columns}
        for name in options.only or calls["cpu"]:
            before[name], after[name] = (microseconds(calls[device][name], options.runs) for device in columns)
    print("\n".join(f"{key}: {value}" for key, value in head.items()), end="\n\n")
    print(f"| operation | {columns[0]} | {columns[1]} | beyond |\n|---|---|---|---|")
    for name in before:
        print(f"| {name} | {before[name]:.1f} | {after[name]:.1f} | {round(after[name] - before[name], 1) + 0:.1f} |")
    if options.json:
        rows = [{"operation": n, columns[0]: round(before[n], 2), columns[1]: round(after[n], 2)} for n in before]
        with open(options.json, "w") as file:
            json.dump({**head, "unit": "us", "rows": rows}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
