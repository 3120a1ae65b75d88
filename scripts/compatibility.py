#!/usr/bin/env python3
"""Networks of torchvision, timm, diffusers and transformers on the wave device: right, without fallbacks, how fast.

Forward (eval, no gradients) and one training pass of each network of networks.py, random weights, beside the same network
in f64 on the judge: PyTorch's CPU, or its CUDA device with --cuda, which is timed too (eager, TF32 off). An error is
|found - f64| / |f64| in the Euclidean norm: of the worst output, and of all gradients together. The judge's own error in
f32 stands beside it. For gradients, ReLUs are replaced by SiLUs and max pools by average pools, as in models_table.py.

Rows go to a log first (--out), a line each; a run that stopped goes on where it was. Several networks share a child process;
one that crashes it or does not answer within --deadline gets a row that says so, and the rest goes on in a new child.
--page makes the page from the log.
"""

import argparse
import copy
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from bench_vs_cudnn import about
from compatibility_page import page, read
from measuring import set_up_cuda, synchronize, timed, without_dropout
from models_table import smooth, smooth_functions


def flat(value):
    """All tensors of floats in what a network returned."""
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, dict):
        value = value.values()
    return [tensor for part in value for tensor in flat(part)] if isinstance(value, (list, tuple, type({}.values()))) else []


def moved(value, device, dtype):
    if isinstance(value, torch.Tensor):
        return value.to(device, dtype if value.is_floating_point() else None)
    if isinstance(value, dict):
        return {key: moved(part, device, dtype) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(moved(part, device, dtype) for part in value)
    return value


def called(model, inputs):
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


class Network:
    """One network on one device in one type."""

    def __init__(self, name, small, device, dtype=torch.float32):
        import networks

        case = networks.case(name, small)
        self.model = without_dropout(case.model).to(device, dtype)
        self.inputs = moved(case.inputs, device, dtype)
        self.teach = self.inputs if case.teach is None else moved(case.teach, device, dtype)
        self.targets = None

    def forward(self):
        with torch.no_grad():
            return flat(called(self.model.eval(), self.inputs))

    def backward(self, model):
        outputs = flat(called(model, self.teach))
        if all(output.dim() == 0 for output in outputs):
            return sum(outputs).backward()  # they are losses
        if self.targets is None:
            self.targets = [torch.arange(o.numel(), dtype=torch.float64).sin().reshape(o.shape).to(o.device, o.dtype) for o in outputs]
        return sum(F.mse_loss(output, target) for output, target in zip(outputs, self.targets)).backward()

    def results(self):
        """Outputs, and all gradients of a training pass of the smoothed network as a row of numbers."""
        outputs = [output.detach().cpu() for output in self.forward()]
        model = smooth(copy.deepcopy(self.model)).train()
        with smooth_functions():
            self.backward(model)
        return outputs, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).cpu()

    def step(self):
        optimizer = torch.optim.SGD(self.model.train().parameters(), lr=1e-4, momentum=0.9)

        def step():
            optimizer.zero_grad()
            self.backward(self.model)
            optimizer.step()

        return step


def error(found, exact):
    found, exact = found.double(), exact.double()
    if found.shape != exact.shape:
        return float("inf")
    if not found.isfinite().all():
        return float("nan")
    return ((found - exact).norm() / exact.norm().clamp(min=1e-30)).item()


def errors(found, exact):
    """Of the worst output and of the gradients."""
    if len(found[0]) != len(exact[0]):
        return {"forward": float("inf"), "gradients": float("inf")}
    return {"forward": max(map(error, found[0], exact[0])), "gradients": error(found[1], exact[1])}


def speed(network, device, options):
    """Seconds of a forward pass and of a training step, and the peak of memory in the latter."""
    module = getattr(torch, device)
    found = {"forward": timed(device, network.forward, options.seconds)} if options.seconds else {}
    module.empty_cache()
    module.reset_peak_memory_stats()
    step = network.step()
    if options.seconds:
        found["training"] = timed(device, step, options.seconds)
    else:
        step()
    found["memory"] = module.max_memory_allocated()
    return found


def of_wave(name, options, file):
    before = dict(torch.wave.fallbacks())
    network = Network(name, options.small, "wave")
    torch.save(network.results(), file)
    found = speed(network, "wave", options)
    now = torch.wave.fallbacks()
    return {**found, "fallbacks": sorted(op for op in now if now[op] != before.get(op, 0))}


def of_judge(name, options, file):
    device = "cuda" if options.cuda else "cpu"
    network = Network(name, options.small, device)
    own = network.results()
    found = speed(network, device, options) if options.cuda else {}
    del network
    try:
        exact = Network(name, options.small, device, torch.float64).results()
        found["own"] = errors(own, exact)
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as reason:
        exact, found["no f64"] = own, f"{type(reason).__name__}: {reason}".splitlines()[0][:200]
    if file.exists():
        found["error of wave"] = errors(torch.load(file), exact)
        file.unlink()
    return found


def child(options):
    """Measures its networks one after the other; a line of JSON each."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a package prints is no row
    device = options.child
    words = {"torch": torch.__version__}
    if device == "wave":
        import wave32  # noqa: F401

        properties = torch.wave.get_device_properties()
        words |= {"card": properties.name, "driver": properties.driver}
    set_up_cuda()
    print(json.dumps(words), file=out, flush=True)
    for name in options.names.split(","):
        file = options.folder / f"{name.replace('/', '-')}.pt"
        began = time.perf_counter()
        try:
            found = (of_wave if device == "wave" else of_judge)(name, options, file)
            if device != "judge" or options.cuda:
                synchronize("wave" if device == "wave" else "cuda")
        except Exception as reason:
            found = {"failed": f"{type(reason).__name__}: {reason}".strip().splitlines()[0][:300]}
        row = {"device": device, "name": name, **found, "seconds": round(time.perf_counter() - began, 1)}
        print(json.dumps(row), file=out, flush=True)
        if device == "wave" or options.cuda:
            getattr(torch, "wave" if device == "wave" else "cuda").empty_cache()


# Seconds that a child may take to start, beside what a network may: it imports PyTorch, slowly on a busy machine.
START = 60


def lines_of(process, deadline):
    """Lines as they come; None where none came in time. Ends with the process."""
    rest, allowed = b"", deadline + START
    while True:
        line, found, after = rest.partition(b"\n")
        if found:
            rest, allowed = after, deadline
            yield line.decode()
        elif not select.select([process.stdout], [], [], allowed)[0]:
            yield None
        elif part := os.read(process.stdout.fileno(), 65536):
            rest += part
        else:
            return


def measured(device, names, options, folder):
    """Rows of these networks on a device, and first what the child says of itself."""
    names = list(names)
    while names:
        command = [sys.executable, __file__, "--child", device, "--names", ",".join(names), "--folder", str(folder)]
        command += ["--seconds", str(options.seconds)] + ["--small"] * options.small + ["--cuda"] * options.cuda
        environment = dict(os.environ)
        if device == "judge":
            environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        with (folder / "stderr").open("w+") as said:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, env=environment)
            what = "no answer"
            try:
                for line in lines_of(process, options.deadline):
                    if line is None:
                        what = f"no answer within {options.deadline} s"
                        break
                    row = json.loads(line)
                    if "device" in row:
                        names.remove(row["name"])
                    yield row
            finally:
                process.kill()
                code = process.wait()
            if names:
                if not what.endswith("s"):
                    said.seek(0)
                    last = (said.read().strip().splitlines() or [""])[-1]
                    what = f"the process died: {signal.Signals(-code).name if code < 0 else code} {last}".strip()[:300]
                yield {"device": device, "name": names.pop(0), "failed": what}


def measure(options):
    import networks

    _, known = read(options.out)
    first, last = options.part.split(":")
    names = (options.names.split(",") if options.names else networks.NAMES)[int(first or 0) : int(last) if last else None]
    names = [name for name in names if not {("wave", name), ("judge", name)} <= known.keys()]
    print(f"{len(names)} networks to measure", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder, options.out.open("a") as log:
        for first in range(0, len(names), options.group):
            for device in ("wave", "judge"):
                for row in measured(device, names[first : first + options.group], options, Path(folder)):
                    if "device" not in row:
                        if device == "wave" and not log.tell():
                            words = [word for word in sys.argv[1:] if word not in ("--out", str(options.out))]
                            run = about(" ".join(["scripts/compatibility.py", *words]))
                            machine = f"{row['card']}, {row['driver']}, PyTorch {row['torch']}; {run['machine']}"
                            head = {"command": run["script"], "date": run["date"], "machine": machine, "commit": run["commit"], "networks": len(networks.NAMES)}
                            print(json.dumps(head, indent=1), file=log, flush=True)
                        continue
                    print(json.dumps(row), file=log, flush=True)
                    print(f"{row['device']} {row['name']}: {row.get('failed') or str(row.get('seconds')) + ' s'}", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the log; rows are added, and networks that have theirs are left out")
    parser.add_argument("--cuda", action="store_true", help="PyTorch's CUDA device is the judge, and is timed")
    parser.add_argument("--small", action="store_true", help="small pictures and batches, for a software driver")
    parser.add_argument("--seconds", type=float, default=0.5, help="of timing, each; 0: take no times")
    parser.add_argument("--deadline", type=float, default=150, help="seconds that a network may take on one device")
    parser.add_argument("--group", type=int, default=22, help="networks that share a child process")
    parser.add_argument("--names", help="these, separated by commas")
    parser.add_argument("--part", default="0:", help="of the networks, as a slice: 0:30")
    parser.add_argument("--page", type=Path, help="measure nothing, write the page of --out's rows to this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    if "--child" in sys.argv:
        parser.set_defaults(out=None)
        next(action for action in parser._actions if action.dest == "out").required = False
    options = parser.parse_args()
    if options.child:
        return child(options)
    if options.page:
        return options.page.write_text(page(*read(options.out), options.out.name))
    return measure(options)


if __name__ == "__main__":
    main()
