#!/usr/bin/env python3
"""Device memory of a training step and of inference on the device `wave`, by batch: `docs/memory.json`.

    python scripts/memory_table.py [--models resnet18,unet] [--size 64] [--batches 32,64] [--modes train,infer] [--out docs/memory.json]

Each row is a process of its own. It does two training steps (forward, loss, backward, SGD with momentum) or two forward
passes without gradients, and tells the most bytes that tensors held (`torch.wave.max_memory_allocated`) and that the heap
held of the driver's memory (`torch.wave.max_memory_reserved`). Images are random: memory does not depend on values. The
optimizer's state and the gradients are there beside the activations; with few images they decide, with many the activations.
"""

import argparse
import datetime
import json
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def build(name):
    import torchvision.models as tv
    from models_table import UNet

    return {"unet": UNet}[name]() if name == "unet" else getattr(tv, name)(weights=None)


def one(name, mode, batch, size):
    """One row, in this process."""
    import torch
    import wave32  # noqa: F401 (the device)

    model = build(name).to("wave")
    x = torch.rand(batch, 3, size, size, device="wave")
    if mode == "train":
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        for _ in range(2):
            optimizer.zero_grad(set_to_none=True)
            model(x).square().mean().backward()
            optimizer.step()
    else:
        model.eval()
        with torch.no_grad():
            for _ in range(2):
                model(x)
    torch.wave.synchronize()
    return {
        "model": name, "mode": mode, "batch": batch, "allocated": torch.wave.max_memory_allocated(),
        "reserved": torch.wave.max_memory_reserved(), "fallbacks": torch.wave.fallbacks(),
        "device": torch.wave.get_device_name(), "torch": torch.__version__,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mobilenet_v2,resnet18,unet,efficientnet_b0,resnet50,densenet121")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batches", default="32,64")
    parser.add_argument("--modes", default="train,infer")
    parser.add_argument("--out", default=str(ROOT / "docs/memory.json"))
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    if options.one:
        name, mode, batch = options.one
        print(json.dumps(one(name, mode, int(batch), options.size)))
        return
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    rows = []
    for mode in options.modes.split(","):
        for name in options.models.split(","):
            for batch in options.batches.split(","):
                command = [sys.executable, __file__, "--size", str(options.size), "--one", name, mode, batch]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode != 0:
                    last = (done.stderr.strip().splitlines() or ["no word"])[-1]
                    print(f"{name} {mode} {batch}: {last}", file=sys.stderr)
                    continue
                rows.append(json.loads(done.stdout))
                print(rows[-1], file=sys.stderr)
                text = json.dumps({
                    "script": "scripts/memory_table.py", "date": datetime.date.today().isoformat(),
                    "commit": commit.stdout.strip(), "machine": f"{platform.machine()}, {rows[0]['device']}",
                    "torch": rows[0]["torch"], "size": options.size, "rows": rows,
                }, indent=1)  # fmt: skip
                Path(options.out).write_text(text + "\n")


if __name__ == "__main__":
    main()
