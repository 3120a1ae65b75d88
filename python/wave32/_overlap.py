"""Calls on the CPU whose operands share memory: the copies share it in the same way, so that the CPU allows, warns and
refuses as it does for tensors of its own."""

from __future__ import annotations

from typing import Any

import torch


def byte_range(tensor: torch.Tensor) -> tuple[int, int]:
    """The bytes from its first element to its last."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.itemsize


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Several elements are one place in memory, as in expanded tensors."""
    return tensor.numel() > 0 and any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride()))


def shares(written: list[torch.Tensor], operands: list[torch.Tensor]) -> bool:
    """Whether a tensor that is written shares memory with itself, or with an operand that is not the same elements."""
    for one in written:
        if not is_plain(one):
            continue
        if overlaps_itself(one):
            return True
        begin, end = byte_range(one)
        for other in operands:
            if other is one or not is_plain(other):
                continue
            first, last = byte_range(other)
            same = first == begin and other.shape == one.shape and other.stride() == one.stride()
            if begin < last and first < end and not same:
                return True
    return False


def is_plain(tensor: torch.Tensor) -> bool:
    """On the device, and what its storage, sizes and strides say is all of it."""
    strided = tensor.layout == torch.strided and tensor.device.type == "wave"
    return strided and tensor.numel() > 0 and not tensor.is_conj() and not tensor.is_neg()


class Shared:
    """Copies on the CPU of what is written and shares memory, with itself or with another operand."""

    def __init__(self, tensors: list[torch.Tensor], written: set[int]) -> None:
        # Views of one copy a storage, by the tensor that they stand for; those copies, by the storage.
        self.views: dict[int, torch.Tensor] = {}
        self._storages: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        if not written:
            return
        held = {id(t): t for t in tensors if is_plain(t)}.values()
        ranges = {id(t): byte_range(t) for t in held}
        for one in held:
            begin, end = ranges[id(one)]
            others = [t for t in held if t is not one and begin < ranges[id(t)][1] and ranges[id(t)][0] < end]
            if id(one) in written and (others or overlaps_itself(one)):
                for tensor in [one, *others]:
                    self._take(tensor)

    def _take(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._storages:
            flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))
            self._storages[key] = flat, flat.cpu()
        if id(tensor) not in self.views:
            host = torch.empty(0, dtype=tensor.dtype)
            host.set_(self._storages[key][1].untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
            self.views[id(tensor)] = host

    def write_back(self, value: Any) -> bool:
        """Brings what was written to `value` back; false where that is left to the caller."""
        view = self.views.get(id(value))
        if view is None or view.shape != value.shape:
            return False
        flat, host = self._storages[value.untyped_storage()._cdata]
        flat.copy_(host)
        return True
