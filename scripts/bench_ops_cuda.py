#!/usr/bin/env python3
"""Operations that memory bounds: the wave device beside PyTorch's CUDA device (eager) on one GPU in one run. Prints Markdown.

Bytes are the least that the algorithm reads and writes, as the table says; GB/s are those bytes over the time a call, back to
back. *Of copy* is the share of the speed of the device's own `copy_` of that size, the fastest of all types. Each device has a
process of its own, as in bench_torch_cuda.py.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from measuring import synchronize


def cases(device, dtype, mib):
    """(name, reads, writes in tensors of the size, call)."""
    element = torch.empty(0, dtype=dtype).element_size()
    n = mib * 2**20 // element
    rows = n // 1024
    torch.manual_seed(1)
    make = lambda *sizes: torch.randn(*sizes, device="cpu").to(dtype).to(device)  # noqa: E731
    a, b = make(rows, 1024), make(rows, 1024)
    image, grad = a.view(16, 64, -1), b.view(16, 64, -1)
    pixels = image.shape[2]
    side = 1 << (pixels.bit_length() // 2)
    picture = image.view(16, 64, side, pixels // side)
    weight, bias = make(1024), make(1024)
    gamma, beta = (torch.rand(64, device="cpu").to(device) for _ in range(2))
    mean, var = torch.zeros(64).to(device), torch.ones(64).to(device)
    out, copied = torch.empty_like(a), torch.empty_like(a)
    soft = torch.softmax(a, 1)
    y, norm_mean, norm_rstd = torch.native_layer_norm(a, [1024], weight, bias, 1e-5)
    bn = torch.ops.aten.native_batch_norm(image, gamma, beta, mean, var, True, 0.1, 1e-5)
    nn = torch.ops.aten
    yield "copy", 1, 1, lambda: copied.copy_(a)
    yield "relu", 1, 1, lambda: torch.relu(a)
    yield "add", 2, 1, lambda: torch.add(a, b, out=out)
    yield "mul by a number", 1, 1, lambda: a * 1.5
    yield "gelu", 1, 1, lambda: F.gelu(a)
    yield "gelu, backward", 2, 1, lambda: nn.gelu_backward(b, a)
    yield "silu", 1, 1, lambda: F.silu(a)
    yield "silu, backward", 2, 1, lambda: nn.silu_backward(b, a)
    yield "leaky_relu", 1, 1, lambda: F.leaky_relu(a, 0.1)
    yield "sum of all", 1, 0, lambda: a.sum()
    yield "sum of rows", 1, 0, lambda: a.sum(1)
    yield "sum of columns", 1, 0, lambda: a.sum(0)
    yield "largest of rows", 1, 0, lambda: a.amax(1)
    yield "softmax", 1, 1, lambda: torch.softmax(a, 1)
    yield "softmax, backward", 2, 1, lambda: nn._softmax_backward_data(b, soft, 1, dtype)
    yield "log_softmax", 1, 1, lambda: torch.log_softmax(a, 1)
    yield "layer_norm", 1, 1, lambda: F.layer_norm(a, [1024], weight, bias)
    mask = [True, False, False]
    yield "layer_norm, backward of x", 2, 1, lambda: nn.native_layer_norm_backward(
        b, a, [1024], norm_mean, norm_rstd, weight, bias, mask
    )
    yield "group_norm", 1, 1, lambda: F.group_norm(picture, 32)
    yield "batch_norm, training", 2, 1, lambda: nn.native_batch_norm(image, gamma, beta, mean, var, True, 0.1, 1e-5)
    yield "batch_norm, evaluation", 1, 1, lambda: nn.native_batch_norm(image, gamma, beta, mean, var, False, 0.1, 1e-5)
    yield "batch_norm, backward", 4, 1, lambda: nn.native_batch_norm_backward(
        grad, image, gamma, mean, var, bn[1], bn[2], True, 1e-5, [True, True, True]
    )
    yield "max_pool 2x2", 1, 0.25, lambda: F.max_pool2d(picture, 2)
    yield "avg_pool 2x2", 1, 0.25, lambda: F.avg_pool2d(picture, 2)
    yield "transpose", 1, 1, lambda: a.t().contiguous()
    yield "to channels_last", 1, 1, lambda: picture.contiguous(memory_format=torch.channels_last)
    yield "cat", 2, 2, lambda: torch.cat([a, b], 1)


def milliseconds(device, call, seconds):
    """A call, back to back: the median of batches."""
    for _ in range(3):
        call()
    synchronize(device)
    start = time.perf_counter()
    call()
    synchronize(device)
    count = max(1, min(50, int(0.01 / max(time.perf_counter() - start, 1e-6))))
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        for _ in range(count):
            call()
        synchronize(device)
        times.append((time.perf_counter() - start) / count * 1e3)
    return statistics.median(times)


def measure(device, options):
    if device == "wave":
        import wave32  # noqa: F401
    found = {"name": getattr(torch, device).get_device_name() if device != "cpu" else "CPU", "rows": {}}
    for dtype in options.dtypes.split(","):
        for name, reads, writes, call in cases(device, getattr(torch, dtype), options.mib):
            ms = milliseconds(device, call, options.seconds)
            found["rows"][f"{dtype}/{name}"] = [reads, writes, ms]
            print(f"{device} {dtype} {name}: {ms:.4f} ms", file=sys.stderr, flush=True)
    found["fallbacks"] = dict(torch.wave.fallbacks()) if device == "wave" else {}
    return found


def in_children(parser, measure):
    """The options, and what `measure` finds on either device, each in a process of its own. A child ends here."""
    parser.add_argument("--peer", default="cuda", help="the device to compare with: cuda, or cpu to try the script")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        options.out.write_text(json.dumps(measure(options.only, options)))
        raise SystemExit
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for device in ("wave", options.peer):
            out = Path(folder) / f"{device}.json"
            command = [sys.executable, sys.argv[0], *sys.argv[1:], "--only", device, "--out", str(out)]
            subprocess.run(command, check=True, timeout=600)
            found[device] = json.loads(out.read_text())
    return options, found["wave"], found[options.peer]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256, help="MiB of a tensor")
    parser.add_argument("--dtypes", default="float32,float16")
    parser.add_argument("--seconds", type=float, default=0.15, help="of timing, each")
    options, wave, peer = in_children(parser, measure)
    title = options.peer.upper()
    print(f"Tensors of {options.mib} MiB; wave: {wave['name']}; {title}: {peer['name']}, PyTorch {torch.__version__}, eager.\n")
    print(f"| operation | type | reads, writes | wave ms | GB/s | of copy | {title} ms | GB/s | speed beside {title} |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    copy = min(ms for key, (*_, ms) in wave["rows"].items() if key.endswith("/copy"))
    for key, (reads, writes, ms) in wave["rows"].items():
        dtype, name = key.split("/")
        size = (reads + writes) * options.mib * 2**20 / 1e6
        theirs = peer["rows"][key][2]
        of_copy = size / ms / (2 * options.mib * 2**20 / 1e6 / copy)
        print(
            f"| {name} | {dtype} | {reads}, {writes} | {ms:.3f} | {size / ms:.0f} | {of_copy:.2f} | {theirs:.3f} "
            f"| {size / theirs:.0f} | {theirs / ms:.2f} |"
        )
    print(f"\nOn the CPU: {', '.join(wave['fallbacks']) or 'nothing'}.")


if __name__ == "__main__":
    main()
