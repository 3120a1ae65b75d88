#!/usr/bin/env python3
"""Modelled f32 time over f16 time of the problems of `shapes`, from LLVM's code, with sums in f16 allowed: without Winograd, by
Winograd alone, and as the plans are chosen.

    scripts/f16_modelled.py --wave32 target/release/wave32 --json docs/logs/f16_modelled.json

By `wave32 explain --model` with WAVE32_FP16_ACCUMULATION=1, and WAVE32_SKIP or WAVE32_SOLVER; a time is the middle of the bracket.
**Nothing is measured.**
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
from pathlib import Path

from bench_vs_cudnn import ROOT, about, geometric_mean, line

PASSES = ("forward", "backward-data", "backward-weights")
POLICY = {"WAVE32_FP16_ACCUMULATION": "1"}
WAYS = {
    "without Winograd": {"WAVE32_SKIP": "winograd"},
    "by Winograd": {"WAVE32_SOLVER": "winograd"},
    "as chosen": {},
}


def takes(shape, way):
    """Whether the way has plans for a problem."""
    is_3x3 = [shape[name] for name in ("r", "s", "stride", "dilation", "groups")] == [3, 3, 1, 1, 1]
    return way != "by Winograd" or (is_3x3 and shape["c"] % 8 == 0 == shape["k"] % 8)


def explained(options, way, shape, dtype):
    """(plan of LLVM's code, milliseconds) of each pass."""
    problem = line(shape, dtype).partition(" #")[0]
    command = [options.wave32, "explain", problem, "--model", "--card", options.card, "--json"]
    without = {name: value for name, value in os.environ.items() if name != "WAVE32_VGPU"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**without, **POLICY, **WAYS[way]})
    ends = [(v["modelled"]["llvm_plan"], v["modelled"]["llvm"]["time_ms"]) for v in json.loads(done.stdout)]
    return [(plan, (time["low"] + time["high"]) / 2) for plan, time in ends]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wave32", required=True)
    parser.add_argument("--card", default="RX 5700 XT")
    parser.add_argument("--json", required=True)
    options = parser.parse_args()
    rows = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        shapes = json.loads((ROOT / "suites/conv_shapes.json").read_text())
        asked = [
            (way, shape, *(pool.submit(explained, options, way, shape, dtype) for dtype in ("f32", "f16")))
            for way in WAYS for shape in shapes if takes(shape, way)
        ]  # fmt: skip
        for way, shape, f32, f16 in asked:
            for which, (plan, slow), (half, fast) in zip(PASSES, f32.result(), f16.result()):
                rows.append({"problem": shape["name"], "way": way, "pass": which, "gflop": shape["gflop"], "f32": plan,
                             "f32_ms": round(slow, 4), "f16": half, "f16_ms": round(fast, 4), "ratio": round(slow / fast, 2)})  # fmt: skip
                print("{problem}, {way}, {pass}: {f32_ms} ms {f32}, {f16_ms} ms {f16}: {ratio}".format(**rows[-1]), flush=True)
    means = {}
    for way in WAYS:
        for which in PASSES:
            for name, wanted in (("above 2 GFLOP", lambda r: r["gflop"] > 2), ("above 0.05 ms in f32", lambda r: r["f32_ms"] > 0.05)):
                ratios = [r["f32_ms"] / r["f16_ms"] for r in rows if (r["way"], r["pass"]) == (way, which) and wanted(r)]
                means[f"{way}, {which}, {name}"] = {"mean": round(geometric_mean(ratios), 2), "problems": len(ratios)}
    head = {**about("scripts/f16_modelled.py"), "card": options.card, **POLICY}
    print(json.dumps(means, indent=1))
    Path(options.json).write_text(json.dumps({**head, "means": means, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
