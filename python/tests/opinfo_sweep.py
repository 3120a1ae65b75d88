"""Every operator, or with --modules every module, that torch's own tests know, on the device against the CPU.

    python python/tests/opinfo_sweep.py [--modules] [--samples N] [--dtype float32] [--only NAME]... [--json FILE]

Forward, backward, out= and in-place variants of up to N samples each. A child does the work, so that a crash or a
hang costs one operator. Exits with 1 where an operator that is not in SKIPS fails.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import zlib

os.environ.setdefault("WAVE_FALLBACK", "quiet")

SECONDS = 120

# Operator: why it is left out.
SKIPS = {
    "empty": "content undefined", "empty_like": "content undefined", "empty_strided": "content undefined",
    "empty_permuted": "content undefined", "new_empty": "content undefined", "new_empty_strided": "content undefined",
    "bernoulli": "random", "cauchy": "random", "exponential": "random", "geometric": "random",
    "log_normal": "random", "normal": "random", "multinomial": "random", "uniform": "random", "rand_like": "random",
    "randn": "random", "randn_like": "random", "randint": "random", "randint_like": "random",
    "nn.functional.dropout": "random", "nn.functional.dropout2d": "random", "nn.functional.dropout3d": "random",
    "nn.functional.alpha_dropout": "random", "nn.functional.feature_alpha_dropout": "random",
    "nn.functional.rrelu": "random", "nn.functional.fractional_max_pool2d": "random",
    "nn.functional.fractional_max_pool3d": "random", "nn.functional.multi_head_attention_forward": "random dropout",
    "torch.ops.aten._safe_softmax.default": "internal", "pca_lowrank": "random", "svd_lowrank": "random",
    "to_sparse": "sparse", "sparse.mm": "sparse", "sparse.sampled_addmm": "sparse",
    "tensor_split": "takes its indices on the CPU only, as on CUDA",
    "jiterator_unary": "CUDA's own", "jiterator_binary": "CUDA's own", "jiterator_2inputs_2outputs": "CUDA's own",
    "jiterator_4inputs_with_extra_args": "CUDA's own", "jiterator_binary_return_by_ref": "CUDA's own",
}


def is_random(op, sample):
    """The samples of a few operators are random only for some arguments."""
    return op.name.startswith("nn.functional.scaled_dot") and sample.kwargs.get("dropout_p", 0) > 0


def move(value, device):
    import torch

    if isinstance(value, torch.Tensor):
        moved = value.detach().clone().to(device)
        return moved.requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        items = [move(item, device) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: move(item, device) for key, item in value.items()}
    if isinstance(value, torch.device) or (value == "cpu" and isinstance(value, str)):
        return torch.device(device)
    return value


def tensors(value):
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors(item)]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors(item)]
    return []


def same(wave, cpu, what):
    import torch

    wave, cpu = tensors(wave), tensors(cpu)
    assert len(wave) == len(cpu), f"{what}: {len(wave)} results, not {len(cpu)}"
    for a, b in zip(wave, cpu):
        assert a.dtype == b.dtype and a.shape == b.shape, f"{what}: {a.dtype} {a.shape}, not {b.dtype} {b.shape}"
        torch.testing.assert_close(
            a.detach().cpu(), b.detach(), rtol=2e-3, atol=5e-3, equal_nan=True, msg=lambda m: f"{what}: {m}"
        )


def attempt(call):
    """(result, None) or (None, error)."""
    try:
        return call(), None
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
        return None, error


def check_sample(op, sample, variants):
    import torch

    host = [move(value, "cpu") for value in (sample.input, list(sample.args), sample.kwargs)]
    device = [move(value, "wave") for value in (sample.input, list(sample.args), sample.kwargs)]
    torch.manual_seed(0)
    expected, refused = attempt(lambda: op(host[0], *host[1], **host[2]))
    if refused:
        return
    torch.manual_seed(0)
    result = op(device[0], *device[1], **device[2])
    same(result, expected, "forward")
    if "backward" in variants:
        pairs = [
            (a, b) for a, b in zip(tensors(result), tensors(expected))
            if b.requires_grad and (b.is_floating_point() or b.is_complex())
        ]
        if pairs:
            inputs = [[t for t in tensors(side) if t.requires_grad] for side in (device, host)]
            seeds = [torch.randn_like(b) for _, b in pairs]
            expected_grads, refused = attempt(
                lambda: torch.autograd.grad([b for _, b in pairs], inputs[1], seeds, allow_unused=True)
            )
            if not refused:
                grads = torch.autograd.grad(
                    [a for a, _ in pairs], inputs[0], [s.to("wave") for s in seeds], allow_unused=True
                )
                assert [g is None for g in grads] == [g is None for g in expected_grads], "which gradients there are"
                same([g for g in grads if g is not None], [g for g in expected_grads if g is not None], "backward")
    plain = [move(value, d) for value in (sample.input, list(sample.args), sample.kwargs) for d in ("wave", "cpu")]
    with torch.no_grad():
        if "out" in variants and isinstance(expected, torch.Tensor):
            outs = [torch.zeros_like(expected, device=d) for d in ("wave", "cpu")]
            _, refused = attempt(lambda: op(plain[1], *plain[3], **plain[5], out=outs[1]))
            if not refused:
                op(plain[0], *plain[2], **plain[4], out=outs[0])
                same(outs[0], outs[1], "out=")
        inplace = op.get_inplace()
        if "inplace" in variants and inplace is not None and not sample.broadcasts_input:
            expected, refused = attempt(lambda: inplace(plain[1], *plain[3], **plain[5]))
            if not refused:
                same(inplace(plain[0], *plain[2], **plain[4]), expected, "in place")
                same(plain[0], plain[1], "in place, the input")


def check(op, dtype, most):
    torch_samples = op.sample_inputs("cpu", dtype, requires_grad=op.supports_autograd and dtype.is_floating_point)
    variants = {"inplace"} | ({"out"} if op.supports_out else set())
    variants |= {"backward"} if op.supports_autograd and dtype.is_floating_point else set()
    for index, sample in enumerate(torch_samples):
        if index >= most:
            break
        if not is_random(op, sample):
            check_sample(op, sample, variants)


def check_module(info, dtype, most):
    import copy

    import torch

    samples = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=True)
    for index, sample in enumerate(samples):
        if index >= most:
            break
        made, forward = sample.constructor_input, sample.forward_input
        module = info.module_cls(*made.args, **made.kwargs)
        module = module.to(dtype) if dtype.is_floating_point else module
        if any(isinstance(part, torch.nn.modules.dropout._DropoutNd) and part.p for part in module.modules()):
            module.eval()
        for part in module.modules():
            if getattr(part, "dropout", 0.0) and isinstance(part.dropout, float):
                part.dropout = 0.0
        sides = []
        for device in ("wave", "cpu"):
            twin = copy.deepcopy(module).to(device)
            args, kwargs = move(list(forward.args), device), move(forward.kwargs, device)
            torch.manual_seed(0)
            result, refused = attempt(lambda: twin(*args, **kwargs))
            if refused and device == "wave":
                # The CPU decides whether this is an error of the sample.
                failure = refused
                sides.append(None)
                continue
            if refused:
                break
            if sides and sides[0] is None:
                raise failure
            roots = [t for t in tensors(result) if t.requires_grad]
            for root in roots:
                root.sum().backward(retain_graph=True)
            grads = [p.grad for p in twin.parameters()] + [t.grad for t in tensors([args, kwargs]) if t.is_leaf]
            state = list(twin.state_dict().values())
            sides.append((result, [g for g in grads if g is not None], state))
        else:
            for (wave, cpu), what in zip(zip(*sides), ["forward", "backward", "state"]):
                same(wave, cpu, what)


def known_operators(dtype):
    from torch.testing._internal.common_methods_invocations import op_db

    return {full_name(op): op for op in op_db if dtype in op.supported_dtypes("cpu")}


def known_modules(dtype):
    from torch.testing._internal.common_modules import module_db

    return {info.name: info for info in module_db if dtype in info.dtypes}


def child(names, options):
    import torch
    import wave32  # noqa: F401

    def late(*_):
        raise TimeoutError(f"took over {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    dtype = getattr(torch, options.dtype)
    known = (known_modules if options.modules else known_operators)(dtype)
    for name in names:
        print(f"START\t{name}", flush=True)
        torch.manual_seed(zlib.crc32(name.encode()) + options.seed)
        torch.wave.reset_fallbacks()
        signal.alarm(SECONDS)
        try:
            (check_module if options.modules else check)(known[name], dtype, options.samples)
            outcome = "pass"
        except (Exception, TimeoutError) as error:
            text = str(error).strip().splitlines() or [""]
            outcome = f"{type(error).__name__}: {' '.join(text[:6])[:300]}"
        signal.alarm(0)
        print(f"DONE\t{name}\t{outcome}\t{','.join(torch.wave.fallbacks())}", flush=True)


def full_name(op):
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--only", action="append")
    parser.add_argument("--json")
    parser.add_argument("--modules", action="store_true")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 10**6)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(json.loads(sys.stdin.readline()), options)
        return 0
    import torch

    known = (known_modules if options.modules else known_operators)(getattr(torch, options.dtype))
    names = [name for name in known if not any(name == skip or name.startswith(f"{skip}.") for skip in SKIPS)]
    names = [name for name in names if not name.startswith("nn.Lazy")] if options.modules else names
    if options.only:
        names = [name for name in names if name in options.only or name.split(".")[0] in options.only]
    results, native, start = {}, [], time.time()
    while pending := [name for name in names if name not in results]:
        command = [sys.executable, __file__, "--child", "--dtype", options.dtype, "--samples", str(options.samples)]
        command += ["--seed", str(options.seed)] + (["--modules"] if options.modules else [])
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        process.stdin.write(json.dumps(pending) + "\n")
        process.stdin.close()
        running = None
        for line in process.stdout:
            kind, name, *rest = line.rstrip("\n").split("\t")
            if kind == "START":
                running = name
            elif kind == "DONE":
                results[name], running = rest[0], None
                if rest[0] == "pass" and not rest[1]:
                    native.append(name)
                if rest[0] != "pass":
                    print(f"FAIL {name}: {rest[0]}", flush=True)
        process.wait()
        if running is not None:
            results[running] = f"the process died with {process.returncode}"
            print(f"FAIL {running}: {results[running]}", flush=True)
        elif process.returncode:
            print(f"the child ended with {process.returncode}")
            return 1
    failed = {name: outcome for name, outcome in results.items() if outcome != "pass"}
    print(
        f"{options.dtype}, seed {options.seed}: {len(results) - len(failed)} of {len(results)} pass "
        f"({len(native)} without any fallback), {len(known) - len(names)} left out, {time.time() - start:.0f} s"
    )
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"failed": failed, "native": native, "passed": sorted(set(results) - set(failed))}, file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
