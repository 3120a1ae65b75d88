#!/usr/bin/env python3
"""Makes a picture four times as large by a network of ESRGAN's kind (RRDB), tile by tile.

The network has the layers and names of ESRGAN's and Real-ESRGAN's x4 network (23 blocks). Its weights are random unless
--weights FILE names a state dict that you have (RealESRGAN_x4plus.pth fits): then the picture is of use. Tiles overlap, and
fade into each other, so that no seam is seen. Where the overlap is as wide as the network can see, the result is that of the
whole picture at once; --check compares.
"""

import math

import torch
import torch.nn.functional as F
from common import Run, arguments, parsed, require
from torch import nn


class Dense(nn.Module):
    def __init__(self, width, growth):
        super().__init__()
        for i in range(5):
            setattr(self, f"conv{i + 1}", nn.Conv2d(width + i * growth, growth if i < 4 else width, 3, padding=1))

    def forward(self, x):
        parts = [x]
        for i in range(4):
            parts.append(F.leaky_relu(getattr(self, f"conv{i + 1}")(torch.cat(parts, 1)), 0.2))
        return x + 0.2 * self.conv5(torch.cat(parts, 1))


class Block(nn.Module):
    def __init__(self, width, growth):
        super().__init__()
        self.rdb1, self.rdb2, self.rdb3 = (Dense(width, growth) for _ in range(3))

    def forward(self, x):
        return x + 0.2 * self.rdb3(self.rdb2(self.rdb1(x)))


class Network(nn.Module):
    """Real-ESRGAN's RRDBNet, x4."""

    def __init__(self, blocks=23, width=64, growth=32):
        super().__init__()
        self.conv_first = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(*(Block(width, growth) for _ in range(blocks)))
        self.conv_body, self.conv_up1, self.conv_up2, self.conv_hr = (nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.conv_last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x):
        x = self.conv_first(x)
        x = x + self.conv_body(self.body(x))
        for conv in (self.conv_up1, self.conv_up2):
            x = F.leaky_relu(conv(F.interpolate(x, scale_factor=2, mode="nearest")), 0.2)
        return self.conv_last(F.leaky_relu(self.conv_hr(x), 0.2))

    def sees(self):
        """How many pixels around a pixel its result depends on: one for each 3x3 convolution, less where pixels are smaller."""
        return 1 + 15 * len(self.body) + 1 + math.ceil(1 / 2 + 3 / 4)


def drawn(width, height):
    """A picture [1, 3, height, width] in 0..1: rings, stripes and a disc."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")
    rings = (40 * (x * x + y * y)).sin() / 2 + 0.5
    stripes = ((x + 0.3 * y) * 25).sin().sign() / 2 + 0.5
    disc = ((x - 0.4) ** 2 + (y + 0.3) ** 2 < 0.1).float()
    return torch.stack([rings, stripes * (1 - disc), disc + (1 - disc) * (y / 2 + 0.5)])[None]


def opened(file):
    from PIL import Image
    from torchvision.transforms.functional import to_tensor

    return to_tensor(Image.open(file).convert("RGB"))[None]


def spans(length, tile, overlap):
    """Where tiles begin so that neighbours share at least `overlap` pixels."""
    if length <= tile:
        return [0]
    count = math.ceil((length - overlap) / (tile - overlap))
    return [round(i * (length - tile) / (count - 1)) for i in range(count)]


def fade(start, size, length, overlap, factor, device):
    """Weights along a tile: rising and falling in the middle of the overlap, where a neighbour is."""
    place = torch.arange(size * factor, device=device) + 0.5
    # The outer 3/8 of the overlap have no weight: they see the least of what is around them.
    ramp = max(overlap * factor / 4, 1)
    margin = 1.5 * ramp
    weight = torch.ones_like(place)
    if start > 0:
        weight = weight * ((place - margin) / ramp).clamp(0, 1)
    if start + size < length:
        weight = weight * ((size * factor - place - margin) / ramp).clamp(0, 1)
    return weight


def by_tiles(network, image, tile, overlap, on_tile=lambda: None, factor=4):
    """The network's result for an image on any device, on the CPU; one tile at a time is on the network's."""
    height, width = image.shape[2:]
    like = next(network.parameters())
    total = torch.zeros(1, 3, height * factor, width * factor)
    weights = torch.zeros(height * factor, width * factor)
    for top in spans(height, tile, overlap):
        for left in spans(width, tile, overlap):
            part = image[:, :, top : top + tile, left : left + tile]
            with torch.no_grad():
                made = network(part.to(like)).float().cpu()
            rows = fade(top, part.shape[2], height, overlap, factor, "cpu")
            columns = fade(left, part.shape[3], width, overlap, factor, "cpu")
            weight = rows[:, None] * columns
            down, right = slice(top * factor, (top + part.shape[2]) * factor), slice(left * factor, (left + part.shape[3]) * factor)
            total[:, :, down, right] += made * weight
            weights[down, right] += weight
            on_tile()
    return total / weights


def main():
    parser = arguments(__doc__)
    parser.add_argument("--image", help="without it the script draws a picture")
    parser.add_argument("--width", type=int, default=640, help="of the drawn picture")
    parser.add_argument("--height", type=int, default=480)
    parser.add_argument("--tile", type=int, default=192, help="width and height of a tile, before it is enlarged")
    parser.add_argument("--overlap", type=int, default=32, help="pixels that neighbouring tiles share, before")
    parser.add_argument("--blocks", type=int, default=23)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--dtype", choices=("f32", "f16"), default="f16")
    parser.add_argument("--weights", help="a file with a state dict of Real-ESRGAN's x4 network")
    parser.add_argument("--check", action="store_true", help="compare with the whole picture at once (memory!)")
    parser.add_argument("--out", default="upscaled.png")
    options = parsed(parser, width=88, height=80, tile=72, overlap=56, blocks=1, channels=16, dtype="f32", check=True)
    if options.overlap >= options.tile:
        parser.error("tiles must be larger than their overlap")
    require("torchvision", "PIL")
    run = Run(options)
    network = Network(options.blocks, options.channels, options.channels // 2)
    if options.weights:
        state = torch.load(options.weights, weights_only=True)
        network.load_state_dict(state.get("params_ema", state.get("params", state)))
    network = network.to(run.device, {"f32": torch.float32, "f16": torch.float16}[options.dtype]).eval()
    image = opened(options.image) if options.image else drawn(options.width, options.height)
    height, width = image.shape[2:]
    count = len(spans(height, options.tile, options.overlap)) * len(spans(width, options.tile, options.overlap))
    run.say(f"{width}x{height} in {count} tiles of {options.tile}x{options.tile}; the network sees {network.sees()} pixels around each")
    made = by_tiles(network, image, options.tile, options.overlap, run.ticker("tile", count))
    if not made.isfinite().all():
        raise SystemExit("the picture has a NaN or an infinite number")
    numbers = {"mean": made.mean().item(), "corner": made[0, 0, 0, :8].tolist(), "tiles": count}
    if options.check:
        with torch.no_grad(), run.clock("whole picture"):
            whole = network(image.to(next(network.parameters()))).float().cpu()
        numbers["seams"] = ((made - whole).abs().max() / whole.abs().max()).item()
        run.say(f"tiles differ from the whole picture by {numbers['seams']:.1e} of its largest value")
        if options.overlap * 3 // 8 >= network.sees() and numbers["seams"] > {"f32": 1e-4, "f16": 1e-2}[options.dtype]:
            raise SystemExit("there are seams")
    from torchvision.transforms.functional import to_pil_image

    if not options.weights:  # random weights give any range
        made = (made - made.min()) / (made.max() - made.min())
    to_pil_image(made[0].clamp(0, 1)).save(options.out)
    run.say(f"{options.out}: {width * 4}x{height * 4}")
    run.finish(**numbers)


if __name__ == "__main__":
    main()
