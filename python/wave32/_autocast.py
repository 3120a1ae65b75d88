"""`torch.autocast("wave")`: the same lists of operators as CUDA's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from wave32 import _native
from wave32._libraries import LIBRARIES, library

LOWER = """
_convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input conv_transpose3d.input convolution
prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linalg_multi_dot linear addbmm baddbmm bmm chain_matmul
scaled_dot_product_attention lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
""".split()

FLOAT32 = """
acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor
pow.Scalar softplus layer_norm native_layer_norm group_norm frobenius_norm.dim nuclear_norm nuclear_norm.dim
cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss
smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss
multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d
_upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d upsample_linear1d
upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d
""".split()

# These take a dtype, which float32 becomes where the caller gave none.
FLOAT32_DTYPE = """
prod prod.dim_int softmax.int log_softmax.int cumprod cumsum sum sum.dim_IntList linalg_vector_norm
""".split()

WIDEST = """
addcdiv addcmul atan2 bilinear cross dot vdot grid_sample index_put tensordot scatter_add cat stack
""".split()

# Operators of these lists that are in Rust (`crates/torch/src/dispatch/autocast.rs`), once registered.
NATIVE: list[str] = []

_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
_HALVES = (torch.float16, torch.bfloat16)


def _is_eligible(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.device.type == "wave" and (
        value.dtype != torch.float64
    )


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_cast(item, dtype) for item in value])
    return value.to(dtype) if _is_eligible(value) and value.dtype != dtype else value


def _all(op: Any, choose: Callable[[tuple, dict], torch.dtype]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            dtype = choose(args, kwargs)
            kwargs = {name: _cast(value, dtype) for name, value in kwargs.items()}
            return op(*_cast(args, dtype), **kwargs)

    return call


def _with_dtype(op: Any) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            if args and _is_eligible(args[0]) and args[0].dtype in _HALVES:
                names = [a.name for a in op._schema.arguments]
                if kwargs.get("dtype") is None and names.index("dtype") >= len(args):
                    kwargs["dtype"] = torch.float32
            return op(*args, **kwargs)

    return call


def _lower(args: tuple, kwargs: dict) -> torch.dtype:
    return torch.get_autocast_dtype("wave")


def _float32(args: tuple, kwargs: dict) -> torch.dtype:
    return torch.float32


def _widest(args: tuple, kwargs: dict) -> torch.dtype:
    def dtypes(value: Any) -> list[torch.dtype]:
        if isinstance(value, (list, tuple)):
            return [dtype for item in value for dtype in dtypes(item)]
        return [value.dtype] if _is_eligible(value) else []

    found = dtypes(args) + dtypes(tuple(kwargs.values()))
    return torch.float32 if torch.float32 in found else torch.get_autocast_dtype("wave")


def _banned(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast. "
        "Use binary_cross_entropy_with_logits or BCEWithLogitsLoss instead."
    )


def register(known: bool) -> None:
    """Registers the lists; operators in none run with the types they get. In a torch that is known, those that networks
    call most are in Rust."""
    rest = torch.library.Library("_", "IMPL")
    rest.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    LIBRARIES.append(rest)
    if known:
        NATIVE.extend(_native.settle_autocast(int(torch._C.DispatchKey.AutocastPrivateUse1)))
    autocast = library("aten", "AutocastPrivateUse1")

    def each(names: list[str], make: Callable[[Any], Callable[..., Any]]) -> None:
        for name in names:
            base, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, base, None), overload or "default", None)
            if op is not None and name not in NATIVE:  # Some come and go with torch's versions.
                autocast.impl(name, make(op))

    each(LOWER, lambda op: _all(op, _lower))
    each(FLOAT32, lambda op: _all(op, _float32))
    each(FLOAT32_DTYPE, _with_dtype)
    each(WIDEST, lambda op: _all(op, _widest))
    autocast.impl("binary_cross_entropy", _banned)
