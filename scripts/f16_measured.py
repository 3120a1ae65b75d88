#!/usr/bin/env python3
"""How much faster f16 is than f32 on a device, problem by problem, from one report of `wave32 bench`.

    wave32 bench shapes --dtype f32,f16 --json report.json
    scripts/f16_measured.py report.json > docs/logs/f16_h200.txt

A ratio is f32's time over f16's, each by its fastest plan, runs back to back: above 1 f16 is faster.
"""

import argparse
import json
import math
import pathlib

LARGE = 2e9  # FLOP


def mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=pathlib.Path)
    report = json.loads(parser.parse_args().report.read_text())
    rows: dict[tuple[str, str], dict[str, dict]] = {}
    for row in report["rows"]:
        if row["chosen"]:
            rows.setdefault((row["direction"], row["label"]), {})[row["dtype"]] = row
    found: dict[str, list[tuple[float, float]]] = {}
    subject = report["subject"]
    print(f"# f16 beside f32: {subject['name']}, {subject['driver']}")
    print(f"{'pass':4} {'problem':22} {'GFLOP':>7} {'f32 ms':>8} {'f16 ms':>8} {'ratio':>6}  plan in f32, plan in f16")
    for (direction, label), both in sorted(rows.items()):
        if len(both) < 2:
            raise SystemExit(f"{label} {direction} has only {', '.join(both)}: bench with --dtype f32,f16")
        f32, f16 = both["f32"], both["f16"]
        times = [row["time"]["back_to_back_ms"] for row in (f32, f16)]
        ratio = times[0] / times[1]
        found.setdefault(direction, []).append((f32["flops"], ratio))
        plans = ", ".join(f"{row['solver']} {row['config']}" for row in (f32, f16))
        print(
            f"{direction:4} {label:22} {f32['flops'] / 1e9:7.2f} {times[0]:8.4f} {times[1]:8.4f} {ratio:6.2f}  {plans}"
        )
    for direction, all_ in found.items():
        large = [ratio for flops, ratio in all_ if flops > LARGE]
        print(f"# {direction}: geometric mean {mean([ratio for _, ratio in all_]):.2f} of {len(all_)}, "
              f"{mean(large):.2f} of the {len(large)} above 2 GFLOP; least {min(ratio for _, ratio in all_):.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
