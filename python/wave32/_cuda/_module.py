"""`torch.cuda`, answering for the device."""

from __future__ import annotations

import contextlib
import functools
import os
import types
from typing import Any

import torch

from wave32 import _device
from wave32._cuda import _runtime
from wave32._cuda._devices import ordinals, translate

# Names that mean the same in both.
SAME = """
Event Stream empty_cache get_rng_state_all graph graph_pool_handle initial_seed is_available is_current_stream_capturing
is_initialized make_graphed_callables manual_seed manual_seed_all seed seed_all set_rng_state_all stream
""".split()

# The same, of a device.
OF_DEVICE = """
current_stream default_stream get_device_name max_memory_allocated max_memory_reserved mem_get_info memory_allocated
memory_reserved memory_stats reset_peak_memory_stats synchronize
""".split()

# What CUDA has and the device has not: a named refusal.
REFUSED = """
ExternalStream MemPool caching_allocator_alloc caching_allocator_delete change_current_allocator
current_blas_handle get_stream_from_external use_mem_pool
clock_rate device_memory_used memory_snapshot memory_usage power_draw temperature utilization _record_memory_history
_dump_snapshot _snapshot
""".split()


def _of_device(name: str) -> Any:
    answer = getattr(_device, name)

    @functools.wraps(answer)
    def call(device: Any = None) -> Any:
        return answer(None if device is None else translate(device))

    return call


def _refusal(name: str) -> Any:
    original = getattr(torch.cuda, name, None)

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"wave32 run: torch.cuda.{name} is CUDA's own and cannot be had on "
            f"this device. Leave it out, or guard it with a check of your own"
        )

    if isinstance(original, type):
        return type(name, (), {"__new__": refused, "__module__": "torch.cuda"})
    return refused if original is None else functools.wraps(original)(refused)


def _lazy_init() -> None:
    raise RuntimeError(
        "wave32 run: this call asks for CUDA itself, in a way that cannot be led to the device `wave`. Please report "
        'it with the lines above; a device written as torch.device("cuda") or "cuda" in `device=` and `.to()` works'
    )


class Properties(types.SimpleNamespace):
    """What `torch.cuda.get_device_properties` tells."""


def get_device_properties(device: Any = None) -> Properties:
    """The driver's facts under CUDA's names. `major` is 0: below every check for features of CUDA cards."""
    own = _device.get_device_properties(translate(device))
    return Properties(
        **own._asdict(), major=0, minor=0, is_integrated=int(own.kind == "integrated"), is_multi_gpu_board=0,
        max_threads_per_multi_processor=1024, L2_cache_size=0, gcnArchName="", regs_per_multiprocessor=0,
    )


def device_count() -> int:
    """1, or as many as torchrun started processes here: each has its own."""
    count = _device.device_count()
    workers = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(workers) if count and workers.isdigit() else count


def _summary(device: Any = None, abbreviated: bool = False) -> str:
    names = ["memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"]
    return "\n".join(f"{name:<22} {getattr(_device, name)():>16} bytes" for name in names)


def _fraction(fraction: float, device: Any = None) -> None:
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    _device.set_memory_cap(int(_device.get_device_properties().total_memory * fraction))


class _OneDevice:
    """The context that selects the device; there is one."""

    def __init__(self, device: Any = None) -> None:
        translate(device)
        self.idx, self.prev_idx = 0, 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> bool:
        return False


def _own() -> dict[str, Any]:
    """Names with an answer of their own."""
    return {
        "CUDAGraph": _device.Graph,
        "_is_compiled": lambda: True,
        "_is_in_bad_fork": _device._is_in_bad_fork,
        "_lazy_call": lambda callable, **_: callable(),
        "_lazy_init": _lazy_init,
        "can_device_access_peer": lambda device, peer: False,
        "cudart": lambda: _runtime,
        "current_device": lambda: max(ordinals()),
        "device": _OneDevice,
        "device_count": device_count,
        "device_of": _OneDevice,
        "get_allocator_backend": lambda: "wave32",
        "get_arch_list": lambda: [],
        "get_device_capability": lambda device=None: (0, 0),
        "get_device_properties": get_device_properties,
        "get_rng_state": lambda device="cuda": _device.get_rng_state(translate(device)),
        "init": lambda: None,
        "ipc_collect": lambda: None,
        "is_bf16_supported": _device.is_bf16_supported,
        "is_tf32_supported": lambda: False,
        "list_gpu_processes": lambda device=None: "",
        "max_memory_cached": _of_device("max_memory_reserved"),
        "memory_cached": _of_device("memory_reserved"),
        "memory_summary": _summary,
        "reset_accumulated_memory_stats": lambda device=None: None,
        "reset_max_memory_allocated": _of_device("reset_peak_memory_stats"),
        "reset_max_memory_cached": _of_device("reset_peak_memory_stats"),
        "set_device": lambda device: translate(device) and None,
        "set_per_process_memory_fraction": _fraction,
        "set_rng_state": lambda state, device="cuda": _device.set_rng_state(state, translate(device)),
        "set_stream": lambda stream: None,
        "set_sync_debug_mode": lambda mode: None,
    }


def _legacy_types() -> dict[str, Any]:
    """`torch.cuda.FloatTensor(...)` and its kin."""

    class Legacy(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, torch.Tensor) and value.device.type == "wave" and value.dtype == cls.dtype

        def __call__(cls, *args: Any) -> torch.Tensor:
            host = getattr(torch, cls.__name__)
            return host(*args).to("wave")

    names = {
        "Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16,
        "Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8,
        "Bool": torch.bool,
    }
    return {
        f"{name}Tensor": Legacy(f"{name}Tensor", (), {"dtype": dtype, "__module__": "torch.cuda"})
        for name, dtype in names.items()
    }


def enable() -> None:
    """Replaces the names in `torch.cuda` and its modules, where scripts and torch look for them."""
    replaced = {name: getattr(_device, name) for name in SAME} | {name: _refusal(name) for name in REFUSED}
    replaced |= {name: _of_device(name) for name in OF_DEVICE} | _own()
    for module in [torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda.graphs]:
        for name, value in replaced.items():
            if hasattr(module, name) or module is torch.cuda:
                setattr(module, name, value)
    for name, value in _legacy_types().items():
        setattr(torch.cuda, name, value)
    for name in ["mark", "range_push", "range_pop", "range_start", "range_end"]:
        setattr(torch.cuda.nvtx, name, lambda *args: 0)
    torch.cuda.nvtx.range = lambda *args, **kwargs: contextlib.nullcontext()
    # cuDNN is not in play: its switches may be set, its version is none.
    torch.backends.cudnn.m._init = lambda: False
