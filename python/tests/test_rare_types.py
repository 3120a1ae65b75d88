"""Element types without arithmetic on the device: storage, copies, conversions, numbers."""

import pytest
import torch

EIGHTHS = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]


def bits(tensor):
    return tensor.cpu().view(torch.uint8)


@pytest.mark.parametrize("dtype", EIGHTHS, ids=str)
def test_floats_of_eight_bits(dtype):
    x = torch.randn(5, 7).exp()
    small, found = x.to(dtype), x.to("wave").to(dtype)
    assert found.dtype == dtype and torch.equal(bits(found), bits(small))
    assert torch.equal(x.to(dtype).to("wave").cpu().view(torch.uint8), bits(small))
    assert torch.equal(found.float().cpu(), small.float())
    assert torch.equal(found.to(torch.bfloat16).cpu(), small.to(torch.bfloat16))
    assert found[1, 2].item() == small[1, 2].item()
    assert torch.equal(bits(found.t().contiguous()), bits(small.t().contiguous()))
    assert torch.equal(bits(found[1:, ::2].clone()), bits(small[1:, ::2].clone()))
    assert torch.equal(bits(torch.ones(3, dtype=dtype, device="wave")), bits(torch.ones(3, dtype=dtype)))
    assert torch.equal(bits(torch.full((2, 2), 2.0, dtype=dtype, device="wave")), bits(torch.full((2, 2), 2.0, dtype=dtype)))
    assert torch.equal(bits(torch.cat([found, found], 1)), bits(torch.cat([small, small], 1)))
    assert str(found.view(torch.uint8).device) == "wave:0"
    assert torch.equal(torch.zeros(4, dtype=dtype, device="wave").view(torch.uint8).cpu(), torch.zeros(4, dtype=dtype).view(torch.uint8))


def test_pairs_of_four_bits_are_kept():
    dtype = torch.float4_e2m1fn_x2
    x = torch.randint(0, 256, (4, 6), dtype=torch.uint8)
    found = x.to("wave").view(dtype)
    assert found.dtype == dtype and found.shape == (4, 6)
    assert torch.equal(found.cpu().view(torch.uint8), x)
    assert torch.equal(x.view(dtype).to("wave").view(torch.uint8).cpu(), x)
    assert torch.equal(found.t().contiguous().view(torch.uint8).cpu(), x.t().contiguous())
    made = torch.empty(3, 2, dtype=dtype, device="wave")
    assert made.stride() == (2, 1) and made.untyped_storage().nbytes() == 6
    made.copy_(found[:3, :2])
    assert torch.equal(made.view(torch.uint8).cpu(), x[:3, :2])


@pytest.mark.parametrize("dtype", [torch.bits8, torch.bits16], ids=str)
def test_bits_are_memory_only(dtype):
    plain = torch.uint8 if dtype.itemsize == 1 else torch.int16
    x = torch.randint(0, 127, (4, 6), dtype=plain)
    found = x.to("wave").view(dtype)
    assert found.dtype == dtype and torch.equal(found.cpu().view(plain), x)
    assert torch.equal(found[1:, ::2].view(plain).cpu(), x[1:, ::2])
    assert torch.equal(found[:, ::2].contiguous().view(plain).cpu(), x[:, ::2])
    assert not torch.zeros(3, dtype=dtype, device="wave").view(plain).any()
    assert torch.equal(torch.cat([found, found]).view(plain).cpu(), torch.cat([x, x]))
    with pytest.raises(NotImplementedError):
        found + found


def test_complex_halves_are_told_of_once(run_python):
    told = run_python("""
        import warnings
        for device in ("cpu", "wave"):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                torch.empty(2, dtype=torch.complex32, device=device)
                torch.empty(2, dtype=torch.complex32, device=device)
            print(device, len([w for w in told if "ComplexHalf support is experimental" in str(w.message)]))
    """)
    assert told.split("\n")[:2] == ["cpu 1", "wave 1"]
