"""Writes to memory that elements share: refused, allowed and warned of as on the CPU."""

import warnings

import pytest
import torch
import torch.nn.functional as F

MASK = [True, False, False, True, False, False]

# Each gets a function that makes tensors of the device in question.
CASES = {
    "bernoulli": lambda t: t([0.5]).expand(6).bernoulli_(),
    "bernoulli_of": lambda t: t([0.5]).expand(6).bernoulli_(t([0.5] * 6)),
    "uniform": lambda t: t([0.5]).expand(6).uniform_(),
    "normal": lambda t: t([0.5]).expand(6).normal_(),
    "exponential": lambda t: t([0.5]).expand(6).exponential_(),
    "random": lambda t: t([0.5]).expand(6).random_(),
    "cauchy": lambda t: t([0.5]).expand(6).cauchy_(),
    "geometric": lambda t: t([0.5]).expand(6).geometric_(0.5),
    "log_normal": lambda t: t([0.5]).expand(6).log_normal_(),
    "dropout": lambda t: F.dropout(t([0.5]).expand(6), inplace=True),
    "copy": lambda t: t([0.5]).expand(6).copy_(t([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])),
    "copy_host": lambda t: t([0.5]).expand(6).copy_(torch.ones(6)),
    "add": lambda t: t([0.5]).expand(6).add_(1),
    "mul": lambda t: t([0.5]).expand(6).mul_(t([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])),
    "relu": lambda t: t([0.5]).expand(6).relu_(),
    "sqrt": lambda t: t([0.5]).expand(6).sqrt_(),
    "clamp": lambda t: t([0.5]).expand(6).clamp_(0, 1),
    "erfc": lambda t: t([0.5]).expand(6).erfc_(),
    "lgamma": lambda t: t([0.5]).expand(6).lgamma_(),
    "masked_fill": lambda t: t([0.5]).expand(6).masked_fill_(t(MASK), 3.0),
    "masked_fill_tensor": lambda t: t([0.5]).expand(6).masked_fill_(t(MASK), t(3.0)),
    "index_put": lambda t: t([0.5]).expand(6).index_put_((t([2]),), t([3.0])),
    "index_put_same": lambda t: t([0.5]).expand(6).index_put_((t([2, 4]),), t([3.0, 3.0])),
    "setitem_mask": lambda t: t([0.5]).expand(6).__setitem__(t(MASK), 4.0),
    "index_fill": lambda t: t([0.5]).expand(6).index_fill_(0, t([0, 1]), 3.0),
    "index_add": lambda t: t([0.5]).expand(6).index_add_(0, t([0, 1]), t([1.0, 2.0])),
    "index_copy": lambda t: t([0.5]).expand(6).index_copy_(0, t([0, 1]), t([1.0, 2.0])),
    "scatter": lambda t: t([0.5]).expand(6).scatter_(0, t([0, 1]), t([1.0, 2.0])),
    "threshold": lambda t: F.threshold(t([0.5]).expand(6), 2, 5, inplace=True),
    "fill": lambda t: t([0.5]).expand(2, 6).fill_(2),
    "fill_tensor": lambda t: t([0.5]).expand(2, 6).fill_(t(2.0)),
    "fill_own": lambda t: (lambda x: x.fill_(x[1]))(t([0.5, 4.0, 2.0])),
    "zero": lambda t: t([0.5]).expand(2, 6).zero_(),
    "fill_complex": lambda t: t([0.5 + 1j]).expand(6).fill_(3 + 1j),
    "fill_uint16": lambda t: t([1]).to(torch.uint16).expand(6).fill_(60000),
    "fill_uint64": lambda t: t([1]).to(torch.uint64).expand(6).fill_(2**40 + 1),
    "no_elements": lambda t: t([[0.5]]).expand(0, 6).add_(1),
    "add_shifted": lambda t: (lambda x: x[1:].add_(x[:-1]))(t([0.0, 1.0, 2.0, 3.0])),
    "copy_shifted": lambda t: (lambda x: x[1:].copy_(x[:-1]))(t([0.0, 1.0, 2.0, 3.0])),
    "add_turned": lambda t: (lambda x: x.add_(x.t()))(t([[0.0, 1.0], [2.0, 3.0]])),
    "copy_turned": lambda t: (lambda x: x.copy_(x.t()))(t([[0.0, 1.0], [2.0, 3.0]])),
    "add_itself": lambda t: (lambda x: x.add_(x))(t([0.0, 1.0, 2.0, 3.0])),
    "add_alias": lambda t: (lambda x: x.add_(x.view(4)))(t([0.0, 1.0, 2.0, 3.0])),
    "shift": lambda t: (lambda x: x[1:].__ilshift__(x[:-1]))(t([0, 1, 2, 3])),
    "out": lambda t: (lambda x: torch.mul(x[1:], 2, out=x[:-1]))(t([0.0, 1.0, 2.0, 3.0])),
    "exp_out": lambda t: (lambda x: torch.exp(x[1:], out=x[:-1]))(t([0.0, 1.0, 2.0, 3.0])),
    "lgamma_out": lambda t: (lambda x: torch.lgamma(x[1:], out=x[:-1]))(t([0.0, 1.0, 2.0, 3.0])),
    "mask_itself": lambda t: (lambda m: m.masked_fill_(m, False))(t(MASK)),
    "mask_shifted": lambda t: (lambda m: m[1:].masked_fill_(m[:-1], False))(t(MASK)),
    "index_put_own": lambda t: (lambda x: x.index_put_((t([0, 1]),), x[:2]))(t([0.0, 1.0, 2.0, 3.0])),
    "index_fill_own": lambda t: (lambda x: x.index_fill_(0, t([0, 1]), x[2]))(t([0.0, 1.0, 2.0, 3.0])),
    "index_add_own": lambda t: (lambda x: x.index_add_(0, t([0, 1]), x[:2]))(t([0.0, 1.0, 2.0, 3.0])),
    "scatter_own": lambda t: (lambda x: x.scatter_(0, t([0, 1]), x[:2]))(t([0.0, 1.0, 2.0, 3.0])),
    "select_own": lambda t: (lambda x: torch.index_select(x, 0, t([1, 0, 2, 3]), out=x))(t([0.0, 1.0, 2.0, 3.0])),
    "cumsum": lambda t: t([[0.5], [1.5]]).expand(2, 3).cumsum_(0),
    "triu": lambda t: t([[0.5], [1.5]]).expand(2, 3).triu_(),
    "masked_scatter": lambda t: t([[0.5], [1.5]]).expand(2, 3).masked_scatter_(t([True, False, True]), t([5.0, 6.0, 7.0, 8.0])),
    "addmm_out": lambda t: (lambda x: torch.addmm(x, t([[1.0], [2.0]]), t([[1.0, 2.0, 3.0]]), out=x))(t([[0.5], [1.5]]).expand(2, 3)),
    "baddbmm": lambda t: t([[[0.5], [1.5]]]).expand(1, 2, 3).baddbmm_(t([[[1.0], [2.0]]]), t([[[1.0, 2.0, 3.0]]])),
    # Not refused: what is added up there is one place.
    "addmv": lambda t: t([1.0]).expand(3).addmv_(t([[0.0], [0.0], [0.0]]), t([2.0])),
    "complex_out": lambda t: (lambda x: torch.add(x[:-1], 1j, out=x[1:]))(t([1j, 2 + 0j, 3 + 0j])),
    "complex_mul_out": lambda t: (lambda x: torch.mul(x[:-1], t(True), out=x[1:]))(t([1j, 2 + 0j, 3 + 0j])),
    "complex_in_place": lambda t: t([1j]).expand(3).mul_(2),
    "complex_apart": lambda t: (lambda x: torch.mul(x[:2], x[:2], out=x[2:]))(t([1j, 2 + 1j, 0j, 0j])),
    "pad_circular": lambda t: F.pad(t([[[[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]]]), [-1, 3, -1, 2], "circular"),
    "pad_circular_fits": lambda t: F.pad(t([[[[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]]]), [-1, 2, 1, 1], "circular"),
}

RANDOM = {"bernoulli", "bernoulli_of", "uniform", "normal", "exponential", "random", "cauchy", "geometric", "log_normal", "dropout"}


def outcome(case, device):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            made = case(lambda values: torch.tensor(values, device=device))
        except Exception as error:
            return type(error), str(error).split("\n")[0].removeprefix("RuntimeError: "), []
    texts = sorted(str(w.message).split("(Triggered")[0].strip() for w in told if "runs on the CPU" not in str(w.message))
    return None, made if made is None else (made.dtype, made.stride(), made.cpu().tolist()), texts


@pytest.mark.parametrize("name", CASES)
def test_as_on_the_cpu(name):
    expected, found = (outcome(CASES[name], device) for device in ("cpu", "wave"))
    if name in RANDOM:
        assert expected[0] is RuntimeError and "single memory location" in expected[1]
    assert found == expected


def test_what_a_fallback_writes_to_shared_memory_arrives_once():
    x = torch.zeros(3, 1, device="wave")
    mask = torch.tensor([[0, 1, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]], dtype=torch.bool, device="wave")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x.expand(3, 4).masked_fill_(mask, 7.0)
    assert x.flatten().tolist() == [7.0, 0.0, 7.0]
    # Neighbours in the same storage stay what they are.
    whole = torch.arange(8.0, device="wave")
    with pytest.raises(RuntimeError, match="single memory location"):
        whole[2:5].lgamma_().copy_(whole[3:6])
    assert whole[:2].tolist() == [0.0, 1.0] and whole[5:].tolist() == [5.0, 6.0, 7.0]
