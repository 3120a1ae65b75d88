"""Convolutions over volumes, as convolutions over images: each slice of the result sees the slices that it is made of as
channels."""

from __future__ import annotations

from typing import Any

import torch
from torch._prims_common import suggest_memory_format

aten = torch.ops.aten


def _slices(x: torch.Tensor, taps: int, stride: int, pad: int, dilation: int, count: int) -> torch.Tensor:
    """(N, C, D, H, W) as (N * count, C * taps, H, W)."""
    padded = torch.nn.functional.pad(x, (0, 0, 0, 0, pad, pad)) if pad else x
    seen = padded.unfold(2, dilation * (taps - 1) + 1, stride)[..., ::dilation].narrow(2, 0, count)
    n, c, _, h, w, _ = seen.shape
    return seen.permute(0, 2, 1, 5, 3, 4).reshape(n * count, c * taps, h, w)


def _sum(y: torch.Tensor, n: int, taps: int, stride: int, pad: int, dilation: int, depth: int) -> torch.Tensor:
    """What `_slices` is the transpose of: (N * count, C * taps, H, W) summed up to (N, C, depth, H, W)."""
    rows, channels, h, w = y.shape
    count = rows // n
    parts = y.reshape(n, count, channels // taps, taps, h, w).transpose(1, 2)
    # Types of 16 bits are rounded once more at the end, not at each tap.
    total = y.new_zeros(n, channels // taps, depth + 2 * pad, h, w, dtype=torch.float32)
    for tap in range(taps):
        begin = tap * dilation
        total[:, :, begin : begin + stride * (count - 1) + 1 : stride] += parts[:, :, :, tap]
    return total.narrow(2, pad, depth).to(y.dtype).contiguous()


class _Geometry:
    def __init__(self, x: Any, weight: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any):
        self.taps, self.batch, self.depth = weight.shape[2], x.shape[0], x.shape[2]
        self.along = (self.taps, stride[0], padding[0], dilation[0])
        reach = dilation[0] * (self.taps - 1)
        if transposed:
            self.outs = (self.depth - 1) * stride[0] - 2 * padding[0] + reach + output_padding[0] + 1
        else:
            self.outs = (self.depth + 2 * padding[0] - reach - 1) // stride[0] + 1
        self.weight = weight.reshape(weight.shape[0], -1, *weight.shape[3:])
        self.rest = (stride[1:], padding[1:], dilation[1:], transposed, output_padding[1:])


def _images(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).reshape(-1, x.shape[1], *x.shape[3:])


def _volume(y: torch.Tensor, batch: int) -> torch.Tensor:
    return y.reshape(batch, -1, *y.shape[1:]).transpose(1, 2).contiguous()


def _fits(x: Any, weight: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
          groups: int) -> bool:  # fmt: skip
    """Whether this is such a convolution, and a right one: the CPU words what is wrong of the others."""
    floats = (torch.float32, torch.float16, torch.bfloat16)
    if x.dim() != 5 or weight.dim() != 5 or x.dtype not in floats or weight.dtype != x.dtype or x.numel() == 0:
        return False
    if any(len(values) != 3 for values in (stride, padding, dilation, output_padding)):
        return False
    taken = weight.shape[0] if transposed else weight.shape[1] * groups
    if groups < 1 or weight.shape[0] % groups or taken != x.shape[1]:
        return False
    for size, taps, step, pad, apart, extra in zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, output_padding):
        reach = apart * (taps - 1) + 1
        made = (size - 1) * step - 2 * pad + reach + extra if transposed else size + 2 * pad - reach + 1
        if made < 1 or step < 1 or apart < 1 or pad < 0 or extra < 0 or (transposed and extra and extra >= max(step, apart)):
            return False
    return True


def convolves_in(x: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """How results lie, of images and volumes: channels last where an operand is."""
    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    return last if last in (suggest_memory_format(x), suggest_memory_format(weight)) else torch.contiguous_format


def convolution(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
                output_padding: Any, groups: int) -> Any:  # fmt: skip
    if not _fits(x, weight, stride, padding, dilation, transposed, output_padding, groups):
        return NotImplemented
    to = _Geometry(x, weight, stride, padding, dilation, transposed, output_padding)
    if not transposed:
        seen = _slices(x, *to.along, to.outs)
        made = _volume(aten.convolution(seen, to.weight, bias, *to.rest, groups), to.batch)
        return made.contiguous(memory_format=convolves_in(x, weight))
    made = aten.convolution(_images(x), to.weight, None, *to.rest, groups)
    made = _sum(made, to.batch, *to.along, to.outs)
    made = made if bias is None else made.add_(bias.reshape(-1, 1, 1, 1))
    return made.contiguous(memory_format=convolves_in(x, weight))


def convolution_backward(grad: Any, x: Any, weight: Any, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
                         transposed: bool, output_padding: Any, groups: int, mask: Any) -> Any:  # fmt: skip
    if not _fits(x, weight, stride, padding, dilation, transposed, output_padding, groups):
        return NotImplemented
    to = _Geometry(x, weight, stride, padding, dilation, transposed, output_padding)
    of_bias = grad.sum((0, 2, 3, 4)) if mask[2] else None
    if transposed:
        grad, seen = _slices(grad, *to.along, to.depth), _images(x)
    else:
        grad, seen = _images(grad), _slices(x, *to.along, to.outs)
    wanted = [mask[0], mask[1], False]
    of_x, of_weight, _ = aten.convolution_backward(grad, seen, to.weight, None, *to.rest, groups, wanted)
    if mask[0]:
        of_x = _volume(of_x, to.batch) if transposed else _sum(of_x, to.batch, *to.along, to.depth)
        of_x = of_x.contiguous(memory_format=convolves_in(x, weight))
    if mask[1]:
        of_weight = of_weight.reshape(weight.shape).contiguous(memory_format=convolves_in(x, weight))
    return of_x, of_weight if mask[1] else None, of_bias


# What runs in place of kernels that refuse, unless it refuses as well.
INSTEAD = {"convolution": convolution, "convolution_backward": convolution_backward}
