"""Autocast and GradScaler on whole models, beside f32 on the CPU."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, interpolate


class UNet(nn.Module):
    """Two levels: a skip, a stride, an upsampling."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.norm, self.last = nn.BatchNorm2d(16), nn.Conv2d(24, 5, 1)

    def forward(self, x):
        skip = self.inner(x).relu()
        deep = interpolate(self.norm(self.outer(skip)).relu(), scale_factor=2, mode="bilinear", align_corners=False)
        return self.last(torch.cat([skip, deep], 1)).mean((2, 3))


class Transformer(nn.Module):
    """A vision transformer of one layer."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.layer(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=8),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )


MODELS = {"cnn": cnn, "unet": UNet, "transformer": Transformer}


def train(model, data, device, dtype):
    """Losses of a few steps; f16 with a scaler."""
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    scaler = torch.amp.GradScaler(device, init_scale=256.0, enabled=dtype is torch.float16)
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        with torch.autocast(device, dtype or torch.bfloat16, enabled=dtype is not None):
            output = model(x.to(device))
            assert dtype is None or output.dtype == dtype
            loss = cross_entropy(output, y.to(device))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert torch.isfinite(norm).item()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["f16", "bf16"])
def test_training_under_autocast_is_as_good_as_the_cpu(name, dtype):
    reference = MODELS[name]()
    labels = torch.randint(0, 5, (8,))
    # The same batch each time: there is something to learn.
    data = [(torch.randn(8, 3, 16, 16), labels)] * 6
    exact = train(copy.deepcopy(reference), data, "cpu", None)
    torch.wave.reset_fallbacks()
    mixed = train(copy.deepcopy(reference), data, "wave", dtype)
    # Rounding of bf16 (2^-9 an operand) over a few layers and steps of Adam, which takes signs of small gradients.
    torch.testing.assert_close(mixed, exact, rtol=0.05, atol=0.05)
    assert mixed[-1] < mixed[0]
    # Attention asks for it; it gives no gradient and is cheap.
    assert set(torch.wave.fallbacks()) <= {"aten::isneginf.out"}


def test_the_first_step_is_as_close_to_f32_as_autocast_on_the_cpu():
    reference = cnn()
    x, y = torch.randn(16, 3, 16, 16), torch.randint(0, 5, (16,))

    def gradient(device, dtype):
        model = copy.deepcopy(reference).to(device)
        with torch.autocast(device, torch.bfloat16, enabled=dtype is not None):
            loss = cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        return torch.cat([p.grad.flatten().cpu() for p in model.parameters()])

    exact = gradient("cpu", None)
    error = [(gradient(device, torch.bfloat16) - exact).norm() / exact.norm() for device in ["wave", "cpu"]]
    # Both round to bf16 at the same places; which way is chance.
    assert error[0] < max(3 * error[1], 0.02), error


def test_a_step_with_infinities_is_skipped_and_the_scale_halved():
    model = cnn().to("wave")
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    scaler = torch.amp.GradScaler("wave", init_scale=2.0**15, growth_interval=2)
    scales, moved = [], []
    for number in range(5):
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.zero_grad()
        with torch.autocast("wave", torch.float16):
            loss = model(torch.randn(4, 3, 16, 16, device="wave")).square().mean()
            loss = loss * float("inf") if number == 1 else loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        moved.append(any((p != q).any().item() for p, q in zip(model.parameters(), before)))
    assert moved == [True, False, True, True, True]
    assert scales == [2.0**15, 2.0**14, 2.0**14, 2.0**15, 2.0**15]
    state = scaler.state_dict()
    fresh = torch.amp.GradScaler("wave")
    fresh.load_state_dict(state)
    assert fresh.get_scale() == scales[-1]
