#!/usr/bin/env python3
"""wave32 beside cuDNN on one NVIDIA GPU, in one run.

    bench_vs_cudnn.py --wave32 target/release/wave32 --results run.json --out docs/bench_h200.md

For each problem of suites/conv_shapes.json and each pass: cuDNN through PyTorch (TF32 off, autotuning on), then
wave32 through Vulkan, then both again, --rounds times; a figure is the median over the rounds. cuDNN is timed as a
replayed CUDA graph (no launch gaps: the peer of wave32's command buffer) in both layouts and, in NCHW, with
deterministic algorithms alone; and as plain calls from Python.
Needs PyTorch with CUDA and the wave32 binary. Results are written after every problem; --merge-only makes the
table again from them, and --ours-json takes wave32's figures from files of `wave32 bench shapes --json` instead.
"""

import argparse
import datetime
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PASSES = ("fwd", "bwd", "wrw")
# The peers: cuDNN's graph in its better layout, in NCHW, in channels_last, in NCHW with deterministic algorithms, and calls.
MODES = ("best", "graph", "last", "fixed", "eager")
TITLES = {"best": "graph, better layout", "graph": "graph, NCHW", "last": "graph, channels_last",
          "fixed": "graph, NCHW, deterministic", "eager": "eager, NCHW"}  # fmt: skip


def commit():
    """`WAVE32_COMMIT`; else the checkout's commit and its day, `-dirty` where a file differs from it."""
    if said := os.environ.get("WAVE32_COMMIT"):
        return said
    try:
        found = subprocess.run([ROOT / "packaging/commit.sh"], capture_output=True, text=True).stdout.strip()
    except OSError:
        found = ""
    return found or "not known"


def made():
    """When and of which commit a table is, for its head."""
    return f"{datetime.date.today().isoformat()}, commit: {commit()}"


def about(script):
    """What one has to know of a run, for the head of its log; the machine with how busy it is."""
    found = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.M)
    machine = f"{os.cpu_count()} cores, {found[1] if found else platform.machine()}, load {os.getloadavg()[0]:.1f}"
    return {"script": script, "date": datetime.date.today().isoformat(), "commit": commit(), "machine": machine}


def heading(script, device):
    """The same as lines of a page, with the device in front of the machine."""
    run = about(script)
    return [f"- command: `{script}`", f"- date: {run['date']}", f"- machine: {device}; {run['machine']}", f"- commit: {run['commit']}"]


# ---- pure: problems, merging, tables


def line(shape, dtype):
    """The problem in MIOpenDriver's words, its name as the comment."""
    mode = {"f32": "conv", "f16": "convfp16", "bf16": "convbfp16"}[dtype]
    s = shape
    return (
        f"MIOpenDriver {mode} -n {s['n']} -c {s['c']} -H {s['h']} -W {s['w']} -k {s['k']} -y {s['r']} -x {s['s']} "
        f"-p {s['pad']} -q {s['pad']} -u {s['stride']} -v {s['stride']} -l {s['dilation']} -j {s['dilation']} "
        f"-m conv -g {s['groups']} -F 0 # {s['name']}"
    )


def new_row(shape, direction, dtype):
    return {
        "name": shape["name"], "direction": direction, "dtype": dtype, "gflop": shape["gflop"],
        "class": class_of(shape), "graph_ms": [], "last_ms": [], "fixed_ms": [], "eager_ms": [], "ours_ms": [],
        "solver": "", "config": "", "backend": "", "errors": [],
    }  # fmt: skip


def class_of(s):
    """What kind of layer it is, for means by class."""
    if s["groups"] > 1:
        return "depthwise" if s["groups"] == s["c"] else "grouped"
    if s["c"] <= 4:
        return "first layers, C <= 4"
    if s["r"] == 1:
        return "1x1"
    if (s["r"], s["stride"], s["dilation"]) == (3, 1, 1):
        return "3x3, batch 1" if s["n"] == 1 else "3x3"
    return "strided, dilated, 5x5, 7x7"


def add_ours(rows, report, note=None):
    """Adds the chosen rows of one `wave32 bench --json` report to the rows of the same problem; how many."""
    index = {(r["name"], r["direction"], r["dtype"]): r for r in rows}
    found = 0
    for ours in report["rows"]:
        row = index.get((ours["label"], ours["direction"], ours["dtype"]))
        if row is None or not ours["chosen"]:
            continue
        found += 1
        if ours.get("error"):
            row["errors"].append(f"wave32: {ours['error']}")
            continue
        # As cuDNN is timed: many runs between two stamps. Reports of before had the median of runs alone only.
        row["ours_ms"].append(ours["time"].get("back_to_back_ms") or ours["time"]["median_ms"])
        row["solver"], row["config"] = ours["solver"], ours["config"]
    if note is not None:
        subject = report["subject"]
        note["wave32"] = f"{report['wave32']}, {subject['id']} {subject['name']}, {subject['driver']}"
    return found


def middle(values):
    return statistics.median(values) if values else None


def geometric_mean(values):
    logs = [math.log(v) for v in values if v is not None and v > 0]
    return math.exp(sum(logs) / len(logs)) if logs else None


def theirs(row, mode):
    """cuDNN's milliseconds as that peer."""
    if mode == "best":
        return min(filter(None, (theirs(row, "graph"), theirs(row, "last"))), default=None)
    return middle(row[f"{mode}_ms"])


def share(row, mode):
    """wave32's speed as a share of cuDNN's: above 1 wave32 is faster."""
    peer, ours = theirs(row, mode), middle(row["ours_ms"])
    return peer / ours if peer and ours else None


def spread(row, key):
    """Largest deviation of one round from the median, as a share of it."""
    values = row[key]
    return max(abs(v / middle(values) - 1) for v in values) if len(values) > 1 else 0.0


def figure(value, digits=3):
    if value is None:
        return "-"
    if value <= 0:
        return str(value)
    decimals = max(0, digits - 1 - math.floor(math.log10(value)))
    return f"{value:.{decimals}f}"


def weighted_mean(shares, weights):
    """Geometric mean of shares, each as often as its weight says."""
    return math.exp(sum(w * math.log(v) for v, w in zip(shares, weights)) / sum(weights))


def means(rows):
    """(dtype, pass, mode) -> (geometric mean of the shares, how many problems)."""
    out = {}
    for dtype in dict.fromkeys(r["dtype"] for r in rows):
        for direction in PASSES:
            for mode in MODES:
                of = [share(r, mode) for r in rows if (r["dtype"], r["direction"]) == (dtype, direction)]
                of = [v for v in of if v is not None]
                if of:
                    out[dtype, direction, mode] = (geometric_mean(of), len(of))
    return out


def render_means(rows):
    """The tables of means: over all problems and by class."""
    titles = " | ".join(f"share of cuDNN, {TITLES[mode]}" for mode in MODES)
    out = [f"| type | pass | problems | {titles} | better layout, weighted by FLOP | least, better layout |"]
    out.append("|---|---|---:|" + "---:|" * (len(MODES) + 2))
    mean = means(rows)
    for dtype, direction in dict.fromkeys((d, p) for d, p, _ in mean):
        found = [mean.get((dtype, direction, mode), (None, 0)) for mode in MODES]
        of = [r for r in rows if (r["dtype"], r["direction"]) == (dtype, direction) and share(r, "best")]
        shares = [share(r, "best") for r in of]
        cells = [dtype, direction, str(max(count for _, count in found))] + [figure(value) for value, _ in found]
        cells += [figure(weighted_mean(shares, [r["gflop"] for r in of])), figure(min(shares))] if of else ["-", "-"]
        out.append("| " + " | ".join(cells) + " |")
    out += ["", "By class, better layout:", "", "| class | type | problems | fwd | bwd | wrw |", "|---|---|---:|---:|---:|---:|"]
    for kind in dict.fromkeys(r.get("class", "") for r in rows):
        for dtype in dict.fromkeys(r["dtype"] for r in rows):
            of = [r for r in rows if r.get("class", "") == kind and r["dtype"] == dtype]
            mean = means(of)
            cells = [figure(mean.get((dtype, direction, "best"), (None, 0))[0]) for direction in PASSES]
            out.append(f"| {kind} | {dtype} | {len({r['name'] for r in of})} | " + " | ".join(cells) + " |")
    return out


def render(results):
    """The whole document."""
    meta, rows = results["meta"], results["rows"]
    out = ["# wave32 beside cuDNN", ""]
    out += [f"- {key}: {value}" for key, value in meta.items()]
    out += [
        "",
        "Made by `scripts/bench_vs_cudnn.py`: both timed in the same run, alternating per problem; medians over the",
        "rounds. *graph* is cuDNN replayed as a CUDA graph, without launch gaps, the peer of wave32's back-to-back",
        "command buffer; *eager* is cuDNN called from Python as a script would. *Better layout* is the faster of cuDNN's",
        "graphs in NCHW and channels_last, problem by problem; wave32 always has NCHW. *Deterministic* lets cuDNN take only",
        "algorithms that give the same bits each time, as wave32 always does. wave32 is timed by Vulkan timestamps.",
        "A share is wave32's speed over cuDNN's: above 1 wave32 is faster.",
        "",
        "## Geometric means of the shares",
        "",
    ]
    out += render_means(rows)
    out += [
        "",
        "## Problems",
        "",
        "| problem | type | pass | GFLOP | cuDNN NCHW ms | channels_last ms | deterministic ms | eager ms | wave32 ms "
        "| wave32 TFLOPS | solver | share, better layout | share, eager |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---|---:|---:|",
    ]
    for r in rows:
        ours = middle(r["ours_ms"])
        solver = f"{r['solver']} {r['config']}".strip().replace("|", "/")
        cells = [r["name"], r["dtype"], r["direction"], figure(r["gflop"])]
        cells += [figure(theirs(r, mode)) for mode in ("graph", "last", "fixed", "eager")] + [figure(ours)]
        cells += [figure(r["gflop"] / ours if ours else None), solver or "-"]
        cells += [figure(share(r, "best")), figure(share(r, "eager"))]
        out.append("| " + " | ".join(cells) + " |")
    others = sorted({f"{r['backend']}: {r['name']} {r['direction']}" for r in rows if "Cudnn" not in r["backend"]})
    others = [o for o in others if not o.startswith(":")]
    if others:
        out += ["", "PyTorch does not take cuDNN for " + "; ".join(others) + "."]
    spreads = [(spread(r, key), r, key) for r in rows for key in ("graph_ms", "ours_ms") if len(r[key]) > 1]
    if spreads:
        widest, r, key = max(spreads, key=lambda item: item[0])
        what = "wave32" if key == "ours_ms" else "cuDNN graph"
        text = f"{r['name']} {r['direction']} {r['dtype']}, {what}"
        out += ["", f"Widest spread between rounds: {widest:.1%} of the median ({text})."]
    errors = [f"- {r['name']} {r['direction']} {r['dtype']}: {e}" for r in rows for e in dict.fromkeys(r["errors"])]
    if errors:
        out += ["", "## Not measured", ""] + errors
    return "\n".join(out) + "\n"


def save(path, text):
    """Writes the whole file at once, so that a reader never sees half of it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    draft.write_text(text)
    os.replace(draft, path)


# ---- wave32


def run_ours(args, shape, dtype, seconds):
    """The report of one `wave32 bench` over all passes of the problem."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ours.json"
        command = [args.wave32, "bench", line(shape, dtype), "--device", args.device, "--direction", ",".join(PASSES)]
        command += ["--json", str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"no answer within {seconds:.0f} s") from None
        # Exit code 1 is a report with a failed row in it: the row says why.
        if done.returncode not in (0, 1) or not path.exists() or not path.stat().st_size:
            last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
            raise RuntimeError(f"exit code {done.returncode}: {last}")
        return json.loads(path.read_text())


# ---- cuDNN


class Cudnn:
    """Times convolutions of PyTorch on its current CUDA device."""

    def __init__(self):
        try:
            import torch
        except ImportError as error:
            sys.exit(f"error: PyTorch cannot be imported ({error}); install it with CUDA, or use --merge-only")
        if not torch.cuda.is_available() or not torch.backends.cudnn.is_available():
            sys.exit("error: PyTorch sees no CUDA GPU with cuDNN here; run this on a machine with one")
        self.torch = torch
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = False
        self.check_tf32_is_off()

    def check_tf32_is_off(self):
        torch = self.torch
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(2, 64, 32, 32, generator=generator)
        w = torch.randn(64, 64, 3, 3, generator=generator)
        right = torch.nn.functional.conv2d(x.double(), w.double(), padding=1)
        got = torch.nn.functional.conv2d(x.cuda(), w.cuda(), padding=1).cpu().double()
        error = ((got - right).norm() / right.norm()).item()
        if not error < 2e-5:
            sys.exit(f"error: cuDNN's f32 error is {error:.1e}: TF32 is on although it was turned off")

    def meta(self):
        torch = self.torch
        driver = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True
        )
        lines = driver.stdout.strip().splitlines()
        return {
            "GPU": torch.cuda.get_device_name(),
            "driver": lines[0] if lines else "unknown",
            "PyTorch": torch.__version__,
            "cuDNN": torch.backends.cudnn.version(),
        }

    def calls(self, shape, dtype, channels_last=False):
        """(pass -> function that launches it once, backend that PyTorch takes)."""
        torch = self.torch
        layout = torch.channels_last if channels_last else torch.contiguous_format
        kind = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
        n, c, h, w, k, r, s = (shape[f] for f in "nchwkrs")
        both = {f: [shape[f]] * 2 for f in ("stride", "pad", "dilation")}
        x = torch.randn(n, c, h, w, device="cuda").to(kind).contiguous(memory_format=layout)
        weight = torch.randn(k, c // shape["groups"], r, s, device="cuda").to(kind).contiguous(memory_format=layout)
        geometry = (both["stride"], both["pad"], both["dilation"])

        def forward():
            return torch.nn.functional.conv2d(x, weight, None, *geometry, shape["groups"])

        dy = torch.randn_like(forward())

        def backward(mask):
            return lambda: torch.ops.aten.convolution_backward(
                dy, x, weight, None, *geometry, False, [0, 0], shape["groups"], mask
            )

        try:
            chosen = torch._C._select_conv_backend(
                x, weight, None, *geometry, False, [0, 0], shape["groups"], [k]
            )
            backend = str(chosen).rsplit(".", 1)[-1]
        except (AttributeError, TypeError, RuntimeError):
            backend = ""  # a private function: without it the table only says less
        calls = {"fwd": forward, "bwd": backward([True, False, False]), "wrw": backward([False, True, False])}
        return calls, backend

    def elapsed(self, launch):
        """Milliseconds of `launch` on the GPU's clock."""
        torch = self.torch
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        launch()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    def eager(self, call, fill_ms=50.0):
        """Milliseconds a call, from Python, back to back."""
        for _ in range(3):
            call()  # autotunes, then warms up
        self.torch.cuda.synchronize()
        once = max(min(self.elapsed(call) for _ in range(3)), 1e-3)
        count = int(min(max(10.0 / once, 1), 100))

        def batch():
            for _ in range(count):
                call()

        batch()
        batches = int(min(max(fill_ms / (once * count), 5), 50))
        return statistics.median(self.elapsed(batch) / count for _ in range(batches))

    def graph(self, call, once_ms, fill_ms=80.0):
        """Milliseconds a call within a replayed CUDA graph of many."""
        torch = self.torch
        count = int(min(max(4.0 / once_ms, 1), 100))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(count):
                call()
        for _ in range(3):
            graph.replay()
        once = self.elapsed(graph.replay)
        replays = int(min(max(fill_ms / max(once, 1e-3), 5), 100))
        return statistics.median(self.elapsed(graph.replay) / count for _ in range(replays))


def measure_cudnn(cudnn, shape, rows):
    """One round of cuDNN over the problem's rows."""
    try:
        calls, backend = cudnn.calls(shape, rows[0]["dtype"])
    except cudnn.torch.cuda.OutOfMemoryError as error:
        for row in rows:
            row["errors"].append(f"cuDNN: {first_line(error)}")
        return
    settings = cudnn.torch.backends.cudnn
    last, _ = cudnn.calls(shape, rows[0]["dtype"], channels_last=True)
    for row in rows:
        row["backend"] = backend
        direction = row["direction"]
        try:
            eager = cudnn.eager(calls[direction])
            row["eager_ms"].append(eager)
            row["graph_ms"].append(cudnn.graph(calls[direction], eager))
            row["last_ms"].append(cudnn.graph(last[direction], cudnn.eager(last[direction], 20.0)))
            settings.deterministic = True
            row["fixed_ms"].append(cudnn.graph(calls[direction], cudnn.eager(calls[direction], 20.0)))
        except RuntimeError as error:  # a pass that PyTorch refuses must not end the run
            row["errors"].append(f"cuDNN: {first_line(error)}")
        finally:
            settings.deterministic = False
    cudnn.torch.cuda.synchronize()


def first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0]


# ---- the run


def measure(args, shapes, results):
    began = time.monotonic()
    left = lambda: args.time_limit - (time.monotonic() - began)  # noqa: E731
    cudnn = Cudnn()
    results["meta"].update(cudnn.meta())
    for index, shape in enumerate(shapes):
        if left() <= 0:
            skipped = ", ".join(s["name"] for s in shapes[index:])
            results["meta"]["time limit"] = f"{args.time_limit:.0f} s reached before {skipped}"
            print(f"time limit reached: {len(shapes) - index} problems left out", file=sys.stderr)
            return
        for dtype in args.dtype:
            rows = [new_row(shape, direction, dtype) for direction in PASSES]
            results["rows"] += rows
            for _ in range(args.rounds):
                measure_cudnn(cudnn, shape, rows)
                if args.ours_json:
                    continue
                try:
                    add_ours(rows, run_ours(args, shape, dtype, max(10.0, min(180.0, left()))), results["meta"])
                except (OSError, RuntimeError, ValueError) as error:
                    for row in rows:
                        row["errors"].append(f"wave32: {first_line(error)}")
            cudnn.torch.cuda.empty_cache()
            shares = " ".join(f"{r['direction']} {figure(share(r, 'best'))}" for r in rows)
            print(f"[{index + 1}/{len(shapes)} {time.monotonic() - began:.0f} s] {shape['name']} {dtype}: {shares}")
            sys.stdout.flush()
            save(args.results, json.dumps(results, indent=1))


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wave32", default=str(ROOT / "target/release/wave32"), help="the binary")
    parser.add_argument("--device", default="vulkan", help="wave32's --device")
    parser.add_argument("--shapes", type=Path, default=ROOT / "suites/conv_shapes.json")
    parser.add_argument("--only", default="", help="only problems whose name contains this")
    parser.add_argument("--dtype", default="f32", help="f32, f16, bf16, or several with commas")
    parser.add_argument("--rounds", type=int, default=2, help="how often cuDNN and wave32 alternate per problem")
    parser.add_argument("--time-limit", type=float, default=540.0, help="seconds after which no problem is begun")
    parser.add_argument("--results", type=Path, default=Path("bench_vs_cudnn.json"), help="measurements, kept up to date")
    parser.add_argument("--ours-json", type=Path, nargs="+", help="wave32's reports, instead of running it")
    parser.add_argument("--merge-only", action="store_true", help="measure nothing: take --results as they are")
    parser.add_argument("--out", type=Path, help="write the table here (Markdown) as well as to standard output")
    args = parser.parse_args(argv)
    args.dtype = args.dtype.split(",")
    if not set(args.dtype) <= {"f32", "f16", "bf16"}:
        parser.error(f"--dtype {','.join(args.dtype)}: must be f32, f16 or bf16")
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    runnable = Path(args.wave32).is_file() and os.access(args.wave32, os.X_OK)
    if not args.merge_only and not args.ours_json and not runnable:
        parser.error(f"--wave32 {args.wave32}: no such program; build it with `cargo build --release`")
    return args


def read_json(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"error: {path}: {error}")


def main(argv=None):
    args = arguments(argv)
    if args.merge_only:
        results = read_json(args.results)
    else:
        shapes = [s for s in read_json(args.shapes) if args.only in s["name"]]
        if not shapes:
            sys.exit(f"error: no problem of {args.shapes} contains `{args.only}`")
        meta = {"date": datetime.date.today().isoformat(), "commit": commit(), "rounds": args.rounds}
        results = {"meta": meta, "rows": []}
        try:
            measure(args, shapes, results)
        except KeyboardInterrupt:
            results["meta"]["interrupted"] = "yes: the problems at the end are missing"
    for path in args.ours_json or []:
        if not add_ours(results["rows"], read_json(path), results["meta"]):
            sys.exit(f"error: {path} has no problem in common with these; make it with `wave32 bench shapes --json`")
    save(args.results, json.dumps(results, indent=1))
    text = render(results)
    if args.out:
        save(args.out, text)
    print(text)


if __name__ == "__main__":
    main()
