"""Attention, and the layers that `torch.nn` runs in one piece in evaluation, made of operators that have kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from wave32._libraries import library

Tensor = torch.Tensor


def _hidden(mask: Tensor, kind: int | None, batch: int) -> Tensor:
    """A mask of (batch, head, query, key): True where nothing is looked at, or minus infinity."""
    mask = mask if mask.dtype == torch.bool else mask.to(torch.bool)
    if kind == 1:
        return mask.reshape(batch, 1, 1, -1)
    return mask if mask.dim() == 4 else mask.reshape(-1, 1, *mask.shape[-2:])


def _projected(query: Tensor, key: Tensor, value: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    if query is key and key is value:
        return list(F.linear(query, weight, bias).chunk(3, -1))
    parts = zip((query, key, value), weight.chunk(3), bias.chunk(3))
    return [F.linear(x, w, b) for x, w, b in parts]


def _attention(
    query: Tensor, key: Tensor, value: Tensor, size: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor, weight: Tensor,
    bias: Tensor, mask: Tensor | None = None, need_weights: bool = True, average: bool = True, mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    def split(x: Tensor) -> Tensor:
        return x.unflatten(-1, (heads, size // heads)).transpose(1, 2)

    q, k, v = map(split, _projected(query, key, value, qkv_weight, qkv_bias))
    scores = (q * (size // heads) ** -0.5) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(_hidden(mask, mask_type, len(scores)), -torch.inf)
    seen = scores.softmax(-1)
    made = F.linear((seen @ v).transpose(1, 2).flatten(2), weight, bias)
    if not need_weights:
        return made, None
    return made, seen.mean(1) if average else seen


def _encoder_layer(
    x: Tensor, size: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor, weight: Tensor, bias: Tensor, gelu: bool,
    norm_first: bool, eps: float, scale1: Tensor, shift1: Tensor, scale2: Tensor, shift2: Tensor, in_weight: Tensor,
    in_bias: Tensor, out_weight: Tensor, out_bias: Tensor, mask: Tensor | None = None, mask_type: int | None = None,
) -> Tensor:  # fmt: skip
    def attend(x: Tensor) -> Tensor:
        return _attention(x, x, x, size, heads, qkv_weight, qkv_bias, weight, bias, mask, False, False, mask_type)[0]

    def forward(x: Tensor) -> Tensor:
        inner = F.linear(x, in_weight, in_bias)
        return F.linear(F.gelu(inner) if gelu else inner.relu_(), out_weight, out_bias)

    def norm1(x: Tensor) -> Tensor:
        return F.layer_norm(x, (size,), scale1, shift1, eps)

    def norm2(x: Tensor) -> Tensor:
        return F.layer_norm(x, (size,), scale2, shift2, eps)

    if norm_first:
        x = x + attend(norm1(x))
        return x + forward(norm2(x))
    x = norm1(x + attend(x))
    return norm2(x + forward(x))


def _no_nested(x: Tensor, mask: Tensor, mask_check: bool = True) -> Tensor:
    raise NotImplementedError(
        "wave: the device has no nested tensors: make the TransformerEncoder with enable_nested_tensor=False, or leave its "
        "mask_check on"
    )


def _as_query(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> bool:
    """Whether torch would take a fused kernel on the CPU, whose results are laid out as the query is."""
    operands = [query, key, value]
    rank, sizes = query.dim(), {(x.dim(), x.shape[-1], x.shape[0] if x.dim() == 4 else 1) for x in operands}
    if rank not in (3, 4) or len(sizes) > 1 or dropout or any(x.stride(-1) != 1 for x in operands):
        return False
    return mask is None or (mask.dim() in (2, 4) and not (torch.is_grad_enabled() and mask.requires_grad))


def _scaled_dot_product(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: float = 0.0, causal: bool = False,
    **keywords: Any,
) -> Tensor:  # fmt: skip
    """With what takes heads apart before, as `transpose` does, a view puts them together again."""
    op = torch.ops.aten.scaled_dot_product_attention.default
    made = op.decompose(query, key, value, mask, dropout, causal, **keywords)
    if query.is_contiguous() or made.shape != query.shape or not _as_query(query, key, value, mask, dropout):
        return made
    strides = torch.empty_like(query, device="meta").stride()
    order = sorted(range(made.dim()), key=lambda dim: strides[dim], reverse=True)
    return made.permute(order).contiguous().permute([order.index(dim) for dim in range(made.dim())])


def register() -> None:
    """Registers attention where autograd is recorded, and where it is not."""
    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        library("aten", key).impl("scaled_dot_product_attention", _scaled_dot_product)


def _no_nested_list(tensors: list[Tensor], *options: Any, **keywords: Any) -> Tensor:
    # Autograd asks such a tensor for its sizes where an error ends the process.
    raise NotImplementedError(
        "wave: the device has no nested tensors of layout=torch.strided; those of layout=torch.jagged work"
    )


def table() -> dict[str, Callable[..., Any]]:
    """Operator of aten: its implementation."""
    return {
        "_native_multi_head_attention": _attention,
        "_transformer_encoder_layer_fwd": _encoder_layer,
        # Else `nn.TransformerEncoder` would make a nested tensor of what a mask leaves.
        "_nested_tensor_from_mask_left_aligned": lambda x, mask: False,
        "_nested_tensor_from_mask": _no_nested,
        "_nested_tensor_from_tensor_list": _no_nested_list,
    }
