#!/usr/bin/env python3
"""Models whole networks on RDNA1 cards: `make model-networks`.

Stock PyTorch runs each network on the device `wave`, on Mesa's RADV, on the virtual card with `--time --sample`. The card's
clock is then the modelled one, so that the profiler of the program tells modelled time. Nothing is measured. Writes a Markdown
table, beside what was measured on a real RX 5700 with MIOpen where that is public. The page is written after each cell.
"""
import argparse
import csv
import json
import math
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed

from bench_vs_cudnn import heading
from model_error import stated

HERE = pathlib.Path(__file__).resolve().parent.parent
CARDS = {"rx5700": "RX 5700", "rx5700xt": "RX 5700 XT", "rx5600xt": "RX 5600 XT", "rx5500xt": "RX 5500 XT"}
# Network, batch, step, type.
WORK = [
    ("resnet50", 12, "inference", "float32"),
    ("resnet50", 12, "inference", "float16"),
    ("resnet50", 12, "inference, fused", "float32"),
    ("resnet50", 12, "inference, fused", "float16"),
    ("resnet50", 12, "inference, fused, f16 sums", "float16"),
    ("resnet50", 12, "training", "float32"),
    ("resnet50", 12, "training, fused", "float32"),
    ("resnet50", 12, "training, fused, f16 sums", "float16"),
    ("resnet50", 12, "training, compiled", "float32"),
    ("vgg16", 12, "inference", "float32"),
    ("vgg16", 12, "inference", "float16"),
    ("vgg16", 12, "training", "float32"),
    ("mobilenet_v2", 12, "inference", "float32"),
    ("mobilenet_v2", 12, "inference", "float16"),
    ("mobilenet_v2", 12, "inference, fused", "float32"),
    ("mobilenet_v2", 12, "inference, fused", "float16"),
    ("mobilenet_v2", 12, "training", "float32"),
    ("mobilenet_v2", 12, "training, fused", "float32"),
    ("mobilenet_v2", 12, "training, compiled", "float32"),
    ("efficientnet_b0", 12, "inference", "float32"),
    ("efficientnet_b0", 12, "inference, fused", "float32"),
    ("sd15_unet", 2, "inference", "float32"),
    ("sd15_unet", 2, "inference", "float16"),
    ("sd15_unet", 2, "inference, f16 sums", "float16"),
]
# lamikr/pytorch-gpu-benchmark, as vgpu/tests/published/found.tsv has it.
MEASURED = {
    ("resnet50", "inference", "float32"): "lamikr-5700-resnet50-float-inference",
    ("resnet50", "inference", "float16"): "lamikr-5700-resnet50-half-inference",
    ("resnet50", "training", "float32"): "lamikr-5700-resnet50-float-train",
    ("vgg16", "inference", "float32"): "lamikr-5700-vgg16-float-inference",
    ("vgg16", "inference", "float16"): "lamikr-5700-vgg16-half-inference",
    ("vgg16", "training", "float32"): "lamikr-5700-vgg16-float-train",
}
HEAD = """# Whole networks, modelled
`make model-networks` makes this page. Stock PyTorch runs each network on the device `wave`: Mesa's RADV compiles our shaders
for the card, and the virtual card models each launch from the instructions that it executes
(`wave32-vgpu run --time --sample`, [vgpu.md](vgpu.md)). **Nothing here was measured by us.** How far the model is from real
cards, for single kernels: {error} ([model_error.md](model_error.md)).

{run}
- Images are 224x224. `sd15_unet` is the UNet of Stable Diffusion 1.5 on 64x64 latents, batch 2 (one step of a 512x512 image
  with guidance). Weights are random. Training is forward, loss, backward and SGD with momentum;
  *fused*: the model of `wave32.fuse`, in training also SGD with `fused=True`;
  *compiled*: `torch.compile`'s, with the same SGD. *f16 sums*:
  `torch.wave.allow_fp16_accumulation("forward")`, in training `True`, and weights in f16 too.
- The time is that of the third step, by `torch.wave.profile`: the sum of its launches. The low end is at the boost clock,
  the high end at the game clock. Each launch that waits for the one before adds about 5 us, which is not in it.
- *Measured with MIOpen* is public: an RX 5700, PyTorch 2.4.1, ROCm 6.1, MIOpen 3.1.0, host time of a step, median of 50
  (lamikr/pytorch-gpu-benchmark; `vgpu/tests/published/found.tsv`). VGG16 in f32 runs there by Winograd.
- *Missing*: {missing}
"""
NETWORK = """
import json, sys
import torch, wave32

name, batch, step, dtype = sys.argv[1], int(sys.argv[2]), sys.argv[3], getattr(torch, sys.argv[4])
torch.manual_seed(0)
if name == "sd15_unet":
    from diffusers import UNet2DConditionModel
    with torch.device("meta"):
        net = UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8)
    net = net.to(dtype).to_empty(device="wave").eval()
    latents = torch.zeros(batch, 4, 64, 64, dtype=dtype, device="wave")
    text = torch.zeros(batch, 77, 768, dtype=dtype, device="wave")
    run = lambda: net(latents, torch.tensor([10], device="wave").expand(batch), encoder_hidden_states=text)
else:
    import torchvision
    net = getattr(torchvision.models, name)().to(dtype).to("wave").train(step.startswith("training"))
    images = torch.randn(batch, 3, 224, 224, dtype=dtype).to("wave")
    run = lambda: net(images)
fused = "fused" in step
if "f16 sums" in step:
    torch.wave.allow_fp16_accumulation(True if step.startswith("training") else "forward")
compiled = "compiled" in step
net = wave32.fuse(net) if fused else torch.compile(net, dynamic=False) if compiled else net
if step.startswith("training"):
    labels = torch.randint(1000, (batch,)).to("wave")
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9, fused=fused or compiled)

    def one():
        torch.nn.functional.cross_entropy(run(), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
else:
    def one():
        with torch.no_grad():
            run()

one()
one()
with torch.wave.profile() as profiler:
    one()
kernels = profiler.by_kernel()
print(json.dumps({"ms": sum(seconds for *_, seconds in kernels) * 1e3, "launches": sum(count for _, count, _ in kernels),
                  "first": kernels[:3], "fallbacks": torch.wave.fallbacks(), "torch": torch.__version__,
                  "driver": torch.wave.get_device_properties().driver}))
"""


def measured():
    with open(HERE / "vgpu/tests/published/found.tsv", encoding="utf-8") as file:
        lines = (line for line in file if not line.startswith("#"))
        rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        by_name = {row[0]: row[3] for row in rows}
    return {key: float(by_name[name]) for key, name in MEASURED.items()}


def modelled(launcher, card, work):
    """What the program tells, with low and high ms of the third step; or why there is none."""
    name, batch, step, dtype = work
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        command = [launcher, "run", "--card", card, "--time", "--sample", "--report", report, "--", sys.executable]
        done = subprocess.run(
            [*command, "-c", NETWORK, name, str(batch), step, dtype],
            capture_output=True, text=True, timeout=1800, check=False, env={**os.environ, "WAVE32_TIMEOUT": "1800"},
        )
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            wrong = [line for line in done.stderr.splitlines() if "Error" in line]
            return wrong[-1].split(":")[0].rpartition(".")[2] if wrong else f"exit status {done.returncode}"
        ends = json.loads(report.read_text())["modelled"]["time_ms"]
    told = json.loads(done.stdout.splitlines()[-1])
    if told["fallbacks"]:
        return "in part on the CPU"
    # The clock goes on by the middle of both ends.
    middle = (ends["low"] + ends["high"]) / 2
    return told | {"times": [told["ms"] * ends[end] / middle for end in ("low", "high")]}


def page(found, cards, works, run):
    """The page of what is known so far."""
    real = measured()
    lines, missing = [], []
    for work in works:
        name, batch, step, dtype = work
        cells = []
        for card in cards:
            told = found.get((work, card), "not run")
            times = None if isinstance(told, str) else told["times"]
            if not times:
                missing.append(f"{name} {dtype} {step} on {CARDS[card]} ({told})")
            cells.append(f"{times[0]:.1f} - {times[1]:.1f}" if times else "-")
            if card == "rx5700":
                known = real.get((name, step, dtype))
                ratio = f"{known / math.sqrt(times[0] * times[1]):.2f}" if known and times else ""
                cells += [f"{known:.1f}" if known else "", ratio]
        lines.append(f"| {name} | {batch} | {step} | {dtype} | {' | '.join(cells)} |")
    columns = []
    for card in cards:
        columns.append(f"{CARDS[card]}, ms")
        columns += ["measured with MIOpen, ms", "MIOpen's time / ours"] if card == "rx5700" else []
    device = next((f"{told['driver']}, PyTorch {told['torch']}" for told in found.values() if isinstance(told, dict)), "-")
    missing = "; ".join(missing) + "." if missing else "nothing."
    return "\n".join(
        [
            HEAD.format(run="\n".join(run).format(device=device), missing=missing, error=stated()),
            f"| network | batch | step | type | {' | '.join(columns)} |",
            "|---|---:|---|---|" + "---:|" * len(columns),
            *lines,
            "",
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launcher", required=True, help="wave32-vgpu")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="Markdown file")
    parser.add_argument("--cards", nargs="+", choices=CARDS, default=list(CARDS))
    parser.add_argument("--only", default="", help="rows that begin so: 'vgg16 12 training'")
    parser.add_argument("--plain", action="store_true", help="rows without wave32.fuse and torch.compile alone")
    parser.add_argument("--jobs", type=int, default=1, help="networks that are modelled at the same time")
    args = parser.parse_args()
    works = [work for work in WORK if " ".join(map(str, work)).startswith(args.only)]
    works = [work for work in works if not args.plain or work[2] in ("inference", "training")]
    # Before the page is written: that makes the checkout `-dirty`.
    run = heading("scripts/model_networks.py", "the virtual cards; {device}, Python " + platform.python_version())
    found = {}
    with ThreadPoolExecutor(args.jobs) as pool:
        running = {pool.submit(modelled, args.launcher, card, work): (work, card) for work in works for card in args.cards}
        for done in as_completed(running):
            work, card = running[done]
            found[work, card] = told = done.result()
            print(*work, card, told if isinstance(told, str) else told["times"], file=sys.stderr, flush=True)
            args.out.write_text(page(found, args.cards, works, run), encoding="utf-8")


if __name__ == "__main__":
    main()
