"""torchvision's `roi_align` as products of matrices. A bin's value is a mean of bilinear samples on a grid, and a sample's
weight is one of its row times one of its column: rows are summed by one product, columns by another. Gradients are the same
products the other way, in the same order every run."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from wave32._fallback import run_on_cpu
from wave32._libraries import library

# Elements of the tensor between the two products, in one piece.
_MOST = 1 << 25


def _weights(start: torch.Tensor, extent: torch.Tensor, bins: int, samples: int, size: int) -> torch.Tensor:
    """How much each line of a picture counts in each bin: [regions, bins, size]."""
    steps = (torch.arange(bins * samples, device=start.device, dtype=start.dtype) + 0.5) / samples
    place = start[:, None] + steps * (extent / bins)[:, None]
    lines = torch.arange(size, device=start.device, dtype=start.dtype)
    weight = (1 - (place.clamp(0, size - 1)[..., None] - lines).abs()).clamp_(min=0)
    weight = weight * ((place >= -1) & (place <= size))[..., None]
    return weight.unflatten(1, (bins, samples)).mean(2)


class _Regions:
    """Regions of pictures, image by image in pieces: the indices of a piece, and its weights of rows and columns."""

    def __init__(self, rois, scale, bins, size, samples, is_aligned):
        rois = rois.float()
        corners = rois[:, 1:] * scale - (0.5 if is_aligned else 0.0)
        extent = corners[:, 2:] - corners[:, :2]
        if not is_aligned:
            extent = extent.clamp(min=1)
        self.columns = _weights(corners[:, 0], extent[:, 0], bins[1], samples, size[1])
        self.rows = _weights(corners[:, 1], extent[:, 1], bins[0], samples, size[0])
        self.images = [int(image) for image in rois[:, 0].tolist()]

    def pieces(self, each: int) -> Iterator[tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Image, indices, rows, columns; a region takes `each` elements between the products."""
        count = max(1, _MOST // each)
        for image in sorted(set(self.images)):
            members = [i for i, at in enumerate(self.images) if at == image]
            for first in range(0, len(members), count):
                chosen = torch.tensor(members[first : first + count], device=self.rows.device)
                yield image, chosen, self.rows[chosen], self.columns[chosen]


def _is_ours(x: torch.Tensor, rois: torch.Tensor, samples: int) -> bool:
    """Without a number of samples each region has its own; products of doubles run on the CPU; what is wrong the CPU words."""
    is_float = x.dtype in (torch.float32, torch.float16, torch.bfloat16) and x.dtype == rois.dtype
    return is_float and samples > 0 and x.dim() == 4 and rois.dim() == 2 and rois.shape[1] == 5


def roi_align(x, rois, scale, height, width, samples, is_aligned):
    if not _is_ours(x, rois, samples) or x.numel() == 0:
        return run_on_cpu(torch.ops.torchvision.roi_align.default, x, rois, scale, height, width, samples, is_aligned)
    channels, h, w = x.shape[1:]
    regions = _Regions(rois, scale, (height, width), (h, w), samples, is_aligned)
    found = x.new_zeros(rois.shape[0], channels, height, width)
    for image, chosen, rows, columns in regions.pieces(height * channels * w):
        lines = x[image].float().transpose(0, 1).reshape(h, channels * w)
        middle = (rows.flatten(0, 1) @ lines).view(len(chosen), height * channels, w)
        made = (middle @ columns.transpose(1, 2)).view(len(chosen), height, channels, width)
        found.index_copy_(0, chosen, made.transpose(1, 2).to(x.dtype).contiguous())
    return found


def backward(grad, rois, scale, height, width, batch, channels, h, w, samples, is_aligned):
    if not _is_ours(grad, rois, samples) or batch * channels * h * w == 0:
        operator = torch.ops.torchvision._roi_align_backward.default
        return run_on_cpu(operator, grad, rois, scale, height, width, batch, channels, h, w, samples, is_aligned)
    regions = _Regions(rois, scale, (height, width), (h, w), samples, is_aligned)
    found = torch.zeros(batch, h, channels * w, device=grad.device)
    for image, chosen, rows, columns in regions.pieces(height * channels * w):
        part = grad[chosen].float().transpose(1, 2).reshape(len(chosen), height * channels, width)
        middle = (part @ columns).view(len(chosen) * height, channels * w)
        found[image] += rows.flatten(0, 1).t() @ middle
    return found.view(batch, h, channels, w).transpose(1, 2).to(grad.dtype).contiguous()


def register() -> None:
    into = library("torchvision", "PrivateUse1")
    into.impl("roi_align", roi_align)
    into.impl("_roi_align_backward", backward)
