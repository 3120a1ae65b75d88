"""What must not be off by one bit: casts, promotion of three types, numbers that wrap, draws that may not be zero."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
WHOLE = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


def extremes(dtype):
    """What is special of a type, and some of it by chance."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        near = [info.min, info.min + 1, info.max, info.max - 1, info.max // 2 + 1, 16777217, -16777217, 0, 1, 255, 256]
        odd = torch.randint(info.min, info.max, (40,), dtype=dtype)
        return torch.cat([torch.tensor([n for n in near if info.min <= n <= info.max], dtype=dtype), odd])
    info = torch.finfo(dtype)
    near = [0.0, -0.0, 1 - info.eps, 1 + info.eps, info.max, info.min, math.inf, -math.inf, math.nan, 65504.0, 65520.0]
    # By widths, so that each cast meets what it rounds and what it cannot hold.
    odd = torch.cat([torch.randn(40, dtype=torch.float64) * scale for scale in (1, 100, 1e4, 1e9, 1e18)])
    return torch.cat([torch.tensor(near, dtype=dtype), odd.to(dtype)])


def castable(x, to):
    """Without what C++ leaves open: floats beyond what whole numbers reach."""
    if x.dtype.is_floating_point and not to.is_floating_point and to != torch.bool:
        wide, info = x.double(), torch.iinfo(to)
        inside = (wide.trunc() >= float(info.min)) & (wide.trunc() <= float(info.max)) & (wide.abs() < 2.0**63)
        x = x[inside]
    return x


def same(found, expected):
    assert found.device.type == "wave" and found.dtype == expected.dtype
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("a", FLOATS + WHOLE, ids=lambda dtype: str(dtype)[6:])
def test_every_cast(a):
    for b in FLOATS + WHOLE:
        x = castable(extremes(a), b)
        on_wave = x.to("wave")
        same(on_wave.to(b), x.to(b))
        # With strides, which other kernels move.
        same(on_wave[::2].to(b), x[::2].to(b))
        same(torch.zeros(2, len(x), dtype=b, device="wave").copy_(on_wave), torch.zeros(2, len(x), dtype=b).copy_(x))
        zeros = torch.zeros(len(x), dtype=b)
        # Whole numbers in floats of 16 bits are added in f32 here, rounded before on the CPU: by zero that is the same.
        same(on_wave + zeros.to("wave"), x + zeros)
        same(torch.cat([on_wave, zeros.to("wave")]), torch.cat([x, zeros]))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8, torch.int64], ids=lambda dtype: str(dtype)[6:])
def test_reductions_of_whole_numbers_in_doubles(dtype):
    x = torch.tensor([[2147483647, 16777217], [-2147483648, 16777219]]).to(dtype)
    for function in (torch.sum, torch.mean, torch.prod):
        for dim in (0, 1):
            same(function(x.to("wave"), dim, dtype=torch.float64), function(x, dim, dtype=torch.float64))
    same(x.to("wave").cumsum(0, dtype=torch.float64), x.cumsum(0, dtype=torch.float64))
    same(x.to("wave").sum(dtype=torch.float64), x.sum(dtype=torch.float64))
    same(x.to("wave") + torch.ones(2, dtype=torch.float64, device="wave"), x + torch.ones(2, dtype=torch.float64))


TERNARY = {
    "addcmul": torch.addcmul,
    "addcdiv": torch.addcdiv,
    "clamp": torch.clamp,
    "lerp": torch.lerp,
    "where": lambda a, b, c: torch.where(a > 0.3, b, c),
}


@pytest.mark.parametrize("name", TERNARY)
def test_three_types(name):
    kinds = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool]
    function = TERNARY[name]
    # Quarters and small whole numbers: exact in every type.
    made = {kind: [(torch.randint(1, 9, (4,)) / 4).to(kind) for _ in range(3)] for kind in kinds}
    sent = {kind: [x.to("wave") for x in all] for kind, all in made.items()}
    for at, types in enumerate(itertools.product(kinds, repeat=3)):
        # Each is without dimensions in turn, none in every fourth.
        single = at % 4
        pick = [lambda x, i=i: x[0] if i == single else x for i in range(3)]
        operands = [pick[i](made[kind][i]) for i, kind in enumerate(types)]
        on_wave = [pick[i](sent[kind][i]) for i, kind in enumerate(types)]
        try:
            expected = function(*operands)
        except NotImplementedError:
            continue  # The CPU has no kernel, for truth values.
        except RuntimeError:
            with pytest.raises(RuntimeError):
                function(*on_wave)
            continue
        found = function(*on_wave)
        assert found.dtype == expected.dtype, types
        limit = 0 if name in ("clamp", "where") else 0.02 if expected.dtype.itemsize == 2 else 1e-6
        torch.testing.assert_close(found.cpu(), expected, rtol=limit, atol=limit, msg=lambda m: f"{types}: {m}")


def test_operands_of_another_type_are_rounded_before_they_are_compared():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.tensor([0.1, 0.3, 16777216.0]).to(dtype)
        for number in (0.1, 0.3, 16777217, torch.tensor(0.1, dtype=torch.float64)):
            for function in (torch.eq, torch.lt, torch.ge):
                on_wave = number.to("wave") if isinstance(number, torch.Tensor) else number
                same(function(x.to("wave"), on_wave), function(x, number))
                same(function(x.to("wave"), number), function(x, number))
    for dtype in (torch.int8, torch.int16, torch.int32, torch.uint8):
        x = torch.tensor([1, 2, 100]).to(dtype)
        for number in (2**40, 2**40 + 2, -(2**33), 258, 65538):
            for function in (torch.lt, torch.eq, torch.add, torch.mul, torch.maximum):
                other = torch.tensor(number) if function is torch.maximum else number
                same(function(x.to("wave"), other), function(x, other))


def outcome(function, *operands):
    """A result, or the first words of what is raised."""
    try:
        return function(*operands)
    except RuntimeError as error:
        return str(error).split("\n")[0]


def agree(function, *operands):
    expected = outcome(function, *operands)
    found = outcome(function, *(x.to("wave") if isinstance(x, torch.Tensor) else x for x in operands))
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected
    else:
        same(found, expected)


def test_operands_without_dimensions_are_the_common_type():
    # Of -32768 an int8 is 0, of 300 a uint8 is 44.
    for x, number in (
        (torch.tensor([-2, 0, 3], dtype=torch.int8), torch.tensor(-32768, dtype=torch.int16)),
        (torch.tensor([2, 44, 100], dtype=torch.uint8), torch.tensor(300)),
        (torch.tensor([2, 200, 255], dtype=torch.uint8), torch.tensor(-56, dtype=torch.int8)),
        (torch.tensor([5, -7, 2**31 - 1], dtype=torch.int32), torch.tensor(2**33 + 3)),
    ):
        for function in (torch.lt, torch.eq, torch.ge, torch.maximum, torch.minimum, torch.remainder, torch.add, torch.mul):
            if int(number.to(x.dtype)) == 0 and function is torch.remainder:
                continue
            agree(function, x, number)
            agree(function, number, x)
    # A double beside halves divides them as a float: rounded to bf16 it would make 8 of this quotient.
    halves, number = torch.tensor([1.703125, -1.703125, 2.5]).bfloat16(), torch.tensor(0.21316756308078766, dtype=torch.float64)
    for mode in (None, "trunc", "floor"):
        agree(lambda x, y: torch.div(x, y, rounding_mode=mode), halves, number)


def test_a_factor_of_truth_values_is_one():
    truths = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    for alpha in (-1, 2, 0, True, False):
        agree(lambda x, y: torch.add(x, y, alpha=alpha), *truths)


@pytest.mark.parametrize("dtype", WHOLE[:-1], ids=str)
def test_thresholds_wrap_or_are_refused(dtype):
    x = torch.tensor([0, 1, 3, 5, 100]).to(dtype)
    for threshold, value in itertools.product((-1, 0, 3, 2.5, 300, 2**35), (-2, 5, 7.9, 255, -300, 2**35)):
        agree(lambda x: F.threshold(x, threshold, value), x)


def test_steps_of_large_whole_numbers():
    for dtype in WHOLE:
        x, at_zero = torch.tensor([-3, 0, 0, 2**31 - 2]).to(dtype), torch.tensor([7, 2**31 - 3, -5, 9]).to(dtype)
        agree(torch.heaviside, x, at_zero)
        agree(torch.heaviside, x, at_zero[1])
    large = torch.tensor([0, 0, 1]), torch.tensor([-(2**63) + 1, 2**53 + 1, 4])
    agree(torch.heaviside, *large)
    agree(lambda x, y: torch.heaviside(x, y), torch.zeros(2), torch.ones(2, dtype=torch.float64))


def test_masks_filled_by_what_a_whole_type_does_not_hold():
    for dtype in WHOLE:
        x, mask = torch.zeros(3).to(dtype), torch.tensor([True, False, True])
        for value in (300, -0.6, 0.9, 1.5, -3.0, 2**40, True, 7):
            agree(lambda x, m, v: x.masked_fill(m, v), x, mask, torch.tensor(value))
            agree(lambda x, m, v: x.clone().masked_fill_(m, v), x, mask, torch.tensor(value))


def test_counts_of_nothing_are_whole():
    for weights in (None, torch.zeros(0), torch.zeros(0, dtype=torch.int64)):
        for least in (0, 3):
            agree(lambda x: torch.bincount(x, None if weights is None else weights.to(x.device), least), torch.zeros(0, dtype=torch.int64))


def test_infinities_have_no_spread():
    for dtype in (torch.float32, torch.float64):
        for places in ([0], [4], [9], [3, 9], [0, 1]):
            x = torch.linspace(-1, 1, 10, dtype=dtype)
            x[places] = math.inf
            assert x.std().isnan() and x.to("wave").std().cpu().isnan()


def test_clamping_by_what_the_type_does_not_reach():
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32):
        x = torch.tensor([0, 1, 100]).to(dtype)
        for bound, value in itertools.product(("min", "max"), (-(2**40), -1, 50, 2**40)):
            try:
                expected = x.clamp(**{bound: value})
            except RuntimeError as error:
                with pytest.raises(RuntimeError) as found:
                    x.to("wave").clamp(**{bound: value})
                assert str(found.value).partition("value")[0] == str(error).partition("value")[0]
            else:
                same(x.to("wave").clamp(**{bound: value}), expected)


def test_results_in_wider_types_are_made_in_the_common_one():
    a, b = (torch.randint(-(2**15), 2**15, (33,), dtype=torch.int16) for _ in range(2))
    halves = [torch.randn(33).bfloat16() for _ in range(2)]
    large = [torch.randint(-(2**62), 2**62, (33,)) for _ in range(2)]
    truths = [torch.rand(33) > 0.5 for _ in range(2)]
    singles = [torch.randn(33) for _ in range(2)]
    for x, y in ((a, b), halves, large, truths, singles, (halves[0], a.int())):
        for out in (torch.float32, torch.float64, torch.int64, torch.bfloat16):
            for function in (torch.mul, torch.add, torch.maximum, torch.eq, torch.logical_xor):
                try:
                    expected = function(x, y, out=torch.empty(33, dtype=out))
                except RuntimeError:
                    with pytest.raises(RuntimeError):
                        function(x.to("wave"), y.to("wave"), out=torch.empty(33, dtype=out, device="wave"))
                    continue
                found = function(x.to("wave"), y.to("wave"), out=torch.empty(33, dtype=out, device="wave"))
                if (x.dtype, y.dtype) == (torch.bfloat16, torch.int32):
                    # Rounded to bf16 before the product on the CPU only.
                    torch.testing.assert_close(found.cpu(), expected, rtol=0.02, atol=0.1)
                    assert found.cpu().bfloat16().to(out).equal(found.cpu()) or out == torch.int64
                else:
                    same(found, expected)


def test_numbers_are_written_as_on_the_cpu():
    numbers = [1.5, -1.5, 300, -300, 1e30, math.inf, -math.inf, math.nan, 70000, 2**40, True, -1, 1e300]
    for dtype in FLOATS + WHOLE:
        x, mask = torch.ones(3).to(dtype), torch.tensor([True, False, True])
        for number in numbers:
            for write in (
                lambda x, m: x.masked_fill(m, number), lambda x, m: x.clone().fill_(number),
                lambda x, m: x.clone().masked_fill_(m, number), lambda x, m: x[:0].masked_fill(m[:0], number),
            ):  # fmt: skip
                try:
                    expected = write(x, mask)
                except RuntimeError as error:
                    with pytest.raises(RuntimeError) as found:
                        write(x.to("wave"), mask.to("wave"))
                    assert str(found.value) == str(error), (dtype, number)
                else:
                    same(write(x.to("wave"), mask.to("wave")), expected)
    t = torch.tensor([1, 2, 3], device="wave")
    t[t > 1] = 1.5
    assert t.tolist() == [1, 1, 1]
    assert t.masked_fill(t > 0, torch.tensor(2.5)).tolist() == [2, 2, 2]


def test_signs_and_choices_of_zeros_and_nan():
    for dtype in FLOATS:
        x = torch.tensor([0.0, -0.0, math.nan, -math.nan, -1.5, math.inf, -math.inf]).to(dtype)
        # As reciprocals, which tell the zeros apart; contiguous and not.
        for view in (x, x.repeat_interleave(2)[::2], x.expand(2, 7)):
            same(1 / view.to("wave").abs(), 1 / view.abs())
        if dtype != torch.float64:
            same(torch.heaviside(x.to("wave"), x.to("wave").flip(0)), torch.heaviside(x, x.flip(0)))
    assert torch.zeros(4, device="wave").abs().signbit().sum().item() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=lambda dtype: str(dtype)[6:])
def test_exponential_numbers_are_never_zero(dtype):
    for rate in (1.0, 1e4):
        x = torch.empty(2**18, device="wave", dtype=dtype).exponential_(rate)
        # Much of this is below what f16 holds.
        assert x.min().item() > 0
    assert abs(x.double().mean().item() * 1e4 - 1) < 0.05


def test_gumbel_softmax_has_no_nan():
    # The seed whose word of one place is the largest there is.
    torch.manual_seed(8)
    assert not F.gumbel_softmax(torch.zeros(2**22, device="wave")).isnan().any().item()


def test_multinomial_never_draws_what_cannot_be():
    # Where the least exponential of this seed is drawn.
    w = torch.ones(2**17, device="wave")
    w[39758] = 0
    torch.manual_seed(207)
    assert w[torch.multinomial(w, 3)].min().item() > 0


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_multinomial_of_sparse_weights(replacement, scale):
    # Across blocks of the running sums, whose rounding is not that of one long sum.
    weights = (torch.rand(4, 3000) * (torch.rand(4, 3000) < 0.3)).mul(scale).to("wave")
    drawn = torch.multinomial(weights, 800, replacement)
    assert drawn.shape == (4, 800) and drawn.dtype == torch.int64
    assert weights.gather(1, drawn).min().item() > 0
    if not replacement:
        assert all(len(set(row)) == 800 for row in drawn.tolist())


def test_multinomial_draws_by_weight():
    weights = torch.tensor([0.0, 1.0, 3.0, 0.0, 4.0])
    drawn = torch.multinomial(weights.to("wave"), 40000, True).cpu()
    # Five standard deviations.
    torch.testing.assert_close(drawn.bincount(minlength=5) / 40000, weights / 8, rtol=0, atol=5 * 0.5 / 200)
