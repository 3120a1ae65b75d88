"""Kernels that C++ calls without a stack of arguments: their C++ types are the operators', and results are those of the calls
of `torch.ops`, which go over the stack."""

import pathlib
import random
import re
import subprocess

import pytest
import torch
import wave32  # noqa: F401
from wave32._fallback import operator
from wave32._scalar_ops import UNBOXED

CXX = {
    "Tensor": r"at::Tensor(?: const)?&", "Tensor?": r"std::optional<at::Tensor> const&", "Tensor[]": r"c10::ArrayRef<at::Tensor>",
    "int": "long", "SymInt": "c10::SymInt", "float": "double", "bool": "bool", "int[]": "c10::ArrayRef<long>",
    "SymInt[]": "c10::ArrayRef<c10::SymInt>", "float[]": "c10::ArrayRef<double>", "bool[3]": r"std::array<bool, 3ul>",
    "ScalarType": r"(?:c10|torch::headeronly)::ScalarType", "MemoryFormat": r"(?:c10|torch::headeronly)::MemoryFormat",
    "Layout": r"(?:c10|torch::headeronly)::Layout", "Device": "c10::Device", "Scalar": "c10::Scalar const&",
    "Scalar[]": "c10::ArrayRef<c10::Scalar>", "int[]?": r"c10::OptionalArrayRef<long>", "SymInt[]?": r"c10::OptionalArrayRef<c10::SymInt>",
    "float[]?": r"std::optional<c10::ArrayRef<double> >", "Scalar?": r"std::optional<c10::Scalar> const&",
}  # fmt: skip


def split(text):
    """At commas that are in no bracket."""
    parts, depth, now = [], 0, ""
    for letter in text:
        depth += (letter in "([<") - (letter in ")]>")
        if letter == "," and not depth:
            parts.append(now.strip())
            now = ""
        else:
            now += letter
    return [part for part in (*parts, now.strip()) if part]


def cxx_types(schema):
    """Patterns of what C++ passes for a schema's arguments."""
    found = []
    for part in split(re.sub(r" -> [^>]*$", "", schema).split("(", 1)[1].rstrip(")")):
        if part == "*":
            continue
        kind = re.sub(r"\(.*?\)", "", part.split(" ")[0])
        kind = kind if kind.startswith("bool[") else re.sub(r"\[\d+\]", "[]", kind)
        plain = CXX.get(kind)
        found.append(plain or rf"std::optional<{CXX[kind.removesuffix('?')]}>")
    return found


@pytest.fixture(scope="module")
def functions():
    """`at::_ops::NAME::call` of this torch, with their arguments."""
    library = pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    names = subprocess.run(["nm", "-DC", "--defined-only", library], capture_output=True, text=True, check=True, timeout=120).stdout
    return dict(re.findall(r"at::_ops::(\w+)::call\((.*)\)$", names, re.MULTILINE))


def test_cxx_types_are_the_operators(functions):
    assert len(UNBOXED) > 300 and len(set(UNBOXED)) == len(UNBOXED)
    for name in UNBOXED:
        name = name.removeprefix("autocast ")
        base, _, overload = name.partition(".")
        given = split(functions[f"{base}_{overload}" if overload else base])
        wanted = cxx_types(str(operator(name)._schema))
        assert len(given) == len(wanted), name
        for one, pattern in zip(given, wanted):
            assert re.fullmatch(pattern, one), f"{name}: {one} is not {pattern}"


def test_torchs_tables_are_whole():
    torch._C._dispatch_check_all_invariants()
    dump = torch._C._dispatch_dump("aten::relu")
    assert "boxed unboxed" in dump.split("PrivateUse1: ")[1].splitlines()[0]


def test_a_wrong_type_would_be_found():
    assert not re.fullmatch(CXX["Tensor[]"], "c10::IListRef<at::Tensor> const&")
    assert cxx_types("aten::x(Tensor(a!) self, int[2] s=[1, 1], *, bool? pin=None) -> Tensor(a!)") == [
        CXX["Tensor"], CXX["int[]"], "std::optional<bool>"
    ]  # fmt: skip


SEED = random.SystemRandom().randrange(2**31)
NUMBERS = torch.Generator().manual_seed(SEED)


def operands(*shapes, dtype=torch.float32):
    return [(torch.randn(shape, generator=NUMBERS) * 3).to(dtype).to("wave") for shape in shapes]


def both(direct, boxed, *args):
    """Of the same arguments, each call with its own copies."""

    def copied(value):
        if isinstance(value, torch.Tensor):
            return value.clone()
        return [copied(one) for one in value] if isinstance(value, list) and isinstance(value[0], torch.Tensor) else value

    one, other = [[copied(value) for value in args] for _ in range(2)]
    results = [all_of(direct(*one)), all_of(boxed(*other))]
    if results[1] == [None]:  # In place on lists, which Python answers.
        results = [[], []]
    for a, b in zip(*(result + all_of(left) for result, left in zip(results, (one, other))), strict=True):
        assert (a is None) == (b is None), SEED
        if isinstance(a, torch.Tensor):
            assert a.dtype == b.dtype and torch.equal(a.cpu(), b.cpu()), SEED


def all_of(value):
    if isinstance(value, (list, tuple)):
        return [one for part in value for one in all_of(part)]
    return [value]


A = torch.ops.aten


@pytest.mark.parametrize("number", [2, -3, 1.5, True, 2.5 + 1j, 2**62])
def test_numbers_of_each_kind(number):
    x, y = operands((5, 7), (5, 7))
    if not isinstance(number, complex):
        both(lambda x, y: torch.add(x, y, alpha=number), lambda x, y: A.add.Tensor(x, y, alpha=number), x, y)
    both(lambda x: torch.add(x, number), lambda x: A.add.Tensor(x, number), x)
    both(lambda x: torch.where(x > 0, x, number), lambda x: A.where.ScalarOther(x > 0, x, number), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool])
def test_a_number_promotes_as_on_the_cpu(dtype):
    x = operands((3, 4), dtype=dtype)[0]
    single = operands((), dtype=dtype)[0]
    for number in (2, 2.5, True):
        for tensor in (x, single):
            wanted = torch.add(tensor.cpu(), number)
            given = torch.add(tensor, number)
            assert given.dtype is wanted.dtype
            assert torch.allclose(given.cpu().float(), wanted.float())
            assert torch.add(number, tensor).dtype is wanted.dtype


def test_lists():
    x, a, b = (operands((4,), (3, 5), (2,)) for _ in range(3))
    for direct, boxed, more in (
        (torch._foreach_add_, A._foreach_add_.List, (x, a)), (torch._foreach_add_, A._foreach_add_.Scalar, (x, 2.5)),
        (torch._foreach_add_, A._foreach_add_.ScalarList, (x, [1.0, 2.0, -3.0])), (torch._foreach_mul_, A._foreach_mul_.List, (x, a)),
        (torch._foreach_sub_, A._foreach_sub_.Scalar, (x, 3)), (torch._foreach_neg_, A._foreach_neg_.default, (x,)),
        (torch._foreach_lerp_, A._foreach_lerp_.Scalar, (x, a, 0.25)), (torch._foreach_add, A._foreach_add.List, (x, a)),
    ):  # fmt: skip
        both(direct, boxed, *more)
    for name in ("addcmul", "addcdiv"):
        direct, packet = getattr(torch, f"_foreach_{name}_"), getattr(A, f"_foreach_{name}_")
        both(lambda x, a, b, f=direct: f(x, a, b, value=0.5), lambda x, a, b, f=packet: f.Scalar(x, a, b, 0.5), x, a, b)
        both(lambda x, a, b, f=direct: f(x, a, b, [0.5, 1.0, 2.0]), lambda x, a, b, f=packet: f.ScalarList(x, a, b, [0.5, 1.0, 2.0]), x, a, b)
    torch._foreach_add_(x, a, alpha=-2.0)
    doubles = [torch.arange(3.0, dtype=torch.float64).to("wave")]
    torch._foreach_add_(doubles, doubles, alpha=2)
    assert torch.equal(doubles[0].cpu(), 3 * torch.arange(3.0, dtype=torch.float64))
    torch._foreach_sub_(doubles, doubles, alpha=1)
    assert not doubles[0].cpu().any()


def test_optional_tensors_and_masks():
    x, grad = operands((2, 3, 4, 5), (2, 3, 4, 5))
    weight, bias, mean, var = operands(3, 3, 3, 3)
    for w, b in ((weight, bias), (None, None)):
        both(lambda *a: torch.native_batch_norm(*a), A.native_batch_norm.default, x, w, b, mean, var.abs(), True, 0.1, 1e-5)
        both(lambda *a: torch.native_batch_norm(*a), A.native_batch_norm.default, x, w, b, None, None, True, 0.1, 1e-5)
    kernel = operands((4, 3, 3, 3))[0]
    out_grad = operands((2, 4, 4, 5))[0]
    for mask in ([True, True, True], [True, False, False], [False, True, False], [False, False, True]):
        tail = ([4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask)
        given = A.convolution_backward(out_grad, x, kernel, *tail)
        assert [one is not None for one in given] == mask
        leaves = [leaf.detach().clone().requires_grad_(wanted) for leaf, wanted in zip((x, kernel, operands((4,))[0]), mask)]
        torch.conv2d(*leaves, padding=1).backward(out_grad[..., :4, :5])
        for leaf, one in zip(leaves, given):
            assert (leaf.grad is None) == (one is None)
            assert one is None or torch.equal(leaf.grad.cpu(), one.cpu()), SEED
    # Without a gradient for the input autograd asks for two of three.
    layer = torch.nn.LayerNorm(5).to("wave")
    layer(grad).sum().backward()
    assert layer.weight.grad is not None


def test_results_are_what_was_written_to():
    x, y = operands((3, 3), (3, 3))
    place, out = x.data_ptr(), torch.empty(3, 3, device="wave")
    assert x.add_(y) is x and x.relu_() is x and torch.nn.functional.hardtanh_(x) is x and x.data_ptr() == place
    assert torch.add(x, y, out=out) is out and torch.clamp(x, 0, 1, out=out) is out
    assert torch.equal(out.cpu(), x.cpu().clamp(0, 1))


def test_errors_keep_their_types():
    x, y = operands((3, 4), (3, 5))
    for call in (lambda: x + y, lambda: x.add_(y), lambda: torch._foreach_add_([x], [y]), lambda: torch.addmm(x, x, y)):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(IndexError):
        x.sum(7)
    assert torch.equal((x + x).cpu(), x.cpu() * 2)


def test_what_kernels_refuse_runs_elsewhere():
    x = operands((3, 4))[0]
    values = torch.complex(x, x)
    assert torch.allclose(torch.add(values, values, alpha=2).cpu(), values.cpu() * 3)
    assert torch.equal(torch.add(x.double(), 1).cpu(), x.double().cpu() + 1)


def test_backward_threads_call_them():
    x = operands((4, 6))[0].requires_grad_()
    weight = operands((5, 6))[0].requires_grad_()
    loss = torch.nn.functional.leaky_relu(torch.relu(torch.nn.functional.linear(x, weight)) - 0.5, 0.25).sum()
    loss.backward()
    x_cpu, w_cpu = (t.detach().cpu().requires_grad_() for t in (x, weight))
    torch.nn.functional.leaky_relu(torch.relu(torch.nn.functional.linear(x_cpu, w_cpu)) - 0.5, 0.25).sum().backward()
    assert torch.allclose(x.grad.cpu(), x_cpu.grad, atol=1e-5) and torch.allclose(weight.grad.cpu(), w_cpu.grad, atol=1e-5)


FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@pytest.mark.parametrize("name", ["plain", "transposed", "channels_last", "expanded", "part", "empty", "single"])
def test_types_are_converted_as_on_the_cpu(name):
    x = operands((2, 3, 4, 5))[0].cpu()
    x = {
        "plain": x, "transposed": x.transpose(1, 2), "channels_last": x.to(memory_format=torch.channels_last), "single": x[0, 0, 0, 0],
        "expanded": x[:1].expand(4, 3, 4, 5), "part": x[:, 1:, ::2], "empty": x[:0],
    }[name]  # fmt: skip
    on_wave = torch.empty_strided(x.shape, x.stride(), device="wave")
    on_wave = x.to("wave")[:1].expand(4, 3, 4, 5) if name == "expanded" else on_wave.copy_(x)
    assert on_wave.stride() == x.stride() or name == "part"
    for one in FLOATS:
        for other in (*FLOATS, torch.int32, torch.bool, torch.complex64):
            wanted, given = x.to(one).to(other), on_wave.to(one).to(other)
            assert given.dtype is other and given.stride() == wanted.stride()
            assert torch.equal(given.cpu(), wanted), (one, other, SEED)
    assert on_wave.to(torch.float32) is on_wave
    made = on_wave.to(torch.float16, copy=True, memory_format=torch.contiguous_format)
    assert made.is_contiguous() and torch.equal(made.cpu(), x.half())


def test_conversions_see_what_is_lazily_negated():
    x = torch.complex(*operands((3, 4), (3, 4)))
    imaginary = x.conj().imag
    assert imaginary.is_neg()
    assert torch.equal(imaginary.half().cpu(), (-x.imag).half().cpu())
    assert torch.equal(imaginary.cpu(), -x.imag.cpu())


def test_conversions_elsewhere():
    x = operands((3, 4))[0]
    assert torch.equal(x.to("cpu", torch.float16), x.cpu().half())
    assert torch.equal(x.cpu().to("wave", torch.float16).cpu(), x.cpu().half())
    with pytest.raises((RuntimeError, AssertionError, NotImplementedError)):
        x.to("cuda", torch.float16)
    with pytest.raises(RuntimeError):
        x.to(torch.float16, memory_format=torch.channels_last, copy=True)
    assert x.to("meta", torch.float16).device.type == "meta"
    assert torch.equal((x + 1).cpu(), x.cpu() + 1)


def test_gradients_pass_conversions():
    x = operands((3, 4))[0].requires_grad_()
    (x.half() * 2).float().sum().backward()
    assert torch.equal(x.grad.cpu(), torch.full((3, 4), 2.0))


def test_autocast_is_called_so_too():
    names = [name for name in UNBOXED if name.startswith("autocast ")]
    assert len(names) >= 31
    x, w = operands((3, 4), (5, 4))
    with torch.autocast("wave", torch.float16):
        made = torch.nn.functional.linear(x, w)
        assert made.dtype is torch.float16
        with pytest.raises(RuntimeError):
            x @ x
        assert torch.equal(torch.nn.functional.linear(x, w).cpu(), made.cpu())
    assert torch.nn.functional.linear(x, w).dtype is torch.float32
