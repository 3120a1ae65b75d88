"""The layers of transformers that `torch.nn` runs in one piece in evaluation, against PyTorch on the CPU, without fallbacks."""

import copy

import pytest
import torch
from torch import nn

MASKS = ["none", "padding", "causal", "per_head", "both"]


def masks(kind, batch, length, heads):
    padding = torch.arange(length) >= torch.randint(1, length + 1, (batch, 1))
    causal = torch.ones(length, length, dtype=torch.bool).triu(1)
    per_head = causal.expand(batch * heads, -1, -1).clone()
    per_head[0, -1, 0] = True
    return {
        "none": (None, None), "padding": (None, padding), "causal": (causal, None), "per_head": (per_head, None),
        "both": (causal, padding),
    }[kind]  # fmt: skip


def to_wave(value):
    return value.to("wave") if isinstance(value, torch.Tensor) else value


def close(found, expected):
    if expected is None:
        assert found is None
        return
    assert found.device.type == "wave" and found.shape == expected.shape
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("grad", [False, True])
def test_attention(kind, grad):
    attention = nn.MultiheadAttention(24, 4, batch_first=True).eval()
    wave = copy.deepcopy(attention).to("wave")
    x = torch.randn(3, 6, 24)
    mask, padding = masks(kind, 3, 6, 4)
    torch.wave.reset_fallbacks()
    with torch.set_grad_enabled(grad):
        for weights, average in ((True, True), (True, False), (False, True)):
            how = dict(need_weights=weights, average_attn_weights=average)
            expected = attention(x, x, x, attn_mask=mask, key_padding_mask=padding, **how)
            moved = x.to("wave")
            found = wave(moved, moved, moved, attn_mask=to_wave(mask), key_padding_mask=to_wave(padding), **how)
            for one, other in zip(found, expected):
                close(one, other)
    assert torch.wave.fallbacks() == {}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer(kind, norm_first, activation):
    layer = nn.TransformerEncoderLayer(16, 2, 32, activation=activation, norm_first=norm_first, batch_first=True).eval()
    wave = copy.deepcopy(layer).to("wave")
    x = torch.randn(3, 5, 16)
    mask, padding = masks(kind, 3, 5, 2)
    torch.wave.reset_fallbacks()
    with torch.no_grad():
        expected = layer(x, src_mask=mask, src_key_padding_mask=padding)
        close(wave(x.to("wave"), src_mask=to_wave(mask), src_key_padding_mask=to_wave(padding)), expected)
        # The parameters' gradients matter to nobody, and the input stays as it is.
        before = x.to("wave")
        wave(before)
        assert torch.equal(before.cpu(), x)
    assert torch.wave.fallbacks() == {}


@pytest.mark.parametrize("nested", [True, False])
def test_encoder_with_padding(nested):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()
    wave = copy.deepcopy(encoder).to("wave")
    x, padding = torch.randn(2, 5, 16), torch.tensor([[0, 0, 0, 1, 1], [0] * 5]).bool()
    torch.wave.reset_fallbacks()
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=padding)
        found = wave(x.to("wave"), src_key_padding_mask=padding.to("wave"))
    assert torch.wave.fallbacks() == {} and found.shape == expected.shape
    # What the mask hides has no meaning: zeros with the CPU's nested tensors.
    torch.testing.assert_close(found.cpu()[~padding], expected[~padding], rtol=1e-5, atol=1e-5)


def test_whole_transformer_in_evaluation():
    model = nn.Transformer(16, 2, 2, 2, 32, batch_first=True).eval()
    wave = copy.deepcopy(model).to("wave")
    source, target = torch.randn(2, 5, 16), torch.randn(2, 4, 16)
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    torch.wave.reset_fallbacks()
    with torch.no_grad():
        expected = model(source, target, tgt_mask=causal)
        close(wave(source.to("wave"), target.to("wave"), tgt_mask=causal.to("wave")), expected)
    assert torch.wave.fallbacks() == {}


def test_all_hidden_is_nan_as_on_the_cpu():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x, hidden = torch.randn(2, 5, 16), torch.tensor([[1] * 5, [0] * 5]).bool()
    with torch.no_grad():
        expected = layer(x, src_key_padding_mask=hidden)
        close(layer.to("wave")(x.to("wave"), src_key_padding_mask=hidden.to("wave")), expected)


def test_a_mask_that_is_not_checked_is_refused():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1, mask_check=False).eval().to("wave")
    with torch.no_grad(), pytest.raises(NotImplementedError, match="enable_nested_tensor=False"):
        encoder(torch.randn(1, 3, 16, device="wave"), src_key_padding_mask=torch.zeros(1, 3, device="wave").bool())
