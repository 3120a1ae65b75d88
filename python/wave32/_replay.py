"""Compiled graphs of operators as graphs of the device: in `torch.compile(mode="reduce-overhead")`, and by default without gradients
where that is quicker.

A function that AOTAutograd made is called eagerly a few times, then captured (`torch.wave.Graph`) and replayed. Weights and
what another replay left are read where they are; other operands are copied into memory of the graph first. What only the
backward pass reads stays there: its version tells autograd when it is overwritten. Other results stay there too while the
caller has none of them left at the next replay, as gradients that are cleared before; else they are copied out.
"""

from __future__ import annotations

import itertools
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from wave32 import _native
from wave32._constants import losses
from wave32._graph import Graph, graph
from wave32._overlap import byte_range, is_plain
from wave32._profile import profile
from wave32._variables import variable

# Captures of one function at most: each time an operand has moved that had not moved before.
_CAPTURES = 3
# Calls of which the time is taken together, of each kind, where nobody asked for replays; one of each goes before. Not few: a
# device that has waited takes tens of milliseconds to be as quick again.
_TIMED = 16
# Such replays take at most this share of the time without: filters are prepared anew in each, and operands copied, so that large
# work can lose what few launches gain.
_SHARE = 15 / 16
# Bytes that they all keep at most; and no more than an eighth of the memory.
_MOST = 2 << 30
# Whose threads leave the device alone.
_HARMLESS = ("tqdm._monitor", "ipykernel.control", "ipykernel.heartbeat", "ipykernel.iostream", "IPython.core.history")

# Each operator waits, to find errors.
_BLOCKS = (variable("WAVE32_LAUNCH_BLOCKING") or "").strip() == "1"


def _place(value: Any) -> Any:
    """Where a tensor lies."""
    return (value.data_ptr(), value.storage_offset()) if isinstance(value, torch.Tensor) else value


def _mutated(module: torch.fx.GraphModule) -> set[int]:
    """Operands that the graph writes to, by their place."""
    places = {node: place for place, node in enumerate(module.graph.find_nodes(op="placeholder"))}
    found: set[int] = set()
    for node in module.graph.nodes:
        schema = node.target._schema if isinstance(node.target, OpOverload) else None
        if schema is not None and schema.is_mutable:
            given = zip(schema.arguments, node.args, strict=False)
            named = ((one, node.kwargs[one.name]) for one in schema.arguments if one.name in node.kwargs)
            written = (value for one, value in (*given, *named) if one.alias_info is not None and one.alias_info.is_write)
            nodes = (n for value in written for n in (value if isinstance(value, list | tuple) else (value,)))
            found.update(places[n] for n in nodes if n in places)
    return found


def _is_alone() -> bool:
    """No other thread can use the device: its work would become part of what is captured. Autograd's (dummies) wait for us."""
    for thread in threading.enumerate():
        of = getattr(getattr(thread, "_target", None) or type(thread), "__module__", None)
        is_ours = thread is threading.current_thread() or isinstance(thread, threading._DummyThread)
        if not is_ours and of not in _HARMLESS:
            return False
    return True


def _is_watched() -> bool:
    """Somebody looks at each operator."""
    return bool(_BLOCKS or profile._open or torch.autograd._profiler_enabled() or torch._C._len_torch_dispatch_stack())


def _switches() -> tuple[Any, ...]:
    """What a capture has in it: kernels are chosen by these."""
    ours = _native.winograd(None), _native.fp16_accumulation(None), _native.channels_last(None)
    return *ours, torch.are_deterministic_algorithms_enabled()


def _is_dense(y: torch.Tensor) -> bool:
    return torch.empty_like(y, device="meta").stride() == y.stride()


def _with_gaps(y: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, of a tensor whose elements are not one behind the other."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(y.shape, y.stride(), strict=True))
    return y.as_strided((span,), (1,)).clone().as_strided(y.shape, y.stride(), 0)


def _without_base(y: Any) -> Any:
    """The same memory, without the tensor that it is a view of."""
    if not isinstance(y, torch.Tensor) or not is_plain(y):
        return y
    return torch.empty(0, dtype=y.dtype, device=y.device).set_(y.untyped_storage(), y.storage_offset(), y.shape, y.stride())


def _users(storage: int) -> int:
    """How many tensors lie in a storage; the call is one more."""
    return torch._C._storage_Use_Count(storage) - 1


def _lendable(results: list[Any]) -> dict[int, list[int]]:
    """Results that the caller may get as they are, by their storage: nothing else lies in it, and each in its own part."""
    found: dict[int, list[int]] = {}
    for at, y in enumerate(results):
        if isinstance(y, torch.Tensor) and is_plain(y):
            found.setdefault(y.untyped_storage()._cdata, []).append(at)

    def is_apart(places: list[int]) -> bool:
        ranges = sorted(byte_range(results[at]) for at in places)
        return all(end <= begin for (_, end), (begin, _) in zip(ranges, ranges[1:]))

    return {storage: places for storage, places in found.items() if _users(storage) == len(places) and is_apart(places)}


def _left(args: list[torch.Tensor]) -> set[int]:
    """Operands that the replay of a forward pass left for its backward pass, by their place."""
    behind = (y for other in _forward for y in other._results[other._kept :] if isinstance(y, torch.Tensor))
    places = {y.untyped_storage().data_ptr() for y in behind}
    return {at for at, arg in enumerate(args) if arg.untyped_storage().data_ptr() in places}


class Replayed:
    """A boxed function of a list of operands, replayed as soon as that is possible, and eager where it is not."""

    def __init__(
        self,
        run: Callable[[list[Any]], Any],
        module: torch.fx.GraphModule,
        kept: int | None,
        warmups: int,
        fixed: set[int] | None = None,
    ) -> None:
        """`kept`: results behind that many are read by the backward pass alone; none where all are the caller's.

        `fixed`: nobody asked for replays, and these operands are a module's. Given up without a word, and where it is not
        quicker or takes too much memory.
        """
        # AOTAutograd looks for it in the instance.
        self._boxed_call = True
        self._run = run
        self._mutated = _mutated(module)
        self._kept = kept
        if kept is not None:
            _forward.add(self)
        self._is_asked = fixed is None
        self._is_over = False
        # Not of a forward pass in training: its backward pass looks for what it left in one place.
        self._lends = self._is_asked and kept is None and hasattr(torch._C, "_storage_Use_Count")
        self._is_known_fit = False
        self._warmups = warmups if self._is_asked else 1 + _TIMED
        self._before: list[Any] | None = None
        self._moving: set[int] = set()
        if fixed is not None:
            # An operand that is the caller's is not held by the graph.
            self._moving = set(range(len(module.graph.find_nodes(op="placeholder")))) - fixed
        self._captures = 0
        self._losses = losses()
        self._lock = threading.Lock()
        # Seconds without replays, and with; none once it is decided.
        self._times: tuple[list[float], list[float]] | None = None if self._is_asked else ([], [])
        self._forget()

    def _forget(self) -> None:
        # Results first: memory goes back with the graph where no tensor lies in it.
        self._static: list[Any] = []
        self._results: list[Any] = []
        self._graph: Graph | None = None
        # Operands with a copy of their own; the others are used where they lie.
        self._copied: frozenset[int] = frozenset()
        self._copies: list[Callable[[torch.Tensor], torch.Tensor] | None] = []
        # Results that the caller gets as they are, by their storage.
        self._lent: dict[int, list[int]] = {}
        self._switches: tuple[Any, ...] = ()
        self.bytes = 0

    def __call__(self, args: list[Any]) -> Any:
        args, given = list(args), args
        given.clear()
        # The memory of a graph is one call's at a time.
        if self._is_over or not self._lock.acquire(blocking=False):
            return self._run(args)
        try:
            return self._call(args)
        finally:
            self._lock.release()

    def _call(self, args: list[Any]) -> Any:
        # Of work that is captured, this is a part; and none can be captured while launches are profiled.
        is_watched = bool(profile._open) and self._graph is None if self._is_asked else _is_watched()
        if is_watched or _native.is_capturing():
            return self._run(args)
        if not self._is_known_fit:
            # Dynamo compiles anew for another kind of tensor.
            if not all(self._is_fit(arg) for arg in args):
                self._is_over = True
                return self._run(args)
            self._is_known_fit = True
        if self._losses != losses():
            self._losses, self._before, self._captures = losses(), None, 0
            self._forget()
            return self._run(args)
        places = [None if not self._is_asked and at in self._moving else _place(arg) for at, arg in enumerate(args)]
        if self._before is not None and self._is_asked:
            moved = {at for at, (was, now) in enumerate(zip(self._before, places, strict=True)) if was != now}
            if moved - self._moving or (self._graph is None and self._warmups == 0):
                # What a forward pass left lies in its graph, and moves only when that is captured anew.
                self._moving = (self._moving | moved) - _left(args)
        elif self._warmups > 0 and self._before not in (None, places):
            # Modules in turn, of one class: a graph would be captured for each.
            return self._give_up("its weights move about", args)
        self._before = places
        if self._warmups > 0:
            return self._warm_up(args)
        if self._moving & self._mutated:
            return self._give_up("an operand that it writes to is another tensor at each call", args)
        if any(_users(storage) > len(places) for storage, places in self._lent.items()):
            # The caller keeps results, and with them the graph's memory: another graph, whose results are copied.
            self._lends = False
            self._captures -= 1
            self._forget()
        switches = _switches()
        if self._graph is None or switches != self._switches or self._has_moved(places):
            if not self._is_asked and not _is_alone():
                return self._run(args)
            self._captures += 1
            if self._captures > _CAPTURES:
                return self._give_up("its operands move about", args)
            try:
                self._capture(args, switches)
            except RuntimeError as error:
                return self._give_up(str(error), args)
            if not self._is_asked and not self._fits():
                return self._give_up("its memory is too much", args)
        if self._times is None:
            return self._replay(args)
        result = self._timed(self._replay, args, self._times[1])
        before, replays = self._times
        if len(replays) > _TIMED:
            self._times = None
            if sum(replays[1:]) > _SHARE * sum(before[1:]):
                self._end()
        return result

    @staticmethod
    def _is_fit(arg: Any) -> bool:
        return isinstance(arg, torch.Tensor) and arg.device.type == "wave" and arg.layout == torch.strided

    def _warm_up(self, args: list[Any]) -> Any:
        self._warmups -= 1
        if self._times is None:
            return self._run(args)
        on_cpu = _native.fallbacks()
        result = self._timed(self._run, args, self._times[0])
        # What runs on the CPU cannot be captured.
        self._is_over = _native.fallbacks() != on_cpu
        return result

    @staticmethod
    def _timed(call: Callable[[list[Any]], Any], args: list[Any], times: list[float]) -> Any:
        """Adds the time that the caller waits. The device ends its work behind the first call and behind the last."""
        start = time.perf_counter()
        result = call(args)
        if len(times) in (0, _TIMED):
            _native.synchronize()
        times.append(time.perf_counter() - start)
        return result

    def _has_moved(self, places: list[Any]) -> bool:
        pairs = enumerate(zip(self._static, places, strict=True))
        return any(at not in self._copied and _place(static) != place for at, (static, place) in pairs)

    def _end(self) -> None:
        self._is_over = True
        self._forget()
        _default.discard(self)

    def _give_up(self, why: str, args: list[Any]) -> Any:
        self._end()
        if self._is_asked:
            warnings.warn(f"wave32: a compiled graph runs without replays: {why}", stacklevel=2)
        return self._run(args)

    def _capture(self, args: list[Any], switches: tuple[Any, ...]) -> None:
        self._forget()
        made = Graph()
        # Outside of inference mode: tensors made in it are written to in it alone.
        with torch.inference_mode(False), torch.no_grad(), torch.autocast("wave", enabled=False):
            static = [
                torch.empty_strided(arg.shape, arg.stride(), dtype=arg.dtype, device=arg.device)
                if at in self._moving
                else arg.detach()
                for at, arg in enumerate(args)
            ]
            with graph(made):
                before = torch.wave.memory_reserved()
                results = list(self._run(list(static)))
                own = torch.wave.memory_reserved() - before
        self.bytes = own + sum(static[at].untyped_storage().nbytes() for at in self._moving)
        self._copies = [
            None if not isinstance(y, torch.Tensor) else torch.clone if _is_dense(y) else _with_gaps for y in results
        ]
        if self._lends:
            results = [_without_base(y) for y in results]
            self._lent = _lendable(results)
            for at in itertools.chain.from_iterable(self._lent.values()):
                self._copies[at] = torch.Tensor.detach
        self._graph, self._results, self._static, self._switches = made, results, static, switches
        self._copied = frozenset(self._moving)

    def _fits(self) -> bool:
        """Whether it may keep its memory, beside others that nobody asked for."""
        _default.add(self)
        free, total = torch.wave.mem_get_info()
        ours = min(total, free + torch.wave.memory_reserved())
        return sum(other.bytes for other in _default) <= min(_MOST, ours // 8)

    def _replay(self, args: list[Any]) -> list[Any]:
        assert self._graph is not None
        with torch.no_grad():
            for at in self._copied:
                self._static[at].copy_(args[at])
            self._graph.replay()
            split = len(self._results) if self._kept is None else self._kept
            mine = [y.detach() for y in self._results[split:] if isinstance(y, torch.Tensor)]
            torch.autograd.graph.increment_version(mine)
            out = [y if copy is None else copy(y) for y, copy in zip(self._results[:split], self._copies, strict=False)]
        return out + self._results[split:]


# Forward passes, with results that only their backward passes read.
_forward: weakref.WeakSet[Replayed] = weakref.WeakSet()
# Those that keep memory though nobody asked for replays.
_default: weakref.WeakSet[Replayed] = weakref.WeakSet()
