"""`wave32.fuse`: for inference convolution, batch norm, sum and activation in one launch; in training a batch norm and what
follows it in one pass each way."""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from . import _native

# These very types: a subclass may compute something else.
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d, nn.ConvTranspose2d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_RELUS = (torch.relu, torch.relu_, nn.functional.relu, nn.functional.relu_)


@functools.cache
def _most_bytes() -> int:
    """Of a tensor that one launch takes: a fused operator has no other way. Views may start between the places that a launch can bind."""
    return _native.max_range() - 512


def is_bindable(x: torch.Tensor) -> bool:
    """Whether one launch takes the tensor."""
    return x.numel() < 1 << 31 and x.numel() * x.itemsize <= _most_bytes()


def norm_fits(x: torch.Tensor, own: Iterable[torch.Tensor | None], added: torch.Tensor | None) -> bool:
    """Whether kernels of the device take a batch norm in training with what follows it. `own`: its parameters and statistics."""
    if x.device.type != "wave" or x.dim() < 2 or not x.is_contiguous() or x.dtype not in _FLOATS:
        return False
    if x.numel() <= x.shape[1] or not is_bindable(x):
        return False
    if added is not None:
        alike = added.device == x.device and added.dtype == x.dtype and added.shape == x.shape
        if not alike or not added.is_contiguous():
            return False
    return all(t.device == x.device and t.dtype in _FLOATS and t.is_contiguous() for t in own if t is not None)


def with_statistics(call: Callable[..., torch.Tensor], *arguments: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What a convolution gives, and the statistics of its result's channels where its kernels compute them."""
    _native.request_statistics()
    try:
        y = call(*arguments)
    finally:
        statistics = _native.take_statistics()
    return y, statistics


def _is_plain(x: torch.Tensor) -> bool:
    """Whether kernels of the device may take more than one step of a model at once."""
    if x.device.type != "wave" or torch.is_grad_enabled():
        return False
    # A compiler sees the casts of the plain operators.
    return not (torch.is_autocast_enabled("wave") and torch.compiler.is_compiling())


def _operands(x: torch.Tensor, layer: nn.Module) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Those of a layer, as its operator gets them: under autocast in its type."""
    if not torch.is_autocast_enabled("wave"):
        return x, layer.weight, layer.bias
    dtype = torch.get_autocast_dtype("wave")

    def cast(given: torch.Tensor | None) -> torch.Tensor | None:
        if given is None or given.dtype == dtype or given.dtype not in _FLOATS:
            return given
        return given.to(dtype) if given is x else torch.ops.wave.kept_cast(given, dtype)

    return cast(x), cast(layer.weight), cast(layer.bias)


def _arguments(conv: nn.Module, x: torch.Tensor) -> tuple[Any, ...] | None:
    """What the kernels of the device take of a convolution, where no gradient is asked for; none where they do not."""
    if not _is_plain(x) or x.dim() != conv.weight.dim() or isinstance(conv.padding, str):
        return None
    own = (conv.stride, conv.padding, conv.dilation, conv.transposed, conv.output_padding, conv.groups)
    return *_operands(x, conv), *own


_FUNCTIONS = {
    "relu": torch.relu, "relu6": nn.functional.relu6, "silu": nn.functional.silu, "hardswish": nn.functional.hardswish,
    "gelu": nn.functional.gelu,
}  # fmt: skip
_LEAKY = "leaky_relu"  # behind it the slope in hundredths


def _applied(activation: str, y: torch.Tensor) -> torch.Tensor:
    if activation.startswith(_LEAKY):
        return nn.functional.leaky_relu(y, int(activation.removeprefix(_LEAKY)) / 100)
    return _FUNCTIONS[activation](y) if activation != "none" else y


class _Activated(nn.Module):
    """A layer and the name of an activation behind it."""

    part = "conv"  # the layer's name in here

    def __init__(self, layer: nn.Module, activation: str):
        super().__init__()
        self.add_module(self.part, layer)
        self.activation = activation

    def extra_repr(self) -> str:
        return self.activation


class ConvActivation(_Activated):
    """A convolution and an activation of its result, in one launch on the device where no gradient is asked for."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (arguments := _arguments(self.conv, x)) is not None:
            try:
                return torch.ops.wave.convolution_activation(*arguments, self.activation)
            except NotImplementedError:  # Refused before anything was written.
                pass
        return _applied(self.activation, self.conv(x))


class _EagerActivated(_Activated):
    """One whose operator is not for a compiler's graphs, which fuse on their own (`_graph_fusion.py`)."""

    def _at_once(self, layer: Any, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        layer = getattr(self, self.part)
        if _is_plain(x) and not torch.compiler.is_compiling():
            try:
                return self._at_once(layer, x)
            except NotImplementedError:  # Refused before anything was written.
                pass
        return _applied(self.activation, layer(x))


class LinearActivation(_EagerActivated):
    """A linear layer and an activation of its result, in one launch on the device where no gradient is asked for."""

    part = "linear"

    def _at_once(self, layer: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.wave.linear_activation(*_operands(x, layer), self.activation)


class GroupNormActivation(_EagerActivated):
    """A group norm and ReLU, ReLU6 or SiLU of its result, in the same launches on the device where no gradient is asked for."""

    part = "norm"

    def _at_once(self, layer: Any, x: torch.Tensor) -> torch.Tensor:
        of_norm = (layer.num_groups, layer.weight, layer.bias, layer.eps)
        if torch.is_autocast_enabled("wave"):  # Norms are in f32 then.
            x = x.to(torch.float32)
        return torch.ops.wave.group_norm_act(x, *of_norm, *_OF_NORMS[self.activation])


class ConvSum(_Activated):
    """`added + conv(x)`, and an activation of that, in one launch where no gradient is asked for: it is written to `added`."""

    def forward(self, x: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        if (arguments := _arguments(self.conv, x)) is not None and not torch.compiler.is_compiling():
            try:
                return torch.ops.wave.convolution_sum_(added, *arguments, self.activation)
            except NotImplementedError:  # Refused before anything was written.
                pass
        return _applied(self.activation, self.conv(x) + added)


def fuse(model: nn.Module) -> nn.Module:
    """A copy of `model` whose results differ by rounding only; `model` must be one that `torch.fx` can trace.

    In evaluation mode: batch norms are folded into the convolutions before them, and activations into those and linear layers
    (ReLU, ReLU6, leaky ReLU of a slope in whole hundredths, SiLU, hardswish, GELU that is not approximate), ReLU, ReLU6 and SiLU
    into group norms; a convolution whose result is added to what nothing reads later (a residual block's last) adds it where
    it stores. In training mode: a
    batch norm and its ReLU, ReLU6 or SiLU run in one pass forward and back, ReLU and ReLU6 with an addition before them too;
    where the kernels of a convolution before a batch norm can, they compute its statistics as they store.
    Parameters keep their names. Make the optimizer from the copy's parameters.
    """
    return _fused_training(model) if model.training else _fused_inference(model)


class _Normed(torch.autograd.Function):
    """`act(batch_norm(x) + added)` with statistics of the batch. `act`: 0 ReLU, below `most` if that is given, 1 SiLU, 2 none.

    It is given twice: autograd need not add the gradients of its two uses, the backward pass does."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, added: torch.Tensor | None, weight: torch.Tensor | None, bias: torch.Tensor | None,
        mean: torch.Tensor | None, variance: torch.Tensor | None, momentum: float, eps: float, act: int, most: float | None,
        statistics: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        how = (momentum, eps, act, most, statistics)
        made = torch.ops.wave.batch_norm_act(x, added, weight, bias, mean, variance, *how)
        y, save, coefficients = made
        # The activation's operand is computed again from x; of a sum the result tells enough.
        ctx.save_for_backward(x, weight, save, coefficients if added is None else y)
        ctx.how = (eps, act, most, added is not None)
        ctx.set_materialize_grads(False)
        return y, y.detach()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        given = [grad for grad in grads if grad is not None]
        if not given:
            return (None,) * 11
        x, weight, save, kept = ctx.saved_tensors
        eps, act, most, adds = ctx.how
        of_added = None
        if adds:
            back = torch.ops.wave.batch_norm_sum_backward
            dx, of_added, of_own = back(given[0], given[1] if given[1:] else None, x, kept, weight, save, eps, most)
        else:
            grad = given[0] + given[1] if given[1:] else given[0]
            back = torch.ops.wave.batch_norm_act_backward
            dx, of_own = back(grad, x, weight, save, kept, eps, act, most)
        of_weight, of_bias = of_own[: x.shape[1]], of_own[x.shape[1] :]
        needs = ctx.needs_input_grad
        return dx, of_added, of_weight if needs[2] else None, of_bias if needs[3] else None, *[None] * 7


class _WithStatistics:
    """A convolution before a batch norm. It is one of `_WITH_STATISTICS`, and has the attributes of the class that it had.

    Where its kernels can, they compute the moments of its result's channels while they store; the result then carries those."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or x.device.type != "wave" or torch.compiler.is_compiling():
            return super().forward(x)
        y, statistics = with_statistics(super().forward, x)
        if statistics is not None:
            y._wave_statistics = (statistics, y._version)
        return y


class Conv1dStatistics(_WithStatistics, nn.Conv1d):
    """See `fuse`."""


class Conv2dStatistics(_WithStatistics, nn.Conv2d):
    """See `fuse`."""


_WITH_STATISTICS = {nn.Conv1d: Conv1dStatistics, nn.Conv2d: Conv2dStatistics}


class _WithActivation:
    """A batch norm that was given an activation, or a convolution's statistics. It is one of `_NORMED`, and has the attributes
    of the class that it had."""

    act: int
    most: float | None
    # Its result twice, for two users: see `_Normed`.
    twice: bool = False

    def _fits(self, x: torch.Tensor, added: torch.Tensor | None) -> bool:
        if not self.training or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
            return False
        own = (self.weight, self.bias, self.running_mean, self.running_var)
        return norm_fits(x, own, added) and (added is None or not self.act)

    def forward(self, x: torch.Tensor, added: torch.Tensor | None = None) -> Any:
        if self._fits(x, added):
            statistics, version = x.__dict__.pop("_wave_statistics", (None, 0))
            # Something may have written to it since.
            statistics = statistics if version == x._version else None
            momentum = 0.0 if self.momentum is None else self.momentum
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
                if self.momentum is None:
                    momentum = 1.0 / float(self.num_batches_tracked)
            own = (self.weight, self.bias, self.running_mean, self.running_var)
            both = _Normed.apply(x, added, *own, momentum, self.eps, self.act, self.most, statistics)
            return both if self.twice else both[0]
        y = super().forward(x)
        y = y if added is None else y + added
        if self.act == 1:
            y = nn.functional.silu(y)
        elif self.act == 0:
            y = torch.relu(y) if self.most is None else nn.functional.hardtanh(y, 0.0, self.most)
        return (y, y) if self.twice else y


class BatchNorm1dActivation(_WithActivation, nn.BatchNorm1d):
    """See `fuse`."""


class BatchNorm2dActivation(_WithActivation, nn.BatchNorm2d):
    """See `fuse`."""


class BatchNorm3dActivation(_WithActivation, nn.BatchNorm3d):
    """See `fuse`."""


_NORMED = {
    nn.BatchNorm1d: BatchNorm1dActivation, nn.BatchNorm2d: BatchNorm2dActivation, nn.BatchNorm3d: BatchNorm3dActivation,
}  # fmt: skip
# Of modules, functions and methods.
_ACTIVATIONS = {
    nn.ReLU: "relu", nn.ReLU6: "relu6", nn.SiLU: "silu", nn.Hardswish: "hardswish", nn.GELU: "gelu", nn.LeakyReLU: _LEAKY,
    **dict.fromkeys(_RELUS, "relu"), "relu": "relu", "relu_": "relu",
    nn.functional.relu6: "relu6", nn.functional.silu: "silu", nn.functional.hardswish: "hardswish",
    nn.functional.gelu: "gelu", nn.functional.leaky_relu: _LEAKY,
}  # fmt: skip
# What a batch norm's kernels apply: act and most.
_OF_NORMS = {"relu": (0, None), "relu6": (0, 6.0), "silu": (1, None)}
_ALONE = (2, None)
_IN_PLACE = (operator.iadd, "add_")
_SUMS = (operator.add, torch.add, "add", *_IN_PLACE)
_CALLS = ("call_function", "call_method")


def _activation(node: fx.Node, module: nn.Module | None, names: dict[Any, str] = _ACTIVATIONS) -> str | None:
    """Which activation a node is, if it is one. `module`: that of a call of a module."""

    def given(name: str, default: Any) -> Any:
        if module is not None:
            return getattr(module, name)
        return node.kwargs.get(name, node.args[1] if len(node.args) > 1 else default)

    of_call = node.target if node.op in _CALLS else None
    name = names.get(type(module) if node.op == "call_module" else of_call)
    if name == "gelu":
        return name if given("approximate", "none") == "none" else None
    if name == _LEAKY:
        slope = given("negative_slope", 0.01)
        if not isinstance(slope, float) or not 0 <= slope <= 1.27 or abs(slope * 100 - round(slope * 100)) > 1e-7:
            return None
        return f"{name}{round(slope * 100)}"
    return name


def _is_sum(node: fx.Node) -> bool:
    """Whether a node adds two operands, and does nothing else."""
    return node.op in _CALLS and node.target in _SUMS and len(node.args) == 2 and not node.kwargs


def _fused_training(model: nn.Module) -> nn.Module:
    traced = fx.symbolic_trace(copy.deepcopy(model))
    # What a model decides by its mode is decided while it is traced.
    if str(traced.graph) != str(fx.symbolic_trace(copy.deepcopy(model).eval()).graph):
        raise ValueError("the model computes something else in evaluation mode: it cannot be fused for training")
    modules, graph = dict(traced.named_modules()), traced.graph
    calls = [node.target for node in graph.nodes if node.op == "call_module"]

    readers = (*_CONVOLUTIONS, *_WITH_STATISTICS.values())

    def is_alone(node: Any, kinds: Any = _NORMED) -> bool:
        """A call of such a module, a batch norm by default, that has no other."""
        if not isinstance(node, fx.Node) or node.op != "call_module" or len(node.args) != 1:
            return False
        return type(modules[node.target]) in kinds and calls.count(node.target) == 1

    def is_norm(node: Any) -> bool:
        """The same of a batch norm that nothing else uses."""
        return is_alone(node) and len(node.users) == 1

    def gives_statistics(node: Any) -> bool:
        """A convolution that can compute its result's moments for its only user."""
        if not is_alone(node, _WITH_STATISTICS) or len(node.users) != 1:
            return False
        conv = modules[node.target]
        return conv.padding_mode == "zeros" and not isinstance(conv.padding, str)

    def become(node: fx.Node, act: int, most: float | None) -> None:
        """Turns a batch norm's module into one of `_WithActivation`, and the convolution before it into one of `_WithStatistics`."""
        norm = modules[node.target]
        norm.__class__, norm.act, norm.most = _NORMED[type(norm)], act, most
        if gives_statistics(node.args[0]):
            conv = modules[node.args[0].target]
            conv.__class__ = _WITH_STATISTICS[type(conv)]

    def is_fused(node: fx.Node) -> bool:
        return node.op == "call_module" and isinstance(modules[node.target], _WithActivation)

    def leaves_alone(node: fx.Node) -> bool:
        """Reads what it is given and keeps no view of it."""
        return node.op == "call_module" and (type(modules[node.target]) in readers or is_fused(node))

    for node in list(graph.nodes):
        activation = _OF_NORMS.get(_activation(node, modules.get(node.target)))
        if activation is None or not node.args or not isinstance(node.args[0], fx.Node):
            continue
        act, most = activation
        before, others = node.args[0], []
        norm = before if is_norm(before) else None
        if norm is None and _is_sum(before) and len(before.users) == 1 and not act:
            # What is written in place must be the norm's result, which nothing else sees.
            candidates = before.args[:1] if before.target in _IN_PLACE else before.args
            norm = next((arg for arg in candidates if is_norm(arg)), None)
            others = [arg for arg in before.args if arg is not norm]
        if norm is None or any(not isinstance(arg, fx.Node) for arg in others) or len(others) > 1:
            continue
        become(norm, act, most)
        with graph.inserting_before(node):
            made = graph.call_module(norm.target, (norm.args[0], *others))
        node.replace_all_uses_with(made)
        for gone in (node, before, norm):
            if gone in graph.nodes and not gone.users:
                graph.erase_node(gone)
    for node in graph.nodes:
        # One that nothing follows still takes the statistics that its convolution computes.
        if is_alone(node) and gives_statistics(node.args[0]):
            become(node, *_ALONE)
    for node in list(graph.nodes):
        if len(node.users) == 2 and len(node.args) == 2 and is_fused(node) and all(map(leaves_alone, node.users)):
            modules[node.target].twice = True
            with graph.inserting_after(node):
                ones = [graph.call_function(operator.getitem, (node, index)) for index in range(2)]
            users = [user for user in node.users if user not in ones]
            for user, one in zip(users, ones, strict=True):
                user.replace_input_with(node, one)
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


def _fused_inference(model: nn.Module) -> nn.Module:
    traced = fx.symbolic_trace(copy.deepcopy(model))
    modules = dict(traced.named_modules())

    def put(node: fx.Node, module: nn.Module) -> None:
        parent, _, name = node.target.rpartition(".")
        setattr(traced.get_submodule(parent), name, module)
        modules[node.target] = module

    def module_of(node: fx.Node) -> nn.Module | None:
        return modules.get(node.target) if isinstance(node, fx.Node) and node.op == "call_module" else None

    calls = [node.target for node in traced.graph.nodes if node.op == "call_module"]

    def conv_of(node: Any) -> nn.Module | None:
        """The convolution of a node, where its result and itself have one use."""
        conv = module_of(node)
        alone = type(conv) in _CONVOLUTIONS and len(node.users) == 1 and calls.count(node.target) == 1
        return conv if alone and conv.padding_mode == "zeros" else None

    def is_a(kind: type, node: Any) -> bool:
        """A layer of that very type whose result and itself have one use."""
        return type(module_of(node)) is kind and len(node.users) == 1 and calls.count(node.target) == 1

    for node in list(traced.graph.nodes):
        before, module = node.args[0] if node.args else None, module_of(node)
        if is_a(nn.Linear, before) and (activation := _activation(node, module)) is not None:
            put(before, LinearActivation(module_of(before), activation))
        elif is_a(nn.GroupNorm, before) and (activation := _activation(node, module)) in _OF_NORMS:
            put(before, GroupNormActivation(module_of(before), activation))
        elif (conv := conv_of(before)) is None:
            continue
        elif type(module) in _NORMS and module.track_running_stats:
            put(before, fuse_conv_bn_eval(conv, module, conv.transposed))
        elif (activation := _activation(node, module)) is not None:
            put(before, ConvActivation(conv, activation))
        else:
            continue
        node.replace_all_uses_with(before)
        traced.graph.erase_node(node)
    _fuse_sums(traced.graph, module_of, conv_of, put)
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


# Their results are memory of their own, and they keep no view of what they are given.
_MAKERS = (*_CONVOLUTIONS, *_NORMS, ConvActivation, ConvSum, nn.MaxPool2d, nn.AvgPool2d)


def _fuse_sums(graph: fx.Graph, module_of: Any, conv_of: Any, put: Any) -> None:
    """Puts a `ConvSum` in the place of a convolution, a sum, and its activation if it has one."""
    order = {node: at for at, node in enumerate(graph.nodes)}

    def makes(node: Any) -> bool:
        return type(module_of(node)) in _MAKERS

    for node in list(graph.nodes):
        if not _is_sum(node):
            continue
        pairs = [node.args, node.args[::-1]]
        # A sum in place is written to its first operand, whose other users would see it.
        for one, other in pairs[:1] if node.target in _IN_PLACE else pairs:
            conv = conv_of(one)
            if conv is None or conv.weight.dim() != 4 or not makes(other):
                continue
            # The other's memory becomes the sum's: nothing may read it later, and nothing between may write what the
            # convolution reads.
            last = all(makes(user) and order[user] < order[node] for user in other.users if user is not node)
            between = [n for n in graph.nodes if order[one] < order.get(n, -1) < order[node]]
            if not last or not all(map(makes, between)) or one.args[0] is other or len(one.args) != 1:
                continue
            after = next(iter(node.users)) if len(node.users) == 1 else None
            activation = None if after is None else _activation(after, module_of(after))
            after = after if activation is not None else None
            put(one, ConvSum(conv, activation or "none"))
            with graph.inserting_before(node):
                made = graph.call_module(one.target, (one.args[0], other))
            order[made] = order[node]
            for gone in filter(None, (after, node, one)):
                gone.replace_all_uses_with(made)
                graph.erase_node(gone)
            break
