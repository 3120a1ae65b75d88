"""Nothing, zeros, wrong sizes and settings of torch's: as on the CPU."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F


def same(found, expected, limit=0.0):
    assert found.device.type == "wave" and found.dtype == expected.dtype and found.shape == expected.shape
    torch.testing.assert_close(found.cpu(), expected, rtol=limit, atol=limit, equal_nan=True)


@pytest.fixture(params=[torch.float64, torch.bfloat16, torch.float16], ids=lambda dtype: str(dtype)[6:])
def default(request):
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


def test_the_default_type_is_obeyed(default):
    whole = torch.tensor([1, 4, 9])
    made = {
        name: [function(device, whole.to(device)).dtype for device in ("cpu", "wave")]
        for name, function in {
            "empty": lambda d, x: torch.empty(2, device=d),
            "empty_strided": lambda d, x: torch.empty_strided((2,), (1,), device=d),
            "zeros": lambda d, x: torch.zeros(2, device=d),
            "ones": lambda d, x: torch.ones(2, device=d),
            "full": lambda d, x: torch.full((2,), 1.5, device=d),
            "full whole": lambda d, x: torch.full((2,), 1, device=d),
            "tensor": lambda d, x: torch.tensor([1.5], device=d),
            "scalar_tensor": lambda d, x: torch.scalar_tensor(1.5, device=d),
            "rand": lambda d, x: torch.rand(2, device=d),
            "randn": lambda d, x: torch.randn(2, device=d),
            "randint": lambda d, x: torch.randint(3, (2,), device=d),
            "arange": lambda d, x: torch.arange(0.0, 2.0, device=d),
            "arange whole": lambda d, x: torch.arange(2, device=d),
            "linspace": lambda d, x: torch.linspace(0, 1, 3, device=d),
            "logspace": lambda d, x: torch.logspace(0, 1, 3, device=d),
            "eye": lambda d, x: torch.eye(2, device=d),
            "normal": lambda d, x: torch.normal(0.0, 1.0, (2,), device=d),
            "hann": lambda d, x: torch.hann_window(4, device=d),
            "divided": lambda d, x: x / 2,
            "of two": lambda d, x: x / x,
            "true_divide": lambda d, x: torch.true_divide(x, x),
            "plus": lambda d, x: x + 0.5,
            "times": lambda d, x: x * 0.5,
            "less": lambda d, x: torch.rsub(x, 0.5),
            "power": lambda d, x: x**0.5,
            "of base": lambda d, x: 0.5**x,
            "sqrt": lambda d, x: x.sqrt(),
            "exp": lambda d, x: x.exp(),
            "sin": lambda d, x: x.sin(),
            "sigmoid": lambda d, x: x.sigmoid(),
            "rsqrt": lambda d, x: x.rsqrt(),
            "reciprocal": lambda d, x: x.reciprocal(),
            "atan2": lambda d, x: torch.atan2(x, x),
            "xlogy": lambda d, x: torch.xlogy(x, x),
            "logit": lambda d, x: (x > 2).logit(),
            "where": lambda d, x: torch.where(x > 2, 0.5, 1.5),
            "softmax": lambda d, x: x.softmax(0, dtype=torch.get_default_dtype()),
            "clamp": lambda d, x: x.clamp(0.5, 2.5),
            "lerp": lambda d, x: torch.lerp(x / 2, x / 3, 0.5),
            "addcdiv": lambda d, x: torch.addcdiv(x / 2, x / 2, x / 3),
            "bool": lambda d, x: (x > 2) / 2,
            "bool sqrt": lambda d, x: (x > 2).sqrt(),
        }.items()
    }
    assert {name: types for name, types in made.items() if types[0] != types[1]} == {}


def test_modules_in_the_default_type(default):
    with torch.device("wave"):
        model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    assert {p.dtype for p in model.parameters()} == {default}
    x = torch.tensor([[1.0, 2.0]], device="wave")
    on_cpu = [p.cpu() for p in model.parameters()]
    hidden = F.relu(F.linear(x.cpu(), on_cpu[0], on_cpu[1]))
    same(model(x).detach(), F.linear(hidden, on_cpu[2], on_cpu[3]).detach(), 1e-12 if default == torch.float64 else 0.02)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_of_nothing(reduction, weighted):
    for sizes in ((0, 3), (0, 3, 4), (0, 3, 4, 5), (2, 3, 0, 5), (0, 3, 2, 2, 2)):
        for dtype in (torch.float32, torch.float16, torch.float64):
            grads, losses = [], []
            for device in ("cpu", "wave"):
                x = torch.zeros(sizes, dtype=dtype, device=device, requires_grad=True)
                target = torch.zeros((sizes[0], *sizes[2:]), dtype=torch.long, device=device)
                weight = torch.ones(3, dtype=dtype, device=device) if weighted else None
                loss = F.cross_entropy(x, target, weight, reduction=reduction)
                loss.sum().backward()
                losses.append(loss.detach())
                grads.append(x.grad)
            same(losses[1], losses[0])
            same(grads[1], grads[0])
    total = torch.ops.aten.nll_loss_forward(
        torch.zeros(0, 3, device="wave"), torch.zeros(0, dtype=torch.long, device="wave"), None, 1, -100
    )[1]
    assert total.item() == 0


def test_a_batch_whose_mask_selects_nothing_trains_on():
    model = torch.nn.Linear(4, 3).to("wave")
    x, y = torch.randn(5, 4, device="wave"), torch.zeros(5, dtype=torch.long, device="wave")
    keep = torch.zeros(5, dtype=torch.bool, device="wave")
    F.cross_entropy(model(x[keep]), y[keep], reduction="sum").backward()
    assert model.weight.grad.abs().sum().item() == 0


ZERO_SIZED = {
    "one_hot": lambda x, i: F.one_hot(i - 1),
    "scatter_": lambda x, i: x.scatter_(0, i[:, None].expand(1, 2), torch.ones(1, 2, device="wave")),
    "scatter_ value": lambda x, i: x.scatter_(0, i[:, None].expand(1, 2), 1.0),
    "scatter_add_": lambda x, i: x.scatter_add_(0, i[:, None].expand(1, 2), torch.ones(1, 2, device="wave")),
    "gather": lambda x, i: x.gather(0, i[:, None].expand(1, 2)),
    "index_add_": lambda x, i: x.index_add_(0, i, torch.ones(1, 2, device="wave")),
    "index_copy_": lambda x, i: x.index_copy_(0, i, torch.ones(1, 2, device="wave")),
    "index_fill_": lambda x, i: x.index_fill_(0, i, 1.0),
    "index_put_": lambda x, i: x.index_put_((i,), torch.ones(1, 2, device="wave")),
    "index_put_ accumulate": lambda x, i: x.index_put_((i,), torch.ones(1, 2, device="wave"), accumulate=True),
    "index": lambda x, i: x[i],
    "index of two": lambda x, i: x[i, i],
    "index_select": lambda x, i: x.index_select(0, i),
    "take": lambda x, i: x.take(i),
    "put_": lambda x, i: x.put_(i, torch.ones(1, device="wave")),
    "embedding": lambda x, i: F.embedding(i, x),
}


@pytest.mark.parametrize("name", ZERO_SIZED)
def test_indices_into_nothing(name):
    x, i = torch.zeros(0, 2, device="wave"), torch.zeros(1, dtype=torch.long, device="wave")
    if name == "index_add_":
        # To no elements the CPU adds nothing, and does not look where.
        assert torch.zeros(0, 2).index_add_(0, i.cpu(), torch.ones(1, 2)).shape == (0, 2)
        assert ZERO_SIZED[name](x, i).shape == (0, 2)
        return
    with pytest.raises(IndexError):
        ZERO_SIZED[name](x, i)
    torch.wave.synchronize()


def test_indices_along_something_of_what_is_empty_otherwise():
    x, i = torch.zeros(3, 0), torch.tensor([1, 2])
    for function in (
        lambda x, i: x[i], lambda x, i: x.index_select(0, i), lambda x, i: F.embedding(i, x),
        lambda x, i: x.index_add(0, i, x[:2]), lambda x, i: x.index_copy(0, i, x[:2]),
        lambda x, i: x.gather(0, i[:, None][:, :0]), lambda x, i: x.scatter(0, i[:, None][:, :0], 1.0),
    ):  # fmt: skip
        same(function(x.to("wave"), i.to("wave")), function(x, i))


def test_convolutions_of_no_channels():
    for module in (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            on_cpu, on_wave = module(0, 8, 2), module(0, 8, 2).to("wave")
        on_wave.load_state_dict(on_cpu.state_dict())
        sizes = (4, 0) + (8,) * (on_cpu.weight.dim() - 2)
        for m, device in ((on_cpu, "cpu"), (on_wave, "wave")):
            x = torch.randn(sizes, device=device, requires_grad=True)
            m(x).sum().backward()
            assert x.grad.shape == x.shape and m.weight.grad.shape == m.weight.shape
        same(on_wave.bias.grad, on_cpu.bias.grad)


def test_norms_of_nothing():
    for sizes in ((0, 3), (0, 4, 3)):
        x = torch.zeros(sizes)
        for function in (
            lambda x, w, b: F.layer_norm(x, (3,), w, b),
            lambda x, w, b: F.group_norm(x.flatten(1)[:, :3], 3, w, b),
        ):
            made = []
            for device in ("cpu", "wave"):
                leaves = [t.clone().to(device).requires_grad_() for t in (x, torch.ones(3), torch.zeros(3))]
                y = function(*leaves)
                y.sum().backward()
                made.append([y.detach()] + [leaf.grad for leaf in leaves])
            for found, expected in zip(made[1], made[0]):
                assert (found is None) == (expected is None)
                if found is not None:
                    same(found, expected)
    x = torch.zeros(0, 3, device="wave", requires_grad=True)
    F.layer_norm(x, (3,)).sum().backward()
    assert torch.wave.fallbacks() == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64], ids=lambda dtype: str(dtype)[6:])
def test_products_that_count_for_nothing(dtype):
    bad = torch.tensor(math.nan if dtype.is_floating_point else 7)
    def full(*sizes):
        return bad.expand(sizes).to(dtype).contiguous()
    for n in (2, 5):
        one, m = torch.ones(n, n).to(dtype), full(n, n)
        for alpha, beta in ((0, 1), (0, 2), (0, 0), (1, 0)):
            # What counts for nothing may be anything; the rest is ones.
            a = m if alpha == 0 else one
            y = one if beta else m
            calls = [
                (torch.addmm, (y, a, a)), (torch.addmm, (y[0], a, a)), (torch.baddbmm, (y[None], a[None], a[None])),
                (torch.addmv, (y[0], a, a[0])), (torch.addbmm, (y, a[None], a[None])),
            ]
            for function, operands in calls:
                found = function(*(t.to("wave") for t in operands), beta=beta, alpha=alpha)
                expected = torch.full_like(found, beta + alpha * n, device="cpu")
                same(found, expected)
        x = one.to("wave")
        torch.addmm(x, m.to("wave"), m.to("wave"), alpha=0, out=x)
        same(x, one)


def test_results_of_wrong_types():
    x = torch.ones(2, 2)
    for function in (
        lambda x, out: torch.mm(x, x, out=out(2, 2)), lambda x, out: torch.bmm(x[None], x[None], out=out(1, 2, 2)),
        lambda x, out: torch.addmm(x, x, x, out=out(2, 2)), lambda x, out: torch.addmv(x[0], x, x[0], out=out(2)),
        lambda x, out: torch.baddbmm(x[None], x[None], x[None], out=out(1, 2, 2)),
    ):  # fmt: skip
        for dtype in (torch.float64, torch.int64, torch.float16):
            with pytest.raises(RuntimeError) as expected:
                function(x, lambda *sizes: torch.empty(sizes, dtype=dtype))
            with pytest.raises(RuntimeError) as found:
                function(x.to("wave"), lambda *sizes: torch.empty(sizes, dtype=dtype, device="wave"))
            assert str(found.value) == str(expected.value)


OUTS = {
    "add": lambda x, out: torch.add(x, x, out=out),
    "exp": lambda x, out: torch.exp(x, out=out),
    "mm": lambda x, out: torch.mm(x, x, out=out),
    "addmm": lambda x, out: torch.addmm(x, x, x, out=out),
    "sum": lambda x, out: torch.sum(x, 1, out=out),
    "cumsum": lambda x, out: torch.cumsum(x, 1, out=out),
    "softmax": lambda x, out: torch.softmax(x, 1, out=out),
    "cat": lambda x, out: torch.cat([x, x], out=out),
    "gather": lambda x, out: torch.gather(x, 1, torch.zeros_like(x, dtype=torch.long), out=out),
    "index_select": lambda x, out: torch.index_select(x, 1, torch.zeros(1, dtype=torch.long, device=x.device), out=out),
    "mse_loss": lambda x, out: torch._C._nn.mse_loss(x, x, out=out),
    "addmv": lambda x, out: torch.addmv(x[0], x, x[0], out=out),
    "clamp": lambda x, out: torch.clamp(x, 0, 1, out=out),
    "erfcx": lambda x, out: torch.special.erfcx(x, out=out),
}


@pytest.mark.parametrize("name", OUTS)
def test_out_that_is_resized_warns_and_that_of_the_cpu_is_refused(name):
    x = torch.rand(3, 3)
    for size in (5, 0):
        told = []
        for device in ("cpu", "wave"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                out = torch.ones(size, device=device)
                OUTS[name](x.to(device), out)
            told.append([str(w.message) for w in caught if "resized" in str(w.message)])
        assert told[0] == told[1]
        assert len(told[1]) == (size > 0)
        assert out.shape == OUTS[name](x, torch.empty(0)).shape
    with pytest.raises(RuntimeError, match="same device"):
        OUTS[name](x.to("wave"), torch.empty(0))


def test_a_concatenation_that_is_resized_has_its_operands_format():
    def last(*sizes):
        return torch.rand(sizes).contiguous(memory_format=torch.channels_last)

    groups = (
        [last(5, 8, 4, 3)],
        [last(2, 3, 4, 5), last(2, 1, 4, 5)],
        [last(2, 3, 4, 5), torch.rand(2, 3, 4, 5)],
        [last(1, 3, 4, 5), torch.rand(0)],
    )
    for parts in groups:
        for size in ((0,), (7, 2), (5, 8, 4, 3, 2)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected, found = (
                    torch.cat([x.to(device) for x in parts], 1, out=torch.full(size, 7.0, device=device)) for device in ("cpu", "wave")
                )
            same(found, expected)
            assert found.stride() == expected.stride()


def test_logic_in_place_keeps_type_and_shape():
    for name in ("logical_xor_", "logical_and_", "logical_or_", "eq_", "lt_"):
        for dtype in (torch.int64, torch.float32, torch.uint8, torch.bool, torch.float64):
            x, y = torch.tensor([1, 0, 3]).to(dtype), torch.tensor([1, 1, 0]).to(dtype)
            same(getattr(x.to("wave"), name)(y.to("wave")), getattr(x.clone(), name)(y))
        with pytest.raises(RuntimeError) as expected:
            getattr(torch.tensor([1]), name)(torch.tensor([1, 1, 0]))
        x = torch.tensor([1], device="wave")
        with pytest.raises(RuntimeError) as found:
            getattr(x, name)(torch.tensor([1, 1, 0], device="wave"))
        assert str(found.value) == str(expected.value) and x.shape == (1,)
    same(torch.tensor([2, 0]).to("wave").logical_not_(), torch.tensor([2, 0]).logical_not_())


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_of_what_is_no_probability(reduction, weighted):
    target, weight = torch.rand(7), torch.rand(7) if weighted else None
    on_wave = None if weight is None else weight.to("wave")
    right = torch.rand(7)
    right[0], right[1] = 0, 1
    same(F.binary_cross_entropy(right.to("wave"), target.to("wave"), on_wave, reduction=reduction),
         F.binary_cross_entropy(right, target, weight, reduction=reduction), 1e-5)  # fmt: skip
    for wrong in (1.5, -0.25, math.nan, math.inf):
        x = right.clone()
        x[3] = wrong
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            F.binary_cross_entropy(x, target, weight, reduction=reduction)
        # Told by what next waits for the device.
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            F.binary_cross_entropy(x.to("wave"), target.to("wave"), on_wave, reduction=reduction).cpu()
    torch.wave.synchronize()
    assert F.binary_cross_entropy(torch.ones(0, device="wave"), torch.ones(0, device="wave")).isnan().item()


def test_repeats_of_a_wrong_size():
    repeats = torch.tensor([1, 2, 0])
    same(torch.repeat_interleave(repeats.to("wave"), output_size=3), torch.repeat_interleave(repeats))
    for wrong in (2, 5):
        with pytest.raises(RuntimeError, match="allocated size does not match"):
            torch.repeat_interleave(repeats, output_size=wrong)
        with pytest.raises(RuntimeError, match="allocated size does not match"):
            torch.repeat_interleave(repeats.to("wave"), output_size=wrong).cpu()
    torch.wave.synchronize()
    for repeats, error in ((torch.arange(4.0), NotImplementedError), (torch.tensor([1, -1]), RuntimeError)):
        for device in ("cpu", "wave"):
            with pytest.raises(error):
                torch.repeat_interleave(repeats.to(device))


def test_types_of_operands_without_elements():
    halves = [torch.zeros(0, dtype=torch.float16)] * 2
    for parts in (halves[:1], halves, [x.new_zeros(2, 0) for x in halves]):
        for device in ("cpu", "wave"):
            with pytest.raises(TypeError, match="can't be cast to the desired output type Long"):
                torch.cat([x.to(device) for x in parts], out=torch.empty(0, dtype=torch.int64, device=device))
    # Nothing is multiplied, of which the CPU takes any types.
    for a, b in (((0, 7, 5), (0, 5, 1)), ((2, 0, 5), (2, 5, 1)), ((2, 3, 0), (2, 0, 4)), ((2, 3, 5), (2, 5, 0))):
        results = []
        for device in ("cpu", "wave"):
            x = torch.zeros(a, device=device, requires_grad=True)
            y = torch.zeros(b, dtype=torch.bfloat16, device=device, requires_grad=True)
            made = torch.bmm(x, y)
            made.sum().backward()
            results.append((made.detach(), x.grad, y.grad))
        for found, expected in zip(results[1], results[0]):
            same(found, expected)
    with pytest.raises(RuntimeError):
        torch.bmm(torch.zeros(1, 2, 2, device="wave"), torch.zeros(1, 2, 2, dtype=torch.bfloat16, device="wave"))


def test_what_tensors_are_set_to():
    a = torch.randn(3, 2, device="wave")
    b = torch.empty(0, device="wave").set_(a)
    assert a.is_set_to(b) and b.is_set_to(a) and a.is_set_to(a)
    assert not a.is_set_to(a.clone()) and not a.is_set_to(a[1:]) and not a.is_set_to(a.t())
    assert not torch.empty(0, device="wave").is_set_to(torch.empty(0, device="wave"))


def test_words_of_normal():
    for mean, std in ((torch.zeros(3), torch.ones(4)), (torch.zeros(2, 3), torch.ones(3, 2)), (torch.zeros(3), -torch.ones(3)),
                      (torch.zeros(3), -1.0)):  # fmt: skip
        with pytest.raises(RuntimeError) as expected:
            torch.normal(mean, std)
        with pytest.raises(RuntimeError) as found:
            torch.normal(mean.to("wave"), std.to("wave") if isinstance(std, torch.Tensor) else std)
        assert str(found.value) == str(expected.value)


def test_kaiser_windows():
    for options in ({}, {"periodic": False}, {"periodic": True, "beta": 5.0}, {"dtype": torch.float64, "periodic": False, "beta": 8.0}):
        for length in (0, 1, 4, 33):
            same(torch.kaiser_window(length, device="wave", **options), torch.kaiser_window(length, **options))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=lambda dtype: str(dtype)[6:])
@pytest.mark.parametrize("exponent", [0.5, -0.5, -1, -2, 3])
def test_powers_of_infinities_and_zeros(dtype, exponent):
    x = torch.tensor([-math.inf, -0.0, 0.0, math.inf, -2.0, math.nan, 4.0], dtype=dtype)
    found, expected = x.to("wave").pow(exponent), x.pow(exponent)
    same(found, expected, 1e-6)
    numbers = ~expected.isnan()
    assert torch.equal(found.cpu().signbit()[numbers], expected.signbit()[numbers])


@pytest.mark.parametrize("function", [torch.complex, torch.polar])
def test_parts_of_two_types_are_refused(function):
    for first, second in ((torch.float32, torch.float64), (torch.float64, torch.float32), (torch.int32, torch.int32)):
        parts = torch.ones(2, dtype=first), torch.ones(2, dtype=second)
        with pytest.raises(RuntimeError) as expected:
            function(*parts)
        with pytest.raises(RuntimeError, match=str(expected.value).split(" but")[0]):
            function(*(part.to("wave") for part in parts))
