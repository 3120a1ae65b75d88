"""A convolution and both of its gradients in tensorflow-rocm, beside NumPy in f64 (docs/miopen_clients.md says how).

    python tensorflow_conv.py [SEED]
"""

import os
import sys

import numpy as np
import tensorflow as tf

seed = int(sys.argv[1]) if len(sys.argv) > 1 else int.from_bytes(os.urandom(4), "little")
print(f"tensorflow {tf.__version__}, seed {seed}")
rng = np.random.default_rng(seed)
x = rng.uniform(-1, 1, (2, 8, 16, 16)).astype(np.float32)
w = rng.uniform(-1, 1, (3, 3, 8, 16)).astype(np.float32)
dy = rng.uniform(-1, 1, (2, 16, 16, 16)).astype(np.float32)

with tf.device("/GPU:0"):
    xt, wt, dyt = tf.constant(x), tf.constant(w), tf.constant(dy)
    kind = dict(strides=1, padding="SAME", data_format="NCHW")
    got = {
        "forward": tf.nn.conv2d(xt, wt, **kind),
        "gradient by the input": tf.raw_ops.Conv2DBackpropInput(
            input_sizes=x.shape, filter=wt, out_backprop=dyt, strides=[1] * 4, padding="SAME", data_format="NCHW"
        ),
        "gradient by the filter": tf.raw_ops.Conv2DBackpropFilter(
            input=xt, filter_sizes=w.shape, out_backprop=dyt, strides=[1] * 4, padding="SAME", data_format="NCHW"
        ),
    }


def pad(a):
    return np.pad(a.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))


y, dx, dw = np.zeros(dy.shape), np.zeros(pad(x).shape), np.zeros(w.shape)
for r in range(3):
    for s in range(3):
        window = pad(x)[:, :, r : r + 16, s : s + 16]
        y += np.einsum("nchw,ck->nkhw", window, w[r, s].astype(np.float64))
        dx[:, :, r : r + 16, s : s + 16] += np.einsum("nkhw,ck->nchw", dy.astype(np.float64), w[r, s].astype(np.float64))
        dw[r, s] = np.einsum("nchw,nkhw->ck", window, dy.astype(np.float64))
want = {"forward": y, "gradient by the input": dx[:, :, 1:-1, 1:-1], "gradient by the filter": dw}

for name, result in got.items():
    error = np.abs(result.numpy() - want[name]).max() / np.abs(want[name]).max()
    print(f"  {name} on {result.device}: error {error:.1g}")
    assert "GPU" in result.device and error < 1e-5, name
print("passed")
