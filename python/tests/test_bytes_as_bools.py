"""A byte viewed as a bool is true wherever it is not zero, as on the CPU."""

import pytest
import torch

FUNCTIONS = {
    "eq": lambda x, y: x == y,
    "le": lambda x, y: x <= y,
    "eq_number": lambda x, y: x == True,  # noqa: E712
    "xor": lambda x, y: x ^ y,
    "and": lambda x, y: x & y,
    "not": lambda x, y: ~x,
    "isclose": torch.isclose,
    "to_int64": lambda x, y: x.long(),
    "to_int8": lambda x, y: x.to(torch.int8),
    "to_uint8": lambda x, y: x.to(torch.uint8),
    "to_float32": lambda x, y: x.float(),
    "to_float16": lambda x, y: x.half(),
    "to_float64": lambda x, y: x.double(),
    "to_complex64": lambda x, y: x.to(torch.complex64),
    "sum": lambda x, y: x.sum(1),
    "any": lambda x, y: x.any(1),
    "all": lambda x, y: x.all(1),
    "amax": lambda x, y: x.amax(1),
    "count_nonzero": lambda x, y: x.count_nonzero(),
    "cumsum": lambda x, y: x.cumsum(0),
    "sin": lambda x, y: x.sin(),
    "add": lambda x, y: x + 1.5,
    "where": lambda x, y: torch.where(x, 1, 2),
    "index": lambda x, y: torch.arange(20.0, device=x.device).view(4, 5)[x],
    "nonzero": lambda x, y: x.nonzero(),
    "softmax": lambda x, y: x.softmax(1, dtype=torch.float32),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_on_the_cpu(name):
    bytes_ = torch.randint(0, 2, (4, 5), dtype=torch.uint8) * torch.randint(2, 256, (4, 5), dtype=torch.uint8)
    bytes_[0, 0], bytes_[0, 1] = 0, 254
    x, y = bytes_.view(torch.bool), bytes_ != 0
    expected = FUNCTIONS[name](x, y)
    found = FUNCTIONS[name](bytes_.to("wave").view(torch.bool), y.to("wave"))
    torch.testing.assert_close(found.cpu(), expected)


def test_the_bytes_stay():
    bytes_ = torch.tensor([0, 3, 255], dtype=torch.uint8)
    view = bytes_.to("wave").view(torch.bool)
    assert torch.equal(view.view(torch.uint8).cpu(), bytes_)
    assert torch.equal(view, torch.tensor([False, True, True], device="wave")) and view[1].item() is True
