#!/usr/bin/env python3
"""Writes suites/seeds.txt and suites/nets/*.txt.

    make_suites.py seeds            from suites/conv_shapes.json and the lists in this file; needs nothing
    make_suites.py nets [NET...]    from the networks themselves; needs, in a throw-away virtual environment,
                                    torch torchvision (all but two), ultralytics (yolov8n), diffusers (sd_vae_decoder)

One problem a line, in MIOpenDriver's words, all three directions (-F 0), batch 1 for networks; the comment is
the problem's label. In a network's file `xN` after the label is how many layers of the network share the problem.
Biases are left out: frameworks hand them to the vendor's library as a separate call.
"""

import argparse
import json
import sys
from pathlib import Path

SUITES = Path(__file__).resolve().parent.parent / "suites"


def line(q, label):
    """One suite line for the problem `q`, a dict of MIOpenDriver's short flags' meanings."""
    words = [
        "MIOpenDriver conv",
        f"-n {q['n']} -c {q['c']} -H {q['h']} -W {q['w']} -k {q['k']} -y {q['r']} -x {q['s']}",
        f"-p {q['pad'][0]} -q {q['pad'][1]} -u {q['stride'][0]} -v {q['stride'][1]}",
        f"-l {q['dilation'][0]} -j {q['dilation'][1]} -m {'trans' if q['transposed'] else 'conv'}",
        f"-g {q['groups']} -F 0",
    ]
    return f"{' '.join(words)} # {label}"


def square(c, k, size, r=3, pad=None, n=1, stride=1, groups=1, dilation=1):
    """A plain convolution with equal axes; padding keeps the size unless given."""
    pad = r // 2 if pad is None else pad
    return {
        "n": n, "c": c, "h": size, "w": size, "k": k, "r": r, "s": r, "pad": (pad, pad),
        "stride": (stride, stride), "dilation": (dilation, dilation), "groups": groups, "transposed": False,
    }  # fmt: skip


def seeds():
    """(section title, [(problem, label)]), the first of equal problems kept."""
    shapes = json.loads((SUITES / "conv_shapes.json").read_text())
    swept = [
        (square(e["c"], e["k"], e["h"], e["r"], e["pad"], e["n"], e["stride"], e["groups"], e["dilation"]), e["name"])
        for e in shapes
        if e["name"].startswith("seed_")
    ]

    # By the notes of one owner (RX 5600 XT, HSA_OVERRIDE_GFX_VERSION=10.3.0, GEMM alone): with ROCm 5.7 MIOpen hangs above
    # 32, 48 and 64 pixels for these channels; with ROCm 5.2 everything above 42 does, and 44 is the next size that he tried.
    hang = {
        (16, 32): [32, 33, 42, 44, 48, 49, 64, 96, 128, 224, 256, 512],
        (32, 64): [42, 44, 48, 49, 56, 64, 96, 112, 128, 224, 256, 512],
        (64, 128): [42, 44, 64, 65, 80, 96, 112, 128, 224, 256, 512],
    }
    hangs = [(square(c, k, size), f"hang_{c}_{k}_{size}") for (c, k), sizes in hang.items() for size in sizes]

    batch = [(square(64, 128, 56, n=n), f"batch_64_128_56_n{n}") for n in (1, 2, 4, 8, 16, 32)]
    batch += [(square(3, 64, 64, n=n), f"batch_3_64_64_n{n}") for n in (1, 2, 4, 8, 16, 32)]

    named = [
        (square(3, 16, 32), "first_3_16_32"),
        (square(3, 64, 256, pad=0), "check_3_64_256_valid"),
        (square(3, 16, 224), "works_3_16_224"),
        (square(1, 32, 28), "mnist_1_32_28"),
        (square(32, 64, 28), "mnist_32_64_28"),
        (square(1, 32, 224), "works_1_32_224"),
        (square(3, 32, 32), "cifar_3_32_32"),
        (square(64, 64, 32), "cifar_64_64_32"),
        (square(16, 31, 64), "odd_16_31_64"),
        (square(32, 63, 64), "odd_32_63_64"),
        (square(32, 32, 112, groups=32), "mobilenet_dw_32_112"),
        (square(144, 144, 56, stride=2, groups=144), "mobilenet_dw_144_56_s2"),
        (square(64, 64, 56), "resnet50_64_64_56"),
        (square(3, 64, 224, r=7, stride=2), "resnet50_stem_224"),
        (square(3, 32, 640), "yolo_stem_3_32_640"),
        (square(32, 64, 640, stride=2), "yolo_32_64_640_s2"),
        (square(128, 128, 80), "yolo_128_128_80"),
        (square(64, 64, 224), "vgg16_64_64_224"),
    ]
    return [
        ("sweeps over size, channels, kernel size and batch", swept),
        ("sizes around and past those where MIOpen hung for that owner", hangs),
        ("batch sweeps", batch),
        ("other shapes that RDNA1 owners report on", named),
    ]


def write_seeds():
    seen, body, count = set(), [], 0
    for title, rows in seeds():
        body.append(f"\n# {title}")
        for q, label in rows:
            text = line(q, "")
            if text not in seen:
                seen.add(text)
                body.append(line(q, label))
                count += 1
    head = [
        "# The shapes on which MIOpen was reported to hang or crawl on RDNA1, and those beside them. The hangs are the report of",
        "# one owner (RX 5600 XT, ROCm 5.2 and 5.7, HSA_OVERRIDE_GFX_VERSION=10.3.0); his notes have no run without it.",
        "# Made by scripts/make_suites.py seeds.",
        f"# problems {count}",
    ]
    (SUITES / "seeds.txt").write_text("\n".join(head + body) + "\n")
    print(f"seeds: {count} problems")


def unet_ronneberger(torch):
    """U-Net of Ronneberger, Fischer, Brox (2015), figure 1: 572x572, unpadded 3x3, 2x2 up-convolutions, 2 classes."""
    nn = torch.nn

    def double(c, k):
        return nn.Sequential(nn.Conv2d(c, k, 3), nn.ReLU(), nn.Conv2d(k, k, 3), nn.ReLU())

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            width = [64, 128, 256, 512, 1024]
            self.down = nn.ModuleList(double(c, k) for c, k in zip([1] + width, width))
            self.up = nn.ModuleList(nn.ConvTranspose2d(k, k // 2, 2, stride=2) for k in reversed(width[1:]))
            self.join = nn.ModuleList(double(k, k // 2) for k in reversed(width[1:]))
            self.head = nn.Conv2d(64, 2, 1)

        def forward(self, x):
            skips = []
            for level, block in enumerate(self.down):
                x = block(x if level == 0 else nn.functional.max_pool2d(x, 2))
                skips.append(x)
            skips.pop()
            for up, join in zip(self.up, self.join):
                x, skip = up(x), skips.pop()
                cut = (skip.shape[2] - x.shape[2]) // 2
                skip = skip[:, :, cut : cut + x.shape[2], cut : cut + x.shape[3]]
                x = join(torch.cat([skip, x], dim=1))
            return self.head(x)

    return UNet()


def torchvision_net(name):
    def make(torch):
        import torchvision

        return getattr(torchvision.models, name)(weights=None).eval().to("meta"), (1, 3, 224, 224)

    return make


def unet(torch):
    return unet_ronneberger(torch).to("meta"), (1, 1, 572, 572)


def yolov8n(torch):
    from ultralytics.nn.tasks import DetectionModel

    return DetectionModel("yolov8n.yaml", ch=3, nc=80, verbose=False).eval(), (1, 3, 640, 640)


def sd_vae_decoder(torch):
    from diffusers import AutoencoderKL

    # The published configuration of the autoencoder of Stable Diffusion 1.x and 2.x.
    vae = AutoencoderKL(
        in_channels=3, out_channels=3, latent_channels=4, sample_size=512, layers_per_block=2, norm_num_groups=32,
        block_out_channels=[128, 256, 512, 512], act_fn="silu",
        down_block_types=["DownEncoderBlock2D"] * 4, up_block_types=["UpDecoderBlock2D"] * 4,
    )  # fmt: skip

    class Decode(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.post_quant_conv, self.decoder = vae.post_quant_conv, vae.decoder

        def forward(self, latent):
            return self.decoder(self.post_quant_conv(latent))

    return Decode().eval().to("meta"), (1, 4, 64, 64)


NETS = {
    "resnet18": ("ResNet-18 at 224x224", torchvision_net("resnet18")),
    "resnet50": ("ResNet-50 at 224x224", torchvision_net("resnet50")),
    "vgg16": ("VGG16 at 224x224", torchvision_net("vgg16")),
    "mobilenet_v2": ("MobileNetV2 at 224x224", torchvision_net("mobilenet_v2")),
    "efficientnet_b0": ("EfficientNet-B0 at 224x224", torchvision_net("efficientnet_b0")),
    "densenet121": ("DenseNet-121 at 224x224", torchvision_net("densenet121")),
    "yolov8n": ("YOLOv8n detection at 640x640", yolov8n),
    "unet": ("U-Net (Ronneberger et al. 2015) at 572x572: unpadded 3x3, transposed 2x2", unet),
    "sd_vae_decoder": ("Stable Diffusion 1.x/2.x VAE decoder to 512x512", sd_vae_decoder),
}


def layers(torch, model, shape):
    """(problem, layer name, FLOP) of each convolution in the order in which it runs."""
    found = []

    def hook(name):
        def note(module, inputs, output):
            x, transposed = inputs[0], isinstance(module, torch.nn.ConvTranspose2d)
            if module.padding_mode != "zeros" or isinstance(module.padding, str):
                raise SystemExit(f"{name}: padding {module.padding_mode} {module.padding} has no line")
            if transposed and any(module.output_padding):
                raise SystemExit(f"{name}: output padding is not written by this script")
            r, s = module.kernel_size
            q = {
                "n": x.shape[0], "c": module.in_channels, "h": x.shape[2], "w": x.shape[3],
                "k": module.out_channels, "r": r, "s": s, "pad": module.padding, "stride": module.stride,
                "dilation": module.dilation, "groups": module.groups, "transposed": transposed,
            }  # fmt: skip
            pixels = (x if transposed else output).shape[2:].numel()
            flops = 2 * x.shape[0] * module.out_channels * pixels * module.in_channels // module.groups * r * s
            found.append((q, name, flops))

        return note

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.modules.conv._ConvNd):
            if not isinstance(module, (torch.nn.Conv2d, torch.nn.ConvTranspose2d)):
                raise SystemExit(f"{name}: {type(module).__name__} is not 2-D")
            module.register_forward_hook(hook(name))
    device = next(model.parameters()).device
    with torch.no_grad():
        model(torch.zeros(shape, device=device))
    return found


def write_net(net):
    import torch

    title, make = NETS[net]
    found = layers(torch, *make(torch))
    distinct, counts = {}, {}
    for q, name, _ in found:
        key = line(q, "")
        distinct.setdefault(key, (q, name))
        counts[key] = counts.get(key, 0) + 1
    total = sum(flops for _, _, flops in found)
    head = [
        f"# {title}, batch 1.",
        "# Made by scripts/make_suites.py nets.",
        f"# problems {len(distinct)} layers {len(found)} gmac {total / 2e9:.3f}",
    ]
    body = [line(q, f"{net}/{name} x{counts[key]}") for key, (q, name) in distinct.items()]
    (SUITES / "nets").mkdir(exist_ok=True)
    (SUITES / "nets" / f"{net}.txt").write_text("\n".join(head + body) + "\n")
    print(f"{net}: {len(distinct)} problems, {len(found)} layers, {total / 2e9:.3f} GMAC")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["seeds", "nets"])
    parser.add_argument("net", nargs="*", help="only these networks")
    args = parser.parse_args()
    if args.what == "seeds":
        write_seeds()
        return
    unknown = [n for n in args.net if n not in NETS]
    if unknown:
        sys.exit(f"no network {', '.join(unknown)}; there are {', '.join(NETS)}")
    for net in args.net or NETS:
        write_net(net)


if __name__ == "__main__":
    main()
