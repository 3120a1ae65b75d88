"""Where PyTorch's CPU is wrong itself, or where the answer is open: few, narrow, each with its reason."""

from __future__ import annotations

import dataclasses
import re
from typing import Callable

from differential.cases import Case


@dataclasses.dataclass(frozen=True)
class Rule:
    """Operators by a pattern; when; why."""

    ops: str
    when: Callable[[Case], bool]
    why: str
    # For a mismatch that is accepted: its kinds and what it says, as patterns.
    kinds: str = ".*"
    said: str = ""


def _always(_: Case) -> bool:
    return True


# Never run.
AVOIDED = (
    Rule(
        r"F\.max_pool[123]d", lambda case: bool(case.kwargs.get("ceil_mode")) and case.kwargs.get("dilation", 1) != 1,
        "PyTorch's CPU writes beyond its memory in the backward (kernel 2, stride 3, padding 1, dilation 2 on 2,2,1,11)",
    ),
    Rule(
        r"torch\.tri[lu]", lambda case: case.out == "strided",
        "PyTorch's CPU writes beyond its memory where out= has gaps: glibc ends the process at the next free",
    ),
)

# Run, but what comes out is no finding.
ACCEPTED = (
    Rule(
        r"torch\.(isin|kron)", _always, "the CPU's own way there asks for a view that its operand's strides do not allow",
        "no error", "view size is not compatible",
    ),
    Rule(
        r"torch\.(baddbmm|addbmm|addmm|addmv|bmm|mm|mv|matmul|einsum|inner|tensordot)",
        lambda case: any(0 in data.final_shape() for data in case.tensors) and len({data.dtype for data in case.tensors}) > 1,
        "the CPU forgets to compare types where a product is empty", "error", "same dtype",
    ),
)


def avoided(case: Case) -> bool:
    return any(re.fullmatch(rule.ops, case.op) and rule.when(case) for rule in AVOIDED)


def accepted(case: Case, kind: str, said: str) -> bool:
    return any(
        re.fullmatch(rule.ops, case.op) and re.fullmatch(rule.kinds, kind) and re.search(rule.said, said) and rule.when(case)
        for rule in ACCEPTED
    )
