#!/usr/bin/env python3
"""Sets ggml's own kernels, modelled, beside what people measured with them on real RDNA1 cards: `make model-ggml`.

`test-backend-ops perf` of Debian sid runs one matrix product over and over on sid's RADV on the virtual card, with
`--time --sample`. Writes a Markdown table.
"""
import argparse
import csv
import json
import os
import pathlib
import subprocess
import tempfile

from model_error import FOLDER, stated

K, M = 14336, 4096
WEIGHTS, BYTES = 6.74e9, 3.56 * 2**30
# Row of found.tsv, card, type and columns of the product, unit, what turns the published figure into it, how it was measured.
ROWS = [
    ("vkml-ggml-f32-4096", "rx5600m", "f32", 512, "TFLOPS", 1e-3, "4096 x 4096 x 4096 through ggml's Vulkan"),
    ("vkml-ggml-f16-4096", "rx5600m", "f16", 512, "TFLOPS", 1e-3, "the same in f16"),
    ("vkml-ggml-gemv-f32-4096", "rx5600m", "f32", 1, "GB/s", 1, "4096 x 4096 times a vector through ggml's Vulkan"),
    ("llama-vk-2025-05-pp512", "rx5700xt", "q4_0", 512, "TFLOPS", 2 * WEIGHTS / 1e12, "whole Llama 2 7B, a prompt of 512 tokens"),
    ("llama-vk-2025-05-tg128", "rx5700xt", "q4_0", 1, "GB/s", BYTES / 1e9, "whole Llama 2 7B, token after token"),
]
BITS = {"f32": 32, "f16": 16, "q4_0": 4.5}
HEAD = """# ggml's kernels, modelled and measured
`make model-ggml` makes this page. ggml {version} of Debian sid (`test-backend-ops perf`) runs unmodified on sid's RADV on the
virtual card, with `--time --sample` ([vgpu.md](vgpu.md)). Its products are {m} x {k} times {k} x N. *Measured* is what people
published for ggml's Vulkan on real cards (`vgpu/tests/published/found.tsv` has the sources). **We measured nothing.** The
error stated for single kernels is: {error} ([model_error.md](model_error.md)).

The versions of ggml and Mesa differ from those of the measurements, and so do the sizes. A whole model does more than products, so
its figure is lower than that of its products.

| card | product | modelled, high end to low end | measured | what was measured |
|---|---|---:|---:|---|
"""


def modelled(args, card, kind, columns):
    """Milliseconds of one product: low and high end."""
    libraries = args.sid / "usr/lib/x86_64-linux-gnu"
    with tempfile.TemporaryDirectory() as folder:
        report, icd = pathlib.Path(folder) / "report.json", pathlib.Path(folder) / "icd.json"
        manifest = next((args.sid / "usr/share/vulkan/icd.d").glob("radeon_icd*.json")).read_text()
        icd.write_text(manifest.replace('"libvulkan_radeon', f'"{libraries}/libvulkan_radeon'))
        command = [args.launcher, "run", "--card", card, "--time", "--sample", "--report", report, "--"]
        # Its C library is sid's too. It looks for its backends where it is started.
        command += [libraries / "ld-linux-x86-64.so.2", "--library-path", f"{libraries}:{args.launcher.parent}/lib"]
        command += [args.sid / "usr/libexec/x86_64-linux-gnu/llama.cpp-tests/test-backend-ops", "perf", "-b", "Vulkan0", "-o", "MUL_MAT"]
        command += ["-p", f"type_a={kind},type_b=f32,m={M},n={columns},k={K},bs=.1,1"]
        environment = {**os.environ, "VK_DRIVER_FILES": str(icd), "MESA_SHADER_CACHE_DISABLE": "true"}
        subprocess.run(command, cwd=libraries / "ggml/backends0", env=environment, check=True, timeout=1800, stdout=subprocess.DEVNULL)
        kernels = json.loads(report.read_text())["modelled"]["kernels"]
    (kernel,) = (kernel for kernel in kernels if kernel["launches"] > 1)
    return [kernel["time_ms"][end] / kernel["launches"] for end in ("low", "high")]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launcher", type=pathlib.Path, required=True, help="wave32-vgpu")
    parser.add_argument("--sid", type=pathlib.Path, required=True, help="folder with sid's llama.cpp-tests, ggml and Mesa")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="Markdown file")
    args = parser.parse_args()
    args.launcher, args.sid = args.launcher.absolute(), args.sid.absolute()
    with open(FOLDER / "found.tsv", encoding="utf-8") as file:
        rows = csv.reader((line for line in file if not line.startswith("#")), delimiter="\t", quoting=csv.QUOTE_NONE)
        published = {row[0]: float(row[3]) for row in rows if row[0] in {row[0] for row in ROWS}}
    lines = []
    for name, card, kind, columns, unit, factor, what in ROWS:
        work = 2 * M * columns * K / 1e9 if unit == "TFLOPS" else M * K * BITS[kind] / 8 / 1e6
        low, high = modelled(args, card, kind, columns)
        lines.append(f"| {card} | {kind}, N = {columns} | {work / high:.1f} to {work / low:.1f} {unit} | {published[name] * factor:.1f} | {what} |")
        print(lines[-1], flush=True)
    version = (args.sid / "usr/lib/x86_64-linux-gnu/libggml.so.0").resolve().name.removeprefix("libggml.so.")
    args.out.write_text(HEAD.format(version=version, m=M, k=K, error=stated()) + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
