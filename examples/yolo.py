#!/usr/bin/env python3
"""Trains a detector of YOLOv8n's layout on pictures of rectangles, then finds rectangles in new pictures.

The network is YOLOv8n (C2f blocks, SPPF, a pyramid of three levels, a head that gives each side of a box as a distribution),
written in plain PyTorch. The loss is YOLOv8's: a task-aligned assigner, binary cross entropy, complete IoU and distribution
focal loss. The script draws its pictures: rectangles of three kinds on noise. The loss must fall. Detection uses
torchvision's batched nms.
"""

import contextlib
import math

import torch
import torch.nn.functional as F
from common import Run, arguments, parsed, require
from torch import nn

BINS, STRIDES = 16, (8, 16, 32)


def conv(inputs, outputs, kernel=1, stride=1):
    norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.03)
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), norm, nn.SiLU(inplace=True))


class C2f(nn.Module):
    def __init__(self, inputs, outputs, count, is_residual):
        super().__init__()
        half = outputs // 2
        self.first, self.last, self.is_residual = conv(inputs, outputs), conv((2 + count) * half, outputs), is_residual
        self.inner = nn.ModuleList(nn.Sequential(conv(half, half, 3), conv(half, half, 3)) for _ in range(count))

    def forward(self, x):
        parts = list(self.first(x).chunk(2, 1))
        for block in self.inner:
            parts.append(parts[-1] + block(parts[-1]) if self.is_residual else block(parts[-1]))
        return self.last(torch.cat(parts, 1))


class SPPF(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.last = conv(width, width // 2), conv(2 * width, width)

    def forward(self, x):
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.last(torch.cat(parts, 1))


class Network(nn.Module):
    """YOLOv8 of a width (n: 16)."""

    def __init__(self, classes, width=16):
        super().__init__()
        w, self.classes = width, classes
        self.stem = nn.Sequential(conv(3, w, 3, 2), conv(w, 2 * w, 3, 2), C2f(2 * w, 2 * w, 1, True))
        self.level3 = nn.Sequential(conv(2 * w, 4 * w, 3, 2), C2f(4 * w, 4 * w, 2, True))
        self.level4 = nn.Sequential(conv(4 * w, 8 * w, 3, 2), C2f(8 * w, 8 * w, 2, True))
        self.level5 = nn.Sequential(conv(8 * w, 16 * w, 3, 2), C2f(16 * w, 16 * w, 1, True), SPPF(16 * w))
        self.up4, self.up3 = C2f(24 * w, 8 * w, 1, False), C2f(12 * w, 4 * w, 1, False)
        self.down3, self.down4 = conv(4 * w, 4 * w, 3, 2), conv(8 * w, 8 * w, 3, 2)
        self.out4, self.out5 = C2f(12 * w, 8 * w, 1, False), C2f(24 * w, 16 * w, 1, False)
        widths = (4 * w, 8 * w, 16 * w)
        box, score = max(16, w, 4 * BINS), max(4 * w, min(classes, 100))
        self.boxes = nn.ModuleList(nn.Sequential(conv(i, box, 3), conv(box, box, 3), nn.Conv2d(box, 4 * BINS, 1)) for i in widths)
        self.scores = nn.ModuleList(nn.Sequential(conv(i, score, 3), conv(score, score, 3), nn.Conv2d(score, classes, 1)) for i in widths)
        for boxes, scores, stride in zip(self.boxes, self.scores, STRIDES):
            nn.init.constant_(boxes[-1].bias, 1.0)
            nn.init.constant_(scores[-1].bias, math.log(5 / classes / (640 / stride) ** 2))

    def forward(self, x):
        """Distributions of box sides [N, places, 4, BINS] and scores [N, places, classes]."""
        x3 = self.level3(self.stem(x))
        x4 = self.level4(x3)
        x5 = self.level5(x4)
        y4 = self.up4(torch.cat([F.interpolate(x5, scale_factor=2.0, mode="nearest"), x4], 1))
        y3 = self.up3(torch.cat([F.interpolate(y4, scale_factor=2.0, mode="nearest"), x3], 1))
        y4 = self.out4(torch.cat([self.down3(y3), y4], 1))
        y5 = self.out5(torch.cat([self.down4(y4), x5], 1))
        levels = (y3, y4, y5)
        sides = torch.cat([head(y).flatten(2) for head, y in zip(self.boxes, levels)], 2)
        scores = torch.cat([head(y).flatten(2) for head, y in zip(self.scores, levels)], 2)
        return sides.transpose(1, 2).unflatten(2, (4, BINS)).float(), scores.transpose(1, 2).float()


def places(size, device):
    """The centre of each place, in pixels, and its stride."""
    centres, strides = [], []
    for stride in STRIDES:
        line = (torch.arange(size // stride, device=device) + 0.5) * stride
        y, x = torch.meshgrid(line, line, indexing="ij")
        centres.append(torch.stack([x, y], -1).reshape(-1, 2))
        strides.append(torch.full((centres[-1].shape[0], 1), float(stride), device=device))
    return torch.cat(centres), torch.cat(strides)


def decoded(sides, centres, strides):
    """Boxes as corners in pixels."""
    distance = sides.softmax(-1) @ torch.arange(BINS, device=sides.device, dtype=sides.dtype) * strides
    return torch.cat([centres - distance[..., :2], centres + distance[..., 2:]], -1)


def overlaps(a, b):
    """IoU of each pair [N, places, objects]."""
    low, high = torch.maximum(a[:, :, None, :2], b[:, None, :, :2]), torch.minimum(a[:, :, None, 2:], b[:, None, :, 2:])
    common = (high - low).clamp(min=0).prod(-1)
    area = [(x[..., 2:] - x[..., :2]).clamp(min=0).prod(-1) for x in (a, b)]
    return common / (area[0][:, :, None] + area[1][:, None] - common + 1e-7)


@torch.no_grad()
def assigned(scores, boxes, centres, truth, kinds, top=10):
    """For each place: whether an object is its own, which one, and how good the place is for it (TaskAlignedAssigner)."""
    inside = ((centres[:, None] > truth[:, None, :, :2]) & (centres[:, None] < truth[:, None, :, 2:])).all(-1)
    iou = overlaps(boxes, truth)
    score = scores.sigmoid().gather(2, kinds[:, None].expand(-1, scores.shape[1], -1))
    fit = score**0.5 * iou**6 * inside
    best = torch.zeros_like(inside).scatter_(1, fit.topk(top, 1).indices, True) & inside
    which = (iou * best).argmax(2)
    own = best.any(2)
    chosen = F.one_hot(which, truth.shape[1]).bool() & best
    fit, iou = fit * chosen, iou * chosen
    quality = (fit * iou.amax(1, keepdim=True) / (fit.amax(1, keepdim=True) + 1e-9)).amax(2)
    return own, which, quality


def loss_of(output, centres, strides, truth, kinds):
    from torchvision.ops import complete_box_iou_loss

    sides, scores = output
    boxes = decoded(sides, centres, strides)
    own, which, quality = assigned(scores, boxes, centres, truth, kinds)
    target = F.one_hot(kinds.gather(1, which), scores.shape[2]) * quality[..., None]
    total = target.sum().clamp(min=1)
    classes = F.binary_cross_entropy_with_logits(scores, target, reduction="sum") / total
    goal = truth.gather(1, which[..., None].expand(-1, -1, 4))
    weight = quality[own]
    place = (weight * complete_box_iou_loss(boxes[own], goal[own])).sum() / total
    # Between which two bins each side lies, and how far.
    distance = torch.cat([centres - goal[..., :2], goal[..., 2:] - centres], -1) / strides
    distance = distance.clamp(0, BINS - 1.01)[own]
    low = distance.long()
    rest = distance - low
    logits = sides[own].flatten(0, 1)
    spread = F.cross_entropy(logits, low.flatten(), reduction="none") * (1 - rest).flatten()
    spread = spread + F.cross_entropy(logits, low.flatten() + 1, reduction="none") * rest.flatten()
    spread = (spread.view(-1, 4).mean(1) * weight).sum() / total
    return 7.5 * place + 0.5 * classes + 1.5 * spread


def pictures(count, size, objects, classes, generator):
    """Pictures with rectangles of `classes` kinds on noise; corners [count, objects, 4] and kinds."""
    images = torch.rand(count, 3, size, size, generator=generator) * 0.4
    colours = torch.tensor([[0.9, 0.2, 0.2], [0.2, 0.9, 0.2], [0.3, 0.3, 1.0]])
    extent = torch.randint(size // 5, size // 2, (count, objects, 2), generator=generator)
    corner = (torch.rand(count, objects, 2, generator=generator) * (size - extent)).long()
    kinds = torch.randint(classes, (count, objects), generator=generator)
    for image, corners, extents, names in zip(images, corner.tolist(), extent.tolist(), kinds.tolist()):
        for (x, y), (width, height), kind in zip(corners, extents, names):
            image[:, y : y + height, x : x + width] = colours[kind % 3, :, None, None] / (1 + kind // 3)
    return images, torch.cat([corner, corner + extent], -1).float(), kinds


def detect(network, images, centres, strides, least=0.1):
    """Boxes, scores and kinds of each picture."""
    from torchvision.ops import batched_nms

    with torch.no_grad():
        sides, scores = network.eval()(images)
    found = []
    for boxes, score in zip(decoded(sides, centres, strides), scores.sigmoid()):
        best, kind = score.max(1)
        kept = best > least
        boxes, best, kind = boxes[kept], best[kept], kind[kept]
        kept = batched_nms(boxes, best, kind, 0.5)[:100]
        found.append((boxes[kept], best[kept], kind[kept]))
    return found


def main():
    parser = arguments(__doc__)
    parser.add_argument("--size", type=int, default=640, help="width and height of a picture, a multiple of 32")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--width", type=int, default=16, help="channels of the first layer; 16 is YOLOv8n, 32 YOLOv8s")
    parser.add_argument("--classes", type=int, default=3)
    parser.add_argument("--objects", type=int, default=4, help="rectangles in a picture")
    parser.add_argument("--amp", action="store_true", help="train under autocast in f16")
    options = parsed(parser, size=96, batch=2, steps=10, width=8, objects=2)
    require("torchvision")
    run = Run(options)
    generator = torch.Generator().manual_seed(options.seed)
    network = Network(options.classes, options.width).to(run.device).train()
    run.say(f"{sum(p.numel() for p in network.parameters()) / 1e6:.2f} million weights, {options.size}x{options.size}, batch {options.batch}")
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=5e-4)
    scaler = torch.amp.GradScaler(run.device, enabled=options.amp)
    centres, strides = places(options.size, run.device)
    drawn = [pictures(options.batch, options.size, options.objects, options.classes, generator) for _ in range(min(options.steps, 8))]
    losses = []
    for step in run.steps("training step", options.steps):
        images, truth, kinds = (t.to(run.device) for t in drawn[step % len(drawn)])
        with torch.autocast(run.device, torch.float16) if options.amp else contextlib.nullcontext():
            output = network(images)
        loss = loss_of(output, centres, strides, truth, kinds)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    losses = torch.stack(losses).tolist()
    edge = max(len(losses) // 5, 1)
    first, last = (sum(part) / edge for part in (losses[:edge], losses[-edge:]))
    speed = options.batch / run.seconds["training step"]
    run.say(f"loss {first:.3f} at first, {last:.3f} at last; {speed:.1f} pictures a second")
    if not last < first:
        raise SystemExit("the loss did not fall")
    images, truth, kinds = pictures(options.batch, options.size, options.objects, options.classes, generator)
    for _ in run.steps("detection", 3):
        found = detect(network, images.to(run.device), centres, strides)
    best = [overlaps(boxes.cpu()[None], corners[None]).amax(1)[0] if len(boxes) else torch.zeros(len(corners)) for (boxes, _, _), corners in zip(found, truth)]
    hits = torch.cat(best) > 0.5
    run.say(f"{hits.sum().item()} of {len(hits)} rectangles of new pictures found, {sum(len(f[0]) for f in found)} boxes")
    run.finish(losses=losses, found=hits.float().mean().item(), pictures_per_second=speed)


if __name__ == "__main__":
    main()
