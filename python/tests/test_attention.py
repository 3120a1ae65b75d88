"""The layers of transformers that `torch.nn` runs in one piece in evaluation, against PyTorch on the CPU, without fallbacks."""

import copy

import pytest
import torch
import torch.nn.functional as F
from compiling import plain
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


def attended(leaves, heads, mask, causal, grad, device, dtype):
    """The result and the leaves' gradients; one leaf is queries, keys and values side by side, as vision transformers have it."""
    inputs = [leaf.to(device, dtype).requires_grad_(leaf.requires_grad) for leaf in leaves]
    q, k, v = inputs if len(inputs) == 3 else inputs[0].unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    mask = mask if mask is None or mask.dtype == torch.bool else mask.to(dtype)
    made = F.scaled_dot_product_attention(
        q, k, v, to_wave(mask) if device == "wave" else mask, is_causal=causal, enable_gqa=True
    )
    wanted = [x for x in inputs if x.requires_grad]
    return [made.detach(), *torch.autograd.grad(made, wanted, grad.to(device, dtype).expand_as(made))]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype, bound", [(torch.float32, 3e-6), (torch.float16, 2e-3), (torch.bfloat16, 1.5e-2)])
def test_gradients(dtype, bound):
    def heads_behind_rows(*sizes):
        return torch.randn(sizes[0], sizes[2], sizes[1], sizes[3]).transpose(1, 2)

    n, heads, rows = 2, 4, int(torch.randint(60, 140, ()))
    shared = [torch.randn(n, h, length, 40) for h, length in ((heads, rows), (2, 77), (2, 77))]
    behind = [heads_behind_rows(n, heads, rows, size) for size in (24, 24, 160)]
    repeated = [torch.randn(1, heads, rows, 80).expand(3, -1, -1, -1) for _ in range(3)]
    some = [x.clone().requires_grad_(wants) for x, wants in zip(behind, (False, True, False))]
    hidden = torch.rand(rows, 77) < 0.6
    hidden[3] = False
    hidden[:, 5] |= hidden.any(1).logical_not() & (torch.arange(rows) != 3)
    # Leaves, mask, causal, the result's gradient.
    cases = {
        "side by side": ([torch.randn(n, rows, 3 * heads * 64)], None, False, torch.randn(n, heads, rows, 64)),
        "shared, masked": (shared, torch.randn(n, 1, rows, 77), False, torch.randn(n, heads, rows, 40)),
        "shared, hidden": (shared, hidden, False, torch.randn(n, heads, rows, 40)),
        "causal, behind rows": (behind, None, True, heads_behind_rows(n, heads, rows, 160)),
        "repeated": (repeated, None, False, torch.randn(3, heads, rows, 80)),
        "of keys alone": (some, None, False, torch.randn(n, heads, rows, 160)),
        "one number": ([torch.randn(1, 2, rows, 128) for _ in range(3)], None, False, torch.randn(())),
    }
    for name, (leaves, mask, causal, grad) in cases.items():
        leaves = [x.to(dtype).detach().requires_grad_(x.requires_grad or name != "of keys alone") for x in leaves]
        grad, mask = grad.to(dtype), mask if mask is None or mask.dtype == torch.bool else mask.to(dtype)
        found = attended(leaves, heads, mask, causal, grad, "wave", dtype)
        expected = attended(leaves, heads, mask, causal, grad, "cpu", torch.float64)
        for one, other in zip(found, expected, strict=True):
            # A query that sees no key: zeros here, NaN by the CPU's formula.
            other = other.nan_to_num()
            error = (one.cpu().double() - other).norm() / other.norm()
            assert error < bound, f"{name}: {error}"
    assert torch.wave.fallbacks() == {}


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_need_no_matrix_of_scores(compiled, fresh_compiler):
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v) * 2

    attend = plain(attend) if compiled else attend
    q, k, v = (torch.randn(1, 4, 1024, 16, device="wave", requires_grad=True) for _ in range(3))
    attend(q, k, v).sum().backward()
    q.grad = k.grad = v.grad = None
    torch.wave.reset_peak_memory_stats()
    before = torch.wave.memory_allocated()
    attend(q, k, v).sum().backward()
    # The scores have 16 MiB; an operand has 256 KiB.
    assert torch.wave.max_memory_allocated() - before < 4 << 20


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_gradients_are_eager_s(dtype, fresh_compiler):
    """The same kernels: the same bits, of a bias's gradient too, whatever lies in memory how."""

    def attend(x, keys, values, bias):
        heads = x.unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        causal = F.scaled_dot_product_attention(*heads, is_causal=True)
        biased = F.scaled_dot_product_attention(heads[0], keys, values, bias, enable_gqa=True)
        return causal.transpose(1, 2).flatten(2), biased.transpose(1, 2).flatten(2).sin()

    compiled = plain(attend)
    sizes = [(3, 9, 48), (3, 1, 7, 8), (3, 1, 7, 12), (1, 2, 9, 7)]
    leaves = [torch.randn(size).to("wave", dtype).requires_grad_() for size in sizes]
    found = []
    for call in (compiled, attend):
        outs = call(*leaves)
        found.append([*outs, *torch.autograd.grad(sum(y.float().square().sum() for y in outs), leaves)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(
            one, other, rtol=1e-5 if dtype == torch.float32 else 2e-2, atol=1e-5 if dtype == torch.float32 else 2e-2
        )


def test_gradients_of_gradients():
    leaves = [torch.randn(2, 2, 5, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    found = []
    for device, dtype in (("cpu", torch.float64), ("wave", torch.float32)):
        inputs = [leaf.detach().to(device, dtype).requires_grad_() for leaf in leaves]
        # Of its fused attention, the CPU has no second derivative.
        with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
            made = F.scaled_dot_product_attention(*inputs)
        grads = torch.autograd.grad(made.square().sum(), inputs, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in grads), inputs))
    for expected, one in zip(*found):
        torch.testing.assert_close(one.cpu().double(), expected, rtol=1e-4, atol=1e-4)


def dropped(leaves, mask, p, seed, device, kept=None):
    """The result and the gradients of leaves that want one; on the CPU by the definition, in f64, with the weights that are kept."""
    q, k, v, mask = inputs = [
        None if x is None else x.detach().to(device, x.dtype if device == "wave" else torch.float64).requires_grad_()
        for x in (*leaves, mask)
    ]
    torch.manual_seed(seed)
    if device == "wave":
        made = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=p, enable_gqa=True)
    else:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        scores = q @ k.mT * q.shape[-1] ** -0.5
        made = ((scores if mask is None else scores + mask).softmax(-1) * kept) @ v
    torch.manual_seed(seed)
    grad = torch.randn(made.shape).to(device, made.dtype)
    return [made.detach(), *torch.autograd.grad(made, [x for x in inputs if x is not None], grad)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype, bound", [(torch.float32, 5e-6), (torch.float16, 3e-3), (torch.bfloat16, 2e-2)])
def test_dropout_and_a_masks_gradient(dtype, bound):
    n, heads, rows, keys = 2, 4, int(torch.randint(60, 140, ())), 68
    masks = [None, torch.randn(rows, keys), torch.randn(1, heads, rows, keys), torch.randn(n, 1, 1, keys)]
    for mask, p in zip((*masks, masks[1]), (0.3, 0.0, 0.1, 0.5, 0.7)):
        leaves = [torch.randn(n, h, length, 24).to(dtype) for h, length in ((heads, rows), (2, keys), (2, keys))]
        mask, seed = mask if mask is None else mask.to(dtype), int(torch.randint(1 << 30, ()))
        unit = torch.eye(keys, dtype=dtype).expand(n, 2, keys, keys)
        with torch.no_grad():
            torch.manual_seed(seed)
            q, k, unit, wave_mask = (to_wave(x) for x in (*leaves[:2], unit, mask))
            weights = F.scaled_dot_product_attention(q, k, unit, wave_mask, dropout_p=p, enable_gqa=True).cpu()
        kept = (weights != 0).double()
        share = kept.mean().item()
        assert abs(share - 1 + p) < 5 * (p * (1 - p) / kept.numel()) ** 0.5 + (
            1e-5 if dtype == torch.float32 else 0.02
        ), (p, share)
        kept *= 65536 / (65536 - round(p * 65536))
        found = dropped(leaves, mask, p, seed, "wave")
        expected = dropped(leaves, mask, p, seed, "cpu", kept)
        for one, other in zip(found, expected, strict=True):
            assert one.shape == other.shape and one.dtype == dtype
            error = (one.cpu().double() - other).norm() / other.norm()
            assert error < bound, f"{None if mask is None else mask.shape}, {p}: {error}"
    assert torch.wave.fallbacks() == {}


def test_dropout_draws_anew_and_needs_no_matrix_of_scores():
    q, k, v = (torch.randn(1, 4, 1024, 16, device="wave", requires_grad=True) for _ in range(3))
    torch.manual_seed(5)
    first = F.scaled_dot_product_attention(q, k, v, dropout_p=0.2)
    second = F.scaled_dot_product_attention(q, k, v, dropout_p=0.2)
    torch.manual_seed(5)
    torch.wave.reset_peak_memory_stats()
    before = torch.wave.memory_allocated()
    again = F.scaled_dot_product_attention(q, k, v, dropout_p=0.2)
    assert torch.equal(first, again) and not torch.equal(first, second)
    again.sum().backward()
    # The scores have 16 MiB; an operand has 256 KiB.
    assert torch.wave.max_memory_allocated() - before < 4 << 20
    # What is kept is what backward passes and gradients of gradients take.
    torch.manual_seed(6)
    made = F.scaled_dot_product_attention(q, k, v, dropout_p=0.2)
    plain = torch.autograd.grad(made.square().sum(), (q, k, v), retain_graph=True)
    differentiable = torch.autograd.grad(made.square().sum(), (q, k, v), create_graph=True)
    for one, other in zip(plain, differentiable, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert all(x.isfinite().all() for x in torch.autograd.grad(sum(x.sum() for x in differentiable), (q, k, v)))


def test_dropout_in_a_graph_and_behind_a_checkpoint():
    from torch.utils.checkpoint import checkpoint

    q, k, v = (torch.randn(2, 2, 33, 16, device="wave", requires_grad=True) for _ in range(3))

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.4)

    found = []
    for call in (attend, lambda *operands: checkpoint(attend, *operands, use_reentrant=False)):
        torch.manual_seed(7)
        found.append(torch.autograd.grad(call(q, k, v).square().sum(), (q, k, v)))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
    with torch.no_grad():
        attend(q, k, v)
        graph = torch.wave.Graph()
        with torch.wave.graph(graph):
            made = attend(q, k, v)
        draws = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            graph.replay()
            draws.append(made.clone())
        torch.manual_seed(1)
        assert torch.equal(draws[0], attend(q, k, v))
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
