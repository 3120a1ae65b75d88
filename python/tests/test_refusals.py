"""What PyTorch's CPU refuses or takes by the values and types of a call's arguments: so does the device. What each refuses
depends on torch's version; that both do the same does not."""

import pytest
import torch
import torch.nn.functional as F

BYTES = dict(dtype=torch.uint8)
SHORT = dict(dtype=torch.int8)

# Each gets a function that makes tensors of the device in question.
CASES = {
    "sub truth": lambda t: t([1.0, 2.0]) - True,
    "sub truths": lambda t: torch.sub(t([1.0, 2.0]), t([True, False])),
    "sub truths of each other": lambda t: torch.sub(t([True]), t([True])),
    "sub truth in place": lambda t: t([1, 2]).sub_(t(True)),
    "rsub truth": lambda t: torch.rsub(t([1.0, 2.0]), False),
    "one less a mask": lambda t: 1 - t([True]),
    "hardtanh of bytes": lambda t: F.hardtanh(t([0, 200], **BYTES)),
    "hardtanh of bytes, positive": lambda t: F.hardtanh(t([0, 7, 200], **BYTES), 2, 100),
    "hardtanh below the type": lambda t: F.hardtanh(t([0, 20, -7], **SHORT), -300, 1.5),
    "hardtanh above the type": lambda t: F.hardtanh(t([0, 20, -7], **SHORT), -1.7, 150),
    "hardtanh of truth": lambda t: F.hardtanh(t([True])),
    "clamp above the type": lambda t: t([1], **SHORT).clamp(300),
    "clamp below the type": lambda t: t([1, -4], **SHORT).clamp(-300, 0),
    "clamp int": lambda t: t([1], dtype=torch.int32).clamp(1 << 40),
    "clamp by a float in place": lambda t: t([1, 2]).clamp_(1.5),
    "fill bytes with -1.": lambda t: t([1], **BYTES).masked_fill(t([True]), t(-1.0)),
    "fill bytes with -1., nowhere": lambda t: t([1], **BYTES).masked_fill(t([False]), t(-1.0)),
    "fill bytes with -1": lambda t: t([1], **BYTES).masked_fill(t([True]), t(-1)),
    "fill bytes with 300": lambda t: t([1], **BYTES).masked_fill(t([True]), t(300)),
    "fill ints with 1.5": lambda t: t([1, 7]).masked_fill(t([True, False]), t(1.5)),
    "fill ints with the number 1.5": lambda t: t([1, 7]).masked_fill(t([True, False]), 1.5),
    "fill ints with the CPU's 1.5": lambda t: t([1, 7]).masked_fill(t([True, False]), torch.tensor(1.5)),
    "fill halves with 1e6": lambda t: t([1.0], dtype=torch.float16).masked_fill(t([True]), t(1e6)),
    "fill halves with -inf": lambda t: t([1.0], dtype=torch.float16).masked_fill(t([True]), t(-torch.inf)),
    "scatter -1 in bytes": lambda t: t([1, 2], **BYTES).scatter(0, t([1]), -1),
    "scatter -1. in bytes": lambda t: t([1, 2], **BYTES).scatter(0, t([1]), -1.0),
    "scatter 300 in bytes": lambda t: t([1, 2], **BYTES).scatter(0, t([1]), 300),
    "scatter -1 nowhere": lambda t: t([1, 2], **BYTES).scatter(0, t([0])[:0], -1),
    "index_add to nothing": lambda t: t([[1.0]])[:0].index_add(0, t(0), t([[1.0]])),
    "index_fill by ints": lambda t: t([1.0]).index_fill_(0, t([0], dtype=torch.int32), 1.0),
    "index_reduce by ints": lambda t: t([1.0]).index_reduce_(0, t([0], dtype=torch.int32), t([2.0]), "prod"),
    "bincount of nothing": lambda t: torch.bincount(t([0])[:0], weights=t([1.0])[:0]),
    "addmv of nothing": lambda t: torch.addmv(t(1.0), t([[1.0]])[:, :0], t([1.0])[:0]),
    "addr in place, smaller": lambda t: t(0.0).addr_(t([1.0]), t([1.0])),
    "addr in place": lambda t: t([[1.0, 2.0]]).addr_(t([3.0]), t([1.0, 4.0])),
    "addr out": lambda t: torch.addr(t([[0.0]]), t([1.0]), t([3.0]), out=t([[0.0]])),
    "pixel_unshuffle of nothing": lambda t: F.pixel_unshuffle(t([[[1.0, 2.0], [3.0, 4.0]]])[:0], 2),
    "complex number without dimensions": lambda t: torch.mul(t([1.0]), t(2j, dtype=torch.complex128)),
    "angle in a whole number": lambda t: torch.angle(t([1.0]), out=t([1])),
    "conj_physical in a whole number": lambda t: torch.conj_physical(t([1j]), out=t([1])),
    "output_padding as large as the stride": lambda t: F.conv_transpose2d(t([[[[1.0]]]]), t([[[[1.0]]]]), output_padding=1),
    "output_padding larger in 1-D": lambda t: F.conv_transpose1d(t([[[1.0]]]), t([[[1.0]]]), stride=2, output_padding=2),
}


def outcome(case, device):
    try:
        made = case(lambda values, **options: torch.tensor(values, device=device, **options))
    except RuntimeError as error:  # Some versions' NotImplementedError is one, too.
        return "RuntimeError", str(error).split("\n")[0]
    except Exception as error:
        return type(error).__name__, str(error).split("\n")[0]
    return made.dtype, made.shape, made.tolist()


@pytest.mark.parametrize("name", CASES)
def test_as_on_the_cpu(name):
    expected, found = (outcome(CASES[name], device) for device in ("cpu", "wave"))
    assert found == expected


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.bool, torch.float16, torch.bfloat16])
def test_bounds_of_random_numbers(dtype):
    for low, high in ((-1, 0), (0, 1), (0, 2), (-128, 128), (-129, 3), (0, 256), (0, 257), (0, 300), (0, 1 << 15), (0, 1 << 16)):
        for count in (0, 5):
            refused = []
            for device in ("cpu", "wave"):
                try:
                    torch.randint(low, high, (count,), dtype=dtype, device=device)
                    refused.append("")
                except RuntimeError as error:
                    refused.append(str(error))
            assert refused[0] == refused[1], (low, high, count)


def test_a_gradient_that_the_cpu_refuses():
    for device in ("cpu", "wave"):
        x = torch.zeros(0, 9, 1, 1, device=device, requires_grad=True)
        y = F.pixel_shuffle(x, 3)
        with pytest.raises(RuntimeError, match="invalid gradient"):
            y.backward(torch.ones_like(y))
        a, b = torch.zeros(1, 0, device=device, requires_grad=True), torch.zeros(0, device=device, requires_grad=True)
        y = torch.addmv(torch.zeros((), device=device), a, b)
        with pytest.raises(RuntimeError, match="1-D"):
            y.backward(torch.ones_like(y))
