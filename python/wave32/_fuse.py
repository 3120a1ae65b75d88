"""Convolution, batch norm and ReLU in one launch, for inference."""

from __future__ import annotations

import copy

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

# These very types: a subclass may compute something else.
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d, nn.ConvTranspose2d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
_RELUS = (torch.relu, torch.relu_, nn.functional.relu, nn.functional.relu_)


class ConvReLU(nn.Module):
    """A convolution and the ReLU of its result, in one launch on the device where no gradient is asked for."""

    def __init__(self, conv: nn.Module):
        super().__init__()
        self.conv = conv

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        conv = self.conv
        plain = not torch.is_grad_enabled() and not torch.is_autocast_enabled("wave") and x.dim() == conv.weight.dim()
        if x.device.type == "wave" and plain and not isinstance(conv.padding, str):
            try:
                return torch.ops.wave.convolution_relu(
                    x, conv.weight, conv.bias, conv.stride, conv.padding, conv.dilation, conv.transposed,
                    conv.output_padding, conv.groups,
                )  # fmt: skip
            except NotImplementedError:  # Refused before anything was written.
                pass
        return torch.relu(conv(x))


def fuse(model: nn.Module) -> nn.Module:
    """A copy of `model` for inference: batch norms are folded into the convolutions before them, and ReLUs into those.

    `model` must be in evaluation mode and one that `torch.fx` can trace; its results change by rounding only.
    """
    if model.training:
        raise ValueError("only a model in evaluation mode can be fused: call .eval() first")
    traced = fx.symbolic_trace(copy.deepcopy(model))
    modules = dict(traced.named_modules())

    def put(node: fx.Node, module: nn.Module) -> None:
        parent, _, name = node.target.rpartition(".")
        setattr(traced.get_submodule(parent), name, module)
        modules[node.target] = module

    def module_of(node: fx.Node) -> nn.Module | None:
        return modules.get(node.target) if isinstance(node, fx.Node) and node.op == "call_module" else None

    calls = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    for node in list(traced.graph.nodes):
        before = node.args[0] if node.args else None
        conv = module_of(before)
        # One use of the convolution's result, and of the convolution itself.
        alone = type(conv) in _CONVOLUTIONS and len(before.users) == 1 and calls.count(before.target) == 1
        if not alone or conv.padding_mode != "zeros":
            continue
        module = module_of(node)
        relu = type(module) is nn.ReLU or (node.op == "call_function" and node.target in _RELUS)
        relu = relu or (node.op == "call_method" and node.target in ("relu", "relu_"))
        if type(module) in _NORMS and module.track_running_stats:
            put(before, fuse_conv_bn_eval(conv, module, conv.transposed))
        elif relu:
            put(before, ConvReLU(conv))
        else:
            continue
        node.replace_all_uses_with(before)
        traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced
