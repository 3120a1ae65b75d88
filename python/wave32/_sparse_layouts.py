"""Registration for sparse layouts, and compressed tensors (CSR, CSC, BSR, BSC).

Most of torch's functions for the CPU's sparse tensors are made of operators on a tensor's parts, which are tensors of the
device: they run here as they are. Those that read elements run on the CPU, counted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from wave32._fallback import operator, run_on_cpu
from wave32._libraries import library

# What a compressed tensor is made of, and what makes another of it.
COMPRESSED = """empty.memory_format empty_like sparse_dim dense_dim _nnz crow_indices col_indices ccol_indices row_indices
    values resize_ resize_as_sparse_ copy_ clone zero_ fill_.Scalar normal_ select.int select_copy.int _to_dense
    _to_sparse.sparse_dim sparse_mask is_pinned _pin_memory sum sum.dim_IntList angle angle.out conj_physical_
    _conj_physical mul.Scalar mul_.Scalar""".split()

# Elementwise and zero where zero is; most come with `.out` and `_`.
UNARY = [
    name + kind
    for name in """abs asin asinh atan atanh ceil conj_physical deg2rad erf erfinv expm1 floor frac isinf isnan isneginf
        isposinf log1p neg rad2deg relu round sgn sign signbit sin sinh sqrt tan tanh threshold_backward trunc""".split()
    for kind in ("", ".out", "_", ".grad_input")
]


def register(layout: str, alike: list[str], own: dict[str, Callable[..., Any]]) -> None:
    """Operators on tensors of `layout`: `own`, those that run as on the CPU, and on the CPU what is left."""
    kernels = library("aten", f"{layout}PrivateUse1")
    cpu = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"{layout}CPU"))
    for full in torch._C._dispatch_get_all_op_names():
        if not full.startswith("aten::") or not torch._C._dispatch_has_kernel_for_dispatch_key(full, f"{layout}CPU"):
            continue
        name = full.removeprefix("aten::")
        if name in own:
            continue
        # Without a row of its own an operator would run torch's composite kernel, where there is one: made for strided tensors.
        run = operator(name).redispatch if name in alike else run_on_cpu
        kernels.impl(name, functools.partial(run, cpu if name in alike else operator(name)))
    for name, implementation in own.items():
        kernels.impl(name, implementation)
    library("_", f"{layout}PrivateUse1").fallback(run_on_cpu, f"{layout}PrivateUse1")


def register_compressed() -> None:
    """Registers those of compressed tensors."""
    register("SparseCsr", COMPRESSED + UNARY, {})
