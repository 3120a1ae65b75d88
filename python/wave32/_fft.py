"""Fourier transforms of complex64 and float32, of any length, as products with matrices.

Numbers are kept as planes, (rows, 2, n): all real parts of a row, then all imaginary ones. A short transform is one
product with a matrix; a longer one is split in two by a divisor of its length (Cooley and Tukey); one without a small
divisor is a convolution (Bluestein). Matrices are made in f64 on the CPU and kept.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from wave32._complex import whole
from wave32._composites import _uncast
from wave32._fallback import run_on_cpu

aten = torch.ops.aten

# Lengths that are one product; longer ones where nothing divides them.
_SHORT, _UNDIVIDED = 64, 320


def _planes(turns: torch.Tensor) -> torch.Tensor:
    """(cos, -sin) of so many turns, in f64: (2, ...)."""
    angle = turns * (2 * math.pi)
    return torch.stack([angle.cos(), -angle.sin()])


def _turns(numerators: torch.Tensor, of: int) -> torch.Tensor:
    """Reduced as whole numbers first: large angles would lose their digits."""
    return (numerators % of).double() / of


def _on_device(made: torch.Tensor) -> torch.Tensor:
    return made.float().to("wave")


@functools.lru_cache(maxsize=64)
def _matrix(n: int) -> torch.Tensor:
    """The transform as a real matrix that rows of planes are multiplied by: (2 n, 2 n)."""
    k = torch.arange(n)
    cos, sin = _planes(_turns(torch.outer(k, k), n))
    return _on_device(torch.cat([torch.cat([cos, sin], 1), torch.cat([-sin, cos], 1)]))


@functools.lru_cache(maxsize=64)
def _twiddles(a: int, b: int) -> torch.Tensor:
    return _on_device(_planes(_turns(torch.outer(torch.arange(a), torch.arange(b)), a * b)))


@functools.lru_cache(maxsize=32)
def _chirp(n: int, padded: int) -> tuple[torch.Tensor, torch.Tensor]:
    """exp(-i pi k^2 / n), and the transform of its conjugate on both sides of 0."""
    k = torch.arange(n)
    planes = _planes(_turns(k * k, 2 * n))
    back = torch.zeros(padded, dtype=torch.complex128)
    back[:n] = torch.complex(planes[0], -planes[1])
    back[padded - n + 1 :] = back[1:n].flip(0)
    return _on_device(planes), _on_device(torch.view_as_real(torch.fft.fft(back)).movedim(-1, 0).contiguous())


def _multiply(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Complex numbers as planes: (rows, 2, ...) by (2, ...)."""
    (a, b), (c, d) = x.unbind(1), y.unbind(0)
    return torch.stack([a * c - b * d, a * d + b * c], 1)


def _divisor(n: int) -> int:
    """The divisor that splits `n` best: the largest of those up to the length of a short transform."""
    return next(d for d in range(min(_SHORT, n), 0, -1) if n % d == 0)


def _transform(x: torch.Tensor) -> torch.Tensor:
    """Planes (rows, 2, n), contiguous, to planes of their transform."""
    rows, _, n = x.shape
    divisor = _divisor(n)
    if n <= _SHORT or (divisor == 1 and n <= _UNDIVIDED):
        return (x.reshape(rows, 2 * n) @ _matrix(n)).reshape(rows, 2, n)
    if divisor == 1:
        return _convolved(x)
    a, b = divisor, n // divisor
    # Element a1 b + b1 becomes a1 of column b1: columns are transformed, turned, and then rows are.
    columns = x.reshape(rows, 2, a, b).permute(0, 3, 1, 2).reshape(rows * b, 2 * a)
    made = (columns @ _matrix(a)).reshape(rows, b, 2, a).permute(0, 2, 3, 1)
    turned = _multiply(made, _twiddles(a, b))
    inner = _transform(turned.permute(0, 2, 1, 3).reshape(rows * a, 2, b))
    return inner.reshape(rows, a, 2, b).permute(0, 2, 3, 1).reshape(rows, 2, n)


def _convolved(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[-1]
    padded = 1 << (2 * n - 2).bit_length()
    chirp, kernel = _chirp(n, padded)
    turned = torch.nn.functional.pad(_multiply(x, chirp), (0, padded - n))
    product = _multiply(_transform(turned), kernel)
    # Back: with the planes exchanged on both sides, a transform is the inverse one.
    back = _transform(product.flip(1)).flip(1)[..., :n] / padded
    return _multiply(back, chirp)


def _along(x: torch.Tensor, dim: int, forward: bool) -> torch.Tensor:
    """Planes last, (..., 2), transformed along a dimension in front of them."""
    moved = x.movedim((-1, dim), (-2, -1))
    moved = moved if forward else moved.flip(-2)
    made = _transform(moved.reshape(-1, 2, moved.shape[-1])).reshape(moved.shape)
    made = made if forward else made.flip(-2)
    return made.movedim((-2, -1), (-1, dim))


def _normalized(parts: torch.Tensor, norm: int, count: int) -> torch.Tensor:
    """0 leaves it, 1 divides by the root of the count, 2 by the count."""
    return parts if norm == 0 else parts * (count**-0.5 if norm == 1 else 1 / count)


def _count(sizes: Any, dims: list[int]) -> int:
    return math.prod(sizes[dim] for dim in dims)


def _c2c(x: torch.Tensor, dim: list[int], normalization: int, forward: bool) -> torch.Tensor:
    if x.dtype != torch.complex64 or not dim or x.numel() == 0:
        return run_on_cpu(aten._fft_c2c.default, x, dim, normalization, forward)
    dims = [d % x.dim() for d in dim]
    parts = torch.view_as_real(x)
    for d in dims:
        parts = _along(parts, d, forward)
    return whole(_normalized(parts, normalization, _count(x.shape, dims)))


def _r2c(x: torch.Tensor, dim: list[int], normalization: int, onesided: bool) -> torch.Tensor:
    if x.dtype != torch.float32 or not dim or x.numel() == 0:
        return run_on_cpu(aten._fft_r2c.default, x, dim, normalization, onesided)
    dims = [d % x.dim() for d in dim]
    parts = _along(torch.stack([x, torch.zeros_like(x)], -1), dims[-1], True)
    if onesided:
        parts = parts.narrow(dims[-1], 0, x.shape[dims[-1]] // 2 + 1)
    for d in dims[:-1]:
        parts = _along(parts, d, True)
    return whole(_normalized(parts, normalization, _count(x.shape, dims)))


def _c2r(x: torch.Tensor, dim: list[int], normalization: int, last_dim_size: int) -> torch.Tensor:
    if x.dtype != torch.complex64 or not dim or x.numel() == 0 or last_dim_size < 1:
        return run_on_cpu(aten._fft_c2r.default, x, dim, normalization, last_dim_size)
    dims, n = [d % x.dim() for d in dim], last_dim_size
    parts = torch.view_as_real(x)
    for d in dims[:-1]:
        parts = _along(parts, d, False)
    # The other half is the conjugate of the first, backwards.
    half, last = n // 2 + 1, dims[-1]
    if parts.shape[last] < half:
        return run_on_cpu(aten._fft_c2r.default, x, dim, normalization, last_dim_size)
    parts = parts.narrow(last, 0, half)
    rest = parts.narrow(last, 1, n - half).flip(last) if n > half else parts.narrow(last, 0, 0)
    whole = torch.cat([parts, torch.stack([rest[..., 0], -rest[..., 1]], -1)], last)
    sizes = [n if d == last else size for d, size in enumerate(x.shape)]
    return _normalized(_along(whole, last, False).select(-1, 0), normalization, _count(sizes, dims)).contiguous()


def _out(function: Any) -> Any:
    def into(*arguments: Any, out: torch.Tensor) -> torch.Tensor:
        made = function(*arguments)
        if out.shape != made.shape:
            torch.ops.wave.resize_output_(out, made.shape)
        return out.copy_(made)

    return into


def table() -> dict[str, Any]:
    """Operator of aten: its implementation."""
    plain = {"_fft_c2c": _c2c, "_fft_r2c": _r2c, "_fft_c2r": _c2r}
    made = plain | {f"{name}.out": _out(function) for name, function in plain.items()}
    return {name: _uncast(function) for name, function in made.items()}
