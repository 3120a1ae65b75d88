"""Taichi, or its successor Quadrants: kernels on its Vulkan backend against numpy."""

import importlib
import sys

import numpy as np
from checks import Checks

N = 1000


def main():
    name = sys.argv[1]
    ti = importlib.import_module(name)
    checks = Checks(name, ".".join(map(str, ti.__version__)) if isinstance(ti.__version__, tuple) else ti.__version__)
    # A fall back to the CPU is no answer.
    ti.init(arch=ti.vulkan, log_level=ti.ERROR)
    if ti.lang.impl.current_cfg().arch != ti.vulkan:
        checks.tell("refused", "Vulkan", "it took another backend")
        checks.end()
    rng = np.random.default_rng(4)
    x, y = ti.field(ti.f32, N), ti.field(ti.f32, N)
    total, most = ti.field(ti.f32, ()), ti.field(ti.i32, ())
    numbers = rng.standard_normal(N).astype(np.float32)
    x.from_numpy(numbers)

    @ti.kernel
    def elementwise():
        for i in x:
            y[i] = ti.sin(x[i]) * 2 + ti.exp(-x[i] * x[i])

    @ti.kernel
    def reduce():
        for i in x:
            total[None] += x[i]
            ti.atomic_max(most[None], ti.cast(x[i] * 1000, ti.i32))

    a, b, c = (ti.field(ti.f32, (48, 48)) for _ in range(3))

    @ti.kernel
    def product():
        for i, j in c:
            s = 0.0
            for k in range(48):
                s += a[i, k] * b[k, j]
            c[i, j] = s

    image, weights, out = ti.field(ti.f32, (4, 18, 18)), ti.field(ti.f32, (8, 4, 3, 3)), ti.field(ti.f32, (8, 16, 16))

    @ti.kernel
    def convolution():
        for k, h, w in out:
            s = 0.0
            for p in range(4):
                for r, q in ti.static(ti.ndrange(3, 3)):
                    s += image[p, h + r, w + q] * weights[k, p, r, q]
            out[k, h, w] = s

    @ti.kernel
    def collatz(steps: ti.i32) -> ti.i32:
        n = 27
        # In turn: a kernel's outermost loop is parallel else.
        ti.loop_config(serialize=True)
        for _ in range(steps):
            n = n // 2 if n % 2 == 0 else 3 * n + 1
        return n

    elementwise()
    checks.close("sine and exponential", y.to_numpy(), np.sin(numbers) * 2 + np.exp(-numbers * numbers), 1e-5)
    reduce()
    checks.close("sum by atomics", total[None] / N, numbers.sum() / N, 1e-4)
    checks.close("largest by atomics", most[None], int((numbers * np.float32(1000)).max()), 0)
    left, right = (rng.standard_normal((48, 48)).astype(np.float32) for _ in range(2))
    a.from_numpy(left)
    b.from_numpy(right)
    product()
    checks.close("matrix product", c.to_numpy(), left @ right, 1e-5)
    picture, filters = rng.standard_normal((4, 18, 18)), rng.standard_normal((8, 4, 3, 3))
    image.from_numpy(picture.astype(np.float32))
    weights.from_numpy(filters.astype(np.float32))
    convolution()
    windows = np.lib.stride_tricks.sliding_window_view(picture, (3, 3), axis=(1, 2))
    checks.close("convolution 3x3", out.to_numpy(), np.einsum("chwrs,kcrs->khw", windows, filters), 1e-5)
    checks.close("integers, a loop, a result", collatz(111), 1, 0)
    checks.end()


main()
