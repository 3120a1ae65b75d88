#!/usr/bin/env python3
"""Products of matrices: wave32 through Vulkan beside cuBLAS (PyTorch, TF32 off) on one NVIDIA GPU in one run.

    bench_products.py --wave32 target/release/wave32 suites/products.txt

cuBLAS runs as a replayed CUDA graph of many calls, wave32 from `wave32 bench`, in turns, --rounds times; a figure is the
median over the rounds. Prints a table with a row for each line; 'of cuBLAS' is cuBLAS's time over wave32's.
"""

import argparse
import json
import math
import re
import statistics
import subprocess
from pathlib import Path

import torch

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def sizes(line: str) -> dict[str, int]:
    words = re.sub(r"#.*", "", line).split()
    found = {
        flag: int(value) for flag, value in zip(words, words[1:], strict=False) if re.fullmatch(r"-[bmknuv]", flag)
    }
    return {"-b": 1, "-u": 0, "-v": 0, **found}


def elapsed(call) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def cublas(line: str, dtype: torch.dtype) -> float:
    """Milliseconds of one product within a replayed graph of many."""
    s = sizes(line)

    def matrices(rows: int, columns: int, turned: int) -> torch.Tensor:
        shape = (columns, rows) if turned else (rows, columns)
        shape = (s["-b"], *shape) if s["-b"] > 1 else shape
        made = torch.rand(shape, device="cuda", dtype=dtype)
        return made.transpose(-1, -2) if turned else made

    a, b = matrices(s["-m"], s["-k"], s["-u"]), matrices(s["-k"], s["-n"], s["-v"])
    out = torch.matmul(a, b)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.matmul(a, b, out=out)
    torch.cuda.current_stream().wait_stream(side)
    once = min(elapsed(lambda: torch.matmul(a, b, out=out)) for _ in range(5))
    count = int(min(max(4.0 / once, 1), 100))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            torch.matmul(a, b, out=out)
    for _ in range(3):
        graph.replay()
    whole = elapsed(graph.replay)
    replays = int(min(max(100 / max(whole, 1e-3), 5), 60))
    return statistics.median(elapsed(graph.replay) / count for _ in range(replays))


def wave32(binary: str, file: str, dtype: str) -> list[dict]:
    command = [binary, "bench", file, "--dtype", dtype, "--json", "-"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return [row for row in report["rows"] if row["chosen"]]


def geometric(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--wave32", required=True)
    parser.add_argument("--dtype", default="f32", choices=TYPES)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    lines = [line for line in Path(args.file).read_text(encoding="utf-8").splitlines() if "gemm " in line]
    theirs: list[list[float]] = [[] for _ in lines]
    ours: list[list[float]] = [[] for _ in lines]
    rows: list[dict] = []
    for _ in range(args.rounds):
        for times, line in zip(theirs, lines, strict=True):
            times.append(cublas(line, TYPES[args.dtype]))
        torch.cuda.empty_cache()
        rows = wave32(args.wave32, args.file, args.dtype)
        for times, row in zip(ours, rows, strict=True):
            times.append(row["time"].get("back_to_back_ms") or row["time"]["median_ms"])
    print(
        f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}, {args.dtype}, TF32 off"
    )
    print(
        f"{'product':<28} {'of':<22} {'solver':<26} {'ms':>8} {'TFLOPS':>7} {'cuBLAS ms':>10} {'TFLOPS':>7} {'of cuBLAS':>10}"
    )
    ratios = []
    for line, row, mine, other in zip(lines, rows, ours, theirs, strict=True):
        s, ms, cuda_ms = sizes(line), statistics.median(mine), statistics.median(other)
        gflop = 2e-9 * s["-b"] * s["-m"] * s["-n"] * s["-k"]
        turns = "NT"[s["-u"]] + "NT"[s["-v"]]
        many = f"{s['-b']} of " if s["-b"] > 1 else ""
        name = f"{many}{s['-m']}x{s['-k']}x{s['-n']} {turns}"
        ratios.append(cuda_ms / ms)
        print(
            f"{name:<28} {line.partition('# ')[2]:<22} {row['solver'] + ' ' + row['config']:<26} {ms:8.4f} "
            f"{gflop / ms:7.2f} {cuda_ms:10.4f} {gflop / cuda_ms:7.2f} {cuda_ms / ms:10.2f}"
        )
    print(f"geometric mean of cuBLAS: {geometric(ratios):.3f} over {len(ratios)} products")


if __name__ == "__main__":
    main()
