"""`torch.wave`: what a user or torch asks of the device."""

from __future__ import annotations

import sys
import time
from typing import Any, NamedTuple

import torch

from wave32 import _native
from wave32._constants import lost
from wave32._graph import Graph, graph, graph_pool_handle, is_current_stream_capturing, make_graphed_callables
from wave32._profile import profile

__all__ = [
    "DeviceProperties", "Event", "Graph", "Stream", "allow_fp16_accumulation", "channels_last", "current_device",
    "current_stream", "default_stream", "device", "device_count", "empty_cache", "fallbacks", "get_amp_supported_dtype",
    "get_device_capability", "get_device_name", "get_device_properties", "get_rng_state", "get_rng_state_all",
    "graph", "graph_pool_handle", "initial_seed", "is_available", "is_bf16_supported", "is_current_stream_capturing", "is_initialized",
    "make_graphed_callables", "manual_seed", "manual_seed_all", "max_memory_allocated", "max_memory_reserved", "mem_get_info",
    "memory_allocated", "memory_reserved", "memory_stats", "profile", "reopen", "reset_fallbacks",
    "reset_peak_memory_stats", "seed", "seed_all", "set_device", "set_memory_cap", "set_rng_state",
    "set_rng_state_all", "stream", "synchronize", "tuned", "winograd",
]

# Checkpointing saves and restores random states of a device that says so. They are there before it is opened.
_initialized = True

_count: int | None = None


def _forget() -> None:
    """A fork asks anew what it can use."""
    global _count
    _count = None


def device_count() -> int:
    """1 where a Vulkan device can be used, else 0. `WAVE32_VISIBLE_DEVICES` says which one it is."""
    global _count
    if _is_in_bad_fork():
        return 0
    if _count is None:
        _count = _native.device_count()
    return _count


def is_available() -> bool:
    """True where a Vulkan device can be used."""
    return device_count() > 0


def is_initialized() -> bool:
    """True once the device is open in this process."""
    return _native.is_open()


def init() -> None:
    """Nothing: the first use opens the device."""


_lazy_init = init


def _is_in_bad_fork() -> bool:
    return _native.is_forked()


def _index(device: Any) -> int:
    if device is None:
        return 0
    index = device if isinstance(device, int) else torch.device(device).index
    if index not in (None, 0, -1):
        raise RuntimeError(f"a process has one wave device, of index 0: {device} is none (see WAVE32_VISIBLE_DEVICES)")
    return 0


def current_device() -> int:
    """0: a process has one device."""
    return 0


def set_device(device: Any) -> None:
    """Checks that `device` is the one there is."""
    _index(device)


class device:
    """A context that selects the device; there is one."""

    def __init__(self, device: Any) -> None:
        self.idx = _index(device)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> bool:
        return False


def synchronize(device: Any = None) -> None:
    """Waits for all work, at most `WAVE32_TIMEOUT` seconds."""
    _index(device)
    _native.synchronize()


def reopen() -> None:
    """Gives up the device with every tensor on it; the next use opens it anew.

    For after a lost device or a passed deadline: load the last checkpoint and go on.
    """
    _native.reopen()
    lost()


class DeviceProperties(NamedTuple):
    """What the driver tells of the device."""

    name: str
    driver: str
    kind: str
    total_memory: int
    multi_processor_count: int
    warp_size: int
    has_float64: bool
    has_16bit_storage: bool


def get_device_properties(device: Any = None) -> DeviceProperties:
    """What the driver tells; opens the device."""
    _index(device)
    return DeviceProperties(*_native.properties())


def get_device_name(device: Any = None) -> str:
    """The driver's name for the card."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> dict[str, Any]:
    """Types that tensors may have; see `torch.accelerator.get_device_capability`."""
    _index(device)
    return {"supported_dtypes": {torch.float32, torch.float16, torch.bfloat16}}


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors hold now."""
    _index(device)
    return _native.heap()[0]


def max_memory_allocated(device: Any = None) -> int:
    """The most that tensors held since the start or `reset_peak_memory_stats`."""
    _index(device)
    return _native.heap()[1]


def memory_reserved(device: Any = None) -> int:
    """Bytes of the driver's memory that the heap holds now."""
    _index(device)
    return _native.heap()[2]


def max_memory_reserved(device: Any = None) -> int:
    """The most that the heap held since the start or `reset_peak_memory_stats`."""
    _index(device)
    return _native.heap()[3]


def memory_stats(device: Any = None) -> dict[str, int]:
    """The figures above, under the names of `torch.cuda.memory_stats`; what is not counted here has no name."""
    _index(device)
    allocated, most, reserved, most_reserved, blocks, retries, refusals = _native.heap()
    stats = {
        "allocation.all.current": blocks,
        "active.all.current": blocks,
        "reserved_bytes.all.current": reserved,
        "reserved_bytes.all.peak": most_reserved,
        "inactive_split_bytes.all.current": reserved - allocated,
        "num_alloc_retries": retries,
        "num_ooms": refusals,
    }
    # A tensor's memory is its own from the call that makes it until the call that frees it.
    for name in ("allocated_bytes", "active_bytes", "requested_bytes"):
        stats |= {f"{name}.all.current": allocated, f"{name}.all.peak": most}
    return stats


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes: what the heap can still take from the driver, within the cap; what the card has."""
    total = get_device_properties(device).total_memory
    return min(_native.memory_left(), total), total


def reset_peak_memory_stats(device: Any = None) -> None:
    """Starts the peaks anew."""
    _index(device)
    _native.reset_peaks()


def empty_cache() -> None:
    """Gives memory that no tensor holds back to the driver."""
    _native.empty_cache()


def set_memory_cap(cap: int | str | None) -> None:
    """Most bytes of the device's memory from now on: a number, `"2G"`, or none."""
    if isinstance(cap, str):
        bytes_ = _native.parse_bytes(cap)
        if bytes_ is None:
            raise ValueError(f"{cap!r} is no number of bytes, such as 2G, 512M or 1000000")
        cap = bytes_
    _native.set_memory_cap(cap)


def winograd(is_allowed: bool | None = None) -> bool:
    """Whether 3x3 convolutions may be transformed (Winograd) from now on; returns whether they could be.

    Faster, and in f32 less exact: an error of up to 2e-5 of the result's norm, where direct convolution has 1.5e-6.
    """
    return _native.winograd(is_allowed)


def channels_last(keep: bool | None = None) -> bool:
    """Whether tensors keep `channels_last` from now on, as PyTorch does; returns whether they did.

    Kernels compute with channels first, so what is kept costs copies. If not: `x.to(memory_format=torch.channels_last)` gives a
    contiguous tensor of the device, and results of convolutions are contiguous whatever their operands are. Say it before
    `torch.compile`: a compiled model expects tensors to lie as they did.
    """
    before = _native.channels_last(keep)
    if keep not in (None, before) and (tracing := sys.modules.get("torch._subclasses.fake_tensor")):
        tracing.FakeTensorMode.cache_clear()  # It remembers where results lay.
    return before


def tuned(device: Any = None) -> int:
    """Problems for which `wave32 tune` measured the fastest configuration on this card; their plans are those."""
    _index(device)
    return _native.tuned()


def allow_fp16_accumulation(which: bool | str | None = None) -> bool | str:
    """Which passes of f16 convolutions, matrix products and attention may sum runs of up to 32 products in f16; returns which could.

    `False` (the default): none. `"matmul"`: matrix products of forward passes. `"forward"`: all of forward passes. `True`: gradients
    too. Faster where the GPU computes two f16 numbers at a time; docs/performance.md tells for which numbers it is safe.
    """
    words = {False: "0", True: "1", "forward": "forward", "matmul": "matmul", None: None}
    if which not in words:
        raise ValueError(f"{which!r} is none of True, False, 'forward', 'matmul'")
    before = _native.fp16_accumulation(words[which])
    return {"0": False, "1": True}.get(before, before)


def fallbacks() -> dict[str, int]:
    """Calls per operator that ran on the CPU for want of a kernel."""
    return dict(_native.fallbacks())


def reset_fallbacks() -> None:
    """Forgets them."""
    _native.reset_fallbacks()


def manual_seed(seed: int) -> None:
    """Seeds the device's random numbers."""
    _native.seed(seed % (1 << 64))


def manual_seed_all(seed: int) -> None:
    """As `manual_seed`; `torch.manual_seed` calls it."""
    manual_seed(seed)


def seed() -> None:
    """Seeds with a number drawn from the system."""
    manual_seed(torch.Generator().seed())


seed_all = seed


def initial_seed() -> int:
    """The seed in force."""
    return _native.rng_state()[0]


def get_rng_state(device: Any = "wave") -> torch.Tensor:
    """Seed and position of the device's random numbers, as bytes."""
    _index(device)
    seed, offset = _native.rng_state()
    words = seed.to_bytes(8, "little") + offset.to_bytes(8, "little")
    return torch.tensor(list(words), dtype=torch.uint8)


def get_rng_state_all() -> list[torch.Tensor]:
    """As `get_rng_state`, for every device."""
    return [get_rng_state()]


def set_rng_state(state: torch.Tensor, device: Any = "wave") -> None:
    """Takes what `get_rng_state` gave."""
    _index(device)
    words = bytes(state.cpu().tolist())
    if len(words) != 16:
        raise RuntimeError(f"a state of wave's random numbers has 16 bytes, not {len(words)}")
    _native.set_rng_state(int.from_bytes(words[:8], "little"), int.from_bytes(words[8:], "little"))


def set_rng_state_all(states: list[torch.Tensor]) -> None:
    """Takes what `get_rng_state_all` gave."""
    for state in states:
        set_rng_state(state)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True where kernels may store 16-bit numbers."""
    return get_device_properties().has_16bit_storage


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Types for `torch.autocast("wave")`."""
    return [torch.float16, torch.bfloat16]


class Stream:
    """The one in-order queue; as a context it changes nothing."""

    # What torch.Stream tells of itself; 20 is the device type PrivateUse1.
    stream_id, device_index, device_type = 0, 0, 20

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        _index(device)

    @property
    def device(self) -> torch.device:
        """The one device."""
        return torch.device("wave", 0)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> bool:
        return False

    def synchronize(self) -> None:
        """Waits for all work."""
        synchronize()

    def query(self) -> bool:
        """True after waiting for all work."""
        synchronize()
        return True

    def wait_stream(self, stream: Any) -> None:
        """Nothing: there is one queue."""

    def wait_event(self, event: Any) -> None:
        """Nothing: there is one queue."""

    def record_event(self, event: Any = None) -> Event:
        """Records `event`, or a new one."""
        event = Event() if event is None else event
        event.record(self)
        return event


class Event:
    """A point in the queue. Recording waits for the work before it, so times are right but not free."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self._at: float | None = None

    def record(self, stream: Any = None) -> None:
        """Waits for all work and takes the time."""
        synchronize()
        self._at = time.perf_counter()

    def synchronize(self) -> None:
        """Nothing: `record` waited."""

    def wait(self, stream: Any = None) -> None:
        """Nothing: there is one queue."""

    def query(self) -> bool:
        """True: `record` waited."""
        return True

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from here to `end`."""
        if self._at is None or end._at is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end._at - self._at) * 1e3


_stream = Stream()


def current_stream(device: Any = None) -> Stream:
    """The one queue."""
    _index(device)
    return _stream


default_stream = current_stream


def stream(stream: Any = None) -> Stream:
    """A context that changes nothing."""
    return _stream
