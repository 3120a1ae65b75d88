"""vkdispatch, with VkFFT in it: Fourier transforms of many lengths against numpy, by VkFFT's shaders and by its own."""

from importlib.metadata import version

import numpy as np
import vkdispatch as vd
from checks import Checks

# Powers of two, products of small primes, and primes, which take other algorithms (Rader's, Bluestein's).
LENGTHS = [8, 64, 1024, 4096, 60, 1000, 17, 127, 509]


def main():
    checks = Checks("vkdispatch", version("vkdispatch"))
    rng = np.random.default_rng(7)

    def compare(what, transform, shape, **options):
        data = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)
        buffer = vd.Buffer(shape, vd.complex64)
        buffer.write(data)
        transform(buffer, **options)
        axes = [options.get("axis", -1)]
        got = buffer.read(0)
        checks.close(what, np.stack([got.real, got.imag]), stacked(np.fft.fftn(data, axes=axes)), 1e-5)

    def stacked(x):
        return np.stack([x.real, x.imag])

    for length in LENGTHS:
        what = f"VkFFT of {length}"
        checks.attempt(what, lambda what=what, length=length: compare(what, vd.vkfft.fft, (3, length)))
    for length in [64, 1000, 1024]:
        what = f"its own FFT of {length}"
        checks.attempt(what, lambda what=what, length=length: compare(what, vd.fft.fft, (3, length)))
    checks.end()


main()
