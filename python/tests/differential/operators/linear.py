"""Products of matrices, convolutions."""

from __future__ import annotations

from typing import Any

import torch

from differential.operators import Op, row

CONV_KINDS = "f"


def kind(g: Any) -> Any:
    """A type for products; whole numbers now and then."""
    return g.dtype("fffffi")


def fill(g: Any, dtype: Any) -> Any:
    return ("infs",) if dtype.is_floating_point and g.chance(0.06) else g.pick([("normal",), ("ints",)])


def product(*shapes: Any) -> Any:
    """Operands of shapes written in letters, a letter a size: ("bmk", "bkn"). One that does not fit now and then."""

    def make(g: Any) -> Any:
        sizes = {letter: g.pick([1, 2, 3, 5, 8, 16, 17, 33]) if not g.chance(0.04) else 0 for letter in "bmknpq"}
        dtype = kind(g)
        made = []
        for shape in shapes:
            wrong = 1 if g.chance(0.01) else 0
            t = g.dtype("fi") if g.chance(0.02) else dtype
            dims = tuple(sizes[letter] + (wrong if n == 0 else 0) for n, letter in enumerate(shape))
            made.append(g.tensor(dims, t, fill(g, t), grad=True))
        return tuple(made), {}

    return make


def scaled(first: str, *shapes: Any) -> Any:
    """addmm and its like: something that broadcasts to the result, then a product; alpha and beta."""
    inner = product(*shapes)

    def make(g: Any) -> Any:
        operands, _ = inner(g)
        sizes = {}
        for shape, ref in zip(shapes, operands):
            sizes.update(zip(shape, g.tensors[ref.index].final_shape()))
        whole = tuple(sizes[letter] for letter in first)
        dtype = g.tensors[operands[0].index].dtype
        addend = g.tensor(whole if g.chance(0.6) else whole[g.int(0, len(whole)):], dtype, grad=True)
        numbers = [0, 1, 2, -1] if not dtype.is_floating_point else [0, 1, 0.5, -2]
        kwargs = {name: g.pick(numbers) for name in ("alpha", "beta") if g.chance(0.4)}
        return (addend, *operands), kwargs

    return make


def matmul(g: Any) -> Any:
    dtype, k = kind(g), g.size()
    left = (*g.shape(0, 2), g.size(), k) if g.chance(0.8) else (k,)
    right = ((*(left[:-2] if g.chance(0.6) else g.broadcast(left[:-2])), k, g.size())) if g.chance(0.8) else (k,)
    return (g.tensor(left, dtype, fill(g, dtype), grad=True), g.tensor(right, dtype, fill(g, dtype), grad=True)), {}


def linear(g: Any) -> Any:
    dtype, k, n = g.dtype("f"), g.pick([1, 3, 8, 20]), g.pick([1, 2, 5, 16])
    x = g.tensor((*g.shape(0, 3), k), dtype, grad=True)
    args = (x, g.tensor((n, k), dtype, grad=True))
    return (*args, g.tensor((n,), dtype, grad=True)) if g.chance(0.6) else args, {}


def bilinear(g: Any) -> Any:
    dtype, a, b, n = g.dtype("f"), g.size(), g.size(), g.size()
    batch = g.shape(1, 2)
    made = [g.tensor((*batch, size), dtype, grad=True) for size in (a, b)]
    return (*made, g.tensor((n, a, b), dtype, grad=True), g.tensor((n,), dtype, grad=True) if g.chance(0.5) else None), {}


EQUATIONS = (("ij,jk->ik", "mk", "kn"), ("bij,bjk->bik", "bmk", "bkn"), ("ij,ij->", "mk", "mk"), ("i,j->ij", "m", "n"),
             ("bhi,bhj->bij", "bkm", "bkn"), ("ii->i", "mm"), ("ijk->kji", "mkn"))


def einsum(g: Any) -> Any:
    equation, *shapes = g.pick(EQUATIONS)
    operands, _ = product(*shapes)(g)
    return (equation, *operands), {}


def conv(rank: int, transposed: bool = False) -> Any:
    def make(g: Any) -> Any:
        dtype = g.dtype("f")
        groups = g.pick([1, 1, 1, 2, 3])
        c_in, c_out = groups * g.int(1, 4), groups * g.int(1, 4)
        if g.chance(0.02):
            c_in += 1  # Does not fit.
        kernel = tuple(g.int(1, 3 if rank > 1 else 5) for _ in range(rank))
        spatial = tuple(g.int(2, {1: 20, 2: 9, 3: 5}[rank]) for _ in range(rank))
        batch = () if g.chance(0.1) else (0 if g.chance(0.03) else g.int(1, 3),)
        shape = (c_out, c_in // groups, *kernel) if not transposed else (c_in, c_out // groups, *kernel)
        x = g.tensor((*batch, c_in, *spatial), dtype, fill(g, dtype), grad=True)
        weight = g.tensor(shape, dtype, g.pick([("normal",), ("ints",)]), grad=True)
        bias = g.tensor((c_out,), dtype, grad=True, views=False) if g.chance(0.5) else None

        def each(low: int, high: int) -> Any:
            return g.int(low, high) if g.chance(0.5) else tuple(g.int(low, high) for _ in range(rank))

        kwargs: dict[str, Any] = {}
        if g.chance(0.5):
            kwargs["stride"] = each(1, 3)
        if g.chance(0.5):
            kwargs["padding"] = each(0, 2) if transposed or g.chance(0.8) else g.pick(["same", "valid"])
        if g.chance(0.3):
            kwargs["dilation"] = each(1, 2)
        if transposed and g.chance(0.3):
            kwargs["output_padding"] = each(0, 1)
        if groups > 1:
            kwargs["groups"] = groups
        return (x, weight, bias), kwargs

    return make


ROWS: list[Op] = [
    row("torch.mm", product("mk", "kn"), out=True), row("torch.bmm", product("bmk", "bkn"), out=True),
    row("torch.mv", product("mk", "k"), out=True), row("torch.dot", product("k", "k")), row("torch.outer", product("m", "n"), out=True),
    row("torch.matmul", matmul, out=True),
    row("torch.addmm", scaled("mn", "mk", "kn"), inplace="addmm_", out=True),
    row("torch.addmv", scaled("m", "mk", "k"), inplace="addmv_", out=True),
    row("torch.addr", scaled("mn", "m", "n"), inplace="addr_"),
    row("torch.baddbmm", scaled("bmn", "bmk", "bkn"), inplace="baddbmm_", out=True),
    row("torch.addbmm", scaled("mn", "bmk", "bkn"), inplace="addbmm_"),
    row("torch.einsum", einsum), row("torch.inner", product("mk", "nk")), row("torch.kron", product("mk", "n")),
    row("torch.tensordot", lambda g: (product("mkn", "knp")(g)[0], {"dims": 2})),
    row("F.linear", linear), row("F.bilinear", bilinear),
    *(row(f"F.conv{rank}d", conv(rank)) for rank in (1, 2, 3)),
    *(row(f"F.conv_transpose{rank}d", conv(rank, True)) for rank in (1, 2, 3)),
    row("torch.trace", product("mn")), row("torch.linalg.inv", lambda g: ((g.tensor((3, 3), torch.float32, grad=True),), {})),
    row("torch.cross", lambda g: ((lambda s, t: (g.tensor(s, t, grad=True), g.tensor(s, t, grad=True)))((*g.shape(0, 2), 3), g.dtype("ffi")), {"dim": -1})),
]
