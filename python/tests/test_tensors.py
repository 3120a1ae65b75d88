"""Making tensors, views of them, and copies, against the CPU."""

import itertools

import pytest
import torch

DTYPES = [
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64, torch.complex128,
]


def random(shape, dtype):
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.complex128).to(dtype) if dtype.is_complex else torch.randn(shape).to(dtype)
    return torch.randint(0, 100, shape).to(dtype)


def same(wave, cpu):
    assert wave.device.type == "wave"
    assert wave.dtype == cpu.dtype and wave.shape == cpu.shape
    assert wave.stride() == cpu.stride() or cpu.numel() <= 1, (wave.stride(), cpu.stride())
    assert torch.equal(wave.cpu(), cpu)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (5,), (3, 4), (2, 3, 4, 5), (1, 2, 1, 2, 1, 2, 1, 2, 1, 3)])
def test_round_trip(shape, dtype):
    x = random(shape, dtype)
    same(x.to("wave"), x)
    assert torch.equal(x.to("wave").clone().cpu(), x)


@pytest.mark.parametrize("source, target", list(itertools.product(DTYPES[:10], DTYPES[:10])), ids=str)
def test_casts(source, target):
    x = random((3, 5), source)
    same(x.to("wave").to(target), x.to(target))
    same(x.to("wave", target), x.to(target))
    assert torch.equal(x.to("wave").to("cpu", target), x.to(target))


VIEWS = {
    "transpose": lambda x: x.transpose(0, 2),
    "slice": lambda x: x[:, 1:3, ::2],
    "select": lambda x: x[1],
    "select_last": lambda x: x[..., 2],
    "expand": lambda x: x[:, :1].expand(4, 7, 6),
    "view": lambda x: x.view(20, 6),
    "view_split": lambda x: x.view(2, 2, 5, 3, 2),
    "view_infer": lambda x: x.view(-1, 2),
    "view_strided": lambda x: x[:, ::2].view(4, 3, 3, 2),
    "view_ones": lambda x: x.transpose(0, 1).view(5, 1, 4, 6, 1),
    "reshape": lambda x: x.transpose(0, 1).reshape(5, 24),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "unsqueeze": lambda x: x.unsqueeze(1).squeeze(),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "as_strided": lambda x: x.as_strided((3, 2), (1, 4), 5),
    "as_strided_nested": lambda x: x[1].as_strided((3, 2), (1, 4)),
    "permute_slice": lambda x: x.permute(2, 0, 1)[1:, ::3],
    "detach": lambda x: x.detach(),
    "split": lambda x: x.split(2, 2)[1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name):
    x = torch.randn(4, 5, 6)
    w = x.to("wave")
    seen, expected = VIEWS[name](w), VIEWS[name](x)
    assert seen.storage_offset() == expected.storage_offset()
    same(seen, expected) if expected.is_contiguous() else None
    assert torch.equal(seen.cpu(), expected)
    assert torch.equal(seen.contiguous().cpu(), expected)
    if "expand" in name or "unfold" in name or "nested" in name:
        return
    # Writing through the view reaches its base, and nothing else.
    new = torch.randn(expected.shape)
    seen.copy_(new.to("wave"))
    expected.copy_(new)
    assert torch.equal(w.cpu(), x)
    seen.copy_(torch.ones(()))
    expected.fill_(1)
    assert torch.equal(w.cpu(), x)
    seen.zero_()
    expected.zero_()
    assert torch.equal(w.cpu(), x)


def test_view_errors():
    w = torch.zeros(4, 6, device="wave")
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        w.t().view(24)
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        w.view(7)
    with pytest.raises(RuntimeError, match="out of bounds"):
        w.as_strided((100,), (1,))
    with pytest.raises(IndexError):
        w.unfold(2, 1, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(0,), (1,), (3,), (7, 5), (64,)])
def test_fills(shape, dtype):
    for value in [0, 1, 3.7, -2]:
        expected = torch.full(shape, 9).to(dtype).fill_(value)
        same(torch.full(shape, 9, device="wave").to(dtype).fill_(value), expected)
    same(torch.zeros(shape, dtype=dtype, device="wave"), torch.zeros(shape, dtype=dtype))
    same(torch.ones(shape, dtype=dtype, device="wave")[1:], torch.ones(shape, dtype=dtype)[1:])


def test_fill_of_large_integers():
    for value in [2**60 + 1, -(2**62) + 3]:
        assert torch.full((3,), value, device="wave").tolist() == [value] * 3


def test_memory_formats():
    x = torch.randn(2, 3, 4, 5)
    last = x.to("wave").to(memory_format=torch.channels_last)
    same(last, x.to(memory_format=torch.channels_last))
    assert torch.empty(2, 3, 4, 5, device="wave", memory_format=torch.channels_last).stride() == last.stride()
    assert torch.empty_like(last).stride() == last.stride()
    # As the CPU, whatever the input's strides.
    for view in [x.permute(2, 0, 3, 1), x[:, ::2], x[:, :1].expand(2, 7, 4, 5)]:
        assert torch.empty_like(view.to("wave")).stride() == torch.empty_like(view.clone()).stride()


@pytest.mark.parametrize("new", [(2,), (3, 4), (50,), (0,), (2, 2, 2)])
def test_resize(new):
    x = torch.randn(3, 4)
    w = x.to("wave")
    w.resize_(new)
    assert w.shape == torch.Size(new)
    kept = min(12, w.numel())
    assert torch.equal(w.flatten()[:kept].cpu(), x.flatten()[:kept])


def test_scalars():
    for dtype in DTYPES:
        x = random((), dtype)
        value = x.to("wave").item()
        assert type(value) is type(x.item()) and value == x.item()
    assert torch.tensor(True, device="wave") and not torch.tensor(0.0, device="wave")


def test_complex_and_lazy_bits():
    x = torch.randn(3, 4, dtype=torch.complex64)
    w = x.to("wave")
    assert torch.equal(torch.view_as_real(w).cpu(), torch.view_as_real(x))
    assert torch.equal(torch.view_as_complex(torch.view_as_real(w)).cpu(), x)
    assert torch.equal(w.conj().cpu(), x.conj().resolve_conj())
    assert torch.equal(w.conj().clone().cpu(), x.conj().resolve_conj())
    assert torch.equal(w.conj().imag.clone().cpu(), x.conj().imag.clone())
    target = torch.zeros(3, 4, dtype=torch.complex64, device="wave")
    target.conj().copy_(w)
    assert torch.equal(target.cpu(), x.conj().resolve_conj())


def test_set_and_storages():
    w = torch.arange(12.0).to("wave")
    other = torch.empty(0, device="wave").set_(w)
    assert other.data_ptr() == w.data_ptr()
    view = torch.empty(0, device="wave").set_(w.untyped_storage(), 2, (2, 3), (3, 1))
    assert torch.equal(view.cpu(), torch.arange(2.0, 8.0).view(2, 3))
    assert torch.empty(0, device="wave").set_(w.untyped_storage()).numel() == 12
    storage = torch.UntypedStorage(48, device="wave")
    storage.copy_(w.untyped_storage())
    assert torch.equal(torch.empty(0, device="wave").set_(storage, 0, (12,)).cpu(), w.cpu())
    assert bytes(w.untyped_storage().cpu().tolist()) == torch.arange(12.0).numpy().tobytes()
    w.data = torch.ones(2, device="wave")
    assert w.tolist() == [1, 1]


def test_printing_needs_no_fallback():
    x = torch.randn(3, 4)
    assert repr(x.to("wave")).replace(" ", "") == repr(x).replace(")", ",device='wave:0')").replace(" ", "")
    assert torch.wave.fallbacks() == {}
