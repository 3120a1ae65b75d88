"""Products of matrices and vectors, and of matrices with weights of four bits, made of operators that have kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch._prims_common import compute_elementwise_output_strides

from wave32._fallback import run_on_cpu
from wave32._outs import into_given

aten = torch.ops.aten


def _addmv(y: torch.Tensor, a: torch.Tensor, x: torch.Tensor, beta: Any = 1, alpha: Any = 1) -> torch.Tensor:
    return torch.addmm(y.expand(a.shape[0]).unsqueeze(1), a, x.unsqueeze(1), beta=beta, alpha=alpha).squeeze(1)


def _addmv_out(
    y: torch.Tensor, a: torch.Tensor, x: torch.Tensor, *, beta: Any = 1, alpha: Any = 1, out: torch.Tensor
) -> torch.Tensor:
    if a.numel() == 0:
        # Of no matrix the CPU makes what is added, whatever its sizes.
        return run_on_cpu(aten.addmv.out, y, a, x, beta=beta, alpha=alpha, out=out)
    return into_given(_addmv)(y, a, x, beta=beta, alpha=alpha, out=out)


def _refused_scale(y: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *scales: Any) -> bool:
    """Whether `beta` or `alpha` is of a kind that the CPU does not multiply the result's type by."""
    kind = torch.promote_types(y.dtype, torch.promote_types(a.dtype, b.dtype))
    exact = not kind.is_floating_point and not kind.is_complex
    return any(
        (isinstance(scale, bool) and kind != torch.bool)
        or (isinstance(scale, float) and exact)
        or (isinstance(scale, complex) and not kind.is_complex)
        for scale in scales
    )


def _addr(y: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> torch.Tensor:
    if a.dim() != 1 or b.dim() != 1 or _refused_scale(y, a, b, beta, alpha):
        return run_on_cpu(aten.addr.default, y, a, b, beta=beta, alpha=alpha)  # Which words the error.
    kind = torch.promote_types(y.dtype, torch.promote_types(a.dtype, b.dtype))
    y, left, right = y.expand(a.numel(), b.numel()).to(kind), a.unsqueeze(1).to(kind), b.to(kind)
    product = ((left if alpha == 1 else left * alpha) * right).to(kind)
    if beta != 0:
        return ((y if beta == 1 else y * beta) + product).to(kind)  # Truths times whole numbers are numbers.
    # What is added to may be NaN, but the result is still laid out as it.
    strides = compute_elementwise_output_strides(y, left.expand(y.shape), right.expand(y.shape))
    return product if product.stride() == strides else product.new_empty_strided(y.shape, strides).copy_(product)


def _addr_out(
    y: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1, out: torch.Tensor
) -> torch.Tensor:
    kind = torch.promote_types(y.dtype, torch.promote_types(a.dtype, b.dtype))
    if out is y and y.shape != (a.numel(), b.numel()) or not torch.can_cast(kind, out.dtype):
        return run_on_cpu(aten.addr.out, y, a, b, beta=beta, alpha=alpha, out=out)  # Which words the error.
    return into_given(lambda: _addr(y, a, b, beta=beta, alpha=alpha).to(out.dtype))(out=out)


def _addr_in_place(y: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **scale: Any) -> torch.Tensor:
    if y.shape != (a.numel(), b.numel()):
        return run_on_cpu(aten.addr_.default, y, a, b, **scale)  # Which words the error.
    return _addr_out(y, a, b, **scale, out=y)


def _pack_int4(bytes_: torch.Tensor, inner_k_tiles: int) -> torch.Tensor:
    """Weights of four bits, two a byte, the first in the upper half, as torch's `meta` kernel has them: four dimensions of
    whole words. The order within is the device's own affair, and stays as it comes."""
    if bytes_.dtype != torch.uint8 or bytes_.dim() != 2 or inner_k_tiles not in (2, 4, 8):
        raise RuntimeError("_convert_weight_to_int4pack: expects a matrix of uint8, and 2, 4 or 8 inner tiles")
    n, k = bytes_.shape[0], 2 * bytes_.shape[1]
    if n % 8 or k % (16 * inner_k_tiles):
        raise RuntimeError(f"_convert_weight_to_int4pack: {n} rows of {k} are no multiples of 8 and {16 * inner_k_tiles}")
    words = bytes_.contiguous().view(torch.int32)
    return words.reshape(n // 8, k // (16 * inner_k_tiles), 32, inner_k_tiles // 2).clone()


def _int4_mm(x: torch.Tensor, packed: torch.Tensor, group: int, scales_and_zeros: torch.Tensor) -> torch.Tensor:
    """`x` by the weights' transpose: each is (bits - 8) * scale + zero of its group along the row."""
    if packed.dim() != 4 or packed.dtype != torch.int32:
        raise RuntimeError("_weight_int4pack_mm: expects weights of _convert_weight_to_int4pack")
    n, k = 8 * packed.shape[0], 32 * packed.shape[1] * packed.shape[3]
    if x.dim() != 2 or x.shape[1] != k or group not in (32, 64, 128, 256) or k % group:
        raise RuntimeError(f"_weight_int4pack_mm: expects rows of {k} in groups of 32, 64, 128 or 256 that divide them")
    if scales_and_zeros.shape != (k // group, n, 2) or scales_and_zeros.dtype != x.dtype:
        raise RuntimeError(f"_weight_int4pack_mm: expects scales and zeros of sizes {(k // group, n, 2)} and {x.dtype}")
    pairs = packed.reshape(-1).view(torch.uint8)
    bits = torch.stack([torch.bitwise_right_shift(pairs, 4), torch.bitwise_and(pairs, 15)], -1)
    scales, zeros = scales_and_zeros.float().transpose(0, 1).unsqueeze(2).unbind(-1)
    weights = (bits.reshape(n, k // group, group).float() - 8) * scales + zeros
    return x @ weights.reshape(n, k).to(x.dtype).t()


# Operator of aten: its implementation.
TABLE = {
    "addmv.out": _addmv_out,
    "addr": _addr,
    "addr.out": _addr_out,
    "addr_": _addr_in_place,
    "_convert_weight_to_int4pack": _pack_int4,
    "_weight_int4pack_mm": _int4_mm,
}
