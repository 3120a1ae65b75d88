#!/usr/bin/env python3
"""Networks that a seed draws from torchvision and timm, on the wave device beside PyTorch's CUDA device (eager, TF32 off).

Of all image classifiers that both packages list, in the seed's order: the first COUNT that take 224x224 images and have at
most 50 million weights. None is left out after the draw: one that fails has a row that says so.

Milliseconds of a forward pass (eval, no gradients) and of a training step (SGD with momentum), eager, and of wave's graphs;
the peak of the device's memory in training; the error of all gradients (one pass from the same weights) against the same
network in f64, |found - f64| / |f64| in the Euclidean norm. Each device has a process of its own, one after
the other. Prints Markdown; `--json` keeps what was measured, a line a network and device.
"""

import argparse
import copy
import functools
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from bench_torch_cuda import trainer
from bench_vs_cudnn import made
from measuring import replayed, set_up_cuda, synchronize, timed, without_dropout

WEIGHTS = 50_000_000
KINDS = ("forward", "training", "forward, replayed", "training, replayed")


def build(name):
    package, name = name.split("/")
    if package == "timm":
        import timm

        return timm.create_model(name)
    import torchvision.models as tv

    return tv.get_model(name, weights=None, **({"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}))


def fits(name):
    """Whether it takes 224x224 images and is small enough."""
    try:
        with torch.device("meta"):
            model = build(name)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return False
    size = getattr(model, "default_cfg", {}).get("input_size", (3, 224, 224))
    return tuple(size) == (3, 224, 224) and sum(p.numel() for p in model.parameters()) <= WEIGHTS


def draw(count, seed):
    import timm
    import torchvision.models as tv

    names = [f"torchvision/{name}" for name in tv.list_models(module=tv)] + [f"timm/{name}" for name in timm.list_models()]
    names.sort()
    random.Random(seed).shuffle(names)
    drawn = []
    for name in names:
        if len(drawn) < count and fits(name):
            drawn.append(name)
    return drawn


def gradients(model, image, label):
    """All gradients of one training pass as a row of numbers."""
    F.cross_entropy(model.train()(image), label).backward()
    grads = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return grads


def distance(found, exact):
    """Relative, in the Euclidean norm; both in f64 on one device."""
    return ((found - exact).norm() / exact.norm()).item()


def errors(model, image, label, ours, folder, name):
    """Against f64: of CUDA's gradients, and of wave's, which lie in the folder. The model is not used after this."""
    exact = gradients(model.double(), image.double(), label)
    file = folder / f"{name.replace('/', '-')}.pt"
    found = {"error": ours, "error of wave": torch.load(file) if file.exists() else torch.full_like(ours, float("nan"))}
    file.unlink(missing_ok=True)
    return {key: distance(grads.to(exact), exact) for key, grads in found.items()}


def measure(device, name, options):
    torch.manual_seed(0)
    model = build(name)
    without_dropout(model)
    model = model.to(device)
    image = torch.rand(options.batch, 3, 224, 224).to(device)
    label = torch.randint(1000, (options.batch,)).to(device)
    found = {}
    fallbacks = dict(torch.wave.fallbacks()) if device == "wave" else {}
    ours = gradients(copy.deepcopy(model), image, label)
    if device == "wave":
        torch.save(ours.cpu(), options.folder / f"{name.replace('/', '-')}.pt")
    else:
        found |= errors(copy.deepcopy(model), image, label, ours, options.folder, name)
    del ours
    module = getattr(torch, device)
    module.empty_cache()
    module.reset_peak_memory_stats()
    step = trainer(model.train(), image, label)
    found["training"] = timed(device, step, options.seconds)
    found["memory"] = module.max_memory_allocated()
    if device == "wave":
        try:
            found["training, replayed"] = timed(device, replayed(device, step), options.seconds)
        except (AttributeError, RuntimeError) as error:
            found["training, not replayed"] = str(error)[:200]
    del step
    model.zero_grad()
    model.eval()
    with torch.no_grad():
        run = functools.partial(model, image)
        found["forward"] = timed(device, run, options.seconds)
        if device == "wave":
            try:
                found["forward, replayed"] = timed(device, replayed(device, run), options.seconds)
            except (AttributeError, RuntimeError) as error:
                found["forward, not replayed"] = str(error)[:200]
            now = torch.wave.fallbacks()
            found["fallbacks"] = [op for op in now if now[op] != fallbacks.get(op, 0)]
    return found


def child(options):
    device = options.only
    if device == "wave":
        import wave32  # noqa: F401
    set_up_cuda()
    for name in options.names.split(","):
        try:
            found = measure(device, name, options)
            synchronize(device)
        except Exception as error:
            found = {"failed": f"{type(error).__name__}: {error}"[:300]}
        row = {"device": device, "name": name, **found}
        print(json.dumps(row), flush=True)
        getattr(torch, device).empty_cache()


def report(rows, options):
    by = {(row["device"], row["name"]): row for row in rows}
    names = list(dict.fromkeys(row["name"] for row in rows))
    print(
        f"Batch {options.batch}, 224x224, f32, eager, TF32 off, cudnn.benchmark on. Drawn by "
        f"seed {options.seed}. Made on {made()}.\n\n"
        "Milliseconds; ratios are CUDA's time, eager, over wave's.\n\n"
        "| network | forward, CUDA | wave | ratio | replayed | training, CUDA | wave | ratio | replayed | gradients' error beside CUDA's | memory beside CUDA's | fallbacks |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|"
    )
    ratios = {kind: {} for kind in KINDS}
    worst = (0.0, "")
    for name in names:
        ours, theirs = (by.get((device, name), {"failed": "not run"}) for device in ("wave", "cuda"))
        failed = ours.get("failed") or theirs.get("failed")
        if failed:
            who = "wave" if "failed" in ours else "CUDA"
            print(f"| {name} | {who}: {failed.splitlines()[0]}{' |' * 11}")
            continue
        cells = [name]
        for kind in ("forward", "training"):
            for key in (kind, f"{kind}, replayed"):
                if key in ours:
                    ratios[key][name] = theirs[kind] / ours[key]
            again = ratios[f"{kind}, replayed"].get(name)
            cells += [f"{theirs[kind] * 1e3:.2f}", f"{ours[kind] * 1e3:.2f}", f"{ratios[kind][name]:.2f}", f"{again:.2f}" if again else "no"]
        beside = theirs["error of wave"] / max(theirs["error"], 1e-12)
        worst = max(worst, (beside, name))
        cells += [f"{beside:.2f}", f"{ours['memory'] / theirs['memory']:.2f}"]
        print(f"| {' | '.join(cells)} | {', '.join(ours['fallbacks']) or 'none'} |")
    print("\n| | networks | geometric mean | least |\n|---|---|---|---|")
    for kind, found in ratios.items():
        if found:
            least = min(found, key=found.get)
            print(f"| {kind} | {len(found)} | {statistics.geometric_mean(found.values()):.2f} | {found[least]:.2f} ({least}) |")
    print(f"\nThe gradients' error against f64 is at most {worst[0]:.2f} times CUDA's ({worst[1]}).")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=0.4, help="of timing, each")
    parser.add_argument("--part", default="0:", help="of the drawn ones, as a slice: 0:20")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--json", type=Path, help="rows are added to this file")
    parser.add_argument("--report", action="store_true", help="measure nothing, print what --json holds")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--names", help="these, separated by commas, instead of a draw")
    options = parser.parse_args()
    if options.only:
        return child(options)
    if not options.report:
        names = options.names.split(",") if options.names else draw(options.count, options.seed)
        if options.list:
            return print("\n".join(names))
        first, last = options.part.split(":")
        names = names[int(first or 0) : int(last) if last else None]
        folder = Path(tempfile.mkdtemp())
        file = options.json or folder / "rows.jsonl"
        options.json = file
        with file.open("a") as rows:
            for device in ("wave", "cuda"):
                arguments = ["--only", device, "--folder", str(folder), "--names", ",".join(names), "--batch", str(options.batch), "--seconds", str(options.seconds)]
                subprocess.run([sys.executable, __file__, *arguments], check=False, stdout=rows, timeout=1200)
    # A log begins with lines about the run.
    lines = [line for line in options.json.read_text().splitlines() if line.startswith('{"device"')]
    report([json.loads(line) for line in lines], options)
    return None


if __name__ == "__main__":
    main()
