"""`torch.compile` on the device: Dynamo and AOTAutograd take the graph, and it runs operator by operator as in eager mode. Without
gradients activations run in the launches before them, constants are kept, and graphs of the device are replayed where that is quicker.

Dynamo finds the backend `wave32` by its entry point. Where the default backend, inductor, is asked for a graph with tensors
of the device, for which it has no code generator, this backend takes the graph and says so once.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
from torch._C import DispatchKey

from wave32._constants import Constants, fold, tidy
from wave32._replay import Replayed

_told = False


def _on_device(values: Any) -> bool:
    """A tensor of the device is among them, or the device itself."""
    for value in values:
        if isinstance(value, torch.Tensor) and value.device.type == "wave":
            return True
        if isinstance(value, torch.device) and value.type == "wave":
            return True
        if isinstance(value, list | tuple) and _on_device(value):
            return True
    return False


def _boxed(graph: torch.fx.GraphModule, _inputs: Any, constants: Constants | None = None) -> Any:
    """The graph as Python that frees an operand after its last use."""
    from torch.fx.graph import _BoxedCodeGen

    from wave32._graph_fusion import quicken

    quicken(graph)
    graph.graph.set_codegen(_BoxedCodeGen())
    graph.recompile()
    forward = graph.forward

    def run(args: Any) -> Any:
        if constants is not None:
            constants.refresh()
        return forward(args)

    run._boxed_call = True
    return run


def _replayed(graph: torch.fx.GraphModule, inputs: Any, kept: int | None = None, warmups: int = 2) -> Any:
    """As `_boxed`, and replayed as a graph of the device."""
    return Replayed(_boxed(graph, inputs), graph, kept, warmups)


def _metadata(name: str) -> Any:
    """What AOTAutograd knows of the graph that it compiles, if it says so."""
    return getattr(getattr(torch._guards.TracingContext.try_get(), "fw_metadata", None), name, None)


def _replayed_forward(graph: torch.fx.GraphModule, inputs: Any) -> Any:
    return _replayed(graph, inputs, _metadata("num_forward_returns"))


def _without_gradients(graph: torch.fx.GraphModule, inputs: Any, is_asked: bool) -> Any:
    """Fused, with constants that are kept, and replayed: `is_asked` for, or where that is quicker."""
    from wave32._graph_fusion import fuse

    tidy(graph)
    constants = fold(graph)
    run = _boxed(fuse(graph), inputs, constants)
    fixed = None if is_asked else set(_metadata("static_input_indices") or ())
    return Replayed(run, graph, None, 2, fixed)


def _partition(joint: torch.fx.GraphModule, *arguments: Any, **named: Any) -> Any:
    """A forward and a backward graph."""
    from functorch.compile import min_cut_rematerialization_partition

    from wave32._graph_norms import fuse_joint

    fuse_joint(joint)
    return min_cut_rematerialization_partition(joint, *arguments, compiler="aot_eager", **named)


def backend(graph: torch.fx.GraphModule, inputs: list[Any], mode: str | None = None, **options: Any) -> Any:
    """The Dynamo backend `wave32`. With the mode "reduce-overhead" it replays graphs of the device, in training too.

    Raises TypeError for other modes, and for options.
    """
    if options:
        raise TypeError(f"the backend wave32 takes no options, got {', '.join(sorted(options))}")
    if mode not in (None, "default", "reduce-overhead"):
        raise TypeError(f'the backend wave32 has the modes "default" and "reduce-overhead", not {mode!r}')
    from torch._dynamo.backends.common import aot_autograd

    from wave32._attention import Whole
    from wave32._graph_fusion import whole_heads

    _allow_random()
    if not torch.is_grad_enabled():
        whole_heads(graph)
    replays = mode == "reduce-overhead"
    compiler = aot_autograd(
        fw_compiler=_replayed_forward if replays else _boxed,
        # What a forward pass leaves has its place from its first replay on.
        bw_compiler=functools.partial(_replayed, warmups=3) if replays else _boxed,
        inference_compiler=functools.partial(_without_gradients, is_asked=replays),
        partition_fn=_partition,
        keep_inference_input_mutations=True,
    )
    with Whole():
        return compiler(graph, inputs)


@functools.cache
def _allow_random() -> None:
    """What is computed again in a backward pass (checkpoints) draws the same random numbers.

    Torch's operators for this have a fixed list of devices.
    """
    from torch._prims import rng_prims

    def save(op: Any, *args: Any, **kwargs: Any) -> Any:
        return torch.wave.get_rng_state(), op(*args, **kwargs)

    def again(state: torch.Tensor, op: Any, *args: Any, **kwargs: Any) -> Any:
        now = torch.wave.get_rng_state()
        torch.wave.set_rng_state(state.cpu())
        try:
            return op(*args, **kwargs)
        finally:
            torch.wave.set_rng_state(now)

    # Of fake tensors: a state of the right size, and no generator is touched.
    size = torch.wave.get_rng_state().shape

    def save_fake(mode: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        with mode:
            return torch.empty(size, dtype=torch.uint8), op(*args, **kwargs)

    def again_fake(mode: Any, _state: torch.Tensor, op: Any, *args: Any, **kwargs: Any) -> Any:
        with mode:
            return op(*args, **kwargs)

    for op, real, fake in [
        (rng_prims.run_and_save_rng_state, save, save_fake),
        (rng_prims.run_with_rng_state, again, again_fake),
    ]:
        for table, key, ours in [
            (op.py_kernels, DispatchKey.BackendSelect, real),
            (op.python_key_table, torch._subclasses.FakeTensorMode, fake),
        ]:
            table[key] = _by_device(table[key], ours)
        op._dispatch_cache.clear()


def _by_device(original: Any, ours: Any) -> Any:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (ours if _on_device([*args, *kwargs.values()]) else original)(*args, **kwargs)

    return call


def install() -> None:
    """Makes `torch.compile` work on the device by default: inductor's graphs with tensors of it go to the backend above."""
    wrapper = getattr(torch, "_TorchCompileInductorWrapper", None)
    if wrapper is None:  # Another torch: `backend="wave32"` is still there.
        return
    original = wrapper.__call__

    @functools.wraps(original)
    def call(self: Any, model: Any, inputs: Any, **kwargs: Any) -> Any:
        global _told
        parts = [*model.parameters(), *model.buffers()] if isinstance(model, torch.nn.Module) else []
        if not _on_device([*inputs, *parts]):
            return original(self, model, inputs, **kwargs)
        if not _told:
            _told = True
            warnings.warn(
                "wave32: inductor has no code generator for this device; the graph runs operator by operator "
                '(backend="wave32")',
                stacklevel=2,
            )
        graphs = getattr(self, "config", {}).get("triton.cudagraphs")
        return backend(model, inputs, "reduce-overhead" if graphs else None)

    wrapper.__call__ = call
