"""Small models in onnxruntime with its ROCm provider, each beside its CPU provider on the same random numbers.

    python onnxruntime_models.py [--own-kernels] [--seed N] [NAME...]

Without --own-kernels only what the provider hands to libraries: its own kernels are not compiled for RDNA1.
No node may fall back to the CPU. Prints a line a model; exit code 1 where one failed.
"""

import argparse
import os
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

# Name: input shape, nodes as (operator, shapes of its constant operands, attributes). OWN need the provider's own kernels.
MODELS = {
    "conv": ((1, 8, 16, 16), [("Conv", [(16, 8, 3, 3)], dict(pads=[1] * 4))]),
    "conv with bias": ((2, 6, 11, 9), [("Conv", [(10, 6, 3, 5), (10,)], dict(pads=[1, 2, 1, 2], strides=[2, 1]))]),
    "grouped and dilated": ((1, 6, 14, 11), [("Conv", [(9, 2, 3, 3)], dict(pads=[2, 2, 2, 2], dilations=[2, 2], group=3))]),
    "depthwise": ((2, 10, 9, 9), [("Conv", [(10, 1, 3, 3), (10,)], dict(pads=[1] * 4, group=10))]),
    "one dimension": ((2, 6, 40), [("Conv", [(8, 6, 5)], dict(pads=[2, 2]))]),
    "transposed": ((1, 8, 6, 6), [("ConvTranspose", [(8, 5, 4, 4)], dict(pads=[1] * 4, strides=[2, 2]))]),
    "maximum pooling": ((1, 4, 12, 12), [("MaxPool", [], dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4))]),
    "average pooling": ((1, 4, 12, 12), [("AveragePool", [], dict(kernel_shape=[2, 2], strides=[2, 2]))]),
    "global pooling": ((2, 7, 9, 5), [("GlobalAveragePool", [], {})]),
    "normalisation": ((2, 5, 6, 7), [("BatchNormalization", [(5,)] * 4, dict(epsilon=1e-4))]),
    "network": (
        (1, 3, 32, 32),
        [
            ("Conv", [(16, 3, 3, 3), (16,)], dict(pads=[1] * 4)),
            ("BatchNormalization", [(16,)] * 4, {}),
            ("MaxPool", [], dict(kernel_shape=[2, 2], strides=[2, 2])),
            ("Conv", [(32, 16, 3, 3), (32,)], dict(pads=[1] * 4)),
            ("GlobalAveragePool", [], {}),
            ("Conv", [(10, 32, 1, 1)], {}),
        ],
    ),
}
OWN = {
    "relu": ((1, 4, 9, 9), [("Relu", [], {})]),
    "network with activations": (
        (1, 3, 32, 32),
        [
            ("Conv", [(16, 3, 3, 3), (16,)], dict(pads=[1] * 4)),
            ("Relu", [], {}),
            ("MaxPool", [], dict(kernel_shape=[2, 2], strides=[2, 2])),
            ("Conv", [(32, 16, 3, 3), (32,)], dict(pads=[1] * 4)),
            ("Relu", [], {}),
            ("GlobalAveragePool", [], {}),
        ],
    ),
}


def model(rng, shape, layers, half):
    """A chain of layers, its constants drawn from `rng`."""
    kind = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    dtype = np.float16 if half else np.float32
    nodes, constants, value = [], [], "x"
    for i, (operator, operands, attributes) in enumerate(layers):
        names = []
        for k, size in enumerate(operands):
            data = rng.uniform(-1, 1, size)
            if operator == "BatchNormalization" and k == 3:
                data = data + 1.5  # a variance
            constants.append(numpy_helper.from_array(data.astype(dtype), f"c{i}_{k}"))
            names.append(f"c{i}_{k}")
        nodes.append(helper.make_node(operator, [value, *names], [f"y{i}"], **attributes))
        value = f"y{i}"
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(value, kind, None)],
        constants,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return made.SerializeToString(), rng.uniform(-1, 1, shape).astype(dtype)


def session(data, providers):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    # As the graph says: no fusing of nodes into operators that this table does not name.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if providers[0] != "CPUExecutionProvider":
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return ort.InferenceSession(data, options, providers=providers)


def check(name, seed, shape, layers, half):
    rng = np.random.default_rng([seed, sum(map(ord, name))])
    data, x = model(rng, shape, layers, half)
    on_card = session(data, [("ROCMExecutionProvider", {"tunable_op_enable": "0"})])
    if on_card.get_providers()[0] != "ROCMExecutionProvider":
        raise RuntimeError("the ROCm provider did not load")
    results = [on_card.run(None, {"x": x})[0] for _ in range(2)]
    if not np.array_equal(results[0].view(np.uint8), results[1].view(np.uint8)):
        raise AssertionError("a second run has other bits")
    want = session(data, ["CPUExecutionProvider"]).run(None, {"x": x})[0].astype(np.float64)
    error = np.abs(results[0] - want).max() / np.abs(want).max()
    if not error < (2e-3 if half else 1e-5):
        raise AssertionError(f"error {error:.2g} of the largest element")
    return error


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--own-kernels", action="store_true")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    print(f"onnxruntime {ort.__version__}, onnx {onnx.__version__}, seed {args.seed}")
    models = {**MODELS, **OWN} if args.own_kernels else MODELS
    unknown = [name for name in args.names if name not in models]
    if unknown:
        parser.error(f"{unknown}: none of {list(models)}")
    failed = 0
    for name, (shape, layers) in models.items():
        if args.names and name not in args.names:
            continue
        try:
            print(f"  {name}: right, error {check(name, args.seed, shape, layers, args.half):.1g}", flush=True)
        except Exception as error:
            failed += 1
            print(f"  {name}: FAILED: {str(error).splitlines()[0]}", flush=True)
    print(f"{failed} failed" if failed else "passed")
    sys.exit(failed > 0)


main()
