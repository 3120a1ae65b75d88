#!/usr/bin/env python3
"""Checks the f64 oracle against PyTorch on the CPU in float64.

    python3 scripts/oracle_torch.py                  rewrite the committed fixture (fixed seed)
    python3 scripts/oracle_torch.py --check [--seed S]   fresh random cases through the oracle; exit 1 on a difference

Cases cover forward and both backwards (by autograd), NCHW and NHWC, groups, dilation, stride, padding, bias,
ReLU, and transposed convolutions with output padding.
"""
import argparse
import itertools
import json
import pathlib
import random
import subprocess
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIXTURE = ROOT / "crates/cpu/tests/data/torch_oracle.json"


def flat(tensor, layout):
    """Elements in memory order of the layout; every tensor arrives as PyTorch's (outer, channel, h, w)."""
    return (tensor.permute(0, 2, 3, 1) if layout == "Nhwc" else tensor).contiguous().flatten().tolist()


def draw(rng, direction, transposed, layout, largest):
    """One case, or None where the drawn sizes make no sense."""
    groups = rng.choice([1, 1, 2, 3])
    sizes = {"n": rng.randint(1, 2), "c": groups * rng.randint(1, 3), "k": groups * rng.randint(1, 3),
             "h": rng.randint(1, 7), "w": rng.randint(1, 7), "r": rng.randint(1, 3), "s": rng.randint(1, 3)}
    stride, dilation = [[rng.randint(1, 3) for _ in "hw"] for _ in range(2)]
    pad = [rng.randint(0, 2) for _ in "hw"]
    output_pad = [rng.randint(0, s - 1) for s in stride] if transposed else [0, 0]
    bias = direction == "Forward" and rng.random() < 0.5
    relu = direction == "Forward" and rng.random() < 0.5
    spec = {"direction": direction, "dtype": "F32", "layout": layout, **sizes, "stride": stride, "pad": pad,
            "dilation": dilation, "groups": groups, "transposed": transposed, "output_pad": output_pad,
            "epilogue": {"bias": bias, "activation": "Relu" if relu else "None"}}
    # The filter has to fit the padded plain input (the output, of a transposed one).
    for i, (size, filt) in enumerate([("h", "r"), ("w", "s")]):
        span = (sizes[filt] - 1) * dilation[i] + 1
        if transposed:
            if (sizes[size] - 1) * stride[i] + span + output_pad[i] - 2 * pad[i] < 1:
                return None
        elif span > sizes[size] + 2 * pad[i]:
            return None
    # Three digits keep the fixture small; the arithmetic is as inexact as with sixteen.
    def make(*shape):
        values = [round(rng.uniform(-1, 1), 3) for _ in range(torch.Size(shape).numel())]
        return torch.tensor(values, dtype=torch.float64).reshape(shape)

    x = make(sizes["n"], sizes["c"], sizes["h"], sizes["w"]).requires_grad_()
    outer, inner = (sizes["c"], sizes["k"]) if transposed else (sizes["k"], sizes["c"])
    w = make(outer, inner // groups, sizes["r"], sizes["s"]).requires_grad_()
    b = make(sizes["k"]) if bias else None
    if transposed:
        # PyTorch refuses output padding beyond max(stride, dilation) only; ours is below the stride.
        y = torch.nn.functional.conv_transpose2d(x, w, b, stride, pad, output_pad, groups, dilation)
    else:
        y = torch.nn.functional.conv2d(x, w, b, stride, pad, dilation, groups)
    if relu:
        y = torch.relu(y)
    if direction == "Forward":
        first, second, out = x, w, y
    else:
        dy = make(*y.shape)
        wanted = x if direction == "BackwardData" else w
        (out,) = torch.autograd.grad(y, wanted, dy)
        first, second = (dy, w) if direction == "BackwardData" else (x, dy)
    if max(t.numel() for t in (first, second, out)) > largest:
        return None
    return {"spec": spec, "a": flat(first.detach(), layout), "b": flat(second.detach(), layout),
            "bias": b.tolist() if bias else None, "out": flat(out.detach(), layout)}


def cases(seed, each, largest):
    rng = random.Random(seed)
    kinds = itertools.product(["Forward", "BackwardData", "BackwardWeights"], [False, True], ["Nchw", "Nhwc"])
    for kind in kinds:
        made = 0
        while made < each:
            case = draw(rng, *kind, largest)
            if case:
                made += 1
                yield case


def check(seed):
    drawn = list(cases(seed, 40, 5000))
    build = ["cargo", "build", "-q", "--workspace", "--example", "oracle_stdin", "--message-format=json"]
    built = subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    binary = next(m["executable"] for m in map(json.loads, built.splitlines()) if m.get("executable"))
    lines = "".join(json.dumps({k: c[k] for k in ("spec", "a", "b", "bias")}) + "\n" for c in drawn)
    answer = subprocess.run([binary], input=lines, check=True, stdout=subprocess.PIPE, text=True, timeout=120).stdout
    answers = answer.splitlines()
    if len(answers) != len(drawn):
        sys.exit(f"{len(answers)} answers to {len(drawn)} cases (seed {seed})")
    worst = 0.0
    for case, line in zip(drawn, answers):
        got = json.loads(line)
        if len(got) != len(case["out"]):
            sys.exit(f"{len(got)} elements instead of {len(case['out'])} (seed {seed}): {case['spec']}")
        for mine, theirs in zip(got, case["out"]):
            error = abs(mine - theirs) / max(1.0, abs(theirs))
            if not error <= 1e-12:
                sys.exit(f"{mine} instead of {theirs} (seed {seed}): {case['spec']}")
            worst = max(worst, error)
    print(f"oracle = PyTorch {torch.__version__} in {len(drawn)} cases (seed {seed}, largest error {worst:.1e})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--seed", type=int)
    args = parser.parse_args()
    if args.check:
        check(args.seed if args.seed is not None else random.SystemRandom().randrange(2**32))
        return
    fixture = {"torch": torch.__version__, "seed": args.seed or 0, "cases": list(cases(args.seed or 0, 7, 150))}
    FIXTURE.parent.mkdir(parents=True, exist_ok=True)
    rows = ",\n".join(json.dumps(case, separators=(",", ":")) for case in fixture.pop("cases"))
    FIXTURE.write_text(json.dumps(fixture)[:-1] + ', "cases": [\n' + rows + "\n]}\n")
    print(f"{FIXTURE}: {FIXTURE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
