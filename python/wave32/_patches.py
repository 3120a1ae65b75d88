"""What torch cannot be told about a device that is registered from Python, and gets told anyway."""

from __future__ import annotations

import ctypes
import functools
import warnings
from typing import Any

import torch

from wave32 import _compile
from wave32._hooks import SETTLED, has_cuda
from wave32._libraries import VERSION, library
from wave32._volume import convolves_in

aten = torch.ops.aten


def _moves(module: torch.nn.Module, fn: Any) -> bool:
    """`fn` takes parameters to the device or from it."""
    for parameter in module.parameters():
        probe = fn(torch.empty(0, dtype=parameter.dtype, device=parameter.device))
        kinds = {parameter.device.type, probe.device.type}
        # From nothing (`to_empty` of a module without storage) torch makes new ones on every device.
        return len(kinds) == 2 and "wave" in kinds and "meta" not in kinds
    return False


def _lazy_parameters(module: torch.nn.Module) -> list[tuple[torch.nn.Module, str]]:
    """Where the parameters are that get their sizes from the first input."""
    return [
        (part, name)
        for part in module.modules()
        for name, parameter in part._parameters.items()
        if isinstance(parameter, torch.nn.UninitializedParameter)
    ]


def _restore_laziness(module: torch.nn.Module, name: str) -> None:
    """What was moved is a Parameter without elements."""
    moved = module._parameters[name]
    lazy = torch.nn.UninitializedParameter(moved.requires_grad, device=moved.device, dtype=moved.dtype)
    torch.utils.swap_tensors(moved, lazy)


def _patch_module_apply() -> None:
    """`module.to("wave")` keeps its Parameters, before torch 2.15.

    Tensors of this device cannot be put into a CPU Parameter there (`.data = `), so torch would replace it: an optimizer
    built before would train nothing, and tied weights would part. Swapping keeps the object.
    """
    if VERSION >= (2, 15):
        return
    original = torch.nn.Module._apply

    @functools.wraps(original)
    def apply(self: torch.nn.Module, fn: Any, recurse: bool = True) -> torch.nn.Module:
        future = torch.__future__
        if future.get_swap_module_params_on_conversion() or not _moves(self, fn):
            return original(self, fn, recurse)
        lazy = _lazy_parameters(self)
        future.set_swap_module_params_on_conversion(True)
        try:
            return original(self, fn, recurse)
        except RuntimeError as error:
            if "swap" not in str(error):
                raise
            future.set_swap_module_params_on_conversion(False)
            warnings.warn(
                "wave: parameters are used by a live autograd graph, so they were replaced, not moved: build "
                "optimizers and tie weights after .to()",
                stacklevel=3,
            )
            return original(self, fn, recurse)
        finally:
            future.set_swap_module_params_on_conversion(False)
            for module, name in lazy:
                _restore_laziness(module, name)

    torch.nn.Module._apply = apply


def _patch_data() -> None:
    """`tensor.data = moved`, from another device or to it, before torch 2.15: programs that bring weights when their turn comes do so."""
    if VERSION >= (2, 15):
        return
    original: Any = torch.Tensor.data

    def put(self: torch.Tensor, value: torch.Tensor) -> None:
        strided = isinstance(value, torch.Tensor) and value.layout == self.layout == torch.strided
        kinds = {self.device.type, value.device.type} if strided else set()
        if len(kinds) != 2 or "wave" not in kinds or "meta" in kinds or not self.is_leaf:
            original.__set__(self, value)
            return
        moved: Any = torch.Tensor._make_subclass(type(self), value.detach(), self.requires_grad)
        moved.__dict__.update(self.__dict__)
        if self.grad is not None:
            moved.grad = self.grad.to(value.device, value.dtype)
        try:
            torch.utils.swap_tensors(self, moved)
        except RuntimeError:
            original.__set__(self, value)  # Views or a graph hold it: torch says what it says without this device.

    torch.Tensor.data = property(original.__get__, put, doc=original.__doc__)  # type: ignore[assignment]


def _is_wave(device: Any) -> bool:
    return device is not None and torch.device(device).type == "wave"


def _patch_storage() -> None:
    """`torch.UntypedStorage(n, device="wave")` would call an allocator that is not there."""
    original = torch.UntypedStorage.__new__

    def new(cls: type, *args: Any, **kwargs: Any) -> torch.UntypedStorage:
        if not _is_wave(kwargs.get("device")):
            return original(cls, *args, **kwargs)
        content = args[0] if args else kwargs.get("size", 0)
        if isinstance(content, int):
            return torch.empty(content, dtype=torch.uint8, device="wave").untyped_storage()
        return torch.tensor(list(content), dtype=torch.uint8, device="wave").untyped_storage()

    torch.UntypedStorage.__new__ = new


def _rebuild_storage(content: bytearray) -> torch.UntypedStorage:
    host = torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
    return host.to("wave").untyped_storage()


def _register_sharing() -> None:
    """Tensors sent to another process (queues, workers of a DataLoader) travel as copies through the host.

    Torch would ask for shared memory, fail in a thread of its own, and the receiver would wait for ever.
    """
    from torch.multiprocessing import reductions

    def reduce_storage(storage: torch.UntypedStorage) -> Any:
        if storage.device.type != "wave":
            return reductions.reduce_storage(storage)
        host = storage.cpu()
        # By value: shared memory would have to outlive this call.
        return _rebuild_storage, (bytearray(ctypes.string_at(host.data_ptr(), host.nbytes())),)

    reductions.reduction.register(torch.UntypedStorage, reduce_storage)


def _register_set() -> None:
    """`set_` takes a Storage, which the C ABI cannot carry; the CPU's kernel touches no data."""
    wave = library("aten", "PrivateUse1")
    cpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    op = aten.set_.source_Storage_storage_offset
    wave.impl("set_.source_Storage_storage_offset", lambda *args: op.redispatch(cpu, *args))

    def set_storage(self: torch.Tensor, source: Any) -> torch.Tensor:
        size = source.nbytes() // self.element_size()
        return op.redispatch(cpu, self, source, 0, [size], [1])

    def set_tensor(self: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        storage = source.untyped_storage()
        return op.redispatch(cpu, self, storage, source.storage_offset(), source.size(), source.stride())

    def set_empty(self: torch.Tensor) -> torch.Tensor:
        return set_tensor(self, torch.empty(0, dtype=self.dtype, device="wave"))

    wave.impl("set_.source_Storage", set_storage)
    wave.impl("set_.source_Tensor", set_tensor)
    wave.impl("set_", set_empty)
    wave.impl("is_set_to", lambda self, other: aten.is_set_to.default.redispatch(cpu, self, other))


def _register_lazy_copies() -> None:
    """Copies of tensors with a conjugate or negative bit, which would call themselves for ever."""
    def copy_from(self: torch.Tensor, dst: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        conjugate, negative = self.is_conj() != dst.is_conj(), self.is_neg() != dst.is_neg()
        source = self.conj() if self.is_conj() else self
        source = torch._neg_view(source) if source.is_neg() else source
        target = dst.conj() if dst.is_conj() else dst
        target = torch._neg_view(target) if target.is_neg() else target
        if (conjugate or negative) and target.device.type != "wave":
            source = source.cpu()
        if (conjugate or negative) and source.device.type != "wave":
            source = source.conj_physical() if conjugate else source
            source = source.neg() if negative else source
            conjugate = negative = False
        if source.device.type != "wave" and target.device.type != "wave":
            target.copy_(source)  # The source came over already.
        else:
            aten._copy_from(source, target, non_blocking)
        if conjugate:
            target.conj_physical_()
        if negative:
            target.neg_()
        return dst

    for key in ["Conjugate", "Negative"]:
        library("aten", key).impl("_copy_from", copy_from)


def _register_pinning() -> None:
    """`pin_memory()` without CUDA or memory of ours: a plain copy, since uploads go through staging memory anyway."""
    if has_cuda() or "pinned" in SETTLED:
        return
    cpu = library("aten", "CPU")
    with warnings.catch_warnings():
        # Torch tells that a kernel is replaced, which is the point.
        warnings.simplefilter("ignore")
        cpu.impl("is_pinned", lambda self, device=None: False, allow_override=True)
        cpu.impl("_pin_memory", lambda self, device=None: self.clone(), allow_override=True)


def _patch_accelerator() -> None:
    """`torch.accelerator` reaches for C++ objects that the device does not have."""
    for name in [
        "synchronize", "empty_cache", "memory_allocated", "max_memory_allocated", "memory_reserved",
        "max_memory_reserved", "memory_stats", "reset_peak_memory_stats",
    ]:
        original = getattr(torch.accelerator, name, None)
        if original is None:  # Newer than this torch.
            continue

        def call(*args: Any, _name: str = name, _original: Any = original, **kwargs: Any) -> Any:
            accelerator = torch.accelerator.current_accelerator()
            if accelerator is None or accelerator.type != "wave":
                return _original(*args, **kwargs)
            return getattr(torch.wave, _name)(*args, **kwargs)

        setattr(torch.accelerator, name, functools.wraps(original)(call))


def _patch_printing() -> None:
    """Printing looks at the values many times: on the CPU, at once."""
    original = torch._tensor_str._tensor_str

    def tensor_str(self: torch.Tensor, indent: int) -> str:
        return original(self.cpu() if self.device.type == "wave" else self, indent)

    torch._tensor_str._tensor_str = tensor_str


def _patch_convolutions() -> None:
    """Where results of convolutions lie, for what traces them without computing: torch takes them as contiguous on devices that it does
    not know, and a `view` of such a result would fail when it runs."""
    name = "_conv_determine_backend_memory_format"
    original = getattr(torch._C, name, None)
    if original is None:  # Another torch.
        return

    def memory_format(x: torch.Tensor, weight: torch.Tensor, backend: Any) -> torch.memory_format:
        if x.device.type != "wave" or weight.dim() not in (4, 5) or not torch.wave.channels_last():
            return original(x, weight, backend)
        return convolves_in(x, weight)

    setattr(torch._C, name, memory_format)


def apply() -> None:
    """Applies all of them, once."""
    _patch_convolutions()
    _patch_printing()
    _patch_accelerator()
    _patch_module_apply()
    _patch_data()
    _patch_storage()
    _register_sharing()
    _register_set()
    _register_lazy_copies()
    _register_pinning()
    _compile.install()
