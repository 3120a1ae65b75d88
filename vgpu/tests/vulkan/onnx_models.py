"""ONNX Runtime's WebGPU provider (Dawn): models of one node and a network, without fall back, against its CPU provider."""

import numpy as np
import onnxruntime as ort
from checks import Checks
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(6)


def random(*shape):
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


def node(kind, inputs="x", output="y", **attributes):
    return helper.make_node(kind, inputs.split(), output.split(), **attributes)


def network():
    nodes = [
        node("Conv", "x w0 b0", "a", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "a s m0 m1 v", "b"),
        node("Relu", "b", "c"),
        node("Conv", "c w1", "d", pads=[1, 1, 1, 1], group=16),
        node("Conv", "d w2", "e"),
        node("Add", "e c", "f"),
        node("MaxPool", "f", "g", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", "g", "h"),
        node("Flatten", "h", "i"),
        node("Gemm", "i w3 b3", "j"),
        node("Softmax", "j", "y", axis=-1),
    ]
    weights = {"w0": random(16, 4, 3, 3), "b0": random(16), "w1": random(16, 1, 3, 3), "w2": random(16, 16, 1, 1)}
    norm = {"s": random(16) + 1, "m0": random(16), "m1": random(16), "v": np.abs(random(16)) + 0.5}
    return nodes, {**weights, **norm, "w3": random(16, 10), "b3": random(10)}, (2, 4, 16, 16)


MODELS = {
    "convolution 3x3": ([node("Conv", "x w b", pads=[1, 1, 1, 1])], {"w": random(8, 4, 3, 3), "b": random(8)}, (2, 4, 9, 11)),
    "convolution 1x1": ([node("Conv", "x w")], {"w": random(8, 4, 1, 1)}, (2, 4, 9, 11)),
    "strided depthwise convolution": (
        [node("Conv", "x w", pads=[1, 1, 1, 1], group=4, strides=[2, 2])], {"w": random(4, 1, 3, 3)}, (2, 4, 9, 11)),
    "grouped, dilated convolution": (
        [node("Conv", "x w", group=2, dilations=[2, 2])], {"w": random(6, 2, 3, 3)}, (1, 4, 12, 9)),
    "transposed convolution": (
        [node("ConvTranspose", "x w", strides=[2, 2], pads=[1, 1, 1, 1])], {"w": random(4, 6, 4, 4)}, (1, 4, 5, 6)),
    "fully connected": ([node("Gemm", "x w b")], {"w": random(20, 30), "b": random(30)}, (7, 20)),
    "matrix product": ([node("MatMul", "x w")], {"w": random(64, 48)}, (3, 40, 64)),
    "max pooling": ([node("MaxPool", kernel_shape=[2, 2], strides=[2, 2])], {}, (2, 4, 8, 8)),
    "mean pooling": ([node("GlobalAveragePool")], {}, (2, 4, 8, 8)),
    "softmax": ([node("Softmax", axis=-1)], {}, (6, 33)),
    "layer normalisation": ([node("LayerNormalization", "x s b", axis=-1)], {"s": random(32), "b": random(32)}, (6, 32)),
    "sum along an axis": ([node("ReduceSum", "x a")], {"a": np.array([1], np.int64)}, (3, 40, 5)),
    "transpose": ([node("Transpose", perm=[2, 0, 1])], {}, (5, 6, 7)),
    "erf": ([node("Erf")], {}, (6, 33)),
    "a network": network(),
}


def model(nodes, weights, shape, kind):
    weights = {k: v.astype(kind) if v.dtype == np.float32 else v for k, v in weights.items()}
    number = TensorProto.FLOAT if kind == np.float32 else TensorProto.FLOAT16
    graph = helper.make_graph(
        nodes, "graph", [helper.make_tensor_value_info("x", number, shape)],
        [helper.make_tensor_value_info("y", number, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 9
    return made.SerializeToString()


def run(made: bytes, provider: str, x: np.ndarray):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if provider != "CPUExecutionProvider":
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return ort.InferenceSession(made, options, providers=[provider]).run(None, {"x": x})[0]


def main():
    checks = Checks("onnxruntime-webgpu", ort.__version__)
    for what, (nodes, weights, shape) in MODELS.items():
        x = random(*shape)
        wanted = run(model(nodes, weights, shape, np.float32), "CPUExecutionProvider", x)
        for name, kind, tolerance in [("f32", np.float32, 1e-5), ("f16", np.float16, 1e-2)]:

            def compare(kind=kind, name=name, tolerance=tolerance):
                got = run(model(nodes, weights, shape, kind), "WebGpuExecutionProvider", x.astype(kind))
                checks.close(f"{what}, {name}", got, wanted, tolerance)

            checks.attempt(f"{what}, {name}", compare)
    checks.end()


main()
