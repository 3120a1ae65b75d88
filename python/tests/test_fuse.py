"""`wave32.fuse`: batch norms and ReLUs go into the convolutions before them."""

import pytest
import torch
import torch.nn.functional as F
import wave32
from torch import nn


class Net(nn.Module):
    """Every kind of ReLU, a result used twice, a convolution used twice, a padding that cannot be fused."""

    def __init__(self):
        super().__init__()
        self.one, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.two, self.relu = nn.Conv2d(8, 8, 3, groups=2), nn.ReLU(inplace=True)
        self.twice, self.odd = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect")
        self.same, self.up = nn.Conv2d(8, 8, 3, padding="same"), nn.ConvTranspose2d(8, 6, 2, 2)
        self.norm_up = nn.BatchNorm2d(6)
        for norm in (self.norm, self.norm_up):
            norm.running_mean.uniform_(-0.3, 0.3), norm.running_var.uniform_(0.5, 2)
            nn.init.uniform_(norm.weight, 0.5, 1.5), nn.init.uniform_(norm.bias, -0.3, 0.3)

    def forward(self, x):
        x = self.relu(self.norm(self.one(x)))
        x = self.two(x).relu()
        x = F.relu(self.twice(x)) + self.twice(x)
        y = self.odd(x)
        x = torch.relu(y) + y + torch.relu(self.same(x))
        return F.relu(self.norm_up(self.up(x)))


def test_fused_is_what_it_was():
    net = Net().eval()
    x = torch.randn(2, 3, 9, 11)
    expected = net(x)
    torch.wave.reset_fallbacks()
    fused = wave32.fuse(net.to("wave"))
    parts = [type(module).__name__ for module in fused.modules()]
    assert "BatchNorm2d" not in parts and parts.count("ConvReLU") == 4
    with torch.no_grad():
        torch.testing.assert_close(fused(x.to("wave")).cpu(), expected, rtol=1e-5, atol=1e-5)
    # With gradients, and elsewhere, it is the plain operators.
    leaf = x.to("wave").requires_grad_()
    fused(leaf).sum().backward()
    torch.testing.assert_close(fused.cpu()(x), expected, rtol=1e-5, atol=1e-5)
    x.requires_grad_()
    net.cpu()(x).sum().backward()
    torch.testing.assert_close(leaf.grad.cpu(), x.grad, rtol=1e-4, atol=1e-4)
    assert torch.wave.fallbacks() == {}


def test_half_and_refusals():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    x = torch.randn(2, 3, 9, 11)
    expected = net(x)
    with torch.no_grad():
        half = wave32.fuse(net).half().to("wave")(x.half().to("wave"))
        with torch.autocast("wave", torch.float16):
            cast = wave32.fuse(net).to("wave")(x.to("wave"))
    for found in (half, cast):
        torch.testing.assert_close(found.float().cpu(), expected, rtol=5e-3, atol=5e-3)
    with pytest.raises(ValueError, match="evaluation mode"):
        wave32.fuse(net.train())
