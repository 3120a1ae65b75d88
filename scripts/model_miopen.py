#!/usr/bin/env python3
"""Models AMD's MIOpen and wave32's drop-in side by side, layer by layer: `make model-miopen`.

One program (crates/miopen/tests/c/layer_times.c) calls MIOpen's C functions for each layer; once AMD's library answers, once
wave32's before it. Both run on the virtual card with `--time --sample`, so Find and the events see modelled time. Nothing is
measured. Writes a Markdown table.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from bench_vs_cudnn import geometric_mean, line

HERE = pathlib.Path(__file__).resolve().parent.parent
# Assembly that Debian leaves out.
WITHOUT = ["WINOGRAD"]
# One work-item computes value after value: minutes to execute here.
NAIVE = [f"DIRECT_NAIVE_CONV_{which}" for which in ("FWD", "BWD", "WRW")]
PASSES = ["fwd", "bwd", "wrw"]
HEAD = """# AMD's MIOpen and wave32 on one simulated card
`make model-miopen` makes this page. The same program asks for each convolution through MIOpen's C functions: Find, then the
algorithm that came first, twice; the second call counts. AMD's MIOpen 7.2.4 of Debian answers, or wave32's drop-in in front of it
([miopen_real.md](miopen_real.md)). Both run on the virtual {card}, whose clock is modelled from the instructions that their
kernels execute (`wave32-vgpu run --time --sample`, [vgpu.md](vgpu.md)). **Nothing here was measured**; how far modelled times of
single kernels are from real cards: [model_error.md](model_error.md).

- Times are ms of one call, f32, between two events: launches, without what lies between them. MIOpen / wave32 above 1: wave32
  is faster. **Bold: wave32 is slower.**
- This MIOpen has rocBLAS's matrix products (with im2col) here, and naive kernels for groups. Its Winograd kernels for f32 are
  assembly that Debian leaves out, so this is **not** what AMD's own builds reach on 3x3 layers. Its naive kernels without
  groups are switched off: they take minutes to execute here.
- ResNet-50 has batch {batch}; each layer counts as often as it occurs in the sum.
"""


def layers(batch):
    """Name, times that it occurs, MIOpenDriver line."""
    found = []
    for text in (HERE / "suites/nets/resnet50.txt").read_text().splitlines():
        if not text.startswith("#"):
            problem, name = text.split(" # ")
            name, count = name.rsplit(" x", 1)
            found.append((name, int(count), problem.replace(" -n 1 ", f" -n {batch} ")))
    for row in json.loads((HERE / "suites/conv_shapes.json").read_text()):
        found.append((f"shapes/{row['name']}", 0, line(row, "f32")))
    return found


def times(args, lines, preload):
    """For each line and pass the ms, or None."""
    grouped = [i for i, line in enumerate(lines) if " -g 1 " not in line]
    others = [i for i in range(len(lines)) if i not in grouped]
    found = {}
    for chosen, without in ((others, WITHOUT + NAIVE), (grouped, WITHOUT)):
        ms = run(args, [lines[i] for i in chosen], preload, without)
        found |= {i: ms[3 * at : 3 * at + 3] for at, i in enumerate(chosen)}
    return [ms for i in range(len(lines)) for ms in found[i]]


def run(args, lines, preload, without):
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home, "XDG_CACHE_HOME": home, "TMPDIR": home}
        environment |= {f"MIOPEN_DEBUG_CONV_{name}": "0" for name in without}
        environment |= {"LD_PRELOAD": preload} if preload else {}
        libraries = args.libraries
        command = [args.launcher, "run", "--card", args.card, "--time", "--sample", "--", f"{libraries}/ld-linux-x86-64.so.2"]
        command += ["--library-path", f"{libraries}:{pathlib.Path(args.launcher).parent}/lib", "--argv0", args.program, args.program]
        done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False, env=environment)
    rows = [line.split(" ", 2) for line in done.stdout.splitlines() if line.split(" ")[1:2] in ([p] for p in PASSES)]
    if done.returncode or len(rows) != len(PASSES) * len(lines):
        sys.exit(f"exit status {done.returncode}, {len(rows)} rows\n{done.stderr[-4000:]}")
    return [None if ms == "-" else float(ms) for ms, *_ in rows]


def cell(theirs, ours):
    if theirs is None or ours is None:
        return f"{'fails' if theirs is None else f'{theirs:.3f}'} | {'fails' if ours is None else f'{ours:.3f}'} |"
    ratio = f"{theirs / ours:.2f}"
    return f"{theirs:.3f} | {ours:.3f} | {ratio if theirs >= ours else f'**{ratio}**'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launcher", required=True, help="wave32-vgpu")
    parser.add_argument("--program", required=True, help="layer_times, built")
    parser.add_argument("--libraries", required=True, help="folder of AMD's libMIOpen.so.1")
    parser.add_argument("--drop-in", required=True, help="wave32's libMIOpen.so.1")
    parser.add_argument("--card", default="rx5700xt")
    parser.add_argument("--batch", type=int, default=12, help="of ResNet-50")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="Markdown file")
    args = parser.parse_args()
    all_layers = layers(args.batch)
    lines = [line for *_, line in all_layers]
    theirs, ours = times(args, lines, None), times(args, lines, args.drop_in)
    rows, ratios, sums = [], {p: [] for p in PASSES}, {p: [0.0, 0.0] for p in PASSES}
    for i, (name, count, _) in enumerate(all_layers):
        cells = []
        for j, which in enumerate(PASSES):
            a, b = theirs[3 * i + j], ours[3 * i + j]
            cells.append(cell(a, b))
            if a is not None and b is not None:
                ratios[which].append(a / b)
                sums[which][0] += count * a
                sums[which][1] += count * b
        rows.append(f"| {name}{f' x{count}' if count else ''} | {' | '.join(cells)} |")
    summary = []
    for which in PASSES:
        mean = geometric_mean(ratios[which])
        slower = sum(ratio < 1 for ratio in ratios[which])
        a, b = sums[which]
        summary.append(
            f"- {which}: geometric mean of MIOpen / wave32 {mean:.2f} over {len(ratios[which])} problems, wave32 slower on "
            f"{slower}; all convolutions of ResNet-50: {a:.1f} ms and {b:.1f} ms."
        )
    head = "| layer | " + " | ".join(f"{p}: MIOpen | wave32 | ratio" for p in PASSES) + " |"
    text = [HEAD.format(card=args.card, batch=args.batch), *summary, "", head, "|---|" + "---:|" * 9, *rows, ""]
    args.out.write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
