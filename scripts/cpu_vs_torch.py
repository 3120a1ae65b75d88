#!/usr/bin/env python3
"""Times the CPU backend beside PyTorch's on the same shapes, alternating, and prints a table.

    python3 scripts/cpu_vs_torch.py [suites/conv_shapes.json] [--threads 2] [--rounds 5] [--program FILE] [--out docs/cpu_vs_torch.md]

f32, NCHW, batch at most --batch. Each round times a burst of ours, then a burst of PyTorch's; the figure is
the median over rounds of each burst's best, so that other load on the machine hits both alike. Exit code 1
if the forward's geometric mean of torch_time / our_time is below --want. What times ours is the example
`time_shapes` of `wave32-cpu`, built for release here, or --program.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

from bench_vs_cudnn import heading

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIRECTIONS = {"fwd": "Forward", "bwd": "BackwardData", "wrw": "BackwardWeights"}


def spec(shape, direction, batch):
    def pair(v):
        return v if isinstance(v, list) else [v, v]

    return {
        "direction": DIRECTIONS[direction], "dtype": "F32", "layout": "Nchw", "n": min(shape["n"], batch),
        **{k: shape[k] for k in ("c", "h", "w", "k", "r", "s", "groups")},
        "stride": pair(shape["stride"]), "pad": pair(shape["pad"]), "dilation": pair(shape["dilation"]),
        "transposed": False, "output_pad": [0, 0], "epilogue": {"bias": False, "activation": "None"},
    }


def torch_pass(torch, s, direction):
    """A callable that runs PyTorch's own kernel for just this pass."""
    x = torch.rand(s["n"], s["c"], s["h"], s["w"]) * 2 - 1
    w = torch.rand(s["k"], s["c"] // s["groups"], s["r"], s["s"]) * 2 - 1
    args = (s["stride"], s["pad"], s["dilation"])
    y = torch.nn.functional.conv2d(x, w, None, *args, s["groups"])
    if direction == "fwd":
        return lambda: torch.nn.functional.conv2d(x, w, None, *args, s["groups"])
    dy = torch.rand_like(y) * 2 - 1
    mask = [direction == "bwd", direction == "wrw", False]
    return lambda: torch.ops.aten.convolution_backward(
        dy, x, w, None, *args, False, [0, 0], s["groups"], mask)


def built():
    """The program that times ours."""
    build = ["cargo", "build", "--release", "-q", "-p", "wave32-cpu", "--example", "time_shapes",
             "--message-format=json"]
    told = subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return next(m["executable"] for m in map(json.loads, told.splitlines()) if m.get("executable"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="?", default=str(ROOT / "suites/conv_shapes.json"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="shapes whose name contains this")
    parser.add_argument("--directions", default="fwd,bwd,wrw")
    parser.add_argument("--want", type=float, default=0.6)
    parser.add_argument("--program", help="time_shapes, built for release; default: cargo builds it")
    parser.add_argument("--shared", action="store_true", help="the page says that other programs ran too")
    parser.add_argument("--out", help="also write the table to this Markdown file")
    args = parser.parse_args()
    # On a busy machine PyTorch's spinning waiters lose whole time slices at each barrier (13 ms instead of
    # 0.04 measured); sleeping ones cost it microseconds. Set it to ACTIVE to see.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    torch.set_num_threads(args.threads)
    binary = args.program or built()
    # Now: a page of the checkout, once written, makes it `-dirty`.
    where = f"{'shared machine; ' * args.shared}PyTorch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()})"
    about = heading("scripts/cpu_vs_torch.py" + " --shared" * args.shared, where)
    ours = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def time_ours(s, repeats):
        print(json.dumps({"spec": s, "threads": args.threads, "repeats": repeats}), file=ours.stdin, flush=True)
        answer = ours.stdout.readline()
        if not answer:
            sys.exit("time_shapes stopped; its message is above")
        return json.loads(answer)

    directions = args.directions.split(",")
    lines = ["| shape | GFLOP | " + " | ".join(f"{d} ours ms | {d} torch ms | {d} ratio" for d in directions) + " |",
             "|---|---:|" + "---:|" * 3 * len(directions)]
    print(*lines, sep="\n")
    ratios = {d: [] for d in directions}
    with torch.no_grad():
        for shape in json.load(open(args.shapes)):
            if args.only and args.only not in shape["name"]:
                continue
            cells = []
            for direction in directions:
                s = spec(shape, direction, args.batch)
                run = torch_pass(torch, s, direction)
                run()
                start = time.perf_counter()
                run()
                # Bursts of about 50 ms.
                repeats = max(2, min(100, int(0.05 / (time.perf_counter() - start))))
                time_ours(s, 2)
                mine, theirs = [], []
                for _ in range(args.rounds):
                    answer = time_ours(s, repeats + 1)
                    mine.append(min(answer["seconds"][1:]))
                    best = math.inf
                    for _ in range(repeats):
                        start = time.perf_counter()
                        run()
                        best = min(best, time.perf_counter() - start)
                    theirs.append(best)
                mine, theirs = statistics.median(mine), statistics.median(theirs)
                ratios[direction].append(theirs / mine)
                cells += [f"{mine * 1e3:.3f}", f"{theirs * 1e3:.3f}", f"{theirs / mine:.2f}"]
            gflop = shape["gflop"] * min(shape["n"], args.batch) / shape["n"]
            lines.append(f"| {shape['name']} | {gflop:.3f} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    ours.stdin.close()
    ours.wait()
    means = {d: math.exp(statistics.fmean(map(math.log, r))) for d, r in ratios.items()}
    summary = ", ".join(f"{d} {m:.2f}" for d, m in means.items())
    print(f"\ngeometric mean of torch time / our time: {summary}")
    if args.out:
        head = ["# The CPU backend beside PyTorch", "", *about, "",
                f"f32, NCHW, batch <= {args.batch}, {args.threads} threads each, alternating in one run, medians of "
                f"{args.rounds} rounds, OpenMP waiting {os.environ['OMP_WAIT_POLICY'].lower()}. Ratio is PyTorch's time "
                "over ours; above 1 we are faster. Each call allocates its result, on both sides.",
                "", f"Geometric mean of the ratios: **{summary}**.", ""]
        pathlib.Path(args.out).write_text("\n".join(head + lines) + "\n")
    return 1 if "fwd" in means and means["fwd"] < args.want else 0


if __name__ == "__main__":
    sys.exit(main())
