"""Constants of compiled graphs without gradients: what depends on no operand is computed once, and kept."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from wave32 import _native

_aten = torch.ops.aten
# Bytes that one graph keeps at most. What does not fit is computed at each call.
_MOST = 32 << 20
_UNFIT = {torch.Tag.nondeterministic_seeded, torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
# Views whose schemas do not say so.
_UNSAID = (_aten._unsafe_view.default, _aten.reshape.default, _aten.contiguous.default)
# How often the device was given up: tensors of before are gone.
_losses = 0


def lost() -> None:
    """The device was given up: constants are computed anew when they are used next."""
    global _losses
    _losses += 1


def losses() -> int:
    """How often the device was given up."""
    return _losses


def _value(node: fx.Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else [value]
    return [one for one in values if isinstance(one, torch.Tensor)]


def _is_pure(node: fx.Node) -> bool:
    """It gives tensors, always the same for the same operands, and does nothing else."""
    op = node.target
    if op is operator.getitem:
        return True
    if not isinstance(op, OpOverload) or op.namespace not in ("aten", "prims", "wave") or op._schema.is_mutable:
        return False
    return not _UNFIT & set(op.tags) and bool(_value(node))


def _constants(module: fx.GraphModule) -> set[fx.Node]:
    """Nodes that no operand has a part in."""
    found: set[fx.Node] = set()
    for node in module.graph.nodes:
        if node.op == "get_attr":
            is_one = isinstance(getattr(module, node.target, None), torch.Tensor)
        else:
            is_one = node.op == "call_function" and _is_pure(node) and found.issuperset(node.all_input_nodes)
        if is_one:
            found.add(node)
    return found


def stays_inside(node: fx.Node) -> bool:
    """Nothing that may lie in the memory of its result is returned or written to."""
    seen, todo = {node}, [node]
    while todo:
        for user in todo.pop().users:
            op = user.target
            is_view = op is operator.getitem or op in _UNSAID
            if user.op != "call_function" or not (is_view or isinstance(op, OpOverload)):
                return False
            if isinstance(op, OpOverload):
                if op._schema.is_mutable:
                    return False
                is_view = is_view or any(result.alias_info for result in op._schema.returns)
            if is_view and user not in seen:
                seen.add(user)
                todo.append(user)
    return True


def _bytes(node: fx.Node) -> int:
    # A view keeps all that it is a view of.
    return max(value.untyped_storage().nbytes() for value in _value(node))


def _kept(module: fx.GraphModule) -> list[fx.Node]:
    """The constants to keep: those that others use, as far as they fit."""
    known = _constants(module)
    # What nobody wrote to costs nothing to make.
    fit = {
        node
        for node in known
        if node.op == "call_function" and len(_value(node)) == 1 and isinstance(node.meta["val"], torch.Tensor)
        and "empty" not in str(node.target) and stays_inside(node)
    }  # fmt: skip
    while True:
        kept, lives = [], set()
        for node in reversed(module.graph.nodes):
            if node not in known or any(user in lives for user in node.users):
                (kept.append if node in fit else lives.add)(node)
        sizes = {node: _bytes(node) for node in kept}
        if sum(sizes.values()) <= _MOST:
            return kept[::-1]
        fit.remove(max(sizes, key=sizes.__getitem__))


class Constants:
    """The constants of a graph, and how they are made."""

    def __init__(self, module: fx.GraphModule, kept: list[fx.Node]) -> None:
        makes, copies = fx.Graph(), {}
        needed, todo = set(kept), list(kept)
        while todo:
            new = [one for one in todo.pop().all_input_nodes if one not in needed]
            needed.update(new)
            todo += new
        for node in module.graph.nodes:
            if node in needed:
                copies[node] = makes.node_copy(node, copies.__getitem__)
        makes.output(tuple(copies[node] for node in kept))
        self._makes = fx.GraphModule(module, makes)
        # The attributes of the module that they are.
        self.names = [f"_constant_of_wave_{place}" for place in range(len(kept))]
        self._module = module
        self._made_after = -1
        self.refresh()

    def refresh(self) -> None:
        """Makes them, unless they are there."""
        if self._made_after == _losses:
            return
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes(), torch.inference_mode(False), torch.no_grad(), torch._C._DisableAutocast():
            made = self._makes()
        for name, value in zip(self.names, made, strict=True):
            setattr(self._module, name, value)
        # What is captured has not run, and belongs to that graph.
        if not _native.is_capturing():
            self._made_after = _losses


def fold(module: fx.GraphModule) -> Constants | None:
    """Folds in place. The graph is one of AOTAutograd's without gradients."""
    kept = _kept(module)
    if not kept:
        return None
    try:
        constants = Constants(module, kept)
    except (RuntimeError, ValueError, TypeError, IndexError):
        # Each call tells of it, as an eager one would.
        return None
    graph = module.graph
    for node, name in zip(kept, constants.names, strict=True):
        with graph.inserting_before(node):
            value = graph.create_node("get_attr", name)
        value.meta = dict(node.meta)
        node.replace_all_uses_with(value)
    folded = set(constants.names)
    for node in reversed(list(graph.nodes)):
        is_idle = node.op == "call_function" and _is_pure(node) or node.op == "get_attr" and node.target not in folded
        if is_idle and not node.users:
            graph.erase_node(node)
    return constants


# What takes no more than sizes, a type and the device from its operand, and what it is filled with: a value, or the place of it.
_LIKE: dict[Any, tuple[int, Any]] = {
    _aten.new_zeros.default: (-1, 0), _aten.new_ones.default: (-1, 1), _aten.new_full.default: (2, None),
    _aten.zeros_like.default: (-1, 0), _aten.ones_like.default: (-1, 1), _aten.full_like.default: (1, None),
}  # fmt: skip


def _filled(node: fx.Node) -> None:
    """Takes the operand away from what reads none of its elements."""
    place, fill = _LIKE[node.target]
    fill = fill if place < 0 else node.args[place] if place < len(node.args) else node.kwargs.get("fill_value")
    value = node.meta.get("val")
    is_known = isinstance(value, torch.Tensor) and all(isinstance(size, int) for size in value.shape)
    if not is_known or fill is None or isinstance(fill, fx.Node) or value.layout != torch.strided or not value.is_contiguous():
        return
    node.target, node.args = _aten.full.default, (list(value.shape), fill)
    node.kwargs = {"dtype": value.dtype, "device": value.device}


def tidy(module: fx.GraphModule) -> None:
    """Takes out, in place, what gives its operand back: padding by nothing, `alias`, and `expand` to the same sizes. What is like an
    operand, and reads none of it, depends on it no longer."""
    graph: Any = module.graph
    for node in list(graph.nodes):
        op = node.target
        if op in _LIKE:
            _filled(node)
            continue
        if op is _aten.constant_pad_nd.default:
            is_same = not any(node.args[1])
        else:
            is_same = op in (_aten.alias.default, _aten.expand.default)
        source = node.args[0] if is_same and isinstance(node.args[0], fx.Node) and stays_inside(node) else None
        values = [] if source is None else _value(node) + _value(source)
        if len(values) == 2 and values[0].shape == values[1].shape and values[0].stride() == values[1].stride():
            node.replace_all_uses_with(source)
            graph.erase_node(node)
