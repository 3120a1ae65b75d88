"""Reductions with a `Scalar`; see `_scalar_ops`."""

from __future__ import annotations

import math
from typing import Any

import torch

from wave32._fallback import run_on_cpu

aten = torch.ops.aten


def _norm_type(self: torch.Tensor, dtype: torch.dtype | None) -> torch.dtype | None:
    """The type of a norm that the device computes, or none."""
    wanted = dtype or self.dtype
    known = self.dtype.is_floating_point and wanted.is_floating_point
    # What a narrower type rounds before it is squared, a kernel would not.
    return wanted if known and torch.finfo(wanted).bits >= torch.finfo(self.dtype).bits else None


def _is_order(order: Any, self: torch.Tensor) -> bool:
    plain = isinstance(order, (int, float)) and not math.isnan(order)
    return plain and (self.numel() > 0 or 0 <= order < math.inf)


def _vector_norm(
    self: torch.Tensor,
    ord: Any = 2,  # noqa: A002
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    wanted = _norm_type(self, dtype)
    if wanted is not None and _is_order(ord, self):
        try:
            return torch.ops.wave.vector_norm(self, float(ord), dim, keepdim, wanted)
        except NotImplementedError:  # Refused before anything was written.
            pass
    return run_on_cpu(aten.linalg_vector_norm.default, self, ord, dim, keepdim, dtype=dtype)


def _vector_norm_out(
    self: torch.Tensor,
    ord: Any = 2,  # noqa: A002
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: torch.Tensor,
) -> torch.Tensor:
    if dtype not in (None, out.dtype):
        return run_on_cpu(aten.linalg_vector_norm.out, self, ord, dim, keepdim, dtype=dtype, out=out)
    result = _vector_norm(self, ord, dim, keepdim, dtype=dtype)
    if out.dtype != result.dtype:
        return run_on_cpu(aten.linalg_vector_norm.out, self, ord, dim, keepdim, dtype=dtype, out=out)
    return _into(result, out)


def _norm(self: torch.Tensor, p: Any, dim: Any, keepdim: bool = False) -> torch.Tensor:
    wanted = _norm_type(self, None)
    order = 2 if p is None else p
    if wanted is not None and _is_order(order, self):
        try:
            return torch.ops.wave.vector_norm(self, float(order), dim, keepdim, wanted)
        except NotImplementedError:  # Refused before anything was written.
            pass
    return run_on_cpu(aten.norm.ScalarOpt_dim, self, p, dim, keepdim)


def _norm_out(
    self: torch.Tensor, p: Any, dim: Any, keepdim: bool = False, *, out: torch.Tensor
) -> torch.Tensor:
    if out.dtype != self.dtype or not self.dtype.is_floating_point:
        return run_on_cpu(aten.norm.out, self, p, dim, keepdim, out=out)
    return _into(_norm(self, p, dim, keepdim), out)


def _into(result: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    if out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result)


def _spread(root: bool, with_mean: bool, fallback: Any) -> Any:
    own = torch.ops.wave.variance_and_mean if with_mean else torch.ops.wave.variance

    def spread(
        self: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
    ) -> Any:
        by = 1 if correction is None else correction
        if self.dtype.is_floating_point and isinstance(by, (int, float)) and self.numel() > 0:
            try:
                return own(self, dim, float(by), keepdim, root)
            except NotImplementedError:  # Refused before anything was written.
                pass
        return run_on_cpu(fallback, self, dim, correction=correction, keepdim=keepdim)

    return spread


def _spread_out(root: bool, fallback: Any) -> Any:
    functional = _spread(root, False, aten.std.correction if root else aten.var.correction)

    def spread_out(
        self: torch.Tensor,
        dim: Any = None,
        *,
        correction: Any = None,
        keepdim: bool = False,
        out: torch.Tensor,
    ) -> torch.Tensor:
        if out.dtype != self.dtype:
            return run_on_cpu(fallback, self, dim, correction=correction, keepdim=keepdim, out=out)
        return _into(functional(self, dim, correction=correction, keepdim=keepdim), out)

    return spread_out


# Operator of aten: its implementation.
TABLE = {
    "linalg_vector_norm": _vector_norm,
    "linalg_vector_norm.out": _vector_norm_out,
    "norm.ScalarOpt_dim": _norm,
    "norm.out": _norm_out,
    "var.correction": _spread(False, False, aten.var.correction),
    "var.correction_out": _spread_out(False, aten.var.correction_out),
    "std.correction": _spread(True, False, aten.std.correction),
    "std.correction_out": _spread_out(True, aten.std.correction_out),
    "var_mean.correction": _spread(False, True, aten.var_mean.correction),
    "std_mean.correction": _spread(True, True, aten.std_mean.correction),
}
