#!/usr/bin/env python3
"""Sets modelled times beside published measurements of real RDNA1 cards: `make model-error`.

Each row of vgpu/tests/published/rows.tsv is a public figure and a kernel of the same work. The kernel runs on the virtual
card with `--time`. The ratio is modelled speed over measured speed: 1.0 is right, 1.3 is 30 % too fast. Writes a Markdown
table.
"""
import argparse
import csv
import hashlib
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent.parent
FOLDER = HERE / "vgpu/tests/published"
HEAD = """# The model's error, by published measurements
What `wave32-vgpu run --time` and `explain --model` print is modelled ([model_vgpu.md](model_vgpu.md)). This page sets it beside
public measurements of real RDNA1 cards. We have measured none of them ourselves. `make model-error` makes this page.

- **Rows**: `vgpu/tests/published/rows.tsv` has each figure as printed, with its source. The kernels are ours
  (`vgpu/tests/published/kernels.hip`): they have the instructions, the bytes and the workgroups that the source describes. The
  measured programs themselves were not run. Kernels are compiled by Debian's hipcc, not by the compiler of the time.
- **Choice**: `vgpu/tests/published/found.tsv` has 95 public figures. The 27 here are those whose kernel the source describes in a
  few lines. Left out are programs and networks that have not run here yet, figures without a clock or with a tuned one, and
  clpeak's scalar half, where it is not known which instructions ran.
- **Ratio**: modelled speed (the geometric mean of both ends) over measured speed. 1.0 is right, 1.3 is 30 % too fast.
- **Halves**: rows are split by a hash of their names, before any constant was changed. Constants may be set by the open half
  only. So far none was set by any row. One error was mended because rows showed it: what a kernel reads and writes in place
  was counted as moved once.
- **Not here**: latencies in nanoseconds (no public figure for RDNA1 was found), Vulkan programs, whole networks.

## Where it is off, and why
- **Streams with many addresses** (`fluidx3d`, `vkml-reduce-strided-tall`): 1.4 to 1.8 times too fast. The model has no TLB and no
  DRAM pages, and its lattice reads 19 arrays at once. The source itself says that these cards reach 47 to 56 % of their bandwidth.
- **A plain matrix product without LDS** (`hipfire-naive-matmul-512`): twice too fast. Its loads are served by L2, whose latency
  under load is not modelled.
- **Matrix times vector** (`vkml-ggml-gemv`, `hipfire-gemv`): 0.66 and 0.85. The vector, which all workgroups read, is charged to
  DRAM too often.
- **Loads that hit L0** (`perftest`): 0.94 to 0.96 for raw loads. Typed and structured loads are faster on the card (0.6 to 0.8); the
  model has one rate for all.
"""
SCALE = {"GFLOPS": 1e9, "GOPS": 1e9, "GB/s": 1e9, "MLUPs": 1e6}


def stated():
    """The error that every modelled figure carries: `STATED_ERROR` of vgpu/model, without the page's name."""
    return re.search(r'STATED_ERROR: &str =\s*"(.*); ', (HERE / "vgpu/model/src/lib.rs").read_text()).group(1)


def rows():
    with open(FOLDER / "rows.tsv", encoding="utf-8") as file:
        lines = [line for line in file if not line.startswith("#")]
    return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def kept_aside(row):
    """Half of the rows, by their names: constants may be set by the others only."""
    return hashlib.sha256(row["id"].encode()).digest()[0] % 2 == 0


def modelled(launcher, program, row, known):
    """Low and high ms of one launch on the row's card."""
    key = (row["card"], row["kernel"])
    if key not in known:
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.json"
            command = [launcher, "run", "--card", row["card"], "--time", "--report", report, "--", program]
            done = subprocess.run([*command, row["kernel"]], capture_output=True, text=True, timeout=600, check=False)
            if done.returncode:
                sys.exit(f"{row['id']}: exit status {done.returncode}\n{done.stderr}")
            found = json.loads(report.read_text())["modelled"]["kernels"]
        kernel = next(k for k in found if k["kernel"] == row["kernel"])
        known[key] = [kernel["time_ms"][end] / kernel["launches"] for end in ("low", "high")], kernel["last"]["bound"]
    return known[key]


def speed(row, ms):
    work = float(row["work"])
    return work * ms if row["unit"] == "ms" else work / (ms * 1e-3) / SCALE[row["unit"]]


def spread(ratios):
    logs = [math.log(r) for r in ratios]
    mean = sum(logs) / len(logs)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in logs) / len(logs))
    text = f"geometric mean {math.exp(mean):.2f}, spread (geometric standard deviation) {math.exp(deviation):.2f}"
    return f"{text}, from {min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} rows"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launcher", required=True, help="wave32-vgpu")
    parser.add_argument("--program", required=True, help="kernels.hip, built")
    parser.add_argument("--out", type=pathlib.Path, help="Markdown file [default: standard output]")
    args = parser.parse_args()
    known, ratios, lines = {}, {True: [], False: []}, []
    for row in rows():
        (low, high), bound = modelled(args.launcher, args.program, row, known)
        middle = math.sqrt(low * high)
        measured = float(row["published"])
        mine = speed(row, middle)
        ratio = measured / mine if row["unit"] == "ms" else mine / measured
        ratios[kept_aside(row)].append(ratio)
        half = "aside" if kept_aside(row) else "open"
        lines.append(
            f"| {row['id']} | {row['card']} | {measured:g} {row['unit']} | {speed(row, low):.4g} | {speed(row, high):.4g} "
            f"| {ratio:.2f} | {bound} | {half} |"
        )
        print(lines[-1], file=sys.stderr)
    text = "\n".join(
        [
            HEAD,
            "| row | card | measured | modelled, low end | high end | modelled speed / measured | bound by | half |",
            "|---|---|---:|---:|---:|---:|---|---|",
            *lines,
            "",
            f"- Kept aside: {spread(ratios[True])}.",
            f"- Open: {spread(ratios[False])}.",
            f"- All: {spread(ratios[True] + ratios[False])}.",
            "",
        ]
    )
    if args.out:
        args.out.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
