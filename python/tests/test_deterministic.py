"""`torch.use_deterministic_algorithms`: fresh memory, writes to one place, alerts."""

import warnings

import pytest
import torch

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
]


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def raw(tensor):
    """Every byte of the storage, but for NaN's sign and payload."""
    host = tensor.cpu()
    if host.is_complex():
        host = torch.view_as_real(host)
    return host.float().nan_to_num(nan=-7.0) if host.dtype.is_floating_point else host.to(torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fresh_memory_is_filled(deterministic, dtype):
    def made(device):
        # What lay there before is none of these values.
        torch.empty(64, dtype=torch.uint8, device=device).fill_(17)
        yield torch.empty(3, 5, dtype=dtype, device=device)
        yield torch.empty(7, dtype=dtype, device=device)
        yield torch.empty_strided((2, 3), (1, 2), dtype=dtype, device=device)
        yield torch.empty_like(torch.zeros(2, 3, device=device).t(), dtype=dtype)
        yield torch.zeros(2, device=device).new_empty(4, dtype=dtype)
        yield torch.empty(0, dtype=dtype, device=device)
        yield torch.ones(3, device=device).to(dtype).resize_(7)
        yield torch.ones(3, device=device).to(dtype).resize_(2)
        yield torch.ones(4, device=device).to(dtype)[1:3].resize_(3, 2)

    for number, (found, expected) in enumerate(zip(made("wave"), made("cpu"), strict=True)):
        assert found.dtype == expected.dtype and found.stride() == expected.stride()
        assert torch.equal(raw(found), raw(expected)), number


def test_memory_is_filled_only_where_that_is_asked_for(deterministic):
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        before = torch.wave.memory_allocated()
        address = torch.full((1000,), 5.0, device="wave").data_ptr()
        again = torch.empty(1000, device="wave")
        assert again.data_ptr() != address or again.tolist() == [5.0] * 1000
        assert torch.wave.memory_allocated() >= before
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True


def test_the_last_of_several_values_for_one_place_stays(deterministic, fresh_seed):
    places, values = torch.randint(0, 50, (20000,)), torch.randn(20000)

    def results(device):
        i, v = places.to(device), values.to(device)
        zeros = lambda *sizes: torch.zeros(*sizes, device=device)  # noqa: E731
        yield zeros(50).index_copy_(0, i, v)
        yield zeros(50).scatter_(0, i, v)
        yield zeros(50).scatter(0, i, v)
        yield zeros(50).index_put_((i,), v)
        yield zeros(7, 8).index_put_((i % 7 - 3, i % 8), v)
        yield zeros(3, 50, 2).index_put_((torch.arange(3, device=device)[:, None], i[:200]), v[:400].reshape(200, 2))
        yield zeros(4, 50).index_copy_(1, i[:500], v[:2000].reshape(4, 500))
        yield zeros(50, 4).t().index_copy_(1, i[:500], v[:2000].reshape(4, 500))
        yield zeros(30, 50).scatter_(1, i.reshape(20, 1000), v.reshape(20, 1000))
        yield zeros(50, 30).scatter_(0, i.reshape(1000, 20), v.reshape(1000, 20))
        yield zeros(5, 50, 6).index_put_((torch.tensor(2, device=device), i[:40]), v[:240].reshape(40, 6))
        x = zeros(50)
        x[i] = v
        yield x
        yield torch.zeros(50, dtype=torch.int64, device=device).scatter_(0, i, (v * 100).long())

    for number, (found, expected) in enumerate(zip(results("wave"), results("cpu"), strict=True)):
        assert torch.equal(found.cpu(), expected), number


def test_put_alerts_as_on_the_cpu(deterministic):
    for device in ("cpu", "wave"):
        x, i = torch.zeros(4, device=device), torch.tensor([1, 1], device=device)
        with pytest.raises(RuntimeError, match="put_ does not have a deterministic implementation"):
            x.put_(i, x[:2].clone())
        assert x.put_(i, torch.ones(2, device=device), accumulate=True).tolist() == [0.0, 2.0, 0.0, 0.0]
        torch.use_deterministic_algorithms(True, warn_only=True)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert x.put_(i, torch.tensor([5.0, 6.0], device=device)).tolist()[0] == 0.0
        assert any("put_ does not have a deterministic implementation" in str(w.message) for w in told)
        torch.use_deterministic_algorithms(True)
