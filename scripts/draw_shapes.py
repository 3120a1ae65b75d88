#!/usr/bin/env python3
"""Draws convolutions of real networks into suites/aside_shapes.json: shapes to report on, never to tune on.

    draw_shapes.py [--seed 1125] [--count 30]     needs torch and torchvision

Networks are torchvision's that no suite has. Each draw takes a network, one of its distinct convolutions, and a batch, all
with equal chances; equal draws are drawn again. Layers whose two axes differ in stride, padding or dilation are left out,
because the file's format has one number for both. The file says its seed. Nothing is removed by hand.
"""

import argparse
import json
import random
import sys
from pathlib import Path

import make_suites

OUT = make_suites.SUITES / "aside_shapes.json"
NETS = {
    "alexnet": 224, "convnext_tiny": 224, "densenet201": 224, "efficientnet_v2_s": 384, "googlenet": 224,
    "mnasnet1_0": 224, "mobilenet_v3_large": 224, "regnet_x_1_6gf": 224, "regnet_y_3_2gf": 224, "resnet34": 224,
    "resnet101": 224, "resnext50_32x4d": 224, "shufflenet_v2_x1_0": 224, "squeezenet1_1": 224, "vgg11_bn": 224,
    "wide_resnet50_2": 224, "segmentation.deeplabv3_resnet50": 520, "segmentation.lraspp_mobilenet_v3_large": 520,
}  # fmt: skip
BATCHES = (1, 4, 16, 32)


def convolutions(torch, name, size):
    """The network's distinct convolutions, as (problem, layer's name)."""
    import torchvision

    make = torchvision.models
    for part in name.split("."):
        make = getattr(make, part)
    options = {"weights_backbone": None} if "." in name else {"init_weights": False} if name == "googlenet" else {}
    model = make(weights=None, **options).eval().to("meta")
    distinct = {}
    for q, layer, _ in make_suites.layers(torch, model, (1, 3, size, size)):
        if all(q[f][0] == q[f][1] for f in ("pad", "stride", "dilation")) and not q["transposed"]:
            distinct.setdefault(make_suites.line(q, ""), (q, layer))
    return list(distinct.values())


def shape(q, name, batch):
    """A row of the file."""
    q = q | {f: q[f][0] for f in ("pad", "stride", "dilation")} | {"n": batch}
    out = [(q[a] + 2 * q["pad"] - q["dilation"] * (q[b] - 1) - 1) // q["stride"] + 1 for a, b in ("hr", "ws")]
    flops = 2 * batch * q["k"] * out[0] * out[1] * (q["c"] // q["groups"]) * q["r"] * q["s"]
    keys = ("n", "c", "h", "w", "k", "r", "s", "stride", "pad", "dilation", "groups")
    return {"name": f"{name}_b{batch}", **{k: q[k] for k in keys}, "gflop": float(f"{flops / 1e9:.4g}")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1125)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    import torch

    rng = random.Random(args.seed)
    known = {name: convolutions(torch, name, size) for name, size in NETS.items()}
    rows = {}
    while len(rows) < args.count:
        name = rng.choice(sorted(known))
        q, layer = rng.choice(known[name])
        row = shape(q, f"{name.split('.')[-1]}/{layer}", rng.choice(BATCHES))
        rows.setdefault(json.dumps(row | {"name": ""}), row)
    body = ",\n".join(json.dumps(row) for row in rows.values())
    args.out.write_text(f"[\n{body}\n]\n")
    print(f"{len(rows)} problems, seed {args.seed}, torchvision's networks: {args.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
