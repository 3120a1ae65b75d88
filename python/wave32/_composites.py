"""Operators made of others that have kernels: rare enough that a kernel of their own would not pay."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._prims_common import suggest_memory_format

from wave32 import _products, _resampling
from wave32._fallback import operator, run_on_cpu
from wave32._outs import into_given

aten = torch.ops.aten

# What PyTorch itself knows how to make of others. Names that end in `out` are what functions arrive as.
TORCHS = """im2col col2im max_unpool2d unfold_backward isin.Tensor_Tensor_out renorm.out nansum
    linalg_cross.out""".split()

_COMPLEX = (torch.complex32, torch.complex64, torch.complex128)
_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
# Types of the first operand that the CPU's kernels refuse: it words the error.
REFUSED = {
    "im2col": _WHOLE,
    "_cdist_forward": (torch.bool, *_WHOLE, *_COMPLEX),
    "nansum": _COMPLEX,
    "median": (torch.bool, *_COMPLEX),
    "median.dim_values": (torch.bool, *_COMPLEX),
    "kthvalue.values": (torch.bool, *_COMPLEX),
    "searchsorted.Tensor": (torch.bool, *_COMPLEX),
    "bucketize.Tensor": (torch.bool, *_COMPLEX),
    "trace": (torch.bool,),
    "_unique": _COMPLEX,
    "_unique2": _COMPLEX,
}


def _gradients(function: Callable[..., torch.Tensor], inputs: list[torch.Tensor], grad: torch.Tensor) -> Any:
    """The gradients of `function(*inputs)` by autograd, which kernels run below of and so have to call back."""
    autograd = torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradPrivateUse1)
    autograd = autograd | torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    include = torch._C._dispatch_tls_local_include_set()
    exclude = torch._C._dispatch_tls_local_exclude_set() - autograd
    with torch._C._ForceDispatchKeyGuard(include, exclude), torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in inputs]
        grads = torch.autograd.grad(function(*leaves), leaves, grad, allow_unused=True)
        return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, grads)]


def _grid_sampler(x: torch.Tensor, grid: torch.Tensor, mode: int, padding: int, align: bool) -> torch.Tensor:
    fits = x.dim() == grid.dim() == 4 and len(x) == len(grid) and grid.shape[3] == 2 and 0 not in x.shape[2:]
    if not fits or x.dtype != grid.dtype or not x.is_floating_point() or x.device != grid.device:
        return run_on_cpu(aten.grid_sampler_2d.default, x, grid, mode, padding, align)  # Which words the refusal.
    return decomposition_table[aten.grid_sampler_2d.default](x, grid, mode, padding, align).contiguous()


def _grid_sampler_backward(
    grad: torch.Tensor, x: torch.Tensor, grid: torch.Tensor, mode: int, padding: int, align: bool, mask: list[bool]
) -> tuple[Any, Any]:
    sample = decomposition_table[aten.grid_sampler_2d.default]
    wanted = [t for t, asked in zip((x, grid), mask) if asked]

    def function(*leaves: torch.Tensor) -> torch.Tensor:
        given = iter(leaves)
        return sample(next(given) if mask[0] else x, next(given) if mask[1] else grid, mode, padding, align)

    grads = iter(_gradients(function, wanted, grad) if wanted else ())
    return tuple(next(grads).contiguous() if asked else None for asked in mask)  # type: ignore[return-value]


def _unique(
    x: torch.Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Any, Any, Any]:
    values, order = torch.sort(x.reshape(-1), stable=True)
    starts = torch.ones_like(values, dtype=torch.bool)
    starts[1:] = values[1:] != values[:-1]
    places = starts.nonzero().squeeze(1)
    groups = starts.cumsum(0) - 1
    none = order.new_empty(0)
    back = torch.empty_like(order).scatter_(0, order, groups).reshape(x.shape) if return_inverse else none
    ends = torch.cat([places[1:], places.new_full((1,), values.numel())]) if return_counts and values.numel() else places
    return values[places], back, ends - places if return_counts else none


def _bincount(x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> torch.Tensor:
    if x.dim() != 1 or x.is_floating_point() or x.dtype == torch.bool or minlength < 0 or (x.numel() and int(x.min()) < 0):
        return run_on_cpu(aten.bincount.default, x, weights, minlength)  # Which words the error.
    if not x.numel():
        return torch.zeros(minlength, dtype=torch.int64, device=x.device)  # Whatever the weights' type is.
    bins = max(int(x.max()) + 1, minlength)
    dtype = torch.int64 if weights is None else torch.float32 if weights.dtype == torch.float32 else torch.float64
    ones = torch.ones_like(x, dtype=dtype) if weights is None else weights.to(dtype)
    return torch.zeros(bins, dtype=dtype, device=x.device).index_add_(0, x.long(), ones)


def _searchsorted(
    edges: torch.Tensor, x: torch.Tensor, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: torch.Tensor | None = None,
) -> torch.Tensor:
    if edges.dim() != 1 or sorter is not None or side not in (None, "left", "right") or (side is not None and right):
        op = aten.searchsorted.Tensor
        return run_on_cpu(op, edges, x, out_int32=out_int32, right=right, side=side, sorter=sorter)
    return _bucketize(x, edges, out_int32=out_int32, right=right or side == "right")


def _bucketize(x: torch.Tensor, edges: torch.Tensor, *, out_int32: bool = False, right: bool = False) -> torch.Tensor:
    """Each step halves what is left of the edges."""
    if edges.dim() != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({edges.dim()})")
    x = x.contiguous()
    found, reach = torch.zeros_like(x, dtype=torch.int64), 1 << max(edges.numel(), 1).bit_length()
    while reach := reach >> 1:
        # The first `found` edges lie before x; do `reach` more?
        next = found + reach
        edge = edges[(next - 1).clamp(max=max(edges.numel() - 1, 0))] if edges.numel() else x
        before = edge <= x if right else edge < x
        # NaN lies behind all edges.
        before = (before | (x != x)) & (next <= edges.numel())
        found = torch.where(before, next, found)
    return found.int() if out_int32 else found


# `Check::OutputSize` of crates/torch-logic/src/checks.rs.
_OUTPUT_SIZE = 2


def _repeat_interleave(repeats: torch.Tensor, output_size: int | None = None) -> torch.Tensor:
    counts = repeats.dtype in (torch.int32, torch.int64)
    if not counts or repeats.dim() != 1 or repeats.numel() == 0 or bool((repeats < 0).any()):
        return run_on_cpu(aten.repeat_interleave.Tensor, repeats, output_size=output_size)
    ends = repeats.cumsum(0)
    if output_size is not None:
        # Looked at with the next wait: to need none is what a given size is for.
        torch.ops.wave.raise_where(ends[-1] != output_size, _OUTPUT_SIZE)
    places = torch.arange(int(ends[-1]) if output_size is None else output_size, device=repeats.device)
    return _bucketize(places, ends, right=True).to(repeats.dtype)


# Up to how many numbers a permutation of floats may have for PyTorch; one of whole numbers has what the type holds.
_PERMUTED = {torch.float16: 2**11 + 1, torch.float32: 2**24 + 1, torch.float64: 2**53 + 1, torch.bfloat16: 2**63}


def _randperm(n: int, *, generator: Any = None, out: torch.Tensor) -> torch.Tensor:
    whole = not out.is_floating_point() and not out.is_complex() and out.dtype != torch.bool
    if not 0 <= n <= (torch.iinfo(out.dtype).max + 1 if whole else _PERMUTED.get(out.dtype, -1)):
        return run_on_cpu(aten.randperm.out, n, out=out)  # Which words the error.
    keys = torch.empty(n, dtype=torch.int64, device=out.device).random_(generator=generator)
    return out.resize_(n).copy_(keys.argsort())


def _multinomial(weights: torch.Tensor, count: int, replacement: bool = False, *, generator: Any = None) -> torch.Tensor:
    kinds = weights.shape[-1] if weights.dim() in (1, 2) else 0
    drawn = replacement and count > 1
    whole = not weights.is_floating_point()
    if whole or count < 1 or kinds < (1 if replacement else count) or (drawn and weights.numel() * count > 1 << 26):
        return run_on_cpu(aten.multinomial.default, weights, count, replacement)
    # Weights that are none, which the CPU tells from another.
    if not bool(((weights >= 0).all() & weights.isfinite().all() & (weights.sum(-1) > 0).all()).item()):
        return run_on_cpu(aten.multinomial.default, weights, count, replacement)
    possible = weights > 0
    if not drawn:
        # The first of independent exponential clocks, whose rates are the weights, to strike; those of rate 0 never do.
        clocks = torch.empty_like(weights, dtype=torch.float32).exponential_(generator=generator)
        rates = weights / clocks
        return torch.where(possible, rates.clamp_(min=torch.finfo(rates.dtype).tiny), 0).topk(count).indices
    # Of the largest, so that neither does their sum overflow nor what is small in all of them vanish.
    sums = (weights / weights.amax(-1, keepdim=True)).float().cumsum(-1)
    # Sums are made in parallel: rounding may set one apart from the one before although nothing was added.
    sums = torch.where(possible, sums, -1)
    at = torch.rand(*weights.shape[:-1], count, device=weights.device, generator=generator) * sums.amax(-1, keepdim=True)
    return (sums.unsqueeze(-2) > at.unsqueeze(-1)).to(torch.uint8).argmax(-1)


def _normal(mean: Any, std: Any, *, generator: Any = None) -> torch.Tensor:
    tensors = [t for t in (mean, std) if isinstance(t, torch.Tensor)]
    try:
        sizes = torch.broadcast_shapes(*(t.shape for t in tensors))
    except RuntimeError:
        return mean + std  # Which words the error.
    if not bool((std >= 0).all()) if isinstance(std, torch.Tensor) else not std >= 0:
        given = "all elements of std >= 0.0" if isinstance(std, torch.Tensor) else f"std >= 0.0, but found std {std:g}"
        raise RuntimeError(f"normal expects {given}")
    return torch.empty(sizes, dtype=tensors[0].dtype, device="wave").normal_(generator=generator) * std + mean


def _kaiser_window(length: int, periodic: bool = True, beta: float = 12.0, **options: Any) -> torch.Tensor:
    """On the host: torch asks a table of kernels for one, where no device from outside can have any."""
    wanted = options.pop("dtype", None) or torch.get_default_dtype()
    window = torch.kaiser_window(length, periodic, beta, dtype=wanted, device="cpu")
    return window.to(options.get("device") or "wave")


def _log_normal(x: torch.Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> torch.Tensor:
    if not std > 0:
        return run_on_cpu(aten.log_normal_.default, x, mean, std)
    if not x.numel():  # Of any type.
        return x
    return x.normal_(mean, std, generator=generator).exp_()


def _cauchy(x: torch.Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None) -> torch.Tensor:
    if not sigma > 0:
        return run_on_cpu(aten.cauchy_.default, x, median, sigma)
    return x.uniform_(generator=generator).sub_(0.5).mul_(math.pi).tan_().mul_(sigma).add_(median)


def _geometric(x: torch.Tensor, p: float, *, generator: Any = None) -> torch.Tensor:
    if not 0 < p < 1:
        return run_on_cpu(aten.geometric_.default, x, p)
    u = torch.empty_like(x, dtype=torch.float32).uniform_(generator=generator)
    return x.copy_(u.neg_().log1p_().div_(math.log1p(-p)).ceil_().clamp_(min=1))


def _trace(x: torch.Tensor) -> torch.Tensor:
    return x.diagonal().sum() if x.dim() == 2 else run_on_cpu(aten.trace.default, x)


def _cdist(a: torch.Tensor, b: torch.Tensor, p: float, mode: int | None = None) -> torch.Tensor:
    return torch.linalg.vector_norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, -1)


def _cdist_backward(grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, p: float, distance: torch.Tensor) -> torch.Tensor:
    return _gradients(lambda a: _cdist(a, b, p), [a], grad)[0]


def _weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    norm = torch.norm_except_dim(v, 2, dim)
    return v * (g / norm), norm


def _weight_norm_backward(grad: torch.Tensor, v: torch.Tensor, g: torch.Tensor, norms: torch.Tensor, dim: int) -> Any:
    return _gradients(lambda v, g: _weight_norm(v, g, dim)[0], [v, g], grad)


def _rrelu(
    x: torch.Tensor, noise: torch.Tensor, lower: Any = 0.125, upper: Any = 1 / 3, training: bool = False, generator: Any = None
) -> torch.Tensor:
    if not training:
        return aten.leaky_relu(x, (lower + upper) / 2)
    noise.uniform_(lower, upper, generator=generator).masked_fill_(x > 0, 1)
    return x * noise


def _dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.dtype != b.dtype:
        return run_on_cpu(aten.dot.default, a, b)  # Which words the error.
    return (a.unsqueeze(0) @ b.unsqueeze(1)).reshape(())


def _addbmm(y: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> torch.Tensor:
    batch, rows, inner = a.shape
    product = a.transpose(0, 1).reshape(rows, batch * inner), b.reshape(batch * inner, b.shape[2])
    return torch.addmm(y, *product, beta=beta, alpha=alpha)


def _scatter_reduce(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, include_self: bool = True
) -> torch.Tensor:
    whole = not x.is_floating_point() and not x.is_complex()
    if reduce not in ("sum", "mean") or whole:
        return run_on_cpu(aten.scatter_reduce.two, x, dim, index, source, reduce, include_self=include_self)
    if x.is_complex() and x.dtype == source.dtype and x.dtype != torch.complex32:
        parts = (torch.view_as_real(y.resolve_conj().resolve_neg()).unbind(-1) for y in (x, source))
        made = [_scatter_reduce(real, dim, index, by, reduce, include_self) for real, by in zip(*parts)]
        return torch.view_as_complex(torch.stack(made, -1))
    total = (x if include_self else x.scatter(dim, index, 0)).scatter_add(dim, index, source)
    if reduce == "sum":
        return total
    count = (torch.ones_like(x) if include_self else torch.zeros_like(x)).scatter_add(dim, index, torch.ones_like(source))
    return total / count.clamp_(min=1)


def _median(x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    if x.dim() == 0:
        return run_on_cpu(aten.median.dim, x, dim, keepdim)
    values, places = x.sort(stable=True, dim=dim)
    at = (x.shape[dim] - 1) // 2
    values, places = values.narrow(dim, at, 1), places.narrow(dim, at, 1)
    if x.is_floating_point():
        nan = x.isnan()
        values = values.masked_fill(nan.any(dim, keepdim=True), math.nan)
        places = torch.where(nan.any(dim, keepdim=True), nan.int().argmax(dim, keepdim=True), places)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def _kth(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    if x.dim() == 0:
        return run_on_cpu(aten.kthvalue.default, x, k, dim, keepdim)
    if x.numel() == 0 and x.shape[dim] == 0:
        raise IndexError(f"kthvalue(): Expected reduction dim {dim} to have non-zero size.")
    if not 1 <= k <= x.shape[dim]:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {dim}")
    found = [part.narrow(dim, k - 1, 1) for part in x.sort(stable=True, dim=dim)]
    return tuple(found) if keepdim else tuple(part.squeeze(dim) for part in found)


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool((a == b).all())


def _take(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1)[index.contiguous()]


def _put(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    if not accumulate and torch.are_deterministic_algorithms_enabled():
        # The CPU's alert, or its warning.
        torch.zeros(1).put_(torch.zeros(1, dtype=torch.int64), torch.zeros(1))
    if not x.is_contiguous() or source.numel() != index.numel():
        return run_on_cpu(aten.put_.default, x, index, source, accumulate)
    x.view(-1).index_put_((index.reshape(-1),), source.reshape(-1), accumulate)
    return x


def _in_format_of(x: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    """Channels last where PyTorch takes `x` for that."""
    # A single channel is in both formats; the strides tell which.
    format = suggest_memory_format(x)
    return made.contiguous() if format == torch.contiguous_format else made.clone(memory_format=format)


def _pixel_shuffle(x: torch.Tensor, by: int) -> torch.Tensor:
    # Of no elements the CPU does not look at the sizes, or at others.
    if x.dim() < 3 or by < 1 or x.shape[-3] % (by * by) or not x.numel():
        return run_on_cpu(aten.pixel_shuffle.default, x, by)  # Which words the error.
    *front, c, h, w = x.shape
    made = x.reshape(*front, c // (by * by), by, by, h, w).movedim((-2, -1), (-4, -2))
    return _in_format_of(x, made.reshape(*front, c // (by * by), h * by, w * by))


def _pixel_unshuffle(x: torch.Tensor, by: int) -> torch.Tensor:
    if x.dim() < 3 or by < 1 or x.shape[-1] % by or x.shape[-2] % by or not x.numel():
        return run_on_cpu(aten.pixel_unshuffle.default, x, by)  # Which words the error.
    *front, c, h, w = x.shape
    made = x.reshape(*front, c, h // by, by, w // by, by).movedim((-3, -1), (-4, -3))
    return _in_format_of(x, made.reshape(*front, c * by * by, h // by, w // by))


def nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """torchvision's. Whether a box stays depends on better ones only: each round makes at least one more of them right."""
    count = boxes.shape[0]
    if boxes.dim() != 2 or boxes.shape[1] != 4 or scores.shape != (count,) or not 0 < count <= 1 << 13:
        return run_on_cpu(torch.ops.torchvision.nms.default, boxes, scores, threshold)
    order = scores.argsort(descending=True, stable=True)
    low, high = boxes.float()[order].split(2, 1)
    areas = (high - low).prod(1)
    shared = torch.minimum(high[:, None], high) - torch.maximum(low[:, None], low)
    shared = shared.clamp_(min=0).prod(-1)
    hits = (shared / (areas[:, None] + areas - shared) > threshold).triu_(1)
    kept = torch.ones_like(order, dtype=torch.bool)
    for _ in range(count):
        before, kept = kept, ~(hits & kept[:, None]).any(0)
        if torch.equal(before, kept):
            break
    return order[kept]



def _contiguous(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`function` with its result as the CPU lays it out: in the usual order, whatever the operands' is."""

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> torch.Tensor:
        return function(*arguments, **keywords).contiguous()

    return call


def _but(function: Callable[..., Any], name: str, refused: tuple[torch.dtype, ...]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(x: torch.Tensor, *arguments: Any, **keywords: Any) -> Any:
        if x.dtype in refused:
            return run_on_cpu(operator(name), x, *arguments, **keywords)
        return function(x, *arguments, **keywords)

    return call


def _uncast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Autocast, which decides above, does not decide about parts once more."""
    autocast = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(autocast):
            return function(*arguments, **keywords)

    return call


def table() -> dict[str, Callable[..., Any]]:
    """Operator of aten: its implementation."""
    functions = _functions()
    functions |= {name: _but(functions[name], name, types) for name, types in REFUSED.items()}
    return {name: _uncast(function) for name, function in functions.items()}


def _functions() -> dict[str, Callable[..., Any]]:
    torchs = {}
    for name in TORCHS:
        base, _, overload = name.partition(".")
        function = decomposition_table[getattr(getattr(aten, base), overload.removesuffix("out").removesuffix("_") or "default")]
        function = _contiguous(function) if base == "im2col" else function
        torchs[name] = into_given(function) if overload.endswith("out") else function
    resamplers = {name: into_given(function) for name, function in _resampling.table().items()}
    return torchs | resamplers | _products.TABLE | {
        "grid_sampler_2d": _grid_sampler,
        "grid_sampler_2d_backward": _grid_sampler_backward,
        "_unique": lambda *arguments, **keywords: _unique(*arguments, **keywords)[:2],
        "_unique2": _unique,
        "bincount": _bincount,
        "searchsorted.Tensor": _searchsorted,
        "bucketize.Tensor": _bucketize,
        "repeat_interleave.Tensor": _repeat_interleave,
        "randperm.generator_out": _randperm,
        "multinomial": _multinomial,
        "normal.Tensor_Tensor": _normal,
        "normal.Tensor_float": lambda mean, std=1.0, **keywords: _normal(mean, std, **keywords),
        "normal.float_Tensor": _normal,
        "kaiser_window": _kaiser_window,
        "kaiser_window.periodic": _kaiser_window,
        "kaiser_window.beta": _kaiser_window,
        "log_normal_": _log_normal,
        "cauchy_": _cauchy,
        "geometric_": _geometric,
        "_cdist_forward": _cdist,
        "_cdist_backward": _cdist_backward,
        "_weight_norm_interface": _weight_norm,
        "_weight_norm_interface_backward": _weight_norm_backward,
        "rrelu_with_noise": _rrelu,
        "dot": _dot,
        "addbmm": _addbmm,
        "scatter_reduce.two_out": into_given(_scatter_reduce),
        "median.dim_values": into_given(_median),
        "median": lambda x: _median(x.reshape(-1))[0] if x.numel() else x.new_full((), math.nan),
        "kthvalue.values": into_given(_kth),
        "equal": _equal,
        "trace": _trace,
        "take": _take,
        "put_": _put,
        "pixel_shuffle": _pixel_shuffle,
        "pixel_unshuffle": _pixel_unshuffle,
        "__lshift__.Scalar": lambda x, by: torch.bitwise_left_shift(x, by),
        "__rshift__.Scalar": lambda x, by: torch.bitwise_right_shift(x, by),
    }
