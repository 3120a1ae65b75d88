"""Operators on lists of tensors (`torch._foreach_*`) where the list kernels refuse: one call a tensor.

Those kernels take f32, f16 and bf16; see `crates/torch/src/ops/foreach.rs`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from wave32 import _native

Tensor = torch.Tensor


def _one_by_one(name: str) -> Callable[..., None]:
    base = name.partition(".")[0]
    method = base.removeprefix("_foreach_")
    single = getattr(torch.Tensor, method, None) or (
        lambda x, *args: x.copy_(getattr(torch, method.removesuffix("_"))(x, *args))
    )

    def call(self: list[Tensor], *args: Any, **kwargs: Any) -> None:
        args += tuple(kwargs.values())
        lists = [isinstance(a, (list, tuple)) for a in args]
        for i, tensor in enumerate(self):
            picked = [a[i] if is_list else a for a, is_list in zip(args, lists, strict=True)]
            named = {}
            if base in ("_foreach_addcmul_", "_foreach_addcdiv_") and len(picked) > 2:
                named["value"] = picked.pop()
            if base in ("_foreach_add_", "_foreach_sub_") and len(picked) > 1:
                named["alpha"] = picked.pop()
            single(tensor, *picked, **named)

    return call


def _sums(self: list[Tensor], other: list[Tensor], alpha: Any = 1) -> list[Tensor]:
    return [torch.add(a, b, alpha=alpha) for a, b in zip(self, other, strict=True)]


# What a kernel that refuses calls instead.
INSTEAD: dict[str, Callable[..., Any]] = {
    name: _one_by_one(name) for name in _native.scalar_operators() if name.startswith("_foreach_")
} | {"_foreach_add.List": _sums}
