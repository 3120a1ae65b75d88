#!/usr/bin/env python3
"""One training step of real networks on the wave device beside PyTorch's own: outputs, gradients, updated weights.

Prints a table (Markdown) of the largest error of each against the same step in f64, relative to the largest value of
the same tensor, beside PyTorch's own error in f32, and of operations that fell back to the CPU. PyTorch's own device is
the CPU, or CUDA with `--judge cuda`, for full sizes (in a second process: torch serves one accelerator each).
`--out FILE` writes the table to a file. Above it stand command, date, machine and commit.

Outputs are those of the model as it is. For gradients and updated weights its ReLUs are replaced by SiLU, its max pools by
average pools: where a pre-activation lies within rounding of zero, or two values of a window of each other, two right
computations disagree about a whole gradient, and in deep networks at small batches one always does (PyTorch's CPU
disagrees with itself in f64 by 10 % and more).
"""

import argparse
import contextlib
import copy
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from bench_vs_cudnn import heading
from measuring import without_dropout
from torch import nn


class UNet(nn.Module):
    """A U-Net of depth 3 with transposed convolutions."""

    def __init__(self, width=16, classes=4):
        super().__init__()

        def block(inputs, outputs):
            return nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True),
                nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True),
            )  # fmt: skip

        self.down = nn.ModuleList([block(3, width), block(width, 2 * width), block(2 * width, 4 * width)])
        self.pool = nn.MaxPool2d(2)
        self.bottom = block(4 * width, 8 * width)
        self.up = nn.ModuleList([nn.ConvTranspose2d(2 * w, w, 2, 2) for w in (4 * width, 2 * width, width)])
        self.join = nn.ModuleList([block(2 * w, w) for w in (4 * width, 2 * width, width)])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for up, join, skip in zip(self.up, self.join, reversed(skips)):
            x = join(torch.cat([skip, up(x)], 1))
        return self.head(x)


def models():
    """Name, constructor, image size."""
    import torchvision.models as tv
    from torchvision.models import detection, segmentation

    def ssdlite_backbone():
        return detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None).backbone

    def retinanet_backbone():
        return detection.retinanet_resnet50_fpn(weights=None, weights_backbone=None).backbone

    return {
        "resnet18": (lambda: tv.resnet18(), 64),
        "resnet50": (lambda: tv.resnet50(), 64),
        "vgg16_bn": (lambda: tv.vgg16_bn(), 32),
        "mobilenet_v2": (lambda: tv.mobilenet_v2(), 64),
        "mobilenet_v3_large": (lambda: tv.mobilenet_v3_large(), 64),
        "efficientnet_b0": (lambda: tv.efficientnet_b0(), 64),
        "densenet121": (lambda: tv.densenet121(), 64),
        "shufflenet_v2": (lambda: tv.shufflenet_v2_x1_0(), 64),
        "deeplabv3_resnet50": (lambda: segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None), 64),
        "fcn_resnet50": (lambda: segmentation.fcn_resnet50(weights=None, weights_backbone=None), 64),
        "ssdlite_backbone": (ssdlite_backbone, 96),
        "retinanet_backbone": (retinanet_backbone, 64),
        "unet": (lambda: UNet(), 64),
    }


def smooth(model):
    """Kinks replaced, so that rounding cannot decide about a gradient."""
    for module in model.modules():
        for name, child in module.named_children():
            if isinstance(child, (nn.ReLU, nn.ReLU6, nn.Hardswish, nn.Hardsigmoid)):
                setattr(module, name, nn.Sigmoid() if isinstance(child, nn.Hardsigmoid) else nn.SiLU())
            if isinstance(child, nn.MaxPool2d):
                setattr(module, name, nn.AvgPool2d(child.kernel_size, child.stride, child.padding, child.ceil_mode))
    return model


@contextlib.contextmanager
def smooth_functions():
    """The same for networks that call functions instead of having modules."""
    silu = lambda x, inplace=False: F.silu(x)  # noqa: E731
    names = ("relu", "relu6", "hardswish")
    kept = {name: getattr(F, name) for name in names}, torch.relu
    for name in names:
        setattr(F, name, silu)
    torch.relu = silu
    try:
        yield
    finally:
        for name in names:
            setattr(F, name, kept[0][name])
        torch.relu = kept[1]


def tensors(output):
    if isinstance(output, torch.Tensor):
        return [output]
    values = output.values() if isinstance(output, dict) else output
    return [t for value in values for t in tensors(value)]


def step(model, image):
    """Outputs, gradients and updated parameters of one step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    outputs = tensors(model(image))
    targets = [torch.arange(o.numel(), dtype=torch.float32).reshape(o.shape).sin().to(o) for o in outputs]
    loss = sum(F.mse_loss(o, t) for o, t in zip(outputs, targets))
    loss.backward()
    grads = {name: p.grad.detach().cpu() for name, p in model.named_parameters() if p.grad is not None}
    optimizer.step()
    after = {name: p.detach().cpu() for name, p in model.named_parameters()}
    return [o.detach().cpu() for o in outputs], grads, after


def error(found, expected, floor=0.0):
    """Largest difference relative to the tensor's largest value."""
    scale = max(expected.abs().max().item(), floor, 1e-30)
    return ((found - expected).abs().max() / scale).item()


def both(name, device, dtype, options):
    """Outputs of the model as it is; gradients and updated weights of the smooth one."""
    build, size = models()[name]
    torch.manual_seed(options.seed)
    plain = without_dropout(build()).train()
    image = torch.rand(options.batch, 3, options.size or size, options.size or size).to(device, dtype)
    softened = smooth(copy.deepcopy(plain))
    outputs, _, _ = step(plain.to(device, dtype), image)
    _, grads, after = step(softened.to(device, dtype), image)
    return outputs, grads, after


def judge(name, found, device, options):
    """Errors of `found`, and of the device in f32, against the device in f64."""
    own, truth = both(name, device, torch.float32, options), both(name, device, torch.float64, options)
    # Gradients of biases in front of a batch norm are zero in exact arithmetic: compare with the network's scale.
    largest = max(g.abs().max().item() for g in truth[1].values())

    def worst(found):
        out = max(error(a.double(), b) for a, b in zip(found[0], truth[0]))
        grad = max(error(found[1][name].double(), g, 1e-3 * largest) for name, g in truth[1].items())
        return out, grad

    updated = max(error(found[2][name].double(), p, 1e-2) for name, p in truth[2].items())
    return [*worst(found), *worst(own), updated]


def serve(options):
    """The judge's process: a model's name and the file of its results a line, errors a line back."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for line in sys.stdin:
        name, file = json.loads(line)
        print(json.dumps(judge(name, torch.load(file), options.judge, options)), flush=True)
        os.remove(file)


def judged(names, options):
    """Name, fallbacks, seconds and errors of each model."""

    def wave(name):
        torch.wave.reset_fallbacks()
        started = time.perf_counter()
        found = both(name, "wave", torch.float32, options)
        return found, dict(torch.wave.fallbacks()), time.perf_counter() - started

    if options.judge == "cpu":
        for name in names:
            found, *rest = wave(name)
            yield name, *rest, judge(name, found, "cpu", options)
        return
    command = [sys.executable, *sys.argv, "--serve"]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    with tempfile.TemporaryDirectory() as folder:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        waiting = []  # one model is judged while the next one runs
        try:
            for name in names:
                found, *rest = wave(name)
                torch.save(found, file := Path(folder) / f"{name}.pt")
                child.stdin.write(json.dumps([name, str(file)]) + "\n")
                child.stdin.flush()
                waiting.append((name, *rest))
                if len(waiting) > 1:
                    yield *waiting.pop(0), json.loads(child.stdout.readline())
            yield *waiting.pop(0), json.loads(child.stdout.readline())
        finally:
            child.kill()
            child.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="default: all")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--size", type=int, help="image size of every model; default: small, by model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tolerance", type=float, default=1e-4, help="allowed relative to f64 (or 4x the judge's own error)")
    parser.add_argument("--judge", default="cpu", choices=("cpu", "cuda"), help="PyTorch's own device to compare with")
    parser.add_argument("--out", type=Path, help="default: standard output")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options)
    import wave32  # noqa: F401

    failed, own = [], f"{options.judge} f32"
    device = torch.wave.get_device_properties()
    command = ["scripts/models_table.py", *(word for word in sys.argv[1:] if word not in ("--out", str(options.out)))]
    # Before the file is opened: writing a page of the checkout makes it `-dirty`.
    head = heading(" ".join(command), f"{device.name}, {device.driver}, PyTorch {torch.__version__}")
    file = options.out.open("w") if options.out else sys.stdout
    print(
        *head,
        f"\nRelative to the same step in f64 on {options.judge}; batch {options.batch}.\n\n"
        f"| model | image | outputs: wave | {own} | gradients: wave | {own} | weights after a step | fallbacks |\n"
        "|---|---|---|---|---|---|---|---|",
        sep="\n", file=file, flush=True,
    )  # fmt: skip
    names = options.models or models()
    for name, fallbacks, seconds, (out, grad, own_out, own_grad, updated) in judged(names, options):
        right = all(e <= max(options.tolerance, 4 * c) for e, c in [(out, own_out), (grad, own_grad)])
        if not right or fallbacks:
            failed.append(name)
        print(
            f"| {name} | {options.size or models()[name][1]} | {out:.1e} | {own_out:.1e} | {grad:.1e} | {own_grad:.1e} "
            f"| {updated:.1e} | {', '.join(sorted(fallbacks)) or 'none'} |",
            file=file, flush=True,
        )  # fmt: skip
        print(f"{name}: {'right' if right else 'WRONG'}, {seconds:.1f} s", file=sys.stderr, flush=True)
    if failed:
        sys.exit(f"not right, or with fallbacks: {', '.join(failed)}")


if __name__ == "__main__":
    main()
