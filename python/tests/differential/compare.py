"""Whether the device agrees with the CPU: types, sizes, strides and errors as it has them, values as f64 has them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import torch

from differential import known, sides
from differential.cases import Case
from differential.operators import OPS
from differential.sides import Outcome

# Of a type that the CPU lacks a kernel for the device may be capable.
LACKING = re.compile(r"not implemented for|not supported for|does not support|is not currently supported|Unsupported|unsupported dtype|only supports")
PERTURBATIONS = 6


def _of_angles(case: Case) -> float:
    """Sums cancel: the gradient of a parallel vector is 0 but for roundings of what it is the difference of, which grows as the
    shortest vector shrinks."""
    x, y = (data.view(data.base()).double() for data in case.tensors[:2])
    dim = case.args[2] if case.op == "F.cosine_similarity" else 1
    norms = [t.norm(dim=dim if -t.dim() <= dim < t.dim() else -1) if t.dim() else t.abs() for t in (x, y)]
    lengths, sizes = (t.nan_to_num(0, 0, 0) for t in (torch.cat([norm.flatten() for norm in norms]), x.abs()))
    shortest = min(lengths[lengths > 0].tolist(), default=1.0)
    largest = max(sizes[sizes > 0].tolist(), default=1.0)
    return 16.0 * max(1.0, 1.0 / (shortest * largest))


# By how many roundings of the largest operand a result may be off: f64 judging f64 is no nearer the truth itself.
ABSOLUTE: dict[str, Callable[[Case], float]] = {
    # The CPU adds 1 to an erf near -1.
    "F.gelu": lambda case: 1.0,
    # A place is rounded as a number up to the longest side, and weights are as far off as it.
    "F.interpolate": lambda case: 8.0 * max(case.tensors[0].final_shape()),
    "F.grid_sample": lambda case: 8.0 * max(case.tensors[0].final_shape()),
    "F.cosine_embedding_loss": _of_angles,
    "F.cosine_similarity": _of_angles,
    # The larger operand and the logarithm of a sum, between 0 and 1, cancel.
    "torch.logaddexp": lambda case: 0.0 if any(data.fill[0] in ("special", "infs") for data in case.tensors) else 2.0,
    "torch.logaddexp2": lambda case: 0.0 if any(data.fill[0] in ("special", "infs") for data in case.tensors) else 2.0,
    # Weighted sums cancel, and an exponential's relative error is its argument's absolute one. Of halves and floats the wider
    # type tells how far; of doubles nothing does.
    "F.scaled_dot_product_attention": lambda case: 8.0 if case.tensors[0].dtype == torch.float64 else 0.0,
    "torch.std_mean": lambda case: 1.0,
    "torch.var_mean": lambda case: 1.0,
}


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """kind: error, no error, type, shape, strides, device, values, gradient, beside, abort, hang; late (the machine
    was too busy: no finding), fuzzer (a fault of its own)."""

    kind: str
    what: str


def check(case: Case, device: str, stage: Callable[[str], None] = lambda _: None, call: Any = None) -> Mismatch | None:
    """None where both sides agree. `stage` is told which side runs, for the case that the process dies."""
    found = _check(case, device, stage, call)
    return None if found is None or known.accepted(case, found.kind, found.what) else found


def _check(case: Case, device: str, stage: Callable[[str], None], call: Any) -> Mismatch | None:
    stage("cpu")
    like = None
    if case.mode == "out":
        like = sides.run(dataclasses.replace(case, mode="plain"), "cpu")
        if like.error or not like.results:
            case, like = dataclasses.replace(case, mode="plain", out=""), None
    cpu = sides.run(case, "cpu", like=like)
    stage("device")
    found = sides.run(case, device, like=like, call=call)
    stage("f64")
    mismatch = _errors(cpu, found)
    if mismatch or found.error:
        return mismatch
    if cpu.error:
        return None
    return _structure(case, cpu, found, device) or _values(case, cpu, found, like)


def _errors(cpu: Outcome, found: Outcome) -> Mismatch | None:
    if cpu.error is None and found.error is None:
        return None
    if cpu.error is None:
        return Mismatch("error", f"wave raises {_short(found.error)}; the CPU does not")
    if found.error is None:
        lenient = isinstance(cpu.error, NotImplementedError) or LACKING.search(str(cpu.error))
        return None if lenient else Mismatch("no error", f"the CPU raises {_short(cpu.error)}; wave does not")
    # An index out of range is an IndexError here, whatever the CPU makes of it.
    related = isinstance(found.error, (type(cpu.error), IndexError)) or isinstance(cpu.error, type(found.error))
    return None if related else Mismatch("error type", f"wave raises {_short(found.error)}; the CPU {_short(cpu.error)}")


def _short(error: Any) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


def _structure(case: Case, cpu: Outcome, found: Outcome, device: str) -> Mismatch | None:
    if len(cpu.results) != len(found.results):
        return Mismatch("shape", f"{len(found.results)} results, not {len(cpu.results)}")
    for n, (a, b) in enumerate(zip(found.results, cpu.results)):
        if a.dtype != b.dtype:
            return Mismatch("type", f"result {n}: {a.dtype}, not {b.dtype}")
        if a.shape != b.shape:
            return Mismatch("shape", f"result {n}: {tuple(a.shape)}, not {tuple(b.shape)}")
        if found.devices[n] != device:
            return Mismatch("device", f"result {n} is on {found.devices[n]}")
        # A dimension of one element has no stride to speak of, nor has a tensor of none.
        ours, theirs = ([s for s, size in zip(o.strides[n], b.shape) if size > 1] for o in (found, cpu))
        if b.numel() and ours != theirs:
            return Mismatch("strides", f"result {n}, sizes {tuple(b.shape)}: {found.strides[n]}, not {cpu.strides[n]}")
    if cpu.graded != found.graded:
        return Mismatch("gradient", f"requires_grad is {found.graded}, not {cpu.graded}")
    if [g is None for g in cpu.grads] != [g is None for g in found.grads]:
        return Mismatch("gradient", "which gradients there are")
    for n, (a, b) in enumerate(zip(found.grads, cpu.grads)):
        if a is not None and (a.dtype != b.dtype or a.shape != b.shape):
            return Mismatch("gradient", f"gradient {n}: {a.dtype} {tuple(a.shape)}, not {b.dtype} {tuple(b.shape)}")
    return None


class _Truth:
    """The CPU's other answers, made when one is asked for."""

    def __init__(self, case: Case, cpu: Outcome, like: Outcome | None):
        self.case, self.cpu, self.like = case, cpu, like
        self.traits = OPS[case.op].traits
        self._wide: Outcome | None = None
        self._contiguous: Outcome | None = None
        self._moved: list[Outcome] | None = None

    def wide(self) -> Outcome:
        if self._wide is None:
            self._wide = self.contiguous() if "native" in self.traits else sides.run_wide(self.case)
        return self._wide

    def contiguous(self) -> Outcome:
        if self._contiguous is None:
            plain = dataclasses.replace(self.case, mode="plain") if self.case.mode == "out" else self.case
            self._contiguous = sides.run(plain, "cpu", "contiguous")
        return self._contiguous

    def type(self, dtype: torch.dtype) -> torch.dtype:
        """What a result is rounded to: in an out= of a wider type it is still what the operator computes in."""
        made = [dtype] + [t.dtype for t in (self.like.results if self.like else []) if t.is_floating_point() or t.is_complex()]
        return max(made, key=lambda t: torch.finfo(t).eps)

    def moved(self) -> list[Outcome]:
        """In f64, off by roundings."""
        if self._moved is None:
            by = sides.coarsest(self.case, self.cpu)
            self._moved = [sides.run_wide(self.case, by, seed) for seed in range(PERTURBATIONS)]
        return self._moved


def _values(case: Case, cpu: Outcome, found: Outcome, like: Outcome | None) -> Mismatch | None:
    if cpu.plain != found.plain:
        return Mismatch("values", f"{found.plain[:80]}, not {cpu.plain[:80]}")
    truth = _Truth(case, cpu, like)
    if "random" not in truth.traits and "empty" not in truth.traits:
        for what, pick in (("result", lambda o: o.results), ("gradient", lambda o: o.grads), ("argument, after the call,", lambda o: o.inputs)):
            if what == "argument, after the call," and case.mode == "out":
                continue
            for n, (a, b) in enumerate(zip(pick(found), pick(cpu))):
                if a is None or (bad := _bad(truth, a, b, pick, n)) is None:
                    continue
                return Mismatch("gradient" if what == "gradient" else "values", f"{what} {n}: {bad}")
    return _beside(case, cpu, found)


def _bad(truth: _Truth, found: torch.Tensor, cpu: torch.Tensor, pick: Any, n: int) -> str | None:
    """What is wrong with a tensor."""
    if found.numel() == 0 or found.dtype != cpu.dtype or found.shape != cpu.shape:
        return None

    def other(outcome: Outcome) -> torch.Tensor | None:
        made = pick(outcome)
        return made[n].reshape(cpu.shape) if outcome.error is None and n < len(made) and made[n] is not None and made[n].numel() == cpu.numel() else None

    if not (cpu.is_floating_point() or cpu.is_complex()):
        good = found == cpu
        if not good.all() and (contiguous := other(truth.contiguous())) is not None:
            good |= found == contiguous.to(cpu.dtype)
        if not good.all() and "ties" in truth.traits and _names_equal(truth, found, cpu, pick):
            return None
        return _tell(good, found, cpu, None)
    exact = other(truth.wide())
    good = agree(found, cpu, exact, sides.terms(truth.case), truth.type(found.dtype))
    if not good.all() and "jumps" not in truth.traits and exact is not None:
        good |= _within_rounding(found, exact, [m for o in truth.moved() if (m := other(o)) is not None], sides.terms(truth.case))
    if not good.all() and exact is not None and truth.case.op in ABSOLUTE:
        largest = max(float(t.double().nan_to_num(0, 0, 0).abs().max()) for t in (truth.cpu.inputs[0], exact) if t.numel())
        good |= (found.double() - exact.double()).abs() <= ABSOLUTE[truth.case.op](truth.case) * torch.finfo(found.dtype).eps * largest
    if not good.all() and exact is not None:
        good |= _as_far(found, cpu, exact)
    if not good.all() and (contiguous := other(truth.contiguous())) is not None:
        good |= agree(found, contiguous.to(cpu.dtype), None, 1)
    return _tell(good, found, cpu, exact)


def _tell(good: torch.Tensor, found: torch.Tensor, cpu: torch.Tensor, exact: torch.Tensor | None) -> str | None:
    if good.all():
        return None
    where = (~good).nonzero()[0].tolist()
    said = f"{int((~good).sum())} of {good.numel()} differ, at {where} {found[tuple(where)].item()!r}, not {cpu[tuple(where)].item()!r}"
    return said + (f" (f64: {exact[tuple(where)].item()!r})" if exact is not None else "")


def agree(
    found: torch.Tensor, cpu: torch.Tensor, exact: torch.Tensor | None, count: int, computed: torch.dtype | None = None
) -> torch.Tensor:
    """Element for element: near f64's, or what the CPU has. `count`: of how many terms. `computed`: the type that they were rounded to, if not their own."""
    if found.is_complex():
        parts = [torch.view_as_real(t.resolve_conj()) if t is not None else None for t in (found, cpu, exact if exact is None or exact.is_complex() else exact.to(torch.complex128))]
        return agree(parts[0], parts[1], parts[2], count, computed).all(-1) | agree_by_size(found, exact, count)
    info = torch.finfo(found.dtype)
    step = torch.finfo(computed or found.dtype)
    a, b = found.double(), cpu.double()
    good = (a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= 4 * step.eps * b.abs())
    if exact is not None:
        e = exact.double()
        allowed = (16 + 4 * count**0.5) * step.eps
        rounded = e.to(found.dtype).double()
        good |= (a == rounded) | (a.isnan() & e.isnan()) | ((a - e).abs() <= allowed * e.abs() + step.tiny)
        # At the edge of the type's range a rounding decides.
        good |= a.isinf() & (e.sign() == a.sign()) & (e.abs() >= info.max * (1 - allowed))
    return good


def agree_by_size(found: torch.Tensor, exact: torch.Tensor | None, count: int) -> torch.Tensor:
    """A complex number's parts may be off by roundings of its size."""
    if exact is None:
        return torch.zeros(found.shape, dtype=torch.bool)
    e = exact.to(torch.complex128)
    return (found.to(torch.complex128) - e).abs() <= (16 + 4 * count**0.5) * torch.finfo(found.dtype).eps * e.abs()


def _within_rounding(found: torch.Tensor, exact: torch.Tensor, moved: list[torch.Tensor], count: int) -> torch.Tensor:
    """As far from f64 as f64 is from itself when every step is rounded as the type rounds."""
    wide = sides.WIDE[found.is_complex()]
    e = exact.to(wide)
    off = [(m.to(wide) - e).abs().nan_to_num(0, 0, 0) for m in moved]
    if not off:
        return torch.zeros(found.shape, dtype=torch.bool)
    most = torch.stack(off).amax(0)
    # An element that the few samples hardly moved may move as the others do.
    most = torch.maximum(most, most.mean() / 8)
    allowed = (16 + 4 * count**0.5) * torch.finfo(found.dtype).eps * e.abs() + 8 * most
    return (found.to(wide) - e).abs() <= allowed


def _as_far(found: torch.Tensor, cpu: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """At most four times as far from f64 as the CPU is."""
    wide = sides.WIDE[found.is_complex()]
    ours, theirs = ((t.to(wide) - exact.to(wide)).abs() for t in (found, cpu))
    finite = theirs.isfinite()
    most = float(theirs[finite].max()) if finite.any() else 0.0
    return finite & (ours <= 4 * most)


def _names_equal(truth: _Truth, found: torch.Tensor, cpu: torch.Tensor, pick: Any) -> bool:
    """Whether other indices than the CPU's name equal elements: with equal values in the results both are right."""
    case = truth.case
    x = sides.run(dataclasses.replace(case, mode="plain"), "cpu").inputs[0]
    dim = next((v for v in (*case.args[1:], case.kwargs.get("dim")) if isinstance(v, int) and not isinstance(v, bool)), None)
    sorts = case.op in ("torch.sort", "torch.argsort")
    if sorts and case.kwargs.get("stable"):
        return False  # Equal elements stay in order.
    if sorts and dim is None:
        dim = -1
    if case.op in ("torch.topk", "torch.kthvalue"):
        dim = case.args[2]
    if x.dim() == 0 or dim is None or found.dtype is not torch.int64:
        return False
    ours, theirs = ((t if t.dim() == x.dim() else t.unsqueeze(dim)) for t in (found, cpu))
    if ours.min() < 0 or ours.max() >= x.shape[dim]:
        return False
    if sorts and not (ours.sort(dim).values == theirs.sort(dim).values).all():
        return False  # Not each of them once.
    a, b = (x.gather(dim, t) for t in (ours, theirs))
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _beside(case: Case, cpu: Outcome, found: Outcome) -> Mismatch | None:
    """Elements of an input's memory that the CPU left alone are as they were."""
    if not found.gaps and cpu.gaps:
        return Mismatch("beside", "memory between the elements of out= was written")
    if "random" in OPS[case.op].traits:
        return None
    for n, (a, b, data) in enumerate(zip(found.bases, cpu.bases, case.tensors)):
        before = data.base()
        kept = (b == before) | ((b != b) & (before != before))
        if not ((a == before) | ((a != a) & (before != before)) | ~kept).all() and case.out != "itself":
            moved = ~((a == before) | ((a != a) & (before != before))) & kept
            # An element that was written with what it had nearly is no damage.
            if case.mode == "inplace" or case.op.endswith("_") or (case.op == "F.batch_norm" and case.kwargs["training"]):
                view = torch.zeros(before.shape, dtype=torch.bool)
                data.view(view).fill_(True) if not any(step[0] == "expand" for step in data.views) else view.fill_(True)
                moved &= ~view
            if moved.any():
                return Mismatch("beside", f"the memory of tensor {n} was changed at {moved.nonzero()[0].tolist()}")
    return None
