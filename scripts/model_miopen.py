#!/usr/bin/env python3
"""Models AMD's MIOpen and wave32's drop-in side by side, layer by layer: `make model-miopen`.

One program (crates/miopen/tests/c/layer_times.c) calls MIOpen's C functions for each layer; once AMD's library answers, once
wave32's before it. Both run on the virtual card with `--time --sample`, so Find and the events see modelled time. Nothing is
measured. Writes a Markdown table.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from bench_vs_cudnn import geometric_mean, line, made
from model_error import stated

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
kernels execute (`wave32-vgpu run --time --sample`, [vgpu.md](vgpu.md)). **Nothing here was measured.** How far the model is from
real cards, for single kernels: {error} ([model_error.md](model_error.md)).
Made on {made}.

- Times are ms of one call, f32, between two events: launches, without what lies between them. MIOpen / wave32 above 1: wave32
  is faster. **Bold: wave32 is slower.**
- This MIOpen has rocBLAS's matrix products (with im2col) here, and naive kernels for groups. Its Winograd kernels for f32 are
  assembly that Debian leaves out, so this is **not** what AMD's own builds reach on 3x3 layers. Its naive kernels without
  groups are switched off: they take minutes to execute here.
- *late*: its sample takes more than {limit:.0f} s to execute on this machine. *fails*: Find
  returns no algorithm, or the call an error. Such rows are not in the sums and means.
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


def modelled(args, line, preload):
    """The ms of each pass; None where it fails, "late" where executing it takes longer than the limit."""
    naive = [] if " -g 1 " not in line else NAIVE
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home, "XDG_CACHE_HOME": home, "TMPDIR": home}
        environment |= {f"MIOPEN_DEBUG_CONV_{name}": "0" for name in WITHOUT + naive}
        environment |= {"LD_PRELOAD": preload} if preload else {}
        libraries = args.libraries
        command = [args.launcher, "run", "--card", args.card, "--threads", "1", "--time", "--sample", "--"]
        command += [f"{libraries}/ld-linux-x86-64.so.2", "--library-path", f"{libraries}:{pathlib.Path(args.launcher).parent}/lib"]
        command += ["--argv0", args.program, args.program]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, process_group=0
        ) as child:
            try:
                output, errors = child.communicate(line + "\n", timeout=args.limit)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                output, errors = child.communicate()
                child.returncode = 0
    rows = {which: ms for ms, which, *_ in (row.split(" ", 2) for row in output.splitlines()) if which in PASSES}
    if child.returncode:
        print(f"{line}\nexit status {child.returncode}\n{errors[-2000:]}", file=sys.stderr)
    told = {which: None if ms == "-" else float(ms) for which, ms in rows.items()}
    return [told.get(which, None if child.returncode else "late") for which in PASSES]


def times(args, lines, preload):
    """For each line and pass the ms."""
    found = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for line, ms in zip(lines, pool.map(lambda line: modelled(args, line, preload), lines)):
            print(f"{'wave32' if preload else 'MIOpen'} {ms} {line}", flush=True)
            found += ms
    return found


def cell(theirs, ours):
    def told(ms):
        return {None: "fails", "late": "late"}.get(ms) or f"{ms:.3f}"

    if not (isinstance(theirs, float) and isinstance(ours, float)):
        return f"{told(theirs)} | {told(ours)} |"
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
    parser.add_argument("--limit", type=float, default=240, help="seconds that one convolution may take to execute")
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
            if isinstance(a, float) and isinstance(b, float):
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
    text = [HEAD.format(card=args.card, batch=args.batch, limit=args.limit, error=stated(), made=made()), *summary, "", head, "|---|" + "---:|" * 9, *rows, ""]
    args.out.write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
