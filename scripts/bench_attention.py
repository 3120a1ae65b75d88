#!/usr/bin/env python3
"""`scaled_dot_product_attention` on the wave device beside PyTorch's CUDA device (eager) on one GPU in one run. Prints Markdown.

The error is that of one head without dropout against f64 on the CPU, relative to the largest value. Each device has a process of its own,
as in bench_torch_cuda.py.
"""

import argparse
import sys

import torch
import torch.nn.functional as F
from bench_ops_cuda import in_children, milliseconds
from bench_vs_cudnn import made

# Batch, heads, queries, keys, elements of a head, causal, gradients too, of which network; the chance of dropout; a bias with a gradient.
CASES = [
    (2, 8, 4096, 4096, 40, False, False, "SD 1.5, 64x64, itself", 0.0, False),
    (2, 8, 4096, 77, 40, False, False, "SD 1.5, 64x64, text", 0.0, False),
    (2, 8, 1024, 1024, 80, False, False, "SD 1.5, 32x32, itself", 0.0, False),
    (2, 8, 256, 256, 160, False, False, "SD 1.5, 16x16, itself", 0.0, False),
    (2, 10, 4096, 4096, 64, False, False, "SDXL, 64x64, itself", 0.0, False),
    (1, 1, 4096, 4096, 256, False, False, "heads of 256", 0.0, False),
    (16, 12, 197, 197, 64, False, False, "ViT-B", 0.0, False),
    (16, 3, 197, 197, 64, False, True, "ViT-Ti, training", 0.0, False),
    (4, 12, 1024, 1024, 64, True, False, "GPT-2, causal", 0.0, False),
    (4, 12, 1024, 1024, 64, True, True, "GPT-2, causal, training", 0.0, False),
    (1, 32, 2048, 2048, 128, True, False, "heads of 128, causal", 0.0, False),
    (16, 12, 197, 197, 64, False, True, "ViT-B, training", 0.0, False),
    (16, 6, 197, 197, 64, False, True, "ViT with relative positions, training", 0.0, True),
    (8, 12, 512, 512, 64, False, True, "BERT with dropout, training", 0.1, False),
    (2, 8, 4096, 4096, 40, False, True, "SD 1.5, 64x64, training", 0.0, False),
]


def measure(device, options):
    if device == "wave":
        import wave32  # noqa: F401
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = False
    rows = []
    for dtype in (torch.float32, torch.float16):
        for n, heads, queries, keys, size, causal, trains, _, dropout, has_bias in CASES[: options.cases]:
            torch.manual_seed(3)
            sizes = [(n, heads, length, size) for length in (queries, keys, keys)]
            host = [torch.randn(shape).to(dtype) for shape in sizes]
            q, k, v = (x.to(device).requires_grad_(trains) for x in host)
            grad = torch.randn(sizes[0]).to(dtype).to(device)
            bias = torch.randn(1, heads, queries, keys).to(dtype) if has_bias else None
            mask = bias if bias is None else bias.to(device).requires_grad_(trains)
            leaves = [x for x in (q, k, v, mask) if x is not None]

            def call(q=q, k=k, v=v, mask=mask, leaves=leaves, causal=causal, dropout=dropout, trains=trains, grad=grad):
                out = F.scaled_dot_product_attention(q, k, v, mask, dropout, causal)
                return torch.autograd.grad(out, leaves, grad) if trains else out

            out = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)[-1, -1].detach().cpu().double()
            last = [x[-1:, -1:].double() for x in host] + [bias if bias is None else bias[:, -1:].double()]
            want = F.scaled_dot_product_attention(*last, is_causal=causal)[0, 0]
            error = ((out - want).abs().max() / want.abs().max()).item()
            rows.append([milliseconds(device, call, options.seconds), error])
            print(f"{device} {dtype} {sizes[0]}: {rows[-1]}", file=sys.stderr, flush=True)
    name = getattr(torch, device).get_device_name() if device != "cpu" else "CPU"
    return {"name": name, "rows": rows, "fallbacks": dict(torch.wave.fallbacks()) if device == "wave" else {}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3, help="of timing, each")
    parser.add_argument("--cases", type=int, default=len(CASES), help="only the first so many")
    options, wave, peer = in_children(parser, measure)
    title = options.peer.upper()
    print(f"wave: {wave['name']}; {title}: {peer['name']}, PyTorch {torch.__version__}, TF32 off. Made on {made()}.\n")
    sizes = "batch, heads, queries, keys, elements"
    print(f"| attention | {sizes} | type | wave ms | {title} ms | speed beside {title} | error | {title} error |")
    print("|---|---|---|---:|---:|---:|---:|---:|")
    cases = [(dtype, case) for dtype in ("f32", "f16") for case in CASES[: options.cases]]
    for (dtype, case), (ms, error), (theirs, their_error) in zip(cases, wave["rows"], peer["rows"]):
        sizes = ", ".join(map(str, case[:5]))
        print(
            f"| {case[7]} | {sizes} | {dtype} | {ms:.3f} | {theirs:.3f} | {theirs / ms:.2f} | {error:.1e} | {their_error:.1e} |"
        )
    print(f"\nOn the CPU: {', '.join(wave['fallbacks']) or 'nothing'}.")


if __name__ == "__main__":
    main()
