"""Graphs: work of the device recorded once and run again without PyTorch, under the names of `torch.cuda`'s.

A launch through PyTorch costs the CPU some microseconds. A replay costs that of a submit, whatever the graph holds.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from wave32 import _native


def graph_pool_handle() -> tuple[int, int]:
    """A name for memory that graphs might share. It means nothing: each has memory of its own."""
    return (0, 0)


def is_current_stream_capturing() -> bool:
    """True while a graph is captured."""
    return _native.is_capturing()


def _states(optimizer: torch.optim.Optimizer) -> set[int]:
    """Parameters that have a state, by their id."""
    kept = optimizer.state
    return {id(p) for p in kept if any(value is not None for value in kept[p].values())}


class _Optimizers:
    """Refuses steps that would not be the same when they are replayed."""

    def __init__(self) -> None:
        self._before: dict[int, set[int]] = {}
        self._hooks = [register_optimizer_step_pre_hook(self._pre), register_optimizer_step_post_hook(self._post)]

    def _pre(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        for state in optimizer.state.values():
            step = state.get("step")
            if step is not None and not (isinstance(step, torch.Tensor) and step.device.type == "wave"):
                name = type(optimizer).__name__
                raise RuntimeError(
                    f"{name} counts its steps on the CPU, and a replay would not: make it with capturable=True or fused=True"
                )
        self._before[id(optimizer)] = _states(optimizer)

    def _post(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        if _states(optimizer) != self._before.pop(id(optimizer), set()):
            raise RuntimeError(
                f"the first step of {type(optimizer).__name__} makes its states, and each replay would make them anew: "
                "take a step before the capture"
            )

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()


class Graph:
    """Work that is captured once and replayed as often as one likes, on the same memory; as `torch.cuda.CUDAGraph`."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._made: tuple[int, bool, int] | None = None
        self._optimizers: _Optimizers | None = None

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """From now on nothing runs: work of every thread on the device becomes part of the graph.

        Waits for work in flight. Reading a tensor and copying from the CPU are errors meanwhile. Random operators draw
        new numbers at each replay, as eager ones do. `pool` and `capture_error_mode` are taken and mean nothing: a graph has memory of its own.
        """
        if self._made is not None:
            raise RuntimeError("this graph was captured before; make another, or reset() it")
        if torch.is_autocast_enabled("wave") and torch.is_autocast_cache_enabled():
            raise RuntimeError(
                "autocast keeps casts of weights, and a graph's would be out of date outside of it: "
                'use torch.autocast("wave", cache_enabled=False)'
            )
        gc.collect()
        _native.begin_capture()
        self._optimizers = _Optimizers()

    def capture_end(self) -> None:
        """Ends the capture. The graph has not run yet: what it computes is undefined until `replay`."""
        self._end()

    def _end(self) -> None:
        if self._optimizers is not None:
            self._optimizers.remove()
            self._optimizers = None
        self._made = _native.end_capture()

    def replay(self) -> None:
        """Runs the graph behind all work of before. Does not wait, but for an earlier replay where two are in flight."""
        if self._made is None:
            raise RuntimeError("this graph was not captured, or was reset")
        _native.replay(*self._made)

    def reset(self) -> None:
        """Waits for its work and gives back its memory. Tensors that were made in the capture keep theirs.

        Ends a capture that nobody ended.
        """
        if self._optimizers is not None:
            self._end()
        made, self._made = self._made, None
        if made is not None:
            _native.drop_graph(made[0])

    def pool(self) -> tuple[int, int]:
        """A name of its memory, which no other graph uses."""
        return (0, 0 if self._made is None else self._made[0])

    def __del__(self) -> None:
        try:
            self.reset()
        except Exception:
            # The device may be gone, or the interpreter be going: nobody could catch it.
            return


class graph:
    """A context in which work becomes part of `wave_graph`; as `torch.cuda.graph`."""

    def __init__(
        self, wave_graph: Graph, pool: Any = None, stream: Any = None, capture_error_mode: str = "global"
    ) -> None:
        self._graph = wave_graph

    def __enter__(self) -> None:
        self._graph.capture_begin()

    def __exit__(self, kind: Any, *_: Any) -> bool:
        try:
            self._graph.capture_end()
        finally:
            if kind is not None:
                self._graph.reset()
        return False


def _leaves(values: Any) -> list[torch.Tensor]:
    """The tensors in arguments or results, which may be nested."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _graphed(call: Callable[..., Any], args: tuple[Any, ...], warmups: int, allow_unused: bool) -> Callable[..., Any]:
    """`call` as two graphs, forward and backward, on memory that `args` lie in."""
    params: list[torch.Tensor] = []
    if isinstance(call, torch.nn.Module):
        params = [p for p in call.parameters() if p.requires_grad]
    inputs = _leaves(args)
    if len(inputs) != len(args) or any(x.device.type != "wave" for x in inputs):
        raise ValueError("the sample arguments are tensors of the device, and nothing else")
    wanted = [x for x in [*inputs, *params] if x.requires_grad]

    def gradients(results: list[torch.Tensor], of: list[torch.Tensor]) -> list[torch.Tensor | None]:
        return list(torch.autograd.grad(results, wanted, of, allow_unused=allow_unused))

    for _ in range(warmups):
        results = [y for y in _leaves(call(*args)) if y.requires_grad]
        if results and wanted:
            gradients(results, [torch.ones_like(y) for y in results])
        del results
    forward, backward = Graph(), Graph()
    with graph(forward):
        made = call(*args)
    outputs, tree = tree_flatten(made)
    if not all(isinstance(y, torch.Tensor) for y in outputs):
        raise ValueError("the results are tensors, and nothing else")
    differentiable = [y for y in outputs if y.requires_grad]
    given = [torch.empty_like(y) for y in differentiable]
    grads: dict[int, torch.Tensor | None] = {}
    if differentiable and wanted:
        with graph(backward):
            grads = {id(x): grad for x, grad in zip(wanted, gradients(differentiable, given), strict=True)}
    are_differentiable = [y.requires_grad for y in outputs]
    # What was computed keeps no history: the memory is the graphs'.
    outputs = [y.detach() for y in outputs]
    calls = itertools.count()
    last = -1

    class Replay(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
            for static, new in zip(inputs, operands, strict=False):
                if static.shape != new.shape or static.dtype != new.dtype:
                    raise ValueError(
                        f"the graph was made for {tuple(static.shape)} of {static.dtype}, not for "
                        f"{tuple(new.shape)} of {new.dtype}"
                    )
                if static.data_ptr() != new.data_ptr() or static.stride() != new.stride():
                    static.data.copy_(new)
            nonlocal last
            ctx.call = last = next(calls)
            forward.replay()
            results = tuple(y.clone() for y in outputs)
            ctx.mark_non_differentiable(*(y for y, is_one in zip(results, are_differentiable, strict=True) if not is_one))
            return results

        @staticmethod
        def backward(ctx: Any, *of: torch.Tensor | None) -> Any:
            if ctx.call != last:
                raise RuntimeError("forward ran again since: what backward needs of this call is overwritten")
            of = tuple(grad for grad, is_one in zip(of, are_differentiable, strict=True) if is_one)
            for static, new in zip(given, of, strict=True):
                if new is None:
                    static.zero_()
                else:
                    static.copy_(new)
            backward.replay()
            found = (grads.get(id(x)) for x in [*inputs, *params])
            return tuple(None if grad is None else grad.clone() for grad in found)

    def replayed(*new: torch.Tensor) -> Any:
        if len(new) != len(inputs):
            raise TypeError(f"the graph was made for {len(inputs)} arguments, not for {len(new)}")
        return tree_unflatten(list(Replay.apply(*new, *params)), tree)

    return replayed


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Any = None,
) -> Any:
    """A function or module that replays graphs of `callables` for tensors of the sizes in `sample_args`; or a tuple of them.

    As `torch.cuda.make_graphed_callables`: a module's forward is replaced, and in the other mode (`train`, `eval`) it runs
    as before. Weights may change in place. What backward needs of a call lasts until the next call. `pool` is taken and
    means nothing.
    """
    if isinstance(callables, tuple):
        return tuple(
            make_graphed_callables(call, args, num_warmup_iters, allow_unused_input)
            for call, args in zip(callables, sample_args, strict=True)
        )
    replayed = _graphed(callables, tuple(sample_args), num_warmup_iters, allow_unused_input)
    if not isinstance(callables, torch.nn.Module):
        return replayed
    module, eager, mode = callables, callables.forward, callables.training

    def forward(*args: Any, **kwargs: Any) -> Any:
        if module.training == mode and not kwargs:
            return replayed(*args)
        return eager(*args, **kwargs)

    module.forward = forward  # type: ignore[method-assign]
    return module
