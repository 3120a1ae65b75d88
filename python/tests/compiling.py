"""What tests of `torch.compile` share."""

import torch
from wave32 import _compile


def plain(call, **how):
    """Compiled for operands of one size, and else by default."""
    return torch.compile(call, backend=_compile.backend, **{"dynamic": False, **how})
