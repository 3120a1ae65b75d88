#!/usr/bin/env python3
"""Models each convolution with the code of both compilers: `make model-compilers`.

`wave32 explain --model` runs LLVM's code (HIP route) and ACO's (Vulkan route, on the virtual card). Nothing is measured. Writes a
Markdown table.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess

from bench_vs_cudnn import geometric_mean, line, made
from model_error import stated

HERE = pathlib.Path(__file__).resolve().parent.parent
PASSES = ["forward", "backward-data", "backward-weights"]
HEAD = """# Both compilers' code, modelled
`make model-compilers` makes this page: `wave32 explain --model --card "{card}"` for the layers of ResNet-18 (batch 1) and the
problems of `shapes`. The HIP route runs LLVM's code, the Vulkan route what Mesa's RADV makes by ACO ({driver}). Each time
is ms from the boost clock with VGPR banks hidden to the game clock with banks exposed. **Nothing was measured.**
[model_vgpu.md](model_vgpu.md) says what is simulated. How far the model is from real cards, for single kernels: {error}
([model_error.md](model_error.md)). The ratio is ACO / LLVM at the low ends: above 1, the Vulkan route is slower than the HIP route.
Each route takes the plan that the table of its compiler makes the best ([model.md](model.md)); where LLVM's is another one, it stands behind ACO's.
Made on {made}.
"""


def problems(dtype):
    mode = {"f32": "conv", "f16": "convfp16"}[dtype]
    lines = [text.split(" # ") for text in (HERE / "suites/nets/resnet18.txt").read_text().splitlines() if text[:1] not in "#"]
    found = [(name, problem.replace("MIOpenDriver conv ", f"MIOpenDriver {mode} ")) for problem, name in lines]
    shapes = json.loads((HERE / "suites/conv_shapes.json").read_text())
    return found + [(f"shapes/{row['name']}", line(row, dtype).partition(" #")[0]) for row in shapes]


def explained(args, problem):
    command = [args.wave32, "explain", problem, "--model", "--card", args.card, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False, env={**os.environ, "WAVE32_VGPU": args.launcher})
    if done.returncode:
        raise SystemExit(f"{problem}\n{done.stderr}")
    return json.loads(done.stdout)


def ends(time):
    return f"{time['time_ms']['low']:.3f} - {time['time_ms']['high']:.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launcher", required=True, help="wave32-vgpu")
    parser.add_argument("--wave32", required=True, help="the command")
    parser.add_argument("--card", default="RX 5700 XT")
    parser.add_argument("--dtypes", nargs="+", default=["f32", "f16"])
    parser.add_argument("--out", type=pathlib.Path, required=True, help="Markdown file")
    args = parser.parse_args()
    parts, driver = [], ""
    for dtype in args.dtypes:
        all_problems = problems(dtype)
        rows, ratios = [], {which: [] for which in PASSES}
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for (name, _), told in zip(all_problems, pool.map(lambda p: explained(args, p[1]), all_problems)):
                for which, value in zip(PASSES, told):
                    llvm, aco = value["modelled"]["llvm"], value["modelled"]["aco"]
                    plan = value["explanation"]["chosen"][0]
                    both = f"{plan['solver']} {plan['config']}"
                    other = value["modelled"]["llvm_plan"]
                    both += "" if other == both else f" (LLVM: {other})"
                    row = f"| {name} | {which} | {both} | {ends(llvm)} |"
                    if "missing" in aco:
                        rows.append(f"{row} {aco['missing']} | |")
                        continue
                    driver = aco["compiler"].removeprefix("ACO (").removesuffix(", Vulkan route)")
                    ratios[which].append(aco["time_ms"]["low"] / llvm["time_ms"]["low"])
                    rows.append(f"{row} {ends(aco)} | {ratios[which][-1]:.2f} |")
                print(*rows[-3:], sep="\n", flush=True)
        parts += [f"## {dtype}", ""]
        for which, found in ratios.items():
            parts.append(f"- {which}: geometric mean of ACO / LLVM {geometric_mean(found):.2f}, from {min(found):.2f} to {max(found):.2f}, {len(found)} problems")
        parts += ["", "| problem | pass | plan | LLVM ms | ACO ms | ratio |", "|---|---|---|---:|---:|---:|", *rows, ""]
    args.out.write_text("\n".join([HEAD.format(card=args.card, driver=driver, error=stated(), made=made()), *parts]), encoding="utf-8")


if __name__ == "__main__":
    main()
