"""What `torch.compile` fuses in graphs without gradients: an activation into the convolution, product or group norm before it."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from wave32._fuse import _LEAKY, _OF_NORMS, _applied, _hundredths

_aten = torch.ops.aten
_NAMES = {
    _aten.relu.default: "relu", _aten.silu.default: "silu", _aten.hardswish.default: "hardswish", _aten.gelu.default: "gelu",
    _aten.hardtanh.default: "relu6", _aten.leaky_relu.default: _LEAKY,
}  # fmt: skip
_VIEWS = (_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default)


def convolution(activation: str, *arguments: Any) -> torch.Tensor:
    """`aten.convolution` and an activation."""
    try:
        return torch.ops.wave.convolution_activation(*arguments, activation)
    except NotImplementedError:  # Refused before anything was written.
        return _applied(activation, _aten.convolution.default(*arguments))


def product(activation: str, bias: torch.Tensor | None, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """`aten.addmm`, or `aten.mm` where there is no bias, and an activation."""
    try:
        return torch.ops.wave.linear_activation(x, weight.t(), bias, activation)
    except NotImplementedError:  # Refused before anything was written.
        return _applied(activation, x @ weight if bias is None else torch.addmm(bias, x, weight))


def group_norm(activation: str, x: torch.Tensor, groups: int, *own: Any) -> torch.Tensor:
    """A group norm's result, through an activation. `own`: weight, bias and eps."""
    try:
        return torch.ops.wave.group_norm_act(x, groups, *own, *_OF_NORMS[activation])
    except NotImplementedError:  # Refused before anything was written.
        return _applied(activation, torch.nn.functional.group_norm(x, groups, *own))


def _activation(node: fx.Node) -> str | None:
    """Which activation a node is, if kernels know it."""
    name = _NAMES.get(node.target)
    rest = node.args[1:]
    if name == "gelu":
        return name if node.kwargs.get("approximate", "none") == "none" and not rest else None
    if name == "relu6":
        return name if tuple(rest) == (0, 6) and not node.kwargs else None
    if name == _LEAKY:
        slope = _hundredths(node.kwargs.get("negative_slope", rest[0] if rest else 0.01))
        return None if slope is None else f"{name}{slope}"
    return name if not rest and not node.kwargs else None


def _fused(node: Any, activation: str) -> tuple[Any, tuple[Any, ...]] | None:
    """The call that makes a node's result through an activation, where nothing else needs that result."""
    if not isinstance(node, fx.Node) or len(node.users) != 1 or node.kwargs:
        return None
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.device.type != "wave":
        return None
    if node.target is _aten.convolution.default:
        return convolution, (activation, *node.args)
    if node.target is _aten.mm.default:
        return product, (activation, None, *node.args)
    if node.target is _aten.addmm.default and node.args[0].meta["val"].dim() == 1:
        return product, (activation, *node.args)
    if node.target is operator.getitem and node.args[1] == 0 and activation in _OF_NORMS:
        norm = node.args[0]
        if norm.target is _aten.native_group_norm.default and len(norm.users) == 1 and len(norm.args) == 8:
            x, weight, bias, _, _, _, groups, eps = norm.args
            return group_norm, (activation, x, groups, weight, bias, eps)
    return None


def fuse(module: fx.GraphModule) -> fx.GraphModule:
    """Fuses in place. The graph is one of AOTAutograd's without gradients: no operator in it writes what another reads."""
    graph = module.graph
    for node in list(graph.nodes):
        activation = _activation(node) if node.op == "call_function" and node.args else None
        if activation is None:
            continue
        before = node.args[0]
        # An activation and a view of what it reads may change places.
        view = before if isinstance(before, fx.Node) and before.target in _VIEWS and len(before.users) == 1 else None
        source = before if view is None else view.args[0]
        if (made := _fused(source, activation)) is None:
            continue
        function, arguments = made
        with graph.inserting_before(source):
            call = graph.call_function(function, arguments)
        call.meta = dict(source.meta)
        source.replace_all_uses_with(call)
        node.replace_all_uses_with(call if view is None else view)
        # A group norm's other results go with it.
        for gone in (node, source, source.args[0] if function is group_norm else None):
            if gone is not None:
                graph.erase_node(gone)
    return module
