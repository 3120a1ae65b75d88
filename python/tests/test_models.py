"""What real networks are made of runs on the device: small ones of every kind, outputs and gradients beside the CPU's.

`scripts/models_table.py` does the same with whole networks, for longer.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

tv = pytest.importorskip("torchvision.models")
ops = pytest.importorskip("torchvision.ops")


class Yolo(nn.Module):
    """A detector of YOLOv8's kind: C2f, SPPF, a pyramid, boxes as distributions; its loss with an assigner."""

    def __init__(self, width=8, classes=3, bins=4):
        super().__init__()
        self.classes, self.bins = classes, bins

        def conv(inputs, outputs, kernel=1, stride=1):
            layers = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs), nn.SiLU()
            return nn.Sequential(*layers)

        self.stem = nn.Sequential(conv(3, width, 3, 2), conv(width, width, 3, 2))
        self.split, self.inner, self.join = conv(width, width), conv(width // 2, width // 2, 3), conv(width + width // 2, width)
        self.down, self.after = conv(width, 2 * width, 3, 2), conv(8 * width, 2 * width)
        self.mix = conv(3 * width, width)
        self.heads = nn.ModuleList(nn.Conv2d(w, 4 * bins + classes, 1) for w in (width, 2 * width))

    def forward(self, x):
        x = self.split(self.stem(x))
        parts = list(x.chunk(2, 1))
        x = self.join(torch.cat([*parts, parts[1] + self.inner(parts[1])], 1))
        y = [self.down(x)]
        for _ in range(3):
            y.append(F.max_pool2d(y[-1], 5, 1, 2))
        y = self.after(torch.cat(y, 1))
        x = self.mix(torch.cat([F.interpolate(y, scale_factor=2.0), x], 1))
        made = [head(level).flatten(2).transpose(1, 2) for head, level in zip(self.heads, (x, y))]
        centres = []
        for level, stride in ((x, 4), (y, 8)):
            rows, columns = (torch.arange(n, device=x.device, dtype=x.dtype) + 0.5 for n in level.shape[2:])
            rows, columns = torch.meshgrid(rows, columns, indexing="ij")
            centres.append(torch.stack([columns, rows], -1).reshape(-1, 2) * stride)
        centres, (sides, scores) = torch.cat(centres), torch.cat(made, 1).split((4 * self.bins, self.classes), 2)
        sides = sides.unflatten(2, (4, self.bins)).softmax(3) @ torch.arange(self.bins, device=x.device, dtype=x.dtype) * 4
        boxes = torch.cat([centres - sides[..., :2], centres + sides[..., 2:]], 2)
        # The best places for each box, by overlap and score, without gradients.
        truth = torch.tensor([[2.0, 3.0, 20.0, 25.0], [8.0, 8.0, 30.0, 28.0]], device=x.device, dtype=x.dtype)
        with torch.no_grad():
            inside = (centres[:, None] > truth[:, :2]).all(2) & (centres[:, None] < truth[:, 2:]).all(2)
            fits = torch.stack([ops.box_iou(b, truth) for b in boxes]) * scores.sigmoid()[..., :1] * inside
            best = torch.zeros_like(fits, dtype=torch.bool).scatter_(1, fits.topk(5, 1).indices, True) & (fits > 0)
            taken, which = best.any(2), fits.masked_fill(~best, -1).argmax(2)
        target = F.one_hot(which, self.classes).to(scores.dtype) * taken[..., None]
        loss = F.binary_cross_entropy_with_logits(scores, target, reduction="sum") / 10
        return loss + ops.complete_box_iou_loss(boxes[taken], truth[which[taken]], reduction="sum")


class Autoencoder(nn.Module):
    """What the Stable Diffusion VAE is made of: group norm, SiLU, attention over pixels, uneven padding, resampling."""

    def __init__(self, width=16):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(4, width, eps=1e-6) for _ in range(3))
        self.one, self.down = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, 2)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        x = self.first(x)
        x = x + self.one(F.silu(self.norms[0](x)))
        x = self.down(F.pad(x, (0, 1, 0, 1)))
        n, c, h, w = x.shape
        q, k, v = self.qkv(self.norms[1](x).flatten(2).transpose(1, 2)).unflatten(2, (3, 1, c)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).squeeze(1)).transpose(1, 2).reshape(n, c, h, w)
        return self.last(F.silu(self.norms[2](F.interpolate(x, scale_factor=2.0, mode="nearest"))))


def small_swin():
    swin = tv.swin_transformer
    parts = dict(block=swin.SwinTransformerBlockV2, downsample_layer=swin.PatchMergingV2)
    return swin.SwinTransformer([2, 2], 12, [1, 2], [2, 2], [4, 4], num_classes=5, stochastic_depth_prob=0.0, **parts)


def small_convnext():
    blocks = [tv.convnext.CNBlockConfig(8, 16, 1), tv.convnext.CNBlockConfig(16, None, 1)]
    return tv.ConvNeXt(blocks, stochastic_depth_prob=0.0, num_classes=5)


def small_regnet():
    return tv.RegNet(tv.regnet.BlockParams([1, 1], [8, 16], [4, 4], [1.0, 1.0], [2, 2], 0.25), num_classes=5, stem_width=8)


class Lraspp(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = tv.segmentation.lraspp.LRASPPHead(4, 8, 3, 6)
        self.low, self.high = nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 8, 3, 2, 1)

    def forward(self, x):
        low = self.low(x)
        return self.head({"low": low, "high": F.hardswish(self.high(low))})


class Video(nn.Module):
    """A residual block of r3d_18's."""

    def __init__(self):
        super().__init__()
        self.stem, self.block = nn.Conv3d(3, 4, (3, 5, 5), (1, 2, 2), (1, 2, 2)), nn.Conv3d(4, 4, 3, 2, 1, bias=False)
        self.norm, self.short = nn.BatchNorm3d(4), nn.Conv3d(4, 4, 1, 2)

    def forward(self, x):
        x = F.silu(self.stem(torch.stack([x, x.flip(2), x.roll(1, 3)], 2)))
        return F.adaptive_avg_pool3d(self.norm(self.block(x)) + self.short(x), 1).flatten(1)


class Flow(nn.Module):
    """What RAFT does besides convolutions: all-pairs correlation, lookup by grid, convex upsampling by unfold."""

    def __init__(self):
        super().__init__()
        self.features, self.mask = nn.Conv2d(3, 8, 3, 4, 1), nn.Conv2d(8, 36, 1)

    def forward(self, x):
        a, b = self.features(x), self.features(x.flip(3))
        n, c, h, w = a.shape
        pairs = torch.einsum("nchw,ncij->nhwij", a, b).reshape(n * h * w, 1, h, w) / c**0.5
        grid = torch.stack(torch.meshgrid(*(torch.linspace(-1, 1, 3, device=x.device, dtype=x.dtype),) * 2, indexing="xy"), -1)
        seen = F.grid_sample(pairs, grid.expand(n * h * w, 3, 3, 2) + pairs.mean((1, 2, 3)).tanh()[:, None, None, None] / 9,
                             align_corners=True)  # fmt: skip
        flow = seen.reshape(n, h, w, 9)[..., :2].permute(0, 3, 1, 2)
        mask = self.mask(a).view(n, 1, 9, 2, 2, h, w).softmax(2)
        moved = F.unfold(2 * flow, 3, padding=1).view(n, 2, 9, 1, 1, h, w)
        return (mask * moved).sum(2).permute(0, 1, 4, 2, 5, 3).reshape(n, 2, 2 * h, 2 * w)


NETS = {
    "yolo": Yolo,
    "autoencoder": Autoencoder,
    "swin_v2": small_swin,
    "vit": lambda: tv.VisionTransformer(32, 8, 1, 2, 8, 16, num_classes=5),
    "convnext": small_convnext,
    "regnet_y": small_regnet,
    "lraspp": Lraspp,
    "video": Video,
    "flow": Flow,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NETS)
def test_a_step(name):
    net, x = NETS[name]().train(), torch.rand(2, 3, 32, 32)
    for parameter in net.parameters():
        if not parameter.any():  # Some heads start at zero, where there are no gradients to compare.
            nn.init.normal_(parameter, std=0.1)
    for module in net.modules():
        if isinstance(module, (nn.ReLU, nn.Hardswish)):  # A kink next to zero is decided by rounding.
            module.forward = F.silu
        if isinstance(module, nn.Dropout):
            module.p = 0.0

    def step(device, dtype):
        moved = copy.deepcopy(net).to(device, dtype)
        optimizer = torch.optim.AdamW(moved.parameters(), lr=1e-3)
        out = moved(x.to(device, dtype))
        loss = out if out.dim() == 0 else (out - out.detach().flip(0).sin()).square().mean()
        loss.backward()
        grads = {key: p.grad.cpu().double() for key, p in moved.named_parameters() if p.grad is not None}
        optimizer.step()
        assert all(p.isfinite().all() for p in moved.parameters())
        return out.detach().cpu().double(), grads

    out, grads = step("wave", torch.float32)
    assert torch.wave.fallbacks() == {}
    (cpu_out, cpu_grads), (true_out, true_grads) = step("cpu", torch.float32), step("cpu", torch.float64)
    scale = max(g.abs().max().item() for g in true_grads.values())
    assert grads.keys() == true_grads.keys()

    def error(found, true, floor):
        return ((found - true).abs().max() / max(true.abs().max().item(), floor)).item()

    assert error(out, true_out, 1e-6) < max(1e-4, 4 * error(cpu_out, true_out, 1e-6))
    for key, true in true_grads.items():
        limit = max(1e-4, 4 * error(cpu_grads[key], true, 1e-3 * scale))
        assert error(grads[key], true, 1e-3 * scale) < limit, key
