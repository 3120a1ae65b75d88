"""IREE: modules compiled for Vulkan, for RDNA1 by name and for any card, against numpy."""

from importlib.metadata import version

import iree.compiler
import iree.runtime
import numpy as np
from checks import Checks

CONV = """
func.func @conv(%x: tensor<1x18x18x4x{t}>, %w: tensor<3x3x4x16x{t}>) -> tensor<1x16x16x16x{t}> {{
  %z = arith.constant 0.0 : {t}
  %e = tensor.empty() : tensor<1x16x16x16x{t}>
  %f = linalg.fill ins(%z : {t}) outs(%e : tensor<1x16x16x16x{t}>) -> tensor<1x16x16x16x{t}>
  %r = linalg.conv_2d_nhwc_hwcf {{dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}}
    ins(%x, %w : tensor<1x18x18x4x{t}>, tensor<3x3x4x16x{t}>) outs(%f : tensor<1x16x16x16x{t}>) -> tensor<1x16x16x16x{t}>
  return %r : tensor<1x16x16x16x{t}>
}}"""
DEPTHWISE = """
func.func @conv(%x: tensor<1x18x18x16x{t}>, %w: tensor<3x3x16x{t}>) -> tensor<1x16x16x16x{t}> {{
  %z = arith.constant 0.0 : {t}
  %e = tensor.empty() : tensor<1x16x16x16x{t}>
  %f = linalg.fill ins(%z : {t}) outs(%e : tensor<1x16x16x16x{t}>) -> tensor<1x16x16x16x{t}>
  %r = linalg.depthwise_conv_2d_nhwc_hwc {{dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}}
    ins(%x, %w : tensor<1x18x18x16x{t}>, tensor<3x3x16x{t}>) outs(%f : tensor<1x16x16x16x{t}>) -> tensor<1x16x16x16x{t}>
  return %r : tensor<1x16x16x16x{t}>
}}"""
MATMUL = """
func.func @matmul(%a: tensor<64x96x{t}>, %b: tensor<96x128x{t}>) -> tensor<64x128x{t}> {{
  %z = arith.constant 0.0 : {t}
  %e = tensor.empty() : tensor<64x128x{t}>
  %f = linalg.fill ins(%z : {t}) outs(%e : tensor<64x128x{t}>) -> tensor<64x128x{t}>
  %r = linalg.matmul ins(%a, %b : tensor<64x96x{t}>, tensor<96x128x{t}>)
    outs(%f : tensor<64x128x{t}>) -> tensor<64x128x{t}>
  return %r : tensor<64x128x{t}>
}}"""
SOFTMAX = """
func.func @softmax(%x: tensor<33x77x{t}>) -> tensor<33x77x{t}> {{
  %e = tensor.empty() : tensor<33x77x{t}>
  %r = linalg.softmax dimension(1) ins(%x : tensor<33x77x{t}>) outs(%e : tensor<33x77x{t}>) -> tensor<33x77x{t}>
  return %r : tensor<33x77x{t}>
}}"""
def windows(x):
    """Of 3x3 pixels: rows, columns, channels, then the window's."""
    return np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(0, 1))


def softmax(x):
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


MODULES = [
    ("convolution 3x3", "conv", CONV, [(1, 18, 18, 4), (3, 3, 4, 16)],
     lambda x, w: np.einsum("hwcrs,rsck->hwk", windows(x), w)[None]),
    ("depthwise convolution", "conv", DEPTHWISE, [(1, 18, 18, 16), (3, 3, 16)],
     lambda x, w: np.einsum("hwcrs,rsc->hwc", windows(x), w)[None]),
    ("matrix product", "matmul", MATMUL, [(64, 96), (96, 128)], np.matmul),
    ("softmax", "softmax", SOFTMAX, [(33, 77)], softmax),
]
TYPES = [("f32", np.float32, 1e-5), ("f16", np.float16, 5e-3)]
# Compiled for: RDNA1, and what most cards can do. For these IREE 3.13 takes a buffer of f16 for one of f32, and reads and
# writes past its end.
TARGETS = {"f32": ["rdna1", "vp_android_baseline_2022"], "f16": ["rdna1"]}


def run(text: str, function: str, inputs: list, target: str):
    options = [f"--iree-vulkan-target={target}"]
    module = iree.compiler.compile_str(text, target_backends=["vulkan-spirv"], extra_args=options)
    # A device of its own: one that was lost would stay so.
    device = iree.runtime.get_driver("vulkan").create_default_device()
    config = iree.runtime.Config(device=device)
    loaded = iree.runtime.load_vm_module(iree.runtime.VmModule.copy_buffer(config.vm_instance, module), config)
    return loaded[function](*inputs).to_host()


def main():
    checks = Checks("IREE", version("iree-base-compiler"))
    rng = np.random.default_rng(5)
    for what, function, text, shapes, model in MODULES:
        for name, kind, tolerance in TYPES:
            inputs = [rng.standard_normal(shape).astype(kind) for shape in shapes]
            wanted = model(*(x.astype(np.float64) for x in inputs))
            for target in TARGETS[name]:

                def compare(target=target):
                    got = run(text.format(t=name), function, inputs, target)
                    checks.close(f"{what}, {name}, {target}", got, wanted, tolerance)

                checks.attempt(f"{what}, {name}, {target}", compare)
    checks.end()


main()
