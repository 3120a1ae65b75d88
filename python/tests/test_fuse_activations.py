"""`wave32.fuse`: activations go into the convolutions, linear layers and group norms before them."""

import pytest
import torch
import torch.nn.functional as F
import wave32
from torch import nn


class LeakyCall(nn.Module):
    def __init__(self, *slope, **named):
        super().__init__()
        self.slope, self.named = slope, named

    def forward(self, x):
        return F.leaky_relu(x, *self.slope, **self.named)


ACTIVATIONS = {
    "relu": nn.ReLU(), "relu6": nn.ReLU6(), "silu": nn.SiLU(inplace=True), "hardswish": nn.Hardswish(), "gelu": nn.GELU(), "leaky_relu1": nn.LeakyReLU(),
    "leaky_relu20": LeakyCall(0.2, inplace=True), "leaky_relu10": LeakyCall(negative_slope=0.1),
}  # fmt: skip
OTHERS = [nn.GELU("tanh"), nn.LeakyReLU(0.123), nn.LeakyReLU(-0.1), LeakyCall(2.0), nn.Tanh()]


def name_of(activation):
    """Of one that kernels know, else none."""
    return next((name for name, one in ACTIVATIONS.items() if one is activation), None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("activation", [*ACTIVATIONS.values(), *OTHERS], ids=repr)
def test_activations(activation, dtype):
    name = name_of(activation)
    depthwise, dense, up = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 48, 1), nn.ConvTranspose2d(48, 8, 3, 2)
    net = nn.Sequential(depthwise, nn.BatchNorm2d(8), activation, dense, activation, up, activation).eval()
    net[1].running_mean.uniform_(-0.3, 0.3), net[1].running_var.uniform_(0.5, 2)
    net, x = net.to(dtype).float(), (torch.randn(2, 8, 15, 18) * 4).to(dtype).float()
    fused = wave32.fuse(net.to(dtype)).to("wave")
    kinds = [module.activation for module in fused.modules() if isinstance(module, wave32._fuse.ConvActivation)]
    assert kinds == ([name] * 3 if name else [])
    with torch.no_grad():
        expected = net.double()(x.double())
        found = fused(x.to("wave", dtype)).cpu()
    bound = (1e-5 if dtype == torch.float32 else 1e-2) * expected.abs().max()
    off = (found.double() - expected).abs()
    assert found.dtype == dtype and off.max() <= bound, f"{(off > bound).sum()} of {off.numel()}, the first at {(off > bound).nonzero()[0].tolist()}"
    # Elsewhere it is the plain operators.
    assert (fused.float().cpu()(x) - expected).abs().max() <= bound


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("activation", [*ACTIVATIONS.values(), *OTHERS[:2]], ids=repr)
def test_activations_of_linear_layers(activation, dtype):
    name = name_of(activation)
    # Tiles, one with a small side, an odd size; the last is used twice.
    layers = nn.Linear(64, 160), nn.Linear(160, 3, bias=False), nn.Linear(3, 21), nn.Linear(21, 21)
    net = nn.Sequential(layers[0], activation, layers[1], activation, layers[2], activation, layers[3], activation, layers[3])
    fused = wave32.fuse(net.eval().to(dtype)).to("wave")
    kinds = [module.activation for module in fused.modules() if isinstance(module, wave32._fuse.LinearActivation)]
    assert kinds == ([name] * 3 if name is not None else [])
    bound = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 4e-2}[dtype]
    for shape in ((64,), (5, 64), (2, 3, 50, 64), (0, 64), (7, 40, 128)):
        x = (torch.randn(shape) * 4).to(dtype)
        x = x[..., ::2] if shape[-1] == 128 else x
        with torch.no_grad():
            expected, found = net.double().cpu()(x.double()), fused(x.to("wave"))
        assert found.dtype == dtype and found.shape == expected.shape
        assert (found.cpu().double() - expected).abs().sum() <= bound * expected.abs().sum()
    assert torch.wave.fallbacks() == {}
    # With gradients, and elsewhere, it is the plain operators.
    leaf = torch.randn(5, 64, dtype=dtype).to("wave").requires_grad_()
    fused(leaf).sum().backward()
    assert leaf.grad.isfinite().all()
    x = torch.randn(5, 64)
    expected = net.float()(x)
    assert (fused.float().cpu()(x) - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("activation", [*ACTIVATIONS.values(), *OTHERS[:2]], ids=repr)
def test_activations_of_group_norms(activation, dtype):
    name = name_of(activation)
    # One group, without weights, a group a channel. Behind an activation a group may be of nearly one number, so each is fed by itself.
    norms = nn.GroupNorm(4, 12), nn.GroupNorm(1, 12), nn.GroupNorm(3, 12, affine=False), nn.GroupNorm(12, 12)
    for norm in norms[:2]:
        nn.init.normal_(norm.weight, 1.0), nn.init.normal_(norm.bias)
    layers = [part for norm in norms for part in (norm, activation)]
    fused = wave32.fuse(nn.Sequential(*layers, norms[3]).eval())
    kinds = [module.activation for module in fused.modules() if isinstance(module, wave32._fuse.GroupNormActivation)]
    assert kinds == ([name] * 3 if name in wave32._fuse._OF_NORMS else []), "the last is used twice"
    bound = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    # Rows that registers hold, and longer ones.
    for shape in ((2, 12, 5, 7), (3, 12, 64, 48), (1, 12, 71, 73), (2, 12, 11), (2, 12, 3, 30, 30), (0, 12, 4, 4), (5, 12)):
        net = nn.Sequential(norms[shape[2:] != () and shape[-1] % 4], activation).eval().to(dtype)
        fused, x = wave32.fuse(net).to("wave"), (torch.randn(shape) * 3 + 1).to(dtype)
        with torch.no_grad():
            expected, found = net.double()(x.double()), fused(x.to("wave"))
            assert found.dtype == dtype and found.shape == expected.shape
            assert (found.cpu().double() - expected).abs().sum() <= bound * expected.abs().sum(), shape
            if len(shape) == 4 and x.numel():
                last = fused(x.to("wave").contiguous(memory_format=torch.channels_last))
                assert last.is_contiguous(memory_format=torch.channels_last) and torch.equal(last, found)
    assert torch.wave.fallbacks() == {}
    # With gradients, and elsewhere, it is the plain operators.
    leaf = torch.randn(2, 12, 9, dtype=dtype).to("wave").requires_grad_()
    fused(leaf).sum().backward()
    assert leaf.grad.isfinite().all()
    x = torch.randn(2, 12, 9)
    expected = net.float()(x)
    assert (fused.float().cpu()(x) - expected).abs().max() <= 1e-5 * expected.abs().max()
    with pytest.raises(RuntimeError):
        fused.to("wave")(torch.randn(2, 13, 9).to("wave"))
