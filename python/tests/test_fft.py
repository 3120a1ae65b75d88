"""Fourier transforms on the device against the CPU's in f64: any length, dimension and norm, and gradients."""

import pytest
import torch
from against_cpu import pick, seeded

pytestmark = pytest.mark.usefixtures("on_the_device")

NORMS = ["backward", "ortho", "forward"]


def close(found, expected, rtol=3e-6):
    assert found.device.type == "wave" and found.shape == expected.shape
    assert found.dtype == (torch.complex64 if expected.is_complex() else torch.float32)
    scale = expected.abs().max().item()
    torch.testing.assert_close(found.cpu().to(expected.dtype), expected, rtol=0, atol=rtol * scale)


def twice(function, x, rtol=3e-6):
    close(function(x.to("wave")), function(x.to(torch.complex128 if x.is_complex() else torch.float64)), rtol)


# Short, divided once and twice, primes below and above the length that is one product, powers of two.
@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 60, 64, 67, 100, 127, 331, 400, 509, 512, 674, 4096])
def test_lengths(n):
    norm = NORMS[n % 3]
    twice(lambda x: torch.fft.fft(x, norm=norm), torch.randn(3, n, dtype=torch.complex64))
    twice(lambda x: torch.fft.ifft(x, norm=norm), torch.randn(3, n, dtype=torch.complex64))
    twice(lambda x: torch.fft.rfft(x, norm=norm), torch.randn(3, n))
    twice(lambda x: torch.fft.irfft(x, n, norm=norm), torch.randn(3, n // 2 + 1, dtype=torch.complex64))


@pytest.mark.parametrize("number", range(12))
def test_dimensions(number):
    generator = seeded(number)
    sizes = [pick(generator, 1, 9) for _ in range(pick(generator, 2, 4))]
    dims = torch.randperm(len(sizes), generator=generator)[: pick(generator, 1, len(sizes))].tolist()
    norm = NORMS[pick(generator, 0, 2)]
    x, z = torch.randn(sizes), torch.randn(sizes, dtype=torch.complex64)
    z = z.transpose(0, -1).contiguous().transpose(0, -1)
    sizes_to = [pick(generator, 1, 12) for _ in dims]
    for function in (torch.fft.fftn, torch.fft.ifftn, torch.fft.irfftn):
        twice(lambda x: function(x, s=sizes_to, dim=dims, norm=norm), z)
        twice(lambda x: function(x, dim=dims, norm=norm), torch.cat([z, z], dims[-1]))
    twice(lambda x: torch.fft.rfftn(x, s=sizes_to, dim=dims, norm=norm), x)
    twice(lambda x: torch.fft.fft(x, dim=dims[0], norm=norm), x)
    twice(lambda x: torch.fft.hfft(x, 9, dim=dims[0]), z)
    twice(lambda x: torch.fft.ihfft(x, dim=dims[0]), x)
    twice(lambda x: torch.fft.fftshift(torch.fft.fft2(x)), z)


def test_there_and_back():
    z = torch.randn(2, 5, 48, dtype=torch.complex64)
    torch.testing.assert_close(torch.fft.ifftn(torch.fft.fftn(z.to("wave"))).cpu(), z, rtol=1e-5, atol=1e-5)
    x = torch.randn(7, 30, device="wave")
    torch.testing.assert_close(torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape), x, rtol=1e-5, atol=1e-5)


def test_short_time_transforms():
    x, window = torch.randn(2, 2000), torch.hann_window(128)

    def spectrum(x, window):
        return torch.stft(x, 128, 32, window=window, return_complex=True)

    found, expected = spectrum(x.to("wave"), window.to("wave")), spectrum(x.double(), window.double())
    close(found, expected, 1e-5)
    back = torch.istft(found, 128, 32, window=window.to("wave"))
    torch.testing.assert_close(back.cpu(), x[:, : back.shape[1]], rtol=1e-4, atol=1e-4)


def test_resized_results_are_told():
    for call in (lambda out: torch.fft.fftfreq(9, out=out), lambda out: torch.arange(9, out=out)):
        with pytest.warns(UserWarning, match="out tensor will be resized"):
            call(torch.empty((), device="wave"))
    with pytest.warns(UserWarning, match="was resized"):
        torch.fft.fft(torch.ones(9, device="wave"), out=torch.empty(3, dtype=torch.complex64, device="wave"))


def test_gradients():
    def loss(x):
        return (torch.fft.irfft(torch.fft.rfft(x).abs().log1p() * (1 + 1j), 45).square().sum() + torch.fft.fft2(x).abs().sum())

    x = torch.randn(4, 44)
    ends = []
    for leaf in (x.to("wave"), x.double()):
        leaf.requires_grad_()
        ends.append(torch.autograd.grad(loss(leaf), leaf)[0])
    close(ends[0], ends[1], 1e-4)
