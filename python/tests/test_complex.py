"""Complex numbers on the device, by their parts, against the CPU in complex128."""

import pytest
import torch

pytestmark = pytest.mark.usefixtures("on_the_device")

UNARY = ["neg", "reciprocal", "exp", "log", "sqrt", "sin", "cos", "sinh", "cosh", "tanh", "tan", "sgn", "sigmoid", "rsqrt", "square"]


def close(found, expected, rtol=2e-6):
    assert found.device.type == "wave" and found.shape == expected.shape
    single = {torch.complex128: torch.complex64, torch.float64: torch.float32}.get(expected.dtype, expected.dtype)
    assert found.dtype == single
    scale = expected.abs().max().item() if expected.numel() else 0
    torch.testing.assert_close(found.cpu().to(expected.dtype), expected, rtol=rtol, atol=rtol * scale)


def pair(*sizes):
    x = torch.randn(*sizes, dtype=torch.complex64)
    return x.to("wave"), x.to(torch.complex128)


@pytest.mark.parametrize("name", UNARY)
def test_functions(name):
    x, wide = pair(5, 7)
    close(getattr(x, name)(), getattr(wide, name)(), 1e-5)
    close(getattr(x.t(), name)(), getattr(wide.t(), name)(), 1e-5)


def test_arithmetic():
    (a, wa), (b, wb) = pair(4, 5), pair(5)
    r = torch.randn(4, 5)
    for function in (
        lambda a, b, r: a + b, lambda a, b, r: a - b, lambda a, b, r: a * b, lambda a, b, r: a / b,
        lambda a, b, r: a + 2.5, lambda a, b, r: (1 - 2j) * a, lambda a, b, r: a / (0.5 + 1j), lambda a, b, r: 1 / a,
        lambda a, b, r: 2j - a, lambda a, b, r: r * a, lambda a, b, r: a / r, lambda a, b, r: r + b, lambda a, b, r: r * 1j,
        lambda a, b, r: torch.add(a, b, alpha=0.5 - 1j), lambda a, b, r: torch.sub(a, b, alpha=2), lambda a, b, r: a**2,
        lambda a, b, r: a**-1, lambda a, b, r: a**1.5, lambda a, b, r: a**b, lambda a, b, r: a.conj() * b,
        lambda a, b, r: a.conj().resolve_conj(), lambda a, b, r: a.conj().imag.neg(), lambda a, b, r: (a * 1j).real,
        lambda a, b, r: a.clone().mul_(b), lambda a, b, r: a.clone().add_(r), lambda a, b, r: a.clone().div_(2 - 1j),
        lambda a, b, r: torch.mul(a, b, out=torch.empty(0, dtype=a.dtype, device=a.device)),
        lambda a, b, r: torch.where(r > 0, a, b), lambda a, b, r: a.sum(), lambda a, b, r: a.sum(1, keepdim=True),
        lambda a, b, r: a.mean(0), lambda a, b, r: a.cumsum(1), lambda a, b, r: torch.complex(r, r * 2) + a,
        lambda a, b, r: torch.polar(r.abs(), r), lambda a, b, r: torch.view_as_real(a) * 2,
        lambda a, b, r: torch.cat([a, a.conj()]), lambda a, b, r: torch.stack([a, a], 1)[:, 0, ::2],
        lambda a, b, r: a.flip(0).roll(1, 1), lambda a, b, r: a.t().contiguous(), lambda a, b, r: torch.zeros_like(a) + a,
        lambda a, b, r: a.real.to(a.dtype), lambda a, b, r: a.index_select(1, torch.tensor([2, 0], device=a.device)),
    ):
        close(function(a, b, r.to("wave")), function(wa, wb, r.double()), 1e-5)


def test_real_results():
    (a, wa), (b, _) = pair(4, 5), pair(4, 5)
    for function in (torch.abs, torch.angle, torch.real, torch.imag, lambda x: torch.linalg.vector_norm(x, dim=1), torch.linalg.vector_norm):
        close(function(a), function(wa), 1e-6)
    assert torch.equal(torch.angle(torch.tensor([-1.0, 0.0, 2.0], device="wave")).cpu(), torch.angle(torch.tensor([-1.0, 0.0, 2.0])))
    c = torch.where(a.abs() > b.abs(), a, b)
    assert torch.equal((a == c).cpu(), a.cpu() == c.cpu()) and torch.equal((a != c).cpu(), a.cpu() != c.cpu())
    assert torch.equal((a == a[0, 0].item()).cpu(), a.cpu() == a[0, 0].item())
    special = torch.tensor([complex(float("nan"), 0), complex(1, float("nan")), complex(float("inf"), 0), 1 + 1j])
    assert torch.equal(special.to("wave").isnan().cpu(), special.isnan())
    assert torch.equal(special.to("wave").isinf().cpu(), special.isinf())


def test_quotients_do_not_overflow():
    x = torch.tensor([1e30 + 1e30j, 1e-30 + 1e-30j, 3 + 4j, 0j, 1 + 0j], dtype=torch.complex64)
    y = torch.tensor([1e30 - 1e30j, 1e-30 + 0j, 1e-38 + 1j, 0j, 0j], dtype=torch.complex64)
    found, expected = (x.to("wave") / y.to("wave")).cpu(), x / y
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_products_of_matrices():
    (a, wa), (b, wb), (y, wy) = pair(5, 7), pair(7, 3), pair(5, 3)
    (p, wp), (q, wq) = pair(2, 5, 7), pair(2, 7, 3)
    for found, expected in (
        (a @ b, wa @ wb), (a.conj() @ b, wa.conj() @ wb), (b.mH @ a.mH, wb.mH @ wa.mH), (p @ q, wp @ wq),
        (torch.addmm(y, a, b, beta=0.5j, alpha=2), torch.addmm(wy, wa, wb, beta=0.5j, alpha=2)),
        (a @ b[:, 0], wa @ wb[:, 0]), (torch.vdot(a[0], b[:, 0]), torch.vdot(wa[0], wb[:, 0])),
        (torch.dot(a[0], b[:, 0]), torch.dot(wa[0], wb[:, 0])), (torch.einsum("ij,jk->ik", a, b), wa @ wb),
    ):
        close(found, expected, 1e-5)


def test_conversions():
    x = torch.randn(3, 4)
    z = torch.randn(3, 4, dtype=torch.complex64)
    assert torch.equal(x.to("wave").to(torch.complex64).cpu(), x.to(torch.complex64))
    assert torch.equal(torch.arange(5, device="wave").to(torch.complex64).cpu(), torch.arange(5).to(torch.complex64))
    wide = torch.empty(4, 3, dtype=torch.complex128, device="wave").t().copy_(z.to("wave"))
    assert torch.equal(wide.cpu(), z.to(torch.complex128)) and torch.equal(wide.to(torch.complex64).cpu(), z)
    assert torch.equal(wide.t().contiguous().cpu(), z.t().to(torch.complex128))
    kept = torch.empty(3, 4, device="wave")
    kept.copy_(z.to("wave").conj().real)
    assert torch.equal(kept.cpu(), z.real)
    conjugated = z.to("wave")
    conjugated.copy_(conjugated.conj())
    assert torch.equal(conjugated.cpu(), z.conj().resolve_conj())
    assert torch.equal(torch.full((2, 3), 1 - 2j, dtype=torch.complex64, device="wave").cpu(), torch.full((2, 3), 1 - 2j))


def test_random_numbers():
    z = torch.randn(100_000, dtype=torch.complex64, device="wave")
    parts = torch.view_as_real(z)
    # Six standard errors.
    assert parts.mean(0).abs().max().item() < 6 * (0.5 / 100_000) ** 0.5
    assert (parts.var(0) - 0.5).abs().max().item() < 6 * 0.5 * (2 / 100_000) ** 0.5


def test_gradients():
    z, wide = pair(6, 5)
    w, wide_w = pair(5, 4)

    def loss(z, w):
        made = ((z * 2j + z.conj()) @ w).tanh() / (1.5 + z.sum())
        return (made.abs() + made.angle().cos() + made.real * made.imag).sum()

    ends = []
    for values in ((z, w), (wide, wide_w)):
        leaves = [v.clone().requires_grad_() for v in values]
        ends.append(torch.autograd.grad(loss(*leaves), leaves))
    for found, expected in zip(*ends):
        close(found, expected, 2e-4)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_linspaces(dtype):
    tolerance = 1e-6 if dtype == torch.complex64 else 1e-14
    for ends in ((0, 3 - 2j), (1j, 2), (-1.5 + 1j, 2.25 + 40j)):
        for steps in (0, 1, 2, 137):
            expected = torch.linspace(*ends, steps, dtype=dtype)
            given = torch.empty(0, dtype=dtype, device="wave")
            for found in (torch.linspace(*ends, steps, dtype=dtype, device="wave"), torch.linspace(*ends, steps, out=given)):
                torch.testing.assert_close(found.cpu(), expected, rtol=tolerance, atol=tolerance)
    apart, on_cpu = (torch.zeros(2, 3, dtype=dtype, device=device) for device in ("wave", "cpu"))
    for x in (apart, on_cpu):
        torch.linspace(0, 3j, 4, out=x.narrow(1, 1, 2))
    torch.testing.assert_close(apart.cpu(), on_cpu, rtol=tolerance, atol=0)
    with pytest.raises(RuntimeError):
        torch.linspace(0, 1j, -1, device="wave")


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_reduced_by_index(dtype):
    """The device's own sums and quotients, one after the other, to the last bit."""
    x, source = (torch.randn(n, 6, dtype=dtype).to("wave") for n in (4, 9))
    index = torch.arange(9).remainder(3).unsqueeze(1).expand(9, 6).to("wave")
    for include_self in (True, False):
        total = x.clone()
        for row in range(3):
            parts = [source[at] for at in range(row, 9, 3)]
            total[row] = sum(parts, x[row]) if include_self else sum(parts[1:], parts[0])
        counts = torch.tensor([[4 if include_self else 3]] * 3 + [[1]], device="wave")
        for reduce, expected in (("sum", total), ("mean", total / counts)):
            found = x.scatter_reduce(0, index, source, reduce, include_self=include_self)
            assert found.dtype == dtype and torch.equal(found.cpu(), expected.cpu())


def test_bf16_is_compared_with_complex_numbers():
    """From torch 2.15 on in a type that no tensor of the device has."""
    a = torch.tensor([0.0, 1.5, -2.0, float("nan")], dtype=torch.bfloat16)
    for b in (torch.tensor(1.5 + 0j), torch.tensor(1.501 + 0j, dtype=torch.complex128), torch.tensor(-2 + 1j), 1.5 + 0j, 0j):
        for compare in (torch.eq, torch.ne):
            other = b.to("wave") if isinstance(b, torch.Tensor) else b
            assert torch.equal(compare(a.to("wave"), other).cpu(), compare(a, b)), (compare, b)
