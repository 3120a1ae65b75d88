#!/usr/bin/env python3
"""Milliseconds under `torch.autocast` in f16 beside f32, of the wave device, eager: classifiers (batch 16, 224x224) forward and in
training, the UNet of Stable Diffusion 1.5 (batch 2, 64x64) and the decoder of its VAE (64x64 to 512x512) forward.

The scale of the loss is fixed, so that a step has no GradScaler. With --device cuda the same of PyTorch's CUDA device.
Random weights; nothing is downloaded. Prints Markdown, and JSON lines to --json.
"""

import argparse
import contextlib
import functools
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from bench_networks import build, draw
from bench_vs_cudnn import made
from measuring import set_up_cuda, synchronize, timed, without_dropout

CLASSIFIERS = ("torchvision/resnet50", "torchvision/vgg16_bn", "torchvision/mobilenet_v2")
SCALE = 1024.0


def unet():
    from diffusers import UNet2DConditionModel

    net = UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8)
    return net, {"sample": torch.randn(2, 4, 64, 64), "timestep": torch.tensor([500]), "encoder_hidden_states": torch.randn(2, 77, 768)}


def decoder():
    from diffusers import AutoencoderKL

    vae = AutoencoderKL(
        block_out_channels=(128, 256, 512, 512), down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4, layers_per_block=2, latent_channels=4,
    )  # fmt: skip
    return vae.decoder, {"sample": torch.randn(1, 4, 64, 64)}


OTHERS = {"UNet of SD 1.5": unet, "VAE decoder": decoder}


def under(device, is_half):
    return torch.autocast(device, torch.float16) if is_half else contextlib.nullcontext()


def trainer(device, model, image, label, is_half):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)

    def step():
        optimizer.zero_grad()
        with under(device, is_half):
            loss = F.cross_entropy(model(image), label)
        (loss * SCALE).backward()
        optimizer.step()

    return step


def forward(device, model, inputs, is_half):
    with torch.no_grad(), under(device, is_half):
        return model(**inputs) if isinstance(inputs, dict) else model(inputs)


def measure(device, name, options):
    torch.manual_seed(0)
    found = {}
    if name in OTHERS:
        model, inputs = OTHERS[name]()
        inputs = {key: value.to(device) for key, value in inputs.items()}
    else:
        model, inputs = without_dropout(build(name)), torch.rand(options.batch, 3, 224, 224).to(device)
    model = model.to(device).eval()
    for key, is_half in (("f32", False), ("f16", True)):
        found[f"forward, {key}"] = timed(device, functools.partial(forward, device, model, inputs, is_half), options.seconds)
    if name not in OTHERS:
        label = torch.randint(1000, (options.batch,)).to(device)
        model.train()
        for key, is_half in (("f32", False), ("f16", True)):
            found[f"training, {key}"] = timed(device, trainer(device, model, inputs, label, is_half), options.seconds)
    return found


def report(rows, options):
    print(f"Batch {options.batch}, 224x224; the others as `scripts/bench_autocast.py` says. Eager, milliseconds. Made on {made()}.\n")
    print("| network | forward, f32 | autocast | ratio | training, f32 | autocast | ratio |\n|---|---|---|---|---|---|---|")
    for row in rows:
        cells = [row["name"]]
        for kind in ("forward", "training"):
            full, half = row.get(f"{kind}, f32"), row.get(f"{kind}, f16")
            cells += [f"{full * 1e3:.1f}", f"{half * 1e3:.1f}", f"{full / half:.2f}"] if full and half else ["", "", ""]
        print("| " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="wave", choices=("wave", "cuda"))
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--drawn", type=int, default=0, metavar="N", help="also the first N networks of bench_networks.py's draw")
    parser.add_argument("--json", type=Path, metavar="FILE", help="lines of JSON, appended")
    options = parser.parse_args()
    if options.device == "wave":
        import wave32  # noqa: F401
    set_up_cuda()
    names = [*CLASSIFIERS, *OTHERS, *(name for name in draw(options.drawn, 16) if name not in CLASSIFIERS)]
    rows = []
    for name in names:
        try:
            found = measure(options.device, name, options)
            synchronize(options.device)
        except (RuntimeError, ImportError) as error:
            found = {"failed": f"{type(error).__name__}: {error}"[:300]}
        rows.append({"device": options.device, "name": name, **found})
        if options.json:
            with options.json.open("a") as file:
                print(json.dumps(rows[-1]), file=file)
        getattr(torch, options.device).empty_cache()
    report(rows, options)


if __name__ == "__main__":
    main()
