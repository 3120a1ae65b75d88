"""`nn.DataParallel` with the one device, and `nccl` groups through the host."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist

from wave32._cuda._devices import is_cuda


class _Scatter:
    """`Scatter` for one device: a move, which autograd knows."""

    @staticmethod
    def apply(devices: Any, chunks: Any, dim: int, tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if len(devices) != 1:
            raise RuntimeError(
                f"wave32 run: nn.DataParallel over {len(devices)} devices cannot be had: a process has one. "
                "Use DistributedDataParallel with torchrun"
            )
        return (tensor.to("wave"),)


def _enable_data_parallel() -> None:
    from torch.nn.parallel import data_parallel, scatter_gather

    for module in [torch._utils, data_parallel]:
        module._get_available_device_type = lambda: "wave"
    scatter_gather.Scatter = _Scatter


def backend(name: Any) -> Any:
    """A backend as torch gets it: `nccl` in any part becomes the group that takes both devices' tensors."""
    if not isinstance(name, str):
        return "wave" if name is None else name
    parts = [part.partition(":") for part in name.lower().split(",")]
    return "wave" if any("nccl" in (base, rest) or is_cuda(base) for base, _, rest in parts) else name


def _enable_groups() -> None:
    from torch.distributed import distributed_c10d

    start, group = distributed_c10d.init_process_group, distributed_c10d.new_group

    @functools.wraps(start)
    def init_process_group(name: Any = None, *args: Any, **kwargs: Any) -> None:
        # The device is the process' own in any case, and naming it is for NCCL alone.
        kwargs.pop("device_id", None)
        kwargs.pop("pg_options", None)
        name = kwargs.pop("backend", name)
        start(backend(name), *args, **kwargs)

    @functools.wraps(group)
    def new_group(ranks: Any = None, timeout: Any = None, name: Any = None, *args: Any, **kwargs: Any) -> Any:
        name = kwargs.pop("backend", name)
        kwargs.pop("device_id", None)
        name = None if name is None else backend(name)
        return group(ranks, timeout or distributed_c10d._get_default_timeout("gloo"), name, None, **kwargs)

    for module in [dist, distributed_c10d]:
        module.init_process_group, module.new_group = init_process_group, new_group
        module.is_nccl_available = lambda: True


def enable() -> None:
    """Turns both on."""
    _enable_data_parallel()
    if dist.is_available():
        _enable_groups()
