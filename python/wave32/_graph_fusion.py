"""What `torch.compile` does to graphs. In those without gradients: an activation goes into the convolution, product or norm before it, and a
sum between a batch norm and its activation. In all: calls take less of the processor's time."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from wave32 import _fuse
from wave32._attention import heads_as_eager
from wave32._fuse import _LEAKY, _OF_NORMS, _applied
from wave32._graph_norms import fuse_forward

_aten = torch.ops.aten
_NAMES = {
    _aten.relu.default: "relu", _aten.silu.default: "silu", _aten.hardswish.default: "hardswish", _aten.gelu.default: "gelu",
    _aten.hardtanh.default: "relu6", _aten.leaky_relu.default: _LEAKY,
}  # fmt: skip
_VIEWS = (_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default)


def convolution(activation: str, *arguments: Any) -> torch.Tensor:
    """`aten.convolution` and an activation."""
    try:
        return torch.ops.wave.convolution_activation.default(*arguments, activation)
    except NotImplementedError:  # Refused before anything was written.
        return _applied(activation, _aten.convolution.default(*arguments))


def product(activation: str, bias: torch.Tensor | None, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """`aten.addmm`, or `aten.mm` where there is no bias, and an activation."""
    try:
        return torch.ops.wave.linear_activation.default(x, weight.t(), bias, activation)
    except NotImplementedError:  # Refused before anything was written.
        return _applied(activation, x @ weight if bias is None else torch.addmm(bias, x, weight))


def group_norm(activation: str, x: torch.Tensor, groups: int, *own: Any) -> torch.Tensor:
    """A group norm's result, through an activation. `own`: weight, bias and eps."""
    try:
        return torch.ops.wave.group_norm_act.default(x, groups, *own, *_OF_NORMS[activation])
    except NotImplementedError:  # Refused before anything was written.
        return _applied(activation, torch.nn.functional.group_norm(x, groups, *own))


def batch_norm(activation: str, added: torch.Tensor | None, x: torch.Tensor, *own: Any) -> torch.Tensor:
    """A batch norm's result in evaluation, through a sum and an activation. `own`: weight, bias, mean, variance, momentum and eps."""
    *parameters, momentum, eps = own
    try:
        return torch.ops.wave.batch_norm_eval_act.default(x, added, *parameters, eps, *_OF_NORMS[activation])
    except NotImplementedError:  # Refused before anything was written.
        weight, bias, mean, variance = parameters
        y = torch.nn.functional.batch_norm(x, mean, variance, weight, bias, False, momentum, eps)
        return _applied(activation, y if added is None else y + added)


def _activation(node: fx.Node) -> str | None:
    """Which activation a node is, if kernels know it."""
    # Of other bounds it is no ReLU6.
    if node.target is _aten.hardtanh.default and (tuple(node.args[1:]) != (0, 6) or node.kwargs):
        return None
    return _fuse._activation(node, None, _NAMES)


def _alone(node: Any, target: Any) -> bool:
    """A call of `target` on the device whose result has one use."""
    if not isinstance(node, fx.Node) or node.target is not target or len(node.users) != 1 or node.kwargs:
        return False
    value = node.meta.get("val")
    value = value[0] if isinstance(value, tuple | list) else value
    return isinstance(value, torch.Tensor) and value.device.type == "wave"


def _norm(node: Any, target: Any) -> fx.Node | None:
    """The norm whose first result this is, where its others are not used."""
    is_first = _alone(node, operator.getitem) and node.args[1] == 0
    return node.args[0] if is_first and _alone(node.args[0], target) else None


_GROUP_NORM, _BATCH_NORM = _aten.native_group_norm.default, _aten._native_batch_norm_legit_no_training.default
# A call, its arguments, and the nodes that it stands for, last first.
_Made = tuple[Any, tuple[Any, ...], list[fx.Node]]


def _fused(node: Any, activation: str) -> _Made | None:
    """The call that makes a node's result through an activation, where nothing else needs that result."""
    if _alone(node, _aten.convolution.default):
        return convolution, (activation, *node.args), [node]
    if _alone(node, _aten.mm.default):
        return product, (activation, None, *node.args), [node]
    if _alone(node, _aten.addmm.default) and node.args[0].meta["val"].dim() == 1:
        return product, (activation, *node.args), [node]
    if activation not in _OF_NORMS:
        return None
    if (norm := _norm(node, _GROUP_NORM)) is not None and len(norm.args) == 8:
        x, weight, bias, _, _, _, groups, eps = norm.args
        return group_norm, (activation, x, groups, weight, bias, eps), [node, norm]
    if (norm := _norm(node, _BATCH_NORM)) is not None and len(norm.args) == 7:
        return batch_norm, (activation, None, *norm.args), [node, norm]
    if _alone(node, _aten.add.Tensor) and len(node.args) == 2:
        for one, other in (node.args, node.args[::-1]):
            if (norm := _norm(one, _BATCH_NORM)) is not None and len(norm.args) == 7 and isinstance(other, fx.Node):
                return batch_norm, (activation, other, *norm.args), [node, one, norm]
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
        function, arguments, stood_for = made
        with graph.inserting_before(source):
            call = graph.call_function(function, arguments)
        call.meta = dict(source.meta)
        source.replace_all_uses_with(call)
        node.replace_all_uses_with(call if view is None else view)
        for gone in (node, *stood_for):
            graph.erase_node(gone)
    return module


# The same operators by PyTorch's own functions: these read their arguments in half the time that an `OpOverload` takes.
_QUICK = {
    _aten._softmax.default: torch._softmax, _aten._unsafe_view.default: torch.Tensor.view, _aten.add.Tensor: torch.add,
    _aten.addmm.default: torch.addmm, _aten.bmm.default: torch.bmm, _aten.cat.default: torch.cat, _aten.clone.default: torch.clone,
    _aten.convolution.default: torch.convolution, _aten.div.Tensor: torch.div, _aten.expand.default: torch.Tensor.expand,
    _aten.gelu.default: torch.nn.functional.gelu, _aten.mm.default: torch.mm, _aten.mul.Tensor: torch.mul,
    _aten.native_layer_norm.default: torch.native_layer_norm, _aten.permute.default: torch.permute,
    _aten.relu.default: torch.relu, _aten.roll.default: torch.roll, _aten.select.int: torch.select,
    _aten.split.Tensor: torch.split, _aten.squeeze.dim: torch.squeeze,
    _aten.sub.Tensor: torch.sub, _aten.t.default: torch.t,
    _aten.transpose.int: torch.transpose, _aten.unsqueeze.default: torch.unsqueeze, _aten.view.default: torch.Tensor.view,
}  # fmt: skip


def whole_heads(module: fx.GraphModule) -> None:
    """Exchanges calls of `nn.MultiheadAttention` in a graph of Dynamo's, in place."""
    for node in module.graph.find_nodes(op="call_function", target=torch.nn.functional.multi_head_attention_forward):
        node.target = heads_as_eager
    module.recompile()


def _shape(node: Any) -> tuple[int, ...] | None:
    """The sizes of what a node makes, if all are known."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    shape = tuple(value.shape) if isinstance(value, torch.Tensor) else None
    return shape if shape is not None and all(isinstance(size, int) for size in shape) else None


def _linear(node: fx.Node) -> None:
    """Makes one call again of what `torch.nn.functional.linear` was taken apart into: views, a transpose and a product."""
    bias, x, weight = node.args if node.target is _aten.addmm.default else (None, *node.args)
    if node.kwargs or weight.target is not _aten.t.default or (bias is not None and bias.meta["val"].dim() != 1):
        return
    graph, result, last = node.graph, node, next(iter(node.users), None)
    # Rows that were views of an operand with more dimensions, which the result has too.
    inner, outer = _shape(x.args[0]) if x.target is _aten.view.default else None, _shape(last)
    is_view = len(node.users) == 1 and last is not None and last.target in _VIEWS
    if is_view and inner and outer and inner[:-1] == outer[:-1] and inner[-1:] == (_shape(x) or ())[-1:]:
        x, result = x.args[0], last
    with graph.inserting_before(result):
        call = graph.call_function(torch.nn.functional.linear, (x, weight.args[0], bias))
    call.meta = dict(result.meta)
    result.replace_all_uses_with(call)
    graph.erase_node(result)
    if result is not node:
        graph.erase_node(node)


def quicken(module: fx.GraphModule) -> None:
    """Exchanges calls in place by quicker ones of the same meaning."""
    graph = module.graph
    fuse_forward(graph)
    for target in (_aten.addmm.default, _aten.mm.default):
        for node in graph.find_nodes(op="call_function", target=target):
            _linear(node)
    for node in reversed(list(graph.nodes)):
        # Views that a linear layer left.
        if node.op == "call_function" and not node.users and node.target in (_aten.t.default, _aten.view.default):
            graph.erase_node(node)
        elif node.op == "call_function" and node.target in _QUICK:
            node.target = _QUICK[node.target]
