"""Operators that run on the CPU: floats that its kernels lack, arguments that they refuse, what they write."""

import pytest
import torch
import torch.nn.functional as F
from wave32._fallback import run_on_cpu

R = torch.randn


def ctc(x):
    return F.ctc_loss(x.log_softmax(2), torch.tensor([[1, 2], [2, 3]], device=x.device), torch.tensor([6, 5]), torch.tensor([2, 1]))


# What the CPU refuses of 16-bit floats, and what it computes in them: an argument and a function of it.
CALLS = {
    "avg_pool3d": (lambda: R(1, 2, 4, 4, 4), lambda x: F.avg_pool3d(x, 2)),
    "local_response_norm": (lambda: R(2, 5, 4, 4), lambda x: F.local_response_norm(x, 3)),
    "ctc_loss": (lambda: R(6, 2, 5), ctc),
    "multi_margin": (lambda: R(3, 5), lambda x: F.multi_margin_loss(x, torch.tensor([1, 0, 3], device=x.device))),
    "multilabel_margin": (
        lambda: R(3, 5), lambda x: F.multilabel_margin_loss(x, torch.tensor([[1, 2, -1, 0, 0]] * 3, device=x.device)),
    ),
    "pdist": (lambda: R(4, 3), F.pdist),
    "svd": (lambda: R(4, 3), lambda x: torch.linalg.svdvals(x)),
    "qr": (lambda: R(4, 3), lambda x: torch.linalg.qr(x).R.abs()),
    "inv": (lambda: torch.eye(3) * 2 + R(3, 3) / 8, torch.linalg.inv),
    "bessel_j0": (lambda: R(7), torch.special.bessel_j0),
    "grid_sample": (
        lambda: R(1, 2, 4, 4, 4),
        lambda x: F.grid_sample(x, torch.linspace(-0.9, 0.9, 24, device=x.device).reshape(1, 2, 2, 2, 3).to(x.dtype), align_corners=False),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype, ulp", [(torch.float16, 2**-11), (torch.bfloat16, 2**-8)])
def test_short_floats_are_computed_in_f32(name, dtype, ulp):
    make, function = CALLS[name]
    x = make().to(dtype)
    exact = function(x.double().requires_grad_())
    leaf = x.to("wave").requires_grad_()
    found = function(leaf)
    assert found.device.type == "wave"
    assert found.dtype == dtype
    scale = exact.detach().abs().max()
    # Rounding once or twice, and of what is added up afterwards.
    assert (found.detach().cpu().double() - exact.detach()).abs().max() <= 4 * ulp * scale
    if name not in ("svd", "qr", "bessel_j0"):
        found.float().square().sum().backward()
        assert leaf.grad.dtype == dtype and leaf.grad.isfinite().all() and leaf.grad.abs().max() > 0


def test_gradient_of_ctc_keeps_its_sums_wide():
    # Sums of logarithms near -300: in f16 they are off by 0.1, and so would be the gradient by a tenth.
    logits = (R(60, 1, 5) * 6).half()
    grads = []
    for x in (logits.double(), logits.to("wave")):
        leaf = x.requires_grad_()
        loss = F.ctc_loss(
            leaf.log_softmax(2), torch.tensor([[1, 2, 3]], device=x.device), torch.tensor([60]), torch.tensor([3]), reduction="sum"
        )
        loss.backward()
        grads.append(leaf.grad.cpu().double())
    assert (grads[1] - grads[0]).abs().max() < 2e-2


def test_what_is_written_keeps_its_type():
    x = R(5).abs().half() + 1
    out = torch.empty(0, dtype=torch.float16, device="wave")
    torch.special.bessel_j0(x.to("wave"), out=out)
    assert out.dtype == torch.float16 and out.shape == (5,)
    torch.testing.assert_close(out.cpu().double(), torch.special.bessel_j0(x.double()), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("transform, back", [("fft", "ifft"), ("rfft", "irfft"), ("fft2", "ifft2"), ("rfftn", "irfftn")])
def test_transforms_and_back(transform, back):
    x = R(4, 8)
    wave = x.to("wave").requires_grad_()
    there = getattr(torch.fft, transform)(wave)
    again = getattr(torch.fft, back)(there)
    assert there.dtype == torch.complex64
    again = torch.view_as_real(again)[..., 0] if again.is_complex() else again
    assert (again.detach().cpu() - x).abs().max() <= 2e-5 * x.abs().max()
    again.sum().backward()
    assert (wave.grad.cpu() - 1).abs().max() < 1e-5


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex32], ids=str)
@pytest.mark.parametrize("name", ["fft", "ifft2", "irfft", "hfftn"])
def test_transforms_of_short_floats_are_refused(name, dtype):
    for module in (torch.fft, torch._refs.fft):
        for device in ("cpu", "wave"):
            with pytest.raises(RuntimeError, match="Unsupported dtype|doesn't support tensors of type"):
                getattr(module, name)(torch.ones(4, 4, device=device).to(dtype))


def test_conjugates_come_to_given_tensors():
    x = torch.randn(3, dtype=torch.complex64)
    made = torch.empty(3, dtype=torch.complex64).copy_(x.to("wave").conj())
    assert torch.equal(made, x.conj().resolve_conj())
    # A repeated one goes to the CPU as it is.
    a, b = torch.eye(3, dtype=torch.complex64).mul(1j).expand(2, 3, 3), torch.ones(2, 3, 1, dtype=torch.complex64)
    found = torch.linalg.solve_triangular(a.to("wave").conj(), b.to("wave"), upper=True)
    torch.testing.assert_close(found.cpu(), torch.linalg.solve_triangular(a.conj(), b, upper=True))


def test_errors_are_the_cpus():
    with pytest.raises(RuntimeError) as expected:
        torch.normal(torch.zeros(3), torch.ones(2))
    with pytest.raises(RuntimeError) as found:
        torch.normal(torch.zeros(3, device="wave"), torch.ones(2, device="wave"))
    assert str(found.value) == str(expected.value)


def sampled(device):
    image, grid = torch.zeros(2, 3, 4, 5, device=device), torch.zeros(2, 3, 3, 2, device=device)
    return {
        "batches": lambda: F.grid_sample(image, grid[:1].expand(3, -1, -1, -1), align_corners=False),
        "coordinates": lambda: F.grid_sample(image, grid.repeat(1, 1, 1, 2)[..., :3], align_corners=False),
        "dimensions": lambda: F.grid_sample(image, grid[:, 0], align_corners=False),
        "no batch": lambda: torch.grid_sampler(image[0], grid, 0, 0, False),
        "types": lambda: F.grid_sample(image.double(), grid, align_corners=False),
        "nothing to sample": lambda: F.grid_sample(image[:, :, :0], grid, align_corners=False),
        "whole numbers": lambda: F.grid_sample(image.long(), grid.long(), align_corners=False),
    }


@pytest.mark.parametrize("name", sampled("meta"))
def test_sampling_is_refused_in_torchs_words(name):
    raised = []
    for device in ("cpu", "wave"):
        with pytest.raises(RuntimeError) as info:
            sampled(device)[name]()
        raised.append(info.value)
    assert type(raised[1]) is type(raised[0]) and str(raised[1]) == str(raised[0])


def test_windows():
    for how in (dict(), dict(periodic=False), dict(periodic=True, beta=3.0)):
        for dtype in (torch.float32, torch.float64):
            found, expected = (torch.kaiser_window(9, dtype=dtype, device=device, **how) for device in ("wave", "cpu"))
            assert found.device.type == "wave" and torch.equal(found.cpu(), expected)


def test_expanded_tensors_are_written_where_the_cpu_does():
    for device in ("cpu", "wave"):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            torch.rand(1, device=device).expand(6).lgamma_()
    # Where the CPU allows it, what elements share is written once.
    base, twin = torch.zeros(3, 1), torch.zeros(3, 1, device="wave")
    mask = torch.tensor([[False], [True], [True]]).expand(3, 4)
    with pytest.warns(UserWarning, match="expanded"):
        base.expand(3, 4).masked_fill_(mask, 5.0)
        run_on_cpu(torch.ops.aten.masked_fill_.Scalar, twin.expand(3, 4), mask.to("wave"), 5.0)
    assert torch.equal(twin.cpu(), base) and base.flatten().tolist() == [0, 5, 5]


@pytest.mark.parametrize("shape", [(), (3,)])
def test_results_of_the_cpu_are_refused(shape):
    """A number of the CPU's may be read, never written."""
    x = torch.full(shape, 6, device="wave")
    with pytest.raises(RuntimeError, match="same device"):
        torch.lcm(x, x, out=torch.zeros(shape, dtype=torch.int64))
