"""SlangPy: functions in Slang, called with arrays, and their derivatives, against numpy."""

import tempfile
from pathlib import Path

import numpy as np
import slangpy
from checks import Checks

MODULE = """
float wave(float x, float y) { return sin(x) * y + exp(-x * x); }
int bits(int x) { return countbits(x) * 1000 + firstbithigh(x) + reversebits(x) % 7; }
float16_t halves(float16_t x) { return x * x + float16_t(0.5); }
double longs(double x) { return x / 3.0 + sqrt(x); }
[Differentiable] float cube(float x) { return x * x * x; }
float slope(float x) { return bwd_diff_of(x); }
float bwd_diff_of(float x) { var pair = diffPair(x); bwd_diff(cube)(pair, 1.0); return pair.d; }
"""


def main():
    checks = Checks("SlangPy", slangpy.__version__)
    rng = np.random.default_rng(8)
    x, y = (rng.standard_normal(1000).astype(np.float32) for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "functions.slang").write_text(MODULE)
        device = slangpy.create_device(type=slangpy.DeviceType.vulkan, include_paths=[folder])
        module = slangpy.Module.load_from_file(device, "functions.slang")

        def check(name, wanted, tolerance, *arguments):
            def compare():
                got = getattr(module, name)(*arguments, _result="numpy")
                checks.close(name, got, wanted, tolerance)

            checks.attempt(name, compare)

        check("wave", np.sin(x) * y + np.exp(-x * x), 1e-5, x, y)
        check("slope", 3 * x * x, 1e-5, x)
        numbers = rng.integers(1, 1 << 30, 1000).astype(np.int32)
        reverse = [int(f"{n:032b}"[::-1], 2) for n in numbers.tolist()]
        signed = [r - (1 << 32) if r >> 31 else r for r in reverse]
        wanted = [
            n.bit_count() * 1000 + n.bit_length() - 1 + int(np.fmod(r, 7))
            for n, r in zip(numbers.tolist(), signed, strict=True)
        ]
        check("bits", wanted, 0, numbers)
        large = np.abs(x).astype(np.float64)
        check("longs", large / 3 + np.sqrt(large), 1e-12, large)
        halves = x.astype(np.float16)
        check("halves", halves * halves + np.float16(0.5), 1e-3, halves)
    checks.end()


main()
