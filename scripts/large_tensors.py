#!/usr/bin/env python3
"""TFLOPS of f32 3x3 convolutions, 64 to 64 channels, on tensors above and below a kernel's reach, on the device `wave`.

    PYTHONPATH=python python scripts/large_tensors.py [--rounds 5] [--json docs/logs/large_tensors.json]

Forward, backward-data and backward-weights by torch's own calls; each is the best round, after one to warm up, with a wait
for the device at both ends. The largest case holds three tensors of 5 GiB, and the plan's workspace.
"""

import argparse
import json
import time

import torch
import wave32  # noqa: F401 (the device)
from bench_vs_cudnn import about

# Batch, height, width.
CASES = [(80, 512, 512), (20, 512, 512), (1, 4096, 4352)]
CHANNELS = 64


def seconds(call):
    torch.wave.synchronize()
    start = time.perf_counter()
    call()
    torch.wave.synchronize()
    return time.perf_counter() - start


def measured(n, h, w, rounds):
    """A row. Its tensors are gone when it is there."""
    x, grad = (torch.randn(n, CHANNELS, h, w, device="wave") for _ in range(2))
    filters = torch.randn(CHANNELS, CHANNELS, 3, 3, device="wave")
    usual = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    calls = {"forward": lambda: torch.conv2d(x, filters, padding=1)}
    for name, mask in (("backward_data", [True, False, False]), ("backward_weights", [False, True, False])):
        calls[name] = lambda mask=mask: torch.ops.aten.convolution_backward(grad, x, filters, None, *usual, mask)
    best = {name: min([seconds(call) for _ in range(1 + rounds)][1:]) for name, call in calls.items()}
    rates = {name: round(2 * x.numel() * CHANNELS * 9 / time / 1e12, 2) for name, time in best.items()}
    return {"batch": n, "height": h, "width": w, "gib": x.numel() * 4 / 2**30, **rates}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="where to write the same")
    options = parser.parse_args()
    rows = [measured(*case, options.rounds) for case in CASES]
    head = about("scripts/large_tensors.py") | {"device": torch.wave.get_device_name(), "torch": torch.__version__, "unit": "TFLOPS"}
    found = {**head, "rounds": options.rounds, "fallbacks": torch.wave.fallbacks(), "rows": rows}
    print(text := json.dumps(found, indent=1))
    if options.json:
        with open(options.json, "w") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
