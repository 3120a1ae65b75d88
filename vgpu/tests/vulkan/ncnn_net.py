"""ncnn: a small network with random weights, layer by layer, against its own CPU code; in f32, and in f16 both ways."""

import tempfile
from pathlib import Path

import ncnn
import numpy as np
from checks import Checks

# Which weights each layer has: values, then biases.
LAYERS = """7767517
13 14
Input data 0 1 data
Convolution conv3x3 1 1 data c0 0=16 1=3 4=1 5=1 6=432 9=1
ConvolutionDepthWise depthwise 1 1 c0 c1 0=16 1=3 4=1 5=1 6=144 7=16
Convolution conv1x1 1 1 c1 c2 0=32 1=1 5=1 6=512 9=2 -23310=1,0.1
Split split 1 2 c2 c2a c2b
Pooling maximum 1 1 c2a c3 0=0 1=2 2=2
Convolution strided 1 1 c2b c4 0=32 1=3 3=2 4=1 5=1 6=9216
BinaryOp sum 2 1 c3 c4 c5 0=0
Deconvolution deconv 1 1 c5 c6 0=8 1=4 3=2 4=1 5=1 6=4096
Convolution conv5x5 1 1 c6 c7 0=12 1=5 4=2 5=1 6=2400
Pooling mean 1 1 c7 c8 0=1 4=1
InnerProduct inner 1 1 c8 c9 0=10 1=1 2=120
Softmax softmax 1 1 c9 out 0=0
"""
WEIGHTS = [(432, 16), (144, 16), (512, 32), (9216, 32), (4096, 8), (2400, 12), (120, 10)]
BLOBS = {
    "c0": "convolution 3x3",
    "c1": "depthwise convolution",
    "c2": "convolution 1x1",
    "c3": "max pooling",
    "c4": "strided convolution",
    "c5": "sum",
    "c6": "deconvolution",
    "c7": "convolution 5x5",
    "c8": "mean pooling",
    "c9": "inner product",
    "out": "softmax",
}
# Name; packed, stored and computed in f16; tolerance.
KINDS = [
    ("f32", (False, False, False), 2e-5),
    ("f16 storage", (True, True, False), 5e-3),
    ("f16 arithmetic", (True, True, True), 2e-2),
]


def model(folder: Path):
    rng = np.random.default_rng(1)
    blob = b""
    for values, biases in WEIGHTS:
        # A tag of 0: f32 follows.
        blob += np.uint32(0).tobytes()
        blob += (rng.standard_normal(values) * 0.2).astype(np.float32).tobytes()
        blob += (rng.standard_normal(biases) * 0.2).astype(np.float32).tobytes()
    (folder / "param").write_text(LAYERS)
    (folder / "bin").write_bytes(blob)


def run(folder: Path, image: np.ndarray, gpu: bool, f16=(False, False, False)):
    net = ncnn.Net()
    net.opt.use_vulkan_compute = gpu
    net.opt.num_threads = 1
    net.opt.use_bf16_storage = False
    net.opt.use_fp16_packed, net.opt.use_fp16_storage, net.opt.use_fp16_arithmetic = f16
    if net.load_param(str(folder / "param")) or net.load_model(str(folder / "bin")):
        raise RuntimeError("the network cannot be loaded")
    extractor = net.create_extractor()
    extractor.input("data", ncnn.Mat(image))
    results = {}
    for blob in BLOBS:
        failed, mat = extractor.extract(blob)
        if failed:
            raise RuntimeError(f"{BLOBS[blob]} failed")
        results[blob] = np.array(mat)
    return results


def main():
    checks = Checks("ncnn", ncnn.__version__)
    if ncnn.get_gpu_count() == 0:
        checks.tell("refused", "no Vulkan device")
        checks.end()
    image = np.random.default_rng(2).standard_normal((3, 24, 24)).astype(np.float32)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model(folder)
        wanted = run(folder, image, gpu=False)
        for kind, f16, tolerance in KINDS:

            def compare(kind=kind, f16=f16, tolerance=tolerance):
                got = run(folder, image, gpu=True, f16=f16)
                for blob, layer in BLOBS.items():
                    checks.close(f"{layer}, {kind}", got[blob], wanted[blob], tolerance)

            checks.attempt(kind, compare)
    checks.end()


main()
