"""Convolutions of JAX and their gradients by the weights on the `rocm` platform, against loops in f64.

    JAX_PLATFORMS=rocm python3 jax_conv.py [SEED]

The gradient by the input is left out: XLA turns the weights round by a kernel of its own, which it compiles for gfx1030 at
the earliest.
"""
import random
import sys

import jax
import numpy as np

seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.SystemRandom().randrange(1 << 32)
print("seed", seed, jax.devices(), flush=True)
rng = np.random.default_rng(seed)


def loops(x, w, dy, pad, stride, groups):
    """y and the gradient by w."""
    x, w, dy = (np.asarray(a, np.float64) for a in (x, w, dy))
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    y, dw = np.zeros_like(dy), np.zeros_like(w)
    per, outputs = w.shape[1], w.shape[0] // groups
    for k in range(w.shape[0]):
        c = k // outputs * per
        for p in range(y.shape[2]):
            for q in range(y.shape[3]):
                h, v = p * stride, q * stride
                seen = x[:, c : c + per, h : h + w.shape[2], v : v + w.shape[3]]
                y[:, k, p, q] = (seen * w[k]).sum((1, 2, 3))
                dw[k] += (seen * dy[:, k, p, q, None, None, None]).sum(0)
    return y, dw


failed = 0
for c, k, size, pad, stride, groups in [(3, 4, 3, 1, 1, 1), (4, 6, 3, 0, 2, 1), (6, 6, 3, 1, 1, 2), (7, 5, 1, 0, 1, 1)]:
    x = rng.standard_normal((2, c, 11, 8)).astype(np.float32)
    w = rng.standard_normal((k, c // groups, size, size)).astype(np.float32)

    def convolution(x, w):
        return jax.lax.conv_general_dilated(x, w, (stride, stride), [(pad, pad)] * 2, feature_group_count=groups)

    dy = rng.standard_normal(jax.eval_shape(convolution, x, w).shape).astype(np.float32)
    y, back = jax.vjp(lambda w: convolution(x, w), w)
    for name, got, want in zip(("forward", "weights"), (y, *back(dy)), loops(x, w, dy, pad, stride, groups)):
        error = np.linalg.norm(np.asarray(got) - want) / np.linalg.norm(want)
        failed += not error < 1.5e-6
        print(f"{c} to {k}, {size}x{size}, pad {pad}, stride {stride}, {groups} groups, {name}: error {error:.2g}", flush=True)
print("FAILED" if failed else "passed")
sys.exit(bool(failed))
