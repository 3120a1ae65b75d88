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
# Samples of a bin in one axis; a region that asks for more is no region of a picture (the CPU's kernel overflows there).
_MOST_SAMPLES = 1 << 12


def _weights(start: torch.Tensor, extent: torch.Tensor, bins: int, samples: int, size: int) -> torch.Tensor:
    """How much each line of a picture counts in each bin: [regions, bins, size]."""
    steps = (torch.arange(bins * samples, device=start.device, dtype=start.dtype) + 0.5) / samples
    place = start[:, None] + steps * (extent / bins)[:, None]
    lines = torch.arange(size, device=start.device, dtype=start.dtype)
    weight = (1 - (place.clamp(0, size - 1)[..., None] - lines).abs()).clamp_(min=0)
    weight = weight * ((place >= -1) & (place <= size))[..., None]
    return weight.unflatten(1, (bins, samples)).mean(2)


def _grids(extent: torch.Tensor, bins: int, samples: int) -> torch.Tensor:
    """Samples of a bin in one axis, region by region: `samples`, or with 0 about one for each line that the bin covers."""
    if samples > 0:
        return torch.full((len(extent),), samples)
    return (extent / bins).ceil().nan_to_num(_MOST_SAMPLES + 1).clamp(0, _MOST_SAMPLES + 1).long()


class _Regions:
    """Regions of pictures, image by image in pieces: the indices of a piece, and its weights of rows and columns."""

    def __init__(self, rois, scale, bins, size, samples, is_aligned):
        # Worked out on the host: a grid's size is a rounded quotient, which must be the CPU's.
        rois = rois.detach().cpu().float()
        corners = rois[:, 1:] * scale - (0.5 if is_aligned else 0.0)
        extent = corners[:, 2:] - corners[:, :2]
        if not is_aligned:
            extent = extent.clamp(min=1)
        # Rows, then columns.
        self.axes = [(corners[:, 1], extent[:, 1], bins[0], size[0]), (corners[:, 0], extent[:, 0], bins[1], size[1])]
        self.grids = [_grids(extent, count, samples) for _, extent, count, _ in self.axes]
        if any(bool((grid > _MOST_SAMPLES).any()) for grid in self.grids):
            raise RuntimeError(
                f"roi_align: a region would take more than {_MOST_SAMPLES} samples for a bin in one axis; clip the boxes to the "
                "picture (torchvision.ops.clip_boxes_to_image), or give sampling_ratio > 0"
            )
        self.images = [int(image) for image in rois[:, 0].tolist()]

    def _lines(self, axis: int, members: list[int], device: torch.device) -> torch.Tensor:
        """Weights of the members' bins in one axis, those with the same number of samples at once."""
        start, extent, bins, size = self.axes[axis]
        start, extent, grid = start[members], extent[members], self.grids[axis][members]
        found = torch.zeros(len(members), bins, size, device=device)
        for samples in grid.unique().tolist():
            if samples == 0:
                continue  # The wrong way round, or empty: zero.
            for at in (grid == samples).nonzero().flatten().split(max(1, _MOST // (bins * samples * size))):
                weights = _weights(start[at].to(device), extent[at].to(device), bins, samples, size)
                found.index_copy_(0, at.to(device), weights)
        return found

    def pieces(self, each: int, device: torch.device) -> Iterator[tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Image, indices, rows, columns; a region takes `each` elements between the products."""
        count = max(1, _MOST // each)
        for image in sorted(set(self.images)):
            members = [i for i, at in enumerate(self.images) if at == image]
            for first in range(0, len(members), count):
                part = members[first : first + count]
                yield image, torch.tensor(part, device=device), self._lines(0, part, device), self._lines(1, part, device)


def _regions(x, rois, size, scale, bins, samples, is_aligned) -> _Regions | None:
    """Of pictures of `size`, [N, C, H, W]. None is for the CPU: products of doubles run there, and what is wrong it words."""
    is_float = x.dtype in (torch.float32, torch.float16, torch.bfloat16) and x.dtype == rois.dtype
    if not is_float or x.dim() != 4 or rois.dim() != 2 or rois.shape[1] != 5 or 0 in size:
        return None
    return _Regions(rois, scale, bins, size[2:], samples, is_aligned)


def roi_align(x, rois, scale, height, width, samples, is_aligned):
    regions = _regions(x, rois, x.shape, scale, (height, width), samples, is_aligned)
    if regions is None:
        return run_on_cpu(torch.ops.torchvision.roi_align.default, x, rois, scale, height, width, samples, is_aligned)
    channels, h, w = x.shape[1:]
    found = x.new_zeros(rois.shape[0], channels, height, width)
    for image, chosen, rows, columns in regions.pieces(height * channels * w, x.device):
        lines = x[image].float().transpose(0, 1).reshape(h, channels * w)
        middle = (rows.flatten(0, 1) @ lines).view(len(chosen), height * channels, w)
        made = (middle @ columns.transpose(1, 2)).view(len(chosen), height, channels, width)
        found.index_copy_(0, chosen, made.transpose(1, 2).to(x.dtype).contiguous())
    return found


def backward(grad, rois, scale, height, width, batch, channels, h, w, samples, is_aligned):
    regions = _regions(grad, rois, (batch, channels, h, w), scale, (height, width), samples, is_aligned)
    if regions is None:
        operator = torch.ops.torchvision._roi_align_backward.default
        return run_on_cpu(operator, grad, rois, scale, height, width, batch, channels, h, w, samples, is_aligned)
    found = torch.zeros(batch, h, channels * w, device=grad.device)
    for image, chosen, rows, columns in regions.pieces(height * channels * w, grad.device):
        part = grad[chosen].float().transpose(1, 2).reshape(len(chosen), height * channels, width)
        middle = (part @ columns).view(len(chosen) * height, channels * w)
        found[image] += rows.flatten(0, 1).t() @ middle
    return found.view(batch, h, channels, w).transpose(1, 2).to(grad.dtype).contiguous()


def register() -> None:
    into = library("torchvision", "PrivateUse1")
    into.impl("roi_align", roi_align)
    into.impl("_roi_align_backward", backward)
