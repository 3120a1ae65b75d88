"""Every operator, or with --modules every module, that torch's own tests know, on the device against the CPU.

    python python/tests/opinfo_sweep.py [--modules] [--samples N] [--dtype float32] [--seconds N] [--seed N]
                                        [--only NAME]... [--native] [--json FILE] [--verbose]

Forward, backward, in-place and out= variants of up to N samples each, on contiguous operands and on such with gaps,
offsets and their dimensions in another order; in f32 also, that what the CPU refuses is refused. A child does the work,
so that a crash or a hang costs one operator.
--seconds takes operators in random order until the time is up; --native tells which operators ran without the CPU.
Exits with 1 where an operator that is not in SKIPS fails.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
import zlib

os.environ.setdefault("WAVE32_FALLBACK", "quiet")

SECONDS = 120

# Operator or module: why it is left out.
SKIPS = {
    "to_sparse": "the device has strided tensors only", "sparse.mm": "the device has strided tensors only",
    "sparse.sampled_addmm": "the device has strided tensors only",
    "jiterator_unary": "compiles CUDA text", "jiterator_binary": "compiles CUDA text",
    "jiterator_2inputs_2outputs": "compiles CUDA text", "jiterator_4inputs_with_extra_args": "compiles CUDA text",
    "jiterator_binary_return_by_ref": "compiles CUDA text",
    "tensor_split": "takes its indices on the CPU only, as on CUDA",
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu": "the CPU's own, wrong there on odd strides",
}

# Of these only types and sizes are compared: random numbers of devices differ, and nobody says what is in memory.
# Their values are test_random.py's business.
RANDOM = """
bernoulli cauchy exponential geometric log_normal normal multinomial uniform rand_like randn randn_like randint
randint_like nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d nn.functional.alpha_dropout
nn.functional.feature_alpha_dropout nn.functional.rrelu nn.functional.fractional_max_pool2d
nn.functional.fractional_max_pool3d pca_lowrank svd_lowrank
empty empty_like empty_strided empty_permuted new_empty new_empty_strided
""".split()

# The CPU keeps statistics of f16 in f16; here they are f32, as on CUDA.
WIDER = ["native_group_norm", "native_layer_norm", "native_batch_norm", "_native_batch_norm_legit"]

# Which of equal elements comes first is open where the sample asks for no stable order; f32 leaves none equal.
TIES = ["sort", "msort", "argsort", "topk", "kthvalue"]

# Type: error of an element allowed, relative to it or to the largest one. Beyond it f64 decides: the device may err
# twice as much as the CPU.
TOLERANCE = {"float32": 2e-5, "float16": 5e-3, "bfloat16": 4e-2, "float64": 1e-9, "complex32": 5e-3,
             "complex64": 2e-5, "complex128": 1e-9}


def is_open(op, sample, dtype):
    """Whether only types and sizes can be compared; of some operators for some samples only."""
    ties = op.name in TIES and str(dtype) not in ("torch.float32", "torch.float64") and not sample.kwargs.get("stable")
    dropout = op.name.startswith("nn.functional.scaled_dot") and sample.kwargs.get("dropout_p", 0) > 0
    attention = op.name == "nn.functional.multi_head_attention_forward" and sample.kwargs.get("training", True)
    return op.name in RANDOM or dropout or attention or ties


def strided(tensor):
    """The same elements with gaps of poison, an offset, and the dimensions in reverse order."""
    import torch

    if tensor.layout is not torch.strided or tensor.numel() == 0 or tensor.dim() == 0:
        return tensor
    sizes = list(reversed(tensor.shape))
    poison = True if tensor.dtype is torch.bool else 77
    if tensor.is_floating_point() or tensor.is_complex():
        poison = float("nan")
    base = torch.full([*sizes[:-1], 2 * sizes[-1] + 1], poison, dtype=tensor.dtype, device=tensor.device)
    view = base[..., 1::2].permute(list(range(tensor.dim()))[::-1])
    view.copy_(tensor)
    return view


def move(value, device, layout=None):
    import torch

    if isinstance(value, torch.Tensor) and value.device.type == "meta":
        return value
    if isinstance(value, torch.Tensor):
        moved = value.detach().clone().to(device)
        moved = layout(moved) if layout else moved
        return moved.requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        items = [move(item, device, layout) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: move(item, device, layout) for key, item in value.items()}
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


def widen(tensor):
    """In f64."""
    import torch

    wider = {True: torch.complex128, False: torch.float64 if tensor.is_floating_point() else tensor.dtype}
    return tensor.to(wider[tensor.is_complex()])


def same(wave, cpu, what, values=True, wider=False, truth=None):
    """Types, sizes and, unless told otherwise, values; `truth` computes them in f64."""
    import torch

    wave, cpu = tensors(wave), tensors(cpu)
    assert len(wave) == len(cpu), f"{what}: {len(wave)} results, not {len(cpu)}"
    for index, (a, b) in enumerate(zip(wave, cpu)):
        a, b = (a.to(b.dtype) if wider and a.dtype is torch.float32 else a).detach(), b.detach()
        assert a.dtype == b.dtype and a.shape == b.shape, f"{what}: {a.dtype} {a.shape}, not {b.dtype} {b.shape}"
        if not values:
            continue
        tolerance, a = TOLERANCE.get(str(b.dtype).removeprefix("torch."), 0), a.cpu()
        # Rounding is relative to what went in, which was of the order of 1: results may cancel.
        finite = b[b.isfinite()].abs() if tolerance else b.new_empty(0)
        scale = max(float(finite.max()), 1.0) if finite.numel() else 1.0
        try:
            torch.testing.assert_close(
                a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True, msg=lambda m: f"{what}: {m}"
            )
        except AssertionError:
            if truth is None or not tolerance:
                raise
            exact = tensors(truth())[index].detach()
            ours, theirs = (float((widen(side) - exact).abs().max()) for side in (a, b))
            if not ours <= 2 * theirs:
                raise


def attempt(call):
    """(result, None) or (None, error)."""
    try:
        return call(), None
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        return None, error


def both(sample, layout=None):
    """Input, arguments and keywords on the device and on the CPU."""
    parts = (sample.input, list(sample.args), sample.kwargs)
    return [[move(value, device, layout) for value in parts] for device in ("wave", "cpu")]


def gradients(parts, result, seeds):
    """Of all that wants one, for the results that `seeds` (number: gradient) names."""
    import torch

    inputs, results = [t for t in tensors(parts) if t.requires_grad], tensors(result)
    return torch.autograd.grad([results[n] for n in seeds], inputs, list(seeds.values()), allow_unused=True)


def check_backward(sides, results, what, values, truth):
    import torch

    (wave, cpu), (result, expected) = sides, results
    seeds = {
        number: torch.randn_like(t) for number, t in enumerate(tensors(expected))
        if t.requires_grad and (t.is_floating_point() or t.is_complex())
    }
    if not seeds:
        return
    wanted, refused = attempt(lambda: gradients(cpu, expected, seeds))
    if not refused:
        found = gradients(wave, result, {number: seed.to("wave") for number, seed in seeds.items()})
        there = [g is not None for g in wanted]
        assert [g is not None for g in found] == there, f"{what}: which gradients there are"

        def pick(all_of_them):
            return [g for g, is_there in zip(all_of_them, there) if is_there]

        def exact():
            return pick(gradients(*truth(), {number: widen(seed) for number, seed in seeds.items()}))

        same(pick(found), pick(wanted), what, values, truth=exact)


def check_out(op, sample, expected, kind, values):
    """Into results that are filled, empty, or not contiguous."""
    import torch

    def outs(device, kind):
        ones = [torch.full_like(t, 1, device=device, requires_grad=False) for t in tensors(expected)]
        return tuple([one, one.new_empty(0), strided(one)][kind] for one in ones)

    def call(parts, outs):
        out = outs[0] if isinstance(expected, torch.Tensor) else outs
        return attempt(lambda: op(parts[0], *parts[1], **parts[2], out=out))[1]

    wave, cpu = both(sample)
    # Some of the CPU's own write elsewhere where a result is not contiguous.
    theirs = outs("cpu", kind % 2)
    if call(cpu, theirs):
        return
    ours = outs("wave", kind)
    if refused := call(wave, ours):
        if kind == 2 and call(both(sample)[1], outs("cpu", kind)):
            return
        raise refused
    try:
        same(ours, expected, f"out= of kind {kind}", values)
    except AssertionError:  # Some of the CPU's are something else than the result without out=.
        same(ours, theirs, f"out= of kind {kind}", values)


def check_sample(op, sample, variants, layout, what, values, kind):
    import torch

    wave, cpu = both(sample, layout)
    torch.manual_seed(0)
    expected, refused = attempt(lambda: op(cpu[0], *cpu[1], **cpu[2]))
    if refused:
        return
    torch.manual_seed(0)
    result = op(wave[0], *wave[1], **wave[2])

    def truth():
        parts = [move(value, "cpu", widen) for value in (sample.input, list(sample.args), sample.kwargs)]
        return parts, op(parts[0], *parts[1], **parts[2])

    same(result, expected, f"forward, {what}", values, op.name in WIDER, lambda: truth()[1])
    if "backward" in variants:
        check_backward((wave, cpu), (result, expected), f"backward, {what}", values, truth)
    plain = bool(tensors(expected)) and isinstance(expected, (torch.Tensor, tuple))
    with torch.no_grad():
        if "out" in variants and plain and layout is None:
            check_out(op, sample, expected, kind, values)
        inplace = op.get_inplace()
        if inplace is not None and not sample.broadcasts_input:
            wave, cpu = both(sample, layout)
            expected, refused = attempt(lambda: inplace(cpu[0], *cpu[1], **cpu[2]))
            if not refused:
                same(inplace(wave[0], *wave[1], **wave[2]), expected, f"in place, {what}", values)
                same(wave[0], cpu[0], f"in place, {what}, the input", values)


def check_errors(op):
    """What the CPU refuses is refused, at the next wait at the latest."""
    import torch

    if op.error_inputs_func is None:
        return
    for index, wrong in enumerate(op.error_inputs("cpu")):
        wave, cpu = both(wrong.sample_input)
        _, expected = attempt(lambda: op(cpu[0], *cpu[1], **cpu[2]))
        if expected is None:
            continue
        _, refused = attempt(lambda: (op(wave[0], *wave[1], **wave[2]), torch.wave.synchronize()))
        kinds = (type(expected), IndexError)  # Of indices all are one here.
        assert isinstance(refused, kinds), f"error {index}: {refused!r}, not {expected!r}"


def check(op, dtype, most):
    graded = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    variants = ({"out"} if op.supports_out else set()) | ({"backward"} if graded else set())
    for index, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=graded)):
        if index >= most:
            break
        values = not is_open(op, sample, dtype)
        for layout, what in ((None, "contiguous"), (strided, "strided")):
            check_sample(op, sample, variants, layout, f"sample {index}, {what}", values, index % 3)


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
        for device in ("cpu", "wave"):
            twin = copy.deepcopy(module).to(device)
            args, kwargs = move(list(forward.args), device), move(forward.kwargs, device)
            if device == "wave" and any(isinstance(p, torch.nn.UninitializedParameter) for p in twin.parameters()):
                # Its first forward makes random weights, which are not the CPU's.
                twin(*args, **kwargs)
                twin.load_state_dict(dict(zip(twin.state_dict(), sides[0][2])))
            torch.manual_seed(0)
            result, refused = attempt(lambda: twin(*args, **kwargs))
            if refused and device == "cpu":
                break  # The sample is meant to be an error.
            if refused:
                raise refused
            roots = [t for t in tensors(result) if t.requires_grad]
            for root in roots:
                root.sum().backward(retain_graph=True)
            grads = [p.grad for p in twin.parameters()] + [t.grad for t in tensors([args, kwargs]) if t.is_leaf]
            state = list(twin.state_dict().values())
            sides.append((result, [g for g in grads if g is not None], state))
        else:
            for (cpu, wave), what in zip(zip(*sides), ["forward", "backward", "state"]):
                same(wave, cpu, f"{what}, sample {index}")


def known_operators(dtype):
    from torch.testing._internal.common_methods_invocations import op_db

    return {full_name(op): op for op in op_db if dtype in op.supported_dtypes("cpu")}


def known_modules(dtype):
    from torch.testing._internal.common_modules import module_db

    return {info.name: info for info in module_db if dtype in info.dtypes}


def chosen(options, known):
    """(names to run in order, names left out)"""
    skipped = [name for name in known if any(name == skip or name.startswith(f"{skip}.") for skip in SKIPS)]
    names = [name for name in known if name not in skipped]
    if options.only:
        names = [name for name in names if name in options.only or name.split(".")[0] in options.only]
    if options.seconds:
        random.Random(options.seed).shuffle(names)
    return names, skipped


def child(done, options):
    import torch
    import wave32  # noqa: F401
    from against_cpu import settle_the_cpu

    settle_the_cpu()

    def late(*_):
        raise TimeoutError(f"took over {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    # A kernel in the place of a composite would lose its gradient.
    warnings.filterwarnings("error", message=".*an autograd kernel was not registered")
    dtype = getattr(torch, options.dtype)
    known = (known_modules if options.modules else known_operators)(dtype)
    names, skipped = chosen(options, known)
    print(f"KNOWN\t{torch.__version__}\t{len(known)}\t{len(skipped)}", flush=True)
    for name in names:
        if name in done:
            continue
        print(f"START\t{name}", flush=True)
        seed = zlib.crc32(name.encode()) + options.seed
        torch.manual_seed(seed)
        random.seed(seed)
        torch.wave.reset_fallbacks()
        signal.alarm(SECONDS)
        fallbacks = []
        try:
            (check_module if options.modules else check)(known[name], dtype, options.samples)
            fallbacks = list(torch.wave.fallbacks())
            if not options.modules and dtype is torch.float32:
                check_errors(known[name])
            outcome = "pass"
        except (Exception, TimeoutError) as error:
            text = str(error).strip().splitlines() or [""]
            outcome = f"{type(error).__name__}: {' '.join(text[:6])[:300]}".replace("\t", " ")
        signal.alarm(0)
        print(f"DONE\t{name}\t{outcome}\t{','.join(fallbacks)}", flush=True)


def full_name(op):
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


class Sweep:
    """What the children tell."""

    def __init__(self):
        self.torch, self.known, self.skipped, self.until = "?", 0, 0, None
        # Name: "pass" or what is wrong; name: operators that ran on the CPU.
        self.results, self.fallbacks = {}, {}

    def run(self, options):
        """Until nothing is left or the time is up."""
        while self._run_child(options):
            pass

    def _is_late(self):
        return self.until is not None and time.time() > self.until

    def _run_child(self, options):
        """True where another child has to go on after this one's death."""
        process = subprocess.Popen(
            [sys.executable, __file__, "--child", *sys.argv[1:], "--seed", str(options.seed)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None if options.verbose else subprocess.DEVNULL,
            text=True,
        )
        try:
            process.stdin.write(json.dumps(list(self.results)) + "\n")
            process.stdin.close()
            running = self._read(process.stdout, options)
        finally:
            process.kill()
            process.wait()
        if running is not None and not self._is_late():
            self._fail(running, f"the process died with {process.returncode}")
            return True
        return False

    def _read(self, lines, options):
        """Which name was being run when the lines or the time ended."""
        running, ended = None, False
        for line in lines:
            kind, name, *rest = line.rstrip("\n").split("\t")
            if kind == "KNOWN":
                self.torch, self.known, self.skipped = name, int(rest[0]), int(rest[1])
                if options.seconds and self.until is None:  # Imports do not count.
                    self.until = time.time() + options.seconds
            elif kind == "START":
                running = name
                if self._is_late():
                    return None
            elif kind == "DONE":
                running = None
                self.fallbacks[name] = [f for f in rest[1].split(",") if f]
                if rest[0] == "pass":
                    self.results[name] = "pass"
                else:
                    self._fail(name, rest[0])
            elif kind == "END":
                ended = True
        if running is None and not ended:
            self._fail("the child", "ended early (--verbose tells why)")
        return running

    def _fail(self, name, why):
        self.results[name] = why
        print(f"FAIL {name}: {why}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--only", action="append")
    parser.add_argument("--json")
    parser.add_argument("--modules", action="store_true")
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 10**6)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(set(json.loads(sys.stdin.readline())), options)
        print("END\t", flush=True)
        return 0
    start = time.time()
    sweep = Sweep()
    sweep.run(options)
    failed = {name: outcome for name, outcome in sweep.results.items() if outcome != "pass"}
    passed = sorted(set(sweep.results) - set(failed))
    native = [name for name in passed if not sweep.fallbacks[name]]
    if options.native:
        print("without the CPU:", " ".join(native))
    left = sweep.known - sweep.skipped - len(sweep.results)
    print(
        f"torch {sweep.torch}, {options.dtype}, seed {options.seed}: of {sweep.known} "
        f"{'modules' if options.modules else 'operators'} {len(passed)} passed, {len(failed)} failed, "
        f"{sweep.skipped} skipped, {left} not run; {len(native)} ran without any fallback; {time.time() - start:.0f} s"
    )
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"failed": failed, "passed": passed, "fallbacks": sweep.fallbacks}, file, indent=1)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
