"""Compressed sparse tensors (CSR, CSC, BSR, BSC), against PyTorch on the CPU."""

import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore:Sparse", "ignore:.*executing on the CPU")

LAYOUTS = {
    "csr": (torch.sparse_csr, {}),
    "csc": (torch.sparse_csc, {}),
    "bsr": (torch.sparse_bsr, {"blocksize": (2, 2)}),
    "bsc": (torch.sparse_bsc, {"blocksize": (2, 2)}),
}


def dense(dtype=torch.float32):
    made = (torch.randn(4, 6) * 8).to(dtype)
    made[torch.rand(4, 6) < 0.5] = 0
    made[0, 0] = 3
    return made


def parts(x):
    by_row = x.layout in (torch.sparse_csr, torch.sparse_bsr)
    return (x.crow_indices(), x.col_indices(), x.values()) if by_row else (x.ccol_indices(), x.row_indices(), x.values())


def same(found, expected):
    assert found.device.type == "wave" and found.layout == expected.layout and found.dtype == expected.dtype
    assert found.shape == expected.shape
    if expected.layout == torch.strided:
        torch.testing.assert_close(found.cpu(), expected)
    elif expected.layout == torch.sparse_coo:
        torch.testing.assert_close(found.to_dense().cpu(), expected.to_dense())
    else:
        for ours, theirs in zip(parts(found), parts(expected)):
            assert ours.device.type == "wave"
            torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.float64])
def test_conversions(name, dtype):
    layout, options = LAYOUTS[name]
    x = dense(dtype)
    compressed = x.to_sparse(layout=layout, **options)
    wave = compressed.to("wave")
    same(wave, compressed)
    same(x.to("wave").to_sparse(layout=layout, **options), compressed)
    assert (wave.sparse_dim(), wave.dense_dim(), wave._nnz()) == (2, 0, compressed._nnz())
    same(wave.to_dense(), x)
    same(wave.clone(), compressed)
    same(wave.to_sparse(), compressed.to_sparse())
    same(wave.to(torch.float16), compressed.to(torch.float16))
    assert torch.equal(wave.cpu().to_dense(), x)
    assert "device='wave:0'" in repr(wave)
    for other, more in LAYOUTS.values():
        if ("blocksize" in options) <= ("blocksize" in more):
            same(wave.to_sparse(layout=other, **more), compressed.to_sparse(layout=other, **more))


@pytest.mark.parametrize("name", LAYOUTS)
def test_elementwise_functions_stay_on_the_device(name):
    layout, options = LAYOUTS[name]
    x = dense().to_sparse(layout=layout, **options)
    wave = x.to("wave")
    for function in (torch.sin, torch.abs, torch.neg, torch.relu, torch.sign, torch.isnan):
        same(function(wave), function(x))
    same(wave.sum(), x.sum())
    same(wave.tanh_(), x.tanh_())
    assert not torch.wave.fallbacks()


def test_products_and_gradients():
    x, y, weights = dense(), torch.randn(6, 3), torch.randn(4, 3)
    ends = []
    for device in ("cpu", "wave"):
        sparse = x.to(device).to_sparse_csr().requires_grad_()
        other = y.clone().to(device).requires_grad_()
        product = sparse @ other
        (product * weights.to(device)).sum().backward()
        assert product.layout == torch.strided and product.device.type == device
        ends.append((product.detach(), other.grad, sparse.grad.to_dense()))
    for expected, found in zip(*ends):
        same(found, expected)


def test_sums_of_two():
    x, y = dense().to_sparse_csr(), dense().to_sparse_csr()
    same(x.to("wave") + y.to("wave"), x + y)
    same(x.to("wave") * y.to("wave"), x * y)
    changed, wave = x.clone(), x.to("wave")
    changed += y
    wave += y.to("wave")
    same(wave, changed)
