"""What makes and moves tensors, with devices by CUDA's names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _device

from wave32._cuda._devices import asked_by_torch, translate, true_type

# Functions of torch with `device=`; a test holds the list against torch's own schemas.
FACTORIES = """
arange asarray as_tensor bartlett_window blackman_window empty empty_like empty_permuted empty_quantized empty_strided eye
from_file full full_like hamming_window hann_window kaiser_window linspace logspace normal ones ones_like rand rand_like
randint randint_like randn randn_like randperm range scalar_tensor sparse_bsc_tensor sparse_bsr_tensor
sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor tensor tril_indices triu_indices zeros
zeros_like
""".split()

METHODS = "new_empty new_empty_strided new_full new_ones new_tensor new_zeros".split()

FFT = "fftfreq rfftfreq".split()


def with_device(original: Callable[..., Any]) -> Callable[..., Any]:
    """`original`, translating its `device=`."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs and kwargs["device"] is not None:
            kwargs["device"] = translate(kwargs["device"])
        return original(*args, **kwargs)

    return call


def _replace(owner: Any, names: list[str], qualifier: str) -> None:
    for name in names:
        original = getattr(owner, name, None)
        if original is None:  # Newer or older than this torch.
            continue
        call = with_device(original)
        # So that they can be pickled, e.g. in a partial sent to a worker.
        call.__module__, call.__qualname__ = "torch", qualifier + name
        if qualifier == "":
            _tell_script(original, call)
        setattr(owner, name, call)


def _tell_script(original: Any, call: Any) -> None:
    """TorchScript knows torch's functions by identity."""
    from torch.jit import _builtins

    name = _builtins._get_builtin_table().get(id(original))
    if name is not None:
        _builtins._register_builtin(call, name)


def _replace_as_tensor() -> None:
    original = torch.as_tensor

    @functools.wraps(original)
    def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> torch.Tensor:
        return original(data, dtype=dtype, device=translate(device))

    as_tensor.__module__ = "torch"
    torch.as_tensor = as_tensor


def _replace_moves() -> None:
    move, kind, parse = torch.Tensor.to, torch.Tensor.type, torch._C._nn._parse_to
    pin, is_pinned = torch.Tensor.pin_memory, torch.Tensor.is_pinned
    is_cuda = torch.Tensor.is_cuda.__get__

    @functools.wraps(move)
    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if args:
            if isinstance(args[0], (str, int)):
                args = (translate(args[0]), *args[1:])
        elif "device" in kwargs:
            kwargs["device"] = translate(kwargs["device"])
        return move(self, *args, **kwargs)

    def cuda(
        self: torch.Tensor, device: Any = None, non_blocking: bool = False,
        memory_format: torch.memory_format = torch.preserve_format,
    ) -> torch.Tensor:
        target = translate("cuda" if device is None else device)
        if true_type(target) != "wave":
            raise ValueError(f"Invalid device, must be cuda device, not {target}")
        return move(self, target, non_blocking=non_blocking, memory_format=memory_format)

    def parse_to(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], (str, int)):
            args = (translate(args[0]), *args[1:])
        if "device" in kwargs:
            kwargs["device"] = translate(kwargs["device"])
        return parse(*args, **kwargs)

    def type_(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if dtype is None:
            name = kind(self)
            return name if asked_by_torch() else name.replace("torch.wave.", "torch.cuda.", 1)
        if isinstance(dtype, str):
            dtype = dtype.replace("torch.cuda.", "torch.wave.", 1)
        return kind(self, dtype, *args, **kwargs)

    def seen_is_cuda(self: torch.Tensor) -> bool:
        return true_type(self.device) == "wave" and not asked_by_torch() or is_cuda(self)

    torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.type = to, cuda, functools.wraps(kind)(type_)
    torch.Tensor.is_cuda = property(seen_is_cuda)
    # Memory is pinned for the one device there is.
    torch.Tensor.pin_memory = lambda self, device=None: pin(self)
    torch.Tensor.is_pinned = lambda self, device=None: is_pinned(self)
    torch._C._nn._parse_to = parse_to
    torch.nn.utils.rnn.PackedSequence.is_cuda = property(lambda self: self.data.device.type == "wave")
    torch.UntypedStorage.is_cuda = property(
        lambda self: true_type(self.device) == "wave" and not asked_by_torch()
    )


def _replace_defaults() -> None:
    original = torch.set_default_tensor_type

    @functools.wraps(original)
    def set_default_tensor_type(kind: Any) -> None:
        name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
        if name.startswith("torch.cuda."):
            original(name.replace("torch.cuda.", "torch.", 1))
            torch.set_default_device("wave")
        else:
            original(kind)

    torch.set_default_tensor_type = set_default_tensor_type


def enable() -> None:
    """Replaces them."""
    # Cached by torch; it must hold the functions that `with torch.device(...)` will see.
    _device._device_constructors()
    _replace(torch, FACTORIES, "")
    _replace(torch.fft, FFT, "fft.")
    _replace(torch.Tensor, METHODS, "Tensor.")
    _replace_as_tensor()
    _replace_moves()
    _replace_defaults()
