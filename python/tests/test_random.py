"""Random fills and dropout of the device."""

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.usefixtures("on_the_device")


def test_the_seed_decides():
    torch.manual_seed(3)
    a, b = torch.rand(1001, device="wave"), torch.randn(77, device="wave")
    state = torch.wave.get_rng_state()
    c = torch.rand(5, device="wave")
    torch.manual_seed(3)
    assert torch.equal(torch.rand(1001, device="wave").cpu(), a.cpu())
    assert torch.equal(torch.randn(77, device="wave").cpu(), b.cpu())
    torch.wave.set_rng_state(state)
    assert torch.equal(torch.rand(5, device="wave").cpu(), c.cpu())
    assert not torch.equal(torch.rand(5, device="wave").cpu(), c.cpu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_moments(dtype):
    x = torch.empty(200, 200, device="wave", dtype=dtype)
    u = x.uniform_(-2, 3).float().cpu()
    assert u.min() >= -2 and u.max() < 3
    assert abs(u.mean() - 0.5) < 0.05 and abs(u.var() - 25 / 12) < 0.08
    n = x.normal_(1, 2).float().cpu()
    assert abs(n.mean() - 1) < 0.06 and abs(n.std() - 2) < 0.05
    e = x.exponential_(2).float().cpu()
    assert e.min() >= 0 and abs(e.mean() - 0.5) < 0.02
    z = x.bernoulli_(0.25).float().cpu()
    assert set(z.unique().tolist()) == {0.0, 1.0} and abs(z.mean() - 0.25) < 0.02
    p = torch.rand(200, 200).to(dtype).to("wave")
    assert abs((torch.bernoulli(p).cpu().float() - p.cpu().float()).mean()) < 0.02


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool], ids=str)
def test_nothing_is_drawn_of_any_type(dtype):
    for name in ("normal_", "exponential_", "log_normal_"):
        assert getattr(torch.empty(0, dtype=dtype, device="wave"), name)().numel() == 0
        with pytest.raises(RuntimeError):
            getattr(torch.empty(1, dtype=dtype, device="wave"), name)()


def test_integers():
    x = torch.randint(-3, 9, (30000,), device="wave").cpu()
    assert x.dtype == torch.int64 and x.min() == -3 and x.max() == 8
    assert torch.bincount(x + 3).float().std() < 250
    y = torch.empty(1000, dtype=torch.uint8, device="wave").random_().cpu()
    assert y.max() > 240 and y.min() < 15
    assert torch.empty(1000, device="wave").random_(7).cpu().max() == 6


def test_strided_results():
    x = torch.zeros(8, 9, 10, device="wave")
    x[:, ::2].uniform_(1, 2)
    y = x.cpu()
    assert (y[:, 1::2] == 0).all() and (y[:, ::2] >= 1).all()


def test_dropout_forward_and_backward():
    x = torch.ones(100, 100, device="wave", requires_grad=True)
    y = F.dropout(x, 0.25)
    y.backward(torch.full_like(y, 2.0))
    kept = y.detach().cpu() != 0
    assert abs(kept.float().mean() - 0.75) < 0.03
    torch.testing.assert_close(y.detach().cpu(), kept / 0.75)
    torch.testing.assert_close(x.grad.cpu(), 2 * kept / 0.75)
    assert torch.equal(F.dropout(x, 0.25, training=False).detach().cpu(), x.detach().cpu())
    z = torch.ones(100, 100, device="wave")
    F.dropout(z, 0.5, inplace=True)
    assert set(z.cpu().unique().tolist()) == {0.0, 2.0}
