"""Writes a small network with random weights as ONNX, for `migraphx-driver verify`: convolutions of several kinds and what
MIGraphX hands to MIOpen beside them.

    migraphx_net.py FILE [SEED]
"""
import random
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 32)
print("seed", seed)
rng = np.random.default_rng(seed)
constants, nodes = [], []


def weights(*shape, positive=False):
    values = rng.random(shape) + 0.5 if positive else rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    constants.append(numpy_helper.from_array(values.astype(np.float32), f"w{len(constants)}"))
    return constants[-1].name


def then(kind, *more, **attributes):
    """A node on what the last one left."""
    before = nodes[-1].output[0] if nodes else "x"
    nodes.append(helper.make_node(kind, [before, *more], [f"n{len(nodes)}"], **attributes))


first, groups, last = (int(rng.integers(*limits)) for limits in ((3, 9), (2, 4), (3, 8)))
middle = 4 * groups
then("Conv", weights(first * groups, 3, 3, 3), weights(first * groups), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
then("Relu")
then("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
then("Conv", weights(middle, first, 3, 3), weights(middle), kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], group=groups)
then("BatchNormalization", *(weights(middle, positive=True) for _ in range(4)))
then("Conv", weights(middle, 1, 3, 3), kernel_shape=[3, 3], pads=[2, 2, 2, 2], dilations=[2, 2], group=middle)
then("ConvTranspose", weights(middle, last, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
then("AveragePool", kernel_shape=[3, 3], strides=[1, 1])
then("Conv", weights(last, last, 1, 1), kernel_shape=[1, 1])
then("GlobalAveragePool")
then("Flatten")
then("Gemm", weights(last, 10))
then("Softmax")
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, int(rng.integers(16, 24)), int(rng.integers(16, 24))])
y = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, [2, 10])
model = helper.make_model(helper.make_graph(nodes, "net", [x], [y], constants), opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
onnx.checker.check_model(model)
onnx.save(model, sys.argv[1])
