#!/usr/bin/env python3
"""Images a second of the wave device beside PyTorch's CUDA device (eager, TF32 off) on one GPU in one run.

Forward (eval, no gradients) and a training step (SGD with momentum) of torchvision models at full size. Also the
results of one forward and backward pass against CUDA's, the CPU time that wave needs an operation, and the share of a
training step in which its GPU idles. Prints Markdown.
"""

import argparse
import copy
import statistics
import sys
import time

import torch
import torch.nn.functional as F

import wave32  # noqa: F401


def synchronize(device):
    torch.cuda.synchronize() if device == "cuda" else torch.wave.synchronize()


def timed(device, call, seconds):
    """Seconds a call, median, after warming up."""
    for _ in range(3):
        call()
    synchronize(device)
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        for _ in range(2):
            call()
        synchronize(device)
        times.append((time.perf_counter() - start) / 2)
    return statistics.median(times)


def trainer(model, image, label):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(image), label).backward()
        optimizer.step()

    return step


def relative(found, expected):
    return ((found.cpu() - expected.cpu()).abs().max() / expected.abs().max().cpu()).item()


def overhead():
    """Microseconds of CPU that a small operation takes to launch, by device."""
    found = {}
    for device in ("cuda", "wave"):
        x = torch.rand(64, device=device)
        y = torch.rand(64, device=device)
        for name, call in (("relu", lambda: torch.relu(x)), ("mul", lambda: x * y), ("add", lambda: x + y)):
            best = 1e9
            for _ in range(5):
                synchronize(device)
                start = time.perf_counter()
                for _ in range(200):
                    call()
                best = min(best, (time.perf_counter() - start) / 200)
            found[device, name] = best * 1e6
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["resnet50", "vgg16_bn", "mobilenet_v2"])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--seconds", type=float, default=2.0, help="of timing, each")
    parser.add_argument("--profile", action="store_true", help="also print wave's kernels by time")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no CUDA device; this comparison needs one that Vulkan sees as well")
    import torchvision.models as tv

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    print(
        f"Batch {options.batch}, {options.size}x{options.size}, f32; wave: {torch.wave.get_device_name()}; CUDA: "
        f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, eager, TF32 off, cudnn.benchmark on.\n\n"
        "| model | pass | wave images/s | CUDA images/s | ratio | GPU idle | largest error |\n|---|---|---|---|---|---|---|",
        flush=True,
    )
    for name in options.models:
        torch.manual_seed(0)
        base = getattr(tv, name)()
        for module in base.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        image = torch.rand(options.batch, 3, options.size, options.size)
        label = torch.randint(1000, (options.batch,))
        rates, outputs, idle = {}, {}, 0.0
        for device in ("cuda", "wave"):
            model = copy.deepcopy(base).to(device)
            x, y = image.to(device), label.to(device)
            model.train()
            out = model(x)
            F.cross_entropy(out, y).backward()
            grads = [p.grad.detach().cpu() for p in model.parameters()]
            outputs[device] = (out.detach().cpu(), grads)
            step = trainer(model, x, y)
            rates[device, "train"] = options.batch / timed(device, step, options.seconds)
            if device == "wave":
                synchronize(device)
                with torch.wave.profile() as profiler:
                    start = time.perf_counter()
                    step()
                    synchronize(device)
                busy = sum(launch.seconds for launch in profiler.launches)
                idle = max(0.0, 1 - busy / (options.batch / rates[device, "train"]))
                if options.profile:
                    print(profiler.table(rows=15), file=sys.stderr, flush=True)
                print(f"{name}: fallbacks {torch.wave.fallbacks() or 'none'}", file=sys.stderr, flush=True)
            model.eval()
            with torch.no_grad():
                rates[device, "forward"] = options.batch / timed(device, lambda: model(x), options.seconds)
            del model, step, x, y, out, grads
        scale = max(g.abs().max().item() for g in outputs["cuda"][1])
        out_error = relative(outputs["wave"][0], outputs["cuda"][0])
        grad_error = max(
            ((a - b).abs().max() / max(b.abs().max().item(), 1e-3 * scale)).item()
            for a, b in zip(outputs["wave"][1], outputs["cuda"][1])
        )
        for kind, error in (("forward", out_error), ("train", grad_error)):
            wave, cuda = rates["wave", kind], rates["cuda", kind]
            share = f"{idle:.0%}" if kind == "train" else ""
            print(f"| {name} | {kind} | {wave:.0f} | {cuda:.0f} | {wave / cuda:.2f} | {share} | {error:.1e} |", flush=True)
    print("\nCPU microseconds to launch a small operation:\n\n| operation | wave | CUDA |\n|---|---|---|")
    found = overhead()
    for name in ("relu", "mul", "add"):
        print(f"| {name} | {found['wave', name]:.1f} | {found['cuda', name]:.1f} |")


if __name__ == "__main__":
    main()
