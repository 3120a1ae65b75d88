#!/usr/bin/env python3
"""Trains a small CNN on handwritten digits, on the best Vulkan device and on the CPU, and compares.

The 8x8 scans are scaled up to 48x48: the second layer is a convolution from 16 to 32 channels of an image larger than
42x42. With ROCm's MIOpen under HSA_OVERRIDE_GFX_VERSION, the owner of an RX 5600 XT saw layers of this kind hang.

The scans are the test set of "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, UCI Machine Learning
Repository, CC BY 4.0): digits.gz has 1797 labels of a byte, then 1797 images of 64 bytes from 0 to 16.
"""

import argparse
import gzip
import json
import math
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

SIZE = 48
IMAGES = 1797
TEST = 360
# What a training that works gets at least.
ENOUGH = 0.97


def digits(seed):
    """Images [N, 1, 48, 48] and labels, shuffled, as (train, test)."""
    raw = bytearray(gzip.decompress(Path(__file__).with_name("digits.gz").read_bytes()))
    values = torch.frombuffer(raw, dtype=torch.uint8)
    labels = values[:IMAGES].long()
    images = values[IMAGES:].reshape(IMAGES, 1, 8, 8).float() / 16
    images = F.interpolate(images, size=(SIZE, SIZE), mode="bilinear", align_corners=False)
    images = (images - images.mean()) / images.std()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    test, train = order[:TEST], order[TEST:]
    return (images[train], labels[train]), (images[test], labels[test])


def network():
    """Four convolutions with batch norm, 25,000 parameters."""

    def block(inputs, outputs, stride):
        return [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(
        *block(1, 16, 1),  # 48 x 48
        *block(16, 32, 2),  # 48 x 48 -> 24 x 24
        nn.MaxPool2d(2),  # 12 x 12
        *block(32, 32, 1),
        *block(32, 32, 2),  # 6 x 6
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def accuracy(model, images, labels, device):
    model.eval()
    right = 0
    with torch.no_grad():
        for start in range(0, len(labels), 180):
            answer = model(images[start : start + 180].to(device)).argmax(1).cpu()
            right += (answer == labels[start : start + 180]).sum().item()
    model.train()
    return right / len(labels)


def train(device, epochs, batch, seed):
    """Trains from the same start in the same order on any device; a dict of what happened."""
    (images, labels), test = digits(seed)
    torch.manual_seed(seed)
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
    order = torch.Generator().manual_seed(seed)
    steps = math.ceil(len(labels) / batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=epochs * steps)
    losses, accuracies = [], []
    started = time.perf_counter()
    with progress(epochs * steps, device) as bar:
        for _ in range(epochs):
            shuffled = torch.randperm(len(labels), generator=order)
            running = []
            for start in range(0, len(labels), batch):
                chosen = shuffled[start : start + batch]
                loss = F.cross_entropy(model(images[chosen].to(device)), labels[chosen].to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                running.append(loss.detach())
                bar.update()
            losses += torch.stack(running).cpu().tolist()
            accuracies.append(accuracy(model, *test, device))
            if bar.disable:
                print(f"{device}: epoch {len(accuracies)}, loss {losses[-1]:.3f}, test {accuracies[-1]:.1%}", flush=True)
            bar.set_postfix(loss=f"{losses[-1]:.3f}", test=f"{accuracies[-1]:.1%}")
    seconds = time.perf_counter() - started
    return {"losses": losses, "accuracies": accuracies, "seconds": seconds, "epochs": epochs}


class NoBar:
    """Where tqdm is not installed, each epoch has a line."""

    disable = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def update(self):
        pass

    def set_postfix(self, **_):
        pass


def progress(steps, device):
    """A progress bar on a terminal."""
    try:
        from tqdm import tqdm
    except ImportError:
        return NoBar()
    return tqdm(total=steps, desc=f"{device:>4}", unit="step", file=sys.stderr, disable=None)


def plot(runs, title, path):
    """False where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for (device, run), style in zip(runs.items(), ["-", "--"]):
        left.plot(range(1, len(run["losses"]) + 1), run["losses"], style, label=device, linewidth=1.2)
        right.plot(range(1, run["epochs"] + 1), [100 * a for a in run["accuracies"]], style + "o", label=device)
    left.set(title="training loss", xlabel="step", yscale="log")
    right.set(title="test accuracy, %", xlabel="epoch")
    right.axhline(100 * ENOUGH, color="grey", linewidth=0.7)
    for axis in (left, right):
        axis.legend()
        axis.grid(alpha=0.3)
    figure.suptitle(title)
    figure.savefig(path, dpi=110)
    return True


def main():
    parser = argparse.ArgumentParser(
        prog="wave32 demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, help="default: 6, or 4 on a software driver")
    parser.add_argument("--batch", type=int, help="default: 48, or 32 on a software driver")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--devices", nargs="+", default=["wave", "cpu"], help="default: wave cpu")
    parser.add_argument("--out", type=Path, default=Path("wave32-demo"), help="folder of the plot and the figures")
    options = parser.parse_args()
    if "wave" in options.devices:
        import wave32  # noqa: F401

        print(f"wave: {torch.wave.get_device_name()}")
    # A software driver takes as long as its machine has cores for.
    software = "wave" in options.devices and torch.wave.get_device_properties().kind == "cpu"
    options.epochs = options.epochs or (4 if software else 6)
    options.batch = options.batch or (32 if software else 48)
    options.out.mkdir(parents=True, exist_ok=True)
    runs = {device: train(device, options.epochs, options.batch, options.seed) for device in options.devices}
    print()
    for device, run in runs.items():
        print(
            f"{device:>5}: {run['accuracies'][-1]:.1%} of the test images right after {run['epochs']} epochs, "
            f"{run['seconds']:.1f} s"
        )
    failed = [d for d, run in runs.items() if run["accuracies"][-1] <= ENOUGH]
    if {"wave", "cpu"} <= runs.keys():
        first = [abs(a - b) for a, b in zip(runs["wave"]["losses"][:5], runs["cpu"]["losses"][:5])]
        print(f"losses of the first five steps differ by {max(first):.1e} at most")
        if max(first) > 1e-3:
            failed.append("wave's losses")
    if "wave" in runs:
        print("\nwhere the GPU spends a step:")
        profile(options.batch, options.seed)
        found = torch.wave.fallbacks()
        print(f"operations that ran on the CPU instead: {found or 'none'}")
    name = torch.wave.get_device_name() if "wave" in runs else "CPU"
    (options.out / "demo.json").write_text(json.dumps(runs, indent=1))
    if plot(runs, f"16 -> 32 channels above 42 x 42, trained on {name}", options.out / "demo.png"):
        print(f"plot: {options.out / 'demo.png'}")
    else:
        print(f"figures: {options.out / 'demo.json'} (with matplotlib there would be a plot: pip install matplotlib)")
    if failed:
        sys.exit(f"FAILED: {', '.join(failed)}")


def profile(batch, seed):
    """One step under the profiler, after a warm one."""
    (images, labels), _ = digits(seed)
    model = network().to("wave")
    x, y = images[:batch].to("wave"), labels[:batch].to("wave")
    F.cross_entropy(model(x), y).backward()
    with torch.wave.profile() as profiler:
        F.cross_entropy(model(x), y).backward()
    print(profiler.table(rows=8))


if __name__ == "__main__":
    main()
