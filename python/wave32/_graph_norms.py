"""What `torch.compile` does to batch norms in training, as `wave32.fuse` does to modules: a batch norm, a sum and an activation are one
pass each way, the convolution before it computes its statistics, and running statistics are updated where they lie."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from wave32._fuse import _ALONE, norm_fits, with_statistics

_aten = torch.ops.aten
_FUNCTIONAL, _WRITING = _aten._native_batch_norm_legit_functional.default, _aten._native_batch_norm_legit.default
_BACKWARD = _aten.native_batch_norm_backward.default
# An activation's backward pass: the activation, and whether it reads the result or the operand.
_ACTIVATIONS = {
    _aten.threshold_backward.default: (_aten.relu.default, True),
    _aten.hardtanh_backward.default: (_aten.hardtanh.default, False),
    _aten.silu_backward.default: (_aten.silu.default, False),
}


def convolution(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`aten.convolution`, and the statistics of its result's channels."""
    return with_statistics(torch.convolution, *arguments)


def _source(node: Any) -> Any:
    """What a node is a detached view of."""
    while isinstance(node, fx.Node) and node.target is _aten.detach.default:
        node = node.args[0]
    return node


def _uses(node: fx.Node) -> Iterator[fx.Node]:
    """Users of a node and of its detached views, those views too."""
    for user in node.users:
        yield user
        if user.target is _aten.detach.default:
            yield from _uses(user)


def _parts(node: fx.Node) -> dict[int, fx.Node]:
    """Results of a call that has several, if each is taken once and nothing else is done with them."""
    parts = {user.args[1]: user for user in node.users if user.target is operator.getitem}
    return parts if len(parts) == len(node.users) else {}


def _written_back(node: Any, target: Any) -> tuple[fx.Node | None, list[fx.Node]]:
    """The operand that gets this result, where nothing else needs the one or the other than the call of `target` that made it; and
    the nodes from the last copy on."""
    last, gone = node, [node]
    while len(last.users) == 1:
        before, last = last, next(iter(last.users))
        gone.insert(0, last)
        if last.target is _aten.copy_.default:
            break
        # Of 16-bit statistics meta functions say that new ones are f32.
        if last.target is not _aten._to_copy.default:
            return None, []
    if last.target is not _aten.copy_.default or last.args[1] is not before or last.users:
        return None, []
    operand = last.args[0]
    source = node.args[0] if node.target is operator.getitem else node
    is_ours = operand.op == "placeholder" and source.target is target and set(operand.users) == {source, last}
    is_alike = operand.meta["val"].dtype == before.meta["val"].dtype
    return (operand, gone) if is_ours and is_alike else (None, [])


def _running(norm: fx.Node) -> list[fx.Node]:
    """Nodes of a batch norm's new running statistics, and of their copies to where the old ones are; none where those are needed."""
    parts = _parts(norm)
    new = [parts.get(3), parts.get(4)]
    if None in new:
        return []
    back = [_written_back(node, _FUNCTIONAL) for node in new]
    return [node for _, gone in back for node in gone] if [one for one, _ in back] == list(norm.args[3:5]) else []


def _fits(x: fx.Node, own: Any, added: fx.Node | None = None) -> bool:
    """Sizes are known, and kernels take these."""
    value, *others = (None if node is None else node.meta["val"] for node in (x, added, *own))
    return all(isinstance(size, int) for size in value.shape) and norm_fits(value, others[1:], others[0])


def _call(graph: fx.Graph, like: fx.Node, target: Any, arguments: tuple[Any, ...], values: tuple[Any, ...]) -> list[fx.Node]:
    """A call's results, as nodes that know what they make."""
    call = graph.call_function(target, arguments)
    call.meta = {key: value for key, value in like.meta.items() if key != "tensor_meta"} | {"val": values}
    parts = [graph.call_function(operator.getitem, (call, at)) for at in range(len(values))]
    for part, value in zip(parts, values, strict=True):
        part.meta = call.meta | {"val": value}
    return parts


def _halves(graph: fx.Graph, like: fx.Node, node: fx.Node) -> list[fx.Node]:
    """The first and the second half of a tensor."""
    value, half = node.meta["val"], node.meta["val"].shape[0] // 2
    return _call(graph, like, _aten.split.Tensor, (node, half), (value.new_empty(half), value.new_empty(half)))


class _Pair:
    """A batch norm in training, what follows it, and the backward passes of both, in a joint graph."""

    def __init__(self, back: fx.Node) -> None:
        self.back = back
        self.is_fit = False
        self.of_act, self.x = back.args[:2]
        mean = _source(back.args[5])
        self.norm = mean.args[0] if isinstance(mean, fx.Node) and mean.target is operator.getitem else None
        known = _ACTIVATIONS.get(self.of_act.target) if isinstance(self.of_act, fx.Node) else None
        if known is None or self.norm is None or self.norm.target is not _FUNCTIONAL or self.norm.args[5] is not True:
            return
        if back.args[7] is not True or not back.args[9][0] or not self._find(*known):
            return
        nodes = (self.norm, self.y, self.sum, self.of_act, back)
        self.is_fit = not any("recompute" in node.meta for node in nodes) and self._is_alone()

    def _find(self, target: Any, by_result: bool) -> bool:
        """Finds the activation, and what it reads: the norm's result, or a sum of that."""
        read = _source(self.of_act.args[1])
        found = read if by_result else next((user for user in read.users if user.target is target), None)
        if not isinstance(found, fx.Node) or found.target is not target or found.kwargs:
            return False
        self.y, self.sum = found, found.args[0]
        self.act, self.most = (1, None) if target is _aten.silu.default else (0, None)
        if target is _aten.hardtanh.default:
            if found.args[1] != 0 or found.args[1:3] != self.of_act.args[2:4]:
                return False
            self.most = float(found.args[2])
        elif by_result and self.of_act.args[2] != 0:
            return False
        self.first = _parts(self.norm).get(0)
        self.added = None
        if self.sum is not self.first:
            if self.act or self.sum.target is not _aten.add.Tensor or len(self.sum.args) != 2 or self.sum.kwargs:
                return False
            others = [arg for arg in self.sum.args if arg is not self.first]
            if len(others) != 1 or not isinstance(others[0], fx.Node) or set(self.first.users) != {self.sum}:
                return False
            self.added = others[0]
        return True

    def _is_alone(self) -> bool:
        """Nothing else needs what is computed no longer."""
        parts, ours = _parts(self.norm), {self.back}
        saved = [_source(node) for node in self.back.args[5:7]]
        if saved != [parts.get(1), parts.get(2)] or self.norm.args[0] is not self.x:
            return False
        of_saved = {user for node in saved for user in _uses(node)}
        of_sum = set(_uses(self.sum))
        is_view = [node.target is _aten.detach.default for node in (of_saved | of_sum) - ours - {self.y, self.of_act}]
        alone = all(is_view) and (self.added is not None or set(self.of_act.users) == ours) and bool(_parts(self.back))
        self.running = _running(self.norm)
        return alone and bool(self.running) and _fits(self.x, self.norm.args[1:5], self.added)

    def fuse(self) -> None:
        """Puts one call each way into their places."""
        graph, value = self.norm.graph, self.x.meta["val"]
        weight, how = self.norm.args[1], self.norm.args[6:8]
        channels = value.shape[1]
        statistics = value.new_empty(2 * channels, dtype=torch.float32), value.new_empty(4 * channels, dtype=torch.float32)
        of_own = value.new_empty(2 * channels, dtype=torch.float32 if weight is None else weight.meta["val"].dtype)
        with graph.inserting_before(self.y):
            arguments = (self.x, self.added, *self.norm.args[1:5], *how, self.act, self.most)
            made = (torch.empty_like(value), *statistics)
            y, save, kept = _call(graph, self.y, torch.ops.wave.batch_norm_act.default, arguments, made)
        with graph.inserting_before(self.of_act):
            grad = self.of_act.args[0]
            if self.added is None:
                arguments = (grad, self.x, weight, save, kept, how[1], self.act, self.most)
                target, made = torch.ops.wave.batch_norm_act_backward.default, (torch.empty_like(value), of_own)
                dx, own = _call(graph, self.back, target, arguments, made)
            else:
                # Gradients of two users are added in the same pass.
                is_sum = grad.target is _aten.add.Tensor and set(grad.users) == {self.of_act} and not grad.kwargs
                both = grad.args if is_sum else ()
                alike = both and all(isinstance(one, fx.Node) and one.meta["val"].shape == value.shape for one in both)
                grads = both if alike and both[0].meta["val"].dtype == both[1].meta["val"].dtype == value.dtype else (grad, None)
                arguments = (*grads, self.x, y, weight, save, how[1], self.most)
                target = torch.ops.wave.batch_norm_sum_backward.default
                made = (torch.empty_like(value), torch.empty_like(value), of_own)
                dx, of_added, own = _call(graph, self.back, target, arguments, made)
            results = [dx, *_halves(graph, self.back, own)]
        gone = [*_parts(self.back).values(), self.back, self.of_act]
        for at, node in _parts(self.back).items():
            node.replace_all_uses_with(results[at])
        self.y.replace_all_uses_with(y)
        if self.added is not None:
            self.of_act.replace_all_uses_with(of_added, delete_user_cb=lambda user: user is not self.back)
        views = [node for part in (self.sum, *_parts(self.norm).values()) for node in _uses(part)]
        gone += [node for node in reversed(views) if node.target is _aten.detach.default]
        gone += [self.y, self.sum, *self.running, *_parts(self.norm).values(), self.norm]
        for node in dict.fromkeys(gone):
            graph.erase_node(node)


def _is_channels_last(graph: fx.Graph) -> bool:
    """Tensors lie in channels_last. Where results of convolutions do is not what their nodes say, and passes would copy them."""
    weights = [node.args[1] for node in graph.find_nodes(op="call_function", target=_aten.convolution.default)]
    values = [node.meta.get("val") for node in (*weights, *graph.find_nodes(op="placeholder"))]
    wide = [value for value in values if isinstance(value, torch.Tensor) and value.dim() in (4, 5)]
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return any(not one.is_contiguous() and one.is_contiguous(memory_format=formats[one.dim()]) for one in wide)


def fuse_joint(module: fx.GraphModule) -> None:
    """Fuses batch norms with what follows them in a joint graph of AOTAutograd's, in place."""
    for back in module.graph.find_nodes(op="call_function", target=_BACKWARD):
        if back.args[7] is True:
            # By its running statistics there is no gradient: they need not be saved.
            back.args = (*back.args[:3], None, None, *back.args[5:])
    if _is_channels_last(module.graph):
        return
    for back in module.graph.find_nodes(op="call_function", target=_BACKWARD):
        pair = _Pair(back)
        if pair.is_fit:
            pair.fuse()


def _update_in_place(graph: fx.Graph) -> None:
    """What AOTAutograd made new tensors of, and copied back, is written where it lies: running statistics and counts of batches."""
    for norm in graph.find_nodes(op="call_function", target=_FUNCTIONAL):
        if gone := _running(norm):
            norm.target = _WRITING
            for node in gone:
                graph.erase_node(node)
    for add in graph.find_nodes(op="call_function", target=_aten.add.Tensor):
        operand, gone = _written_back(add, _aten.add.Tensor)
        if operand is not None and add.args[0] is operand and isinstance(add.args[1], int) and not add.kwargs:
            value, into = add.meta["val"], operand.meta["val"]
            if len(gone) == 2 and (value.dtype, value.shape) == (into.dtype, into.shape):
                add.target = _aten.add_.Tensor
                graph.erase_node(gone[0])


def _take_statistics(graph: fx.Graph) -> None:
    """A convolution computes the statistics of its result for the batch norm that alone reads it."""
    for node in graph.find_nodes(op="call_function", target=_aten.convolution.default):
        readers = [user for user in node.users if user.op != "output"]
        norm = readers[0] if len(readers) == 1 else None
        if norm is None or node.args[6] or node.kwargs or not norm.args or norm.args[0] is not node:
            continue
        if norm.target is _WRITING and norm.args[5] is True and _fits(node, norm.args[1:5]):
            parts, value = _parts(norm), node.meta["val"]
            with graph.inserting_before(norm):
                arguments = (node, None, *norm.args[1:5], *norm.args[6:8], *_ALONE)
                made = (torch.empty_like(value), value.new_empty(2 * value.shape[1], dtype=torch.float32), value.new_empty(0))
                y, save, _ = _call(graph, norm, torch.ops.wave.batch_norm_act.default, arguments, made)
                for at, result in enumerate((y, *_halves(graph, norm, save))):
                    if at in parts:
                        parts[at].replace_all_uses_with(result)
            for gone in (*parts.values(), norm):
                graph.erase_node(gone)
            norm = y.args[0]
        if norm.target is not torch.ops.wave.batch_norm_act.default or len(norm.args) != 10:
            continue
        with graph.inserting_before(node):
            y, statistics = _call(graph, node, convolution, node.args, (node.meta["val"], None))
        node.replace_all_uses_with(y)
        graph.erase_node(node)
        norm.args = (*norm.args, statistics)


def fuse_forward(graph: fx.Graph) -> None:
    """Does the rest in a graph of what runs at once, in place."""
    _update_in_place(graph)
    if not _is_channels_last(graph):
        _take_statistics(graph)
