"""Attention, and the layers that `torch.nn` runs in one piece in evaluation, made of operators that have kernels."""

from __future__ import annotations

import functools
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
    if mask is None and not need_weights:
        return F.linear(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2), weight, bias), None
    scores = (q * (size // heads) ** -0.5) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(_hidden(mask, mask_type, len(scores)), -torch.inf)
    seen = scores.softmax(-1)
    made = F.linear((seen @ v).transpose(1, 2).flatten(2), weight, bias)
    if not need_weights:
        return made, None
    return made, seen.mean(1) if average else seen


def heads_as_eager(query: Tensor, key: Tensor, value: Tensor, *own: Any, **how: Any) -> tuple[Tensor, Tensor | None]:
    """`F.multi_head_attention_forward`. Where `nn.MultiheadAttention` would run in one piece in eager mode, the same operators:
    of images before rows, without copies to rows before images and back."""
    batch_first = (
        query.transpose(0, 1) if query.dim() == 3 and all(type(size) is int for size in query.shape) else query
    )
    is_plain = (
        query is key and key is value and query.device.type == "wave" and len(own) == 10 and batch_first.is_contiguous()
    )
    asks = any(how.get(name) is not None for name in ("key_padding_mask", "attn_mask", "static_k", "static_v"))
    asks = asks or how.get("need_weights", True) or how.get("training", True) or bool(how.get("is_causal"))
    if batch_first is query or not is_plain or asks or how.get("use_separate_proj_weight"):
        return F.multi_head_attention_forward(query, key, value, *own, **how)
    size, heads, weight, bias, bias_k, bias_v, zero, _, out_weight, out_bias = own
    if (
        bias is None
        or heads % 2
        or bias_k is not None
        or bias_v is not None
        or zero
        or torch.is_autocast_enabled("wave")
    ):
        return F.multi_head_attention_forward(query, key, value, *own, **how)
    x = batch_first
    made, _ = _attention(x, x, x, size, heads, weight, bias, out_weight, out_bias, None, False)
    return made.transpose(0, 1), None


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
    rank = query.dim()
    # Compared, not kept in a set: sizes that torch.compile leaves open have no hash.
    first, *others = ((x.dim(), x.shape[-1], x.shape[0] if x.dim() == 4 else 1) for x in operands)
    if rank not in (3, 4) or any(one != first for one in others) or dropout or any(x.stride(-1) != 1 for x in operands):
        return False
    return mask is None or (mask.dim() in (2, 4) and not (torch.is_grad_enabled() and mask.requires_grad))


def _added(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """A mask as what is added to scores of (batch, head, query, key); strides of 0 repeat it."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), -torch.inf)
    return mask.expand(*query.shape[:3], key.shape[2])


class Whole:
    """While one is entered, what is traced keeps attention as one operator: without gradients `wave::attention_whole`, with them those
    of `_Fused`."""

    count = 0
    # Of tensors; others (a DTensor) take operators of aten alone.
    traced: tuple[type, ...] = ()

    def __enter__(self) -> None:
        from torch._subclasses.fake_tensor import FakeTensor
        from torch._subclasses.functional_tensor import FunctionalTensor

        Whole.traced = (FakeTensor, FunctionalTensor)
        Whole.count += 1

    def __exit__(self, *_: object) -> None:
        Whole.count -= 1


def _is_plain(x: Tensor, whole: bool) -> bool:
    """A tensor of memory; or one that is traced, of known sizes, where attention is kept whole."""
    if type(x) in (Tensor, torch.nn.Parameter):
        return True
    return whole and type(x) in Whole.traced and all(type(size) is int for size in x.shape)


def _dropped(dropout: float) -> int:
    """Of 65536 weights, how many the kernel drops."""
    return round(dropout * 65536)


def _fits(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, whole: bool) -> bool:
    """Whether the kernel may be tried: plain tensors, and nothing that it does not compute. It refuses types and sizes itself."""
    if dropout and (whole or not 0 < dropout < 1 or _dropped(dropout) == 65536):
        return False
    if mask is not None and (mask.device != query.device or mask.dim() > 4):
        return False
    tensors = [query, key, value, *([] if mask is None or mask.dtype == torch.bool else [mask])]
    # What is traced or transformed is decomposed, for the tracer to see, unless it is kept whole.
    if torch._C._are_functorch_transforms_active() or not all(_is_plain(x, whole) for x in tensors):
        return False
    return query.dim() == key.dim() == value.dim() == 4 and not any(x.is_neg() for x in tensors)


def _fits_traced(query: Tensor, key: Tensor, value: Tensor, added: Tensor | None) -> bool:
    """As the kernel checks (`crates/torch/src/ops/attention.rs`): one type, heads of at most 256 elements in multiples of 4."""
    if query.dtype not in (torch.float32, torch.float16, torch.bfloat16) or (
        added is not None and added.dtype != query.dtype
    ):
        return False
    if any(
        x.dtype != query.dtype or not x.numel() or x.shape[-1] % 4 or x.shape[-1] > 256 for x in (query, key, value)
    ):
        return False
    shares = key.shape[:3] == value.shape[:3] and query.shape[0] == key.shape[0] and query.shape[3] == key.shape[3]
    return shares and query.shape[1] % key.shape[1] == 0


def _room(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Where the result is written, for tracers."""
    batch, heads, queries, _ = query.shape
    if _as_query(query, key, value, mask, 0.0):
        like_query = torch.empty_like(query)
        # The kernel writes heads of contiguous elements; a query that is expanded may have others.
        if like_query.stride(3) == 1:
            return like_query
    return query.new_empty(batch, heads, queries, value.shape[3])


def _kept(query: Tensor, key: Tensor, stats: Tensor, dropped: int) -> Tensor:
    """What the kernel's dropout multiplies each weight with: 0, or 1 by the share that is kept. Equal weights of a unit matrix's
    rows are these, by the number of keys."""
    batch, heads, queries, _ = query.shape
    keys = key.shape[2]
    equal = query.new_zeros(batch, heads, max(queries, keys), 4)
    parts = []
    for first in range(0, keys, 256):
        size = -(-min(256, keys - first) // 4) * 4
        unit = torch.eye(keys, first + size, dtype=query.dtype, device=query.device)[:, first:].expand(
            batch, heads, -1, -1
        )
        operands = equal[:, :, :queries], equal[:, :, :keys], unit
        parts.append(_ops()[0](*operands, None, False, 1.0, dropped, False, stats)[0][..., : keys - first])
    return torch.cat(parts, -1).mul_(keys)


def _stats(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """What `wave::attention` returns without dropout, for tracers."""
    return _room(query, key, value, None), query.new_empty(2 * query.shape[:3].numel(), dtype=torch.float32)


def _gradients(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *how: Any) -> tuple[Tensor | None, ...]:
    """What `wave::attention_back` returns, for tracers: laid out as the operands, as the kernels do."""

    def like(x: Tensor) -> Tensor:
        batch, heads, rows, size = x.shape
        if x.stride(1) < x.stride(2):
            return x.new_empty(batch, rows, heads, size).transpose(1, 2)
        return x.new_empty(x.shape)

    of_keys, of_mask = how[-2:]
    empty = query.new_empty(0)
    return (
        like(query), like(key) if of_keys else empty, like(value) if of_keys else empty,
        mask.new_empty(mask.shape) if of_mask and mask is not None else empty,
    )  # fmt: skip


@functools.cache
def _ops() -> tuple[Any, Any]:
    """Forward and backward; found once, as torch looks an overload up at each call."""
    return torch.ops.wave.attention.default, torch.ops.wave.attention_back.default


class _Fused(torch.autograd.Function):
    """Attention and its gradients by kernels that never have the matrix of scores."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        causal: bool,
        scale: float,
        dropped: int,
    ) -> Tensor:
        out, stats = _ops()[0](query, key, value, mask, causal, scale, dropped, True)
        ctx.save_for_backward(query, key, value, mask, out, stats)
        ctx.how = (causal, scale, dropped)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, mask, out, stats = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:4]
        if torch.is_grad_enabled():
            inputs = [x for x, wants in zip((query, key, value, mask), wanted) if wants]
            with torch.no_grad():
                kept = _kept(query, key, stats, ctx.how[2]) if ctx.how[2] else None
            again = _by_definition(query, key, value, mask, kept, *ctx.how[:2])
            made = iter(torch.autograd.grad(again, inputs, grad, create_graph=True))
            return (*(next(made) if wants else None for wants in wanted), None, None, None)
        of_keys, of_mask = wanted[1] or wanted[2], wanted[3]
        made = _ops()[1](query, key, value, mask, out, stats, grad, *ctx.how, of_keys, of_mask)
        return (*(one if wants else None for one, wants in zip(made, wanted)), None, None, None)


def _by_definition(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, kept: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """Attention with the matrix of scores; weights times `kept`."""
    if kept is None:
        op = torch.ops.aten.scaled_dot_product_attention.default
        shared = key.shape[1] != query.shape[1]
        return op.decompose(query, key, value, mask, 0.0, causal, scale=scale, enable_gqa=shared)
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = query @ key.transpose(-2, -1) * scale
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu_(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return ((scores if mask is None else scores + mask).softmax(-1) * kept) @ value


def _scaled_dot_product(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: float = 0.0, causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """By the kernel of its own, or decomposed. With what takes heads apart before, as `transpose` does, a view of the result
    puts them together again."""
    operands = [query, key, value, *([] if mask is None else [mask])]
    recorded = torch.is_grad_enabled() and any(x.requires_grad for x in operands)
    shared = key.dim() == 4 and query.dim() == 4 and key.shape[1] != query.shape[1]
    whole = Whole.count > 0 and type(query) in Whole.traced
    if (
        _fits(query, key, value, mask, dropout, whole)
        and not (causal and mask is not None)
        and (not shared or enable_gqa)
    ):
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        added, dropped = _added(mask, query, key), _dropped(dropout)
        try:
            is_taken = not whole or _fits_traced(query, key, value, added)
            if recorded and is_taken:
                return _Fused.apply(query, key, value, added, causal, factor, dropped)
            if not whole:
                return _ops()[0](query, key, value, added, causal, factor, dropped, False)[0]
            if is_taken:
                return torch.ops.wave.attention_whole.default(query, key, value, added, causal, factor)
        except NotImplementedError:
            pass  # The kernel refused.
    op = torch.ops.aten.scaled_dot_product_attention.default
    made = op.decompose(query, key, value, mask, dropout, causal, scale=scale, enable_gqa=enable_gqa)
    if query.is_contiguous() or made.shape != query.shape or not _as_query(query, key, value, mask, dropout):
        return made
    strides = torch.empty_like(query, device="meta").stride()
    order = sorted(range(made.dim()), key=lambda dim: strides[dim], reverse=True)
    return made.permute(order).contiguous().permute([order.index(dim) for dim in range(made.dim())])


def register() -> None:
    """Registers attention where autograd is recorded, and where it is not."""
    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        library("aten", key).impl("scaled_dot_product_attention", _scaled_dot_product)
    whole = "attention_whole(Tensor q, Tensor k, Tensor v, Tensor? mask, bool causal, float scale) -> Tensor"
    library("wave", "").define(whole)
    library("wave", "PrivateUse1").impl("attention_whole", lambda *operands: _ops()[0](*operands, 0, False)[0])
    library("wave", "Meta").impl("attention_whole", lambda q, k, v, mask, *how: _room(q, k, v, mask))
    library("wave", "Meta").impl("attention", _stats)
    library("wave", "Meta").impl("attention_back", _gradients)


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
