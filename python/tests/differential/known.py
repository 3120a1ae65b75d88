"""Where PyTorch's CPU is wrong itself, or where the answer is open: few, narrow, each with its reason."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import torch
from torch._prims_common import suggest_memory_format

from differential.cases import Case, Data


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


def _laid(data: Data) -> torch.Tensor:
    """Sizes and strides of a tensor, without elements."""
    return data.view(torch.empty(data.shape, dtype=data.dtype, device="meta"))


def _without_mkldnn(case: Case) -> bool:
    """A convolution of volumes, one of whose operands has its channels last, for which the CPU has kernels of its own: of a single
    one, by filters of one tap in height and width, with an output padding (`use_mkldnn` of ATen's Convolution.cpp), or of halves
    where the processor has no instructions for them."""
    volumes = [x if x.dim() == 5 else x[None] for x in map(_laid, case.tensors[:2])]
    last = any(suggest_memory_format(x) == torch.channels_last_3d for x in volumes)
    supported = {torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported, torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported}
    lacks_type = not supported.get(volumes[0].dtype, lambda: True)()
    return last and (len(volumes[0]) == 1 or volumes[1].shape[3:] == (1, 1) or bool(case.kwargs.get("output_padding")) or lacks_type)


def _special(case: Case) -> bool:
    return any(data.fill[0] in ("special", "infs") for data in case.tensors)


def _double(case: Case) -> bool:
    return any(data.dtype == torch.float64 for data in case.tensors)


def _has_ties(case: Case) -> bool:
    return any(len(x.unique()) < x.numel() for x in (data.view(data.base()) for data in case.tensors))


def _reads_unwritten(case: Case) -> bool:
    """A circular pad that is cut on one side and longer on the other than what is left."""
    shape, pad = case.tensors[0].final_shape(), case.args[1]
    sides = [(shape[-1 - at // 2], *pad[at : at + 2]) for at in range(0, len(pad), 2)]
    return "circular" in (*case.args, *case.kwargs.values()) and any(
        min(left, right) < 0 and max(left, right) > size + min(left, right) for size, left, right in sides
    )


def _becomes_a_column(case: Case) -> bool:
    """An antialiased image whose result is one pixel wide and not as high as it."""
    sides, (size, scale) = case.tensors[0].final_shape()[-2:], (case.kwargs.get(name) for name in ("size", "scale_factor"))
    given = scale if size is None else size
    pair = given if isinstance(given, tuple) else (given, given)
    high, wide = (int(side * by) for side, by in zip(sides, pair)) if size is None else pair
    return bool(case.kwargs.get("antialias")) and wide == 1 and high != sides[0]


def _narrow_bytes(case: Case) -> bool:
    """Images of bytes of more than four channels; what of them differs is a result one pixel wide."""
    return case.tensors[0].dtype == torch.uint8 and case.tensors[0].final_shape()[1] > 4


def _wraps_bounds(case: Case) -> bool:
    return not case.tensors[0].is_float and int(torch.zeros((), dtype=torch.uint8).clamp(min=-1)) == 255


def _empty(case: Case) -> bool:
    return any(0 in data.final_shape() for data in case.tensors)


def _repeated(case: Case) -> bool:
    return any(0 in _laid(data).stride() for data in case.tensors)


def _promotes_repeated(case: Case) -> bool:
    return len({data.dtype for data in case.tensors}) > 1 and _repeated(case)


def _makes_floats_of_repeated(case: Case) -> bool:
    return not any(data.is_float for data in case.tensors) and _repeated(case)


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
        lambda case: _empty(case) and len({data.dtype for data in case.tensors}) > 1,
        "the CPU forgets to compare types where a product is empty", "error", "same dtype",
    ),
    Rule(r"F\.(nll_loss|cross_entropy)", _always, "the CPU's backward takes no permuted operand", "no error", "grad_input must be contiguous"),
    Rule(
        r"F\.pixel_(un)?shuffle", _empty,
        "the CPU's backward refuses what its forward took where there are no elements", "no error", "channel",
    ),
    Rule(r"F\.pixel_unshuffle", _empty, "without elements the CPU copies its input: the result keeps the input's sizes", "shape"),
    Rule(r"torch\.addmv", _empty, "without elements the CPU multiplies what is added by beta, unexpanded, and takes its sizes", "shape"),
    Rule(
        r"F\.conv(_transpose)?3d", _without_mkldnn,
        "the CPU's own kernels for volumes have no channels last; those that it takes for all others, mkldnn's, keep it, as CUDA's do",
        "strides",
    ),
    Rule(
        r"F\.max_pool1d", lambda case: case.mode == "plain",
        "without gradients the CPU has a kernel of its own; with them, and elsewhere, signals are pooled as images, which keep "
        "channels last",
        "strides",
    ),
    Rule(
        r"torch\.[\w.]+", _promotes_repeated,
        "the CPU, and only it, first copies operands to the common type, where an expanded one is expanded no more and counts in "
        "the order of dimensions (TensorIterator::compute_types)",
        "strides",
    ),
    Rule(
        r"torch\.(copysign|true_divide)", _makes_floats_of_repeated,
        "the same, where floats are made of whole numbers: CUDA does not copy",
        "strides",
    ),
    Rule(
        r"F\.interpolate", _becomes_a_column,
        "of what becomes one pixel wide and of another height the CPU's antialiased resampling makes zeros: of [[0], [1]], enlarged "
        "by 1.5, it makes [[0], [0], [0]] (its gradient is right)",
        "values",
    ),
    Rule(
        r"torch\.(nan)?median", _repeated,
        "the CPU of torch 2.11 to 2.15 reads unwritten memory in copies of expanded operands: of [[0, 0], [1, 1]] along the last "
        "dimension it makes [0, -76] of bytes",
        "values|gradient",
    ),
    Rule(
        r"torch\.nan_to_num", lambda case: not case.tensors[0].is_float,
        "whole numbers are copied, which the CPU leaves out where out= is the operand itself, though its elements be one", "error",
        "more than one element",
    ),
    Rule(
        r"torch\.(nan)?sum", lambda case: case.kwargs.get("dtype") == torch.float16 and not case.tensors[0].is_float,
        "the CPU converts each whole number to the halves of the result, where large ones are infinite; here they are added before",
        "values", "not (nan|-?inf)",
    ),
    Rule(
        r"torch\.(sub|rsub|add)", lambda case: _special(case) and any(data.dtype.is_complex for data in case.tensors),
        "the CPU adds alpha times the operand, a product of complex numbers, which is nan where one part is infinite",
        "values", "nan",
    ),
    Rule(
        r"torch\.(remainder|fmod)(\.specials)?", _double,
        "the CPU's vectors take SLEEF's fmod, which is nan where the quotient overflows; C's, as the CPU's single elements, is not",
        "values", r"not nan \(f64: nan\)",
    ),
    Rule(
        r"torch\.(remainder|fmod)(\.specials)?", lambda case: True,
        "the same in f32, where f64 has a number because its quotient fits",
        "values", r"\d, not nan \(f64: -?\d",
    ),
    Rule(
        r"torch\.(baddbmm|addbmm|addmm|addmv)", lambda case: case.kwargs.get("alpha") == 0,
        "small products the CPU multiplies by 0 itself, infinities too; BLAS, as the device, reads no operand then",
        "values", "not nan",
    ),
    Rule(
        r"F\.pad", _reads_unwritten, "PyTorch copies from places of the result that it has not written yet", "values|gradient",
    ),
    Rule(
        r"torch\.tri[lu]", lambda case: case.mode == "inplace" and any(step[0] == "expand" for step in case.tensors[0].views),
        "elements that share memory are written with different values: the order decides", "values",
    ),
    Rule(
        r"F\.hardsigmoid", _double, "the CPU's gradient of doubles is by a sixth in f32", "gradient",
    ),
    Rule(
        r"torch\.(kthvalue|topk|msort|sort|(nan)?quantile)", _has_ties, "which of equal elements gets the gradient is open", "gradient",
    ),
    Rule(
        r"torch\.(add(mv|mm|bmm|r)|baddbmm)", lambda case: case.out == "itself" and any(data.final_shape() == () for data in case.tensors),
        "out= is the number that is added: the CPU makes room for the result in it and then adds what lies there", "values",
    ),
    Rule(
        r"F\.interpolate", _special, "a rounding of the place decides whether a neighbour is taken nothing of: 0 times inf",
        "values", r"\b(nan|inf)\b",
    ),
    Rule(
        r"F\.interpolate", _narrow_bytes, "results one pixel wide the CPU takes for channels last where they are not", "values",
        r"at \[\d+, \d+, \d+, 0\]",
    ),
    Rule(r"torch\.clamp(_min|_max)?", _wraps_bounds, "the CPU of older PyTorch wraps bounds that a whole type does not hold", "values"),
    Rule(r"F\.group_norm", _empty, "the gradient of what older PyTorch normalizes nothing by is 0 times nan", "gradient", "not nan"),
    Rule(
        r"torch\.(std|var)_mean", _special, "the CPU's running mean is nan after an inf, but for one that comes last; the mean is inf",
        "values", r"result 1: .*\b(inf|nan)\b",
    ),
    Rule(
        r"torch\.addc(mul|div)", _special,
        "at the end of a type's range the order of product and quotient decides whether it is left", "values", r"\binf\b",
    ),
)


def avoided(case: Case) -> bool:
    return any(re.fullmatch(rule.ops, case.op) and rule.when(case) for rule in AVOIDED)


def accepted(case: Case, kind: str, said: str) -> bool:
    return any(
        re.fullmatch(rule.ops, case.op) and re.fullmatch(rule.kinds, kind) and re.search(rule.said, said) and rule.when(case)
        for rule in ACCEPTED
    )
