"""Modules, autograd, optimizers, autocast, saving, against the CPU."""

import copy
import io

import pytest
import torch
from torch import nn

# Torch asks the device whether a tensor may become another's in place.
NEW = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)


def test_a_parameter_takes_a_tensor_of_another_device():
    parameter = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], 1.0)
    view = parameter.detach()[1:]
    parameter.data = torch.zeros(3, device="wave")
    assert parameter.device.type == "wave" and view.device.type == "cpu" and view.tolist() == [1, 1]
    parameter.sum().backward()
    optimizer.step()
    assert parameter.tolist() == [-1] * 3 and parameter.grad.device.type == "wave"
    parameter.grad = None
    parameter.data = torch.full((2,), 5.0)
    assert parameter.device.type == "cpu" and parameter.tolist() == [5, 5]


@pytest.mark.skipif(not NEW, reason="parameters are swapped")
def test_moving_under_a_live_graph_keeps_parameters():
    model = nn.Linear(3, 3)
    weight, x = model.weight, torch.randn(2, 3, requires_grad=True)
    loss = model(x).sum()
    model.to("wave")
    assert model.weight is weight and weight.device.type == "wave"
    loss.backward()
    assert torch.allclose(x.grad, weight.detach().cpu().sum(0).expand(2, 3))
    # A sparse tensor of the device does not become a dense one of the CPU.
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        weight.data = torch.eye(3).to_sparse()


def network():
    # Smooth: where two values are equal but for rounding, ReLU and MaxPool have another gradient, and RMSprop's
    # first steps are a tenth of the weight's size however small the gradient is.
    return nn.Sequential(
        # No bias before a batch norm: its gradient would be rounding noise, which Adam blows up to steps.
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.SiLU(), nn.AvgPool2d(2),
        nn.Conv2d(4, 6, 3, stride=2), nn.GELU(), nn.Flatten(), nn.Linear(54, 5),
    )


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True, weight_decay=1e-4),
    "sgd_foreach": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, 1e-2),
    "adamw_each": lambda p: torch.optim.AdamW(p, 1e-2, foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-3),
}


def train(model, optimizer, data, device):
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_equals_the_cpu(name):
    reference = network()
    model = copy.deepcopy(reference)
    reference = reference.double()
    # The optimizer is older than the move.
    optimizer = OPTIMIZERS[name](model.parameters())
    weight = model[0].weight
    assert model.to("wave")[0].weight is weight and weight.device.type == "wave"
    data = [(torch.randn(8, 1, 16, 16), torch.randint(0, 5, (8,))) for _ in range(6)]
    exact = [(x.double(), y) for x, y in data]
    expected = train(reference, OPTIMIZERS[name](reference.parameters()), exact, "cpu")
    losses = train(model, optimizer, data, "wave")
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    for (key, value), other in zip(model.state_dict().items(), reference.state_dict().values()):
        torch.testing.assert_close(value.cpu(), other.to(value.dtype), rtol=1e-3, atol=1e-4, msg=key)


def test_lazy_modules_get_their_sizes_on_the_device():
    model = torch.nn.Sequential(torch.nn.LazyConv2d(4, 3), torch.nn.LazyBatchNorm2d(), torch.nn.Flatten(), torch.nn.LazyLinear(3))
    model = model.to("wave")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(2, 3, 6, 6)
    result = model(x.to("wave"))
    twin = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(64, 3))
    twin.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})
    torch.testing.assert_close(result.cpu(), twin(x), rtol=1e-4, atol=1e-4)
    before = model[3].weight.cpu()
    result.sum().backward()
    optimizer.step()
    assert not torch.equal(model[3].weight.cpu(), before)


def test_moving_keeps_tied_weights_and_gradients():
    model = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    model[1].weight = model[0].weight
    model[0](torch.randn(2, 3)).sum().backward()
    gradient = model[0].weight.grad.clone()
    model.to("wave")
    assert model[1].weight is model[0].weight
    assert torch.equal(model[0].weight.grad.cpu(), gradient)
    model.cpu()
    assert model[0].weight.device.type == "cpu" and model[1].weight is model[0].weight
    model.to("wave").half()
    assert model[0].weight.dtype == torch.float16
    model.to_empty(device="wave")


@pytest.mark.parametrize("device", ["cpu", "wave"])
def test_parameters_of_nothing_are_made_anew(device):
    with torch.device("meta"):
        model = nn.TransformerEncoderLayer(4, 2, 8)
    before = list(model.parameters())
    model.to_empty(device=device)
    assert all(a is not b and b.device.type == device for a, b in zip(before, model.parameters()))


@pytest.mark.skipif(NEW, reason="parameters are moved in place")
def test_moving_under_a_live_graph_warns():
    model = nn.Linear(3, 3)
    # The gradient of x needs the weight, so the graph keeps it.
    x = torch.randn(2, 3, requires_grad=True)
    loss = model(x).sum()
    with pytest.warns(UserWarning, match="replaced, not moved"):
        model.to("wave")
    assert model.weight.device.type == "wave"
    loss.backward()


def test_gradients_of_functions():
    x = torch.randn(3, 4, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda t: (t @ t.t()).tanh().sum(1), x.to("wave").requires_grad_(), fast_mode=True
    )
    w = x.to("wave").requires_grad_()
    w[:, 1:].t().reshape(-1).square().sum().backward()
    expected = 2 * x
    expected[:, 0] = 0
    assert torch.equal(w.grad.cpu(), expected)
    with torch.no_grad(), torch.inference_mode():
        assert torch.equal((x.to("wave") + 1).cpu(), x + 1)


def test_versions_protect_saved_tensors():
    w = torch.randn(3, device="wave", requires_grad=True)
    y = w.exp()
    y.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_copies_and_files(tmp_path):
    model = network().to("wave")
    twin = copy.deepcopy(model)
    assert twin[0].weight.device.type == "wave" and twin[0].weight.data_ptr() != model[0].weight.data_ptr()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    for location, kind in [(None, "wave"), ("cpu", "cpu"), ("wave", "wave"), ({"wave:0": "cpu"}, "cpu")]:
        state = torch.load(tmp_path / "model.pt", map_location=location)
        assert all(value.device.type == kind for value in state.values())
        other = network().to("wave")
        other.load_state_dict(state)
        for key, value in other.state_dict().items():
            assert torch.equal(value.cpu(), model.state_dict()[key].cpu())
    base = torch.randn(6, device="wave")
    file = io.BytesIO()
    torch.save([base[1:], base[:3]], file)
    file.seek(0)
    a, b = torch.load(file)
    a[0] = 5.0
    assert b[1].item() == 5.0, "views share their storage after loading"


def test_saved_on_cpu_loads_to_wave(tmp_path):
    torch.save(torch.arange(5), tmp_path / "t.pt")
    assert torch.load(tmp_path / "t.pt", map_location="wave").device.type == "wave"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast(dtype):
    model, x = network().to("wave"), torch.randn(8, 1, 16, 16, device="wave")
    with torch.autocast("wave", dtype):
        y = model(x)
        assert y.dtype == dtype
        loss = nn.functional.cross_entropy(y, torch.zeros(8, dtype=torch.int64, device="wave"))
        assert loss.dtype == torch.float32
        assert (y + torch.ones(8, 5, device="wave")).dtype == torch.float32
        assert torch.cat([y, y.float()]).dtype == torch.float32
        assert y.softmax(1).dtype == torch.float32 and y.sum().dtype == torch.float32
        with torch.autocast("wave", enabled=False):
            assert (x.flatten() @ x.flatten()).dtype == torch.float32
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            nn.functional.binary_cross_entropy(y.sigmoid(), torch.zeros_like(y))
    loss.backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())
    torch.testing.assert_close(y.float().cpu(), copy.deepcopy(model).cpu()(x.cpu()), rtol=0.1, atol=0.1)


def test_grad_scaler_skips_infinite_steps():
    model = nn.Linear(3, 2).to("wave")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("wave", init_scale=1024.0)
    before = model.weight.detach().cpu().clone()
    for factor, moves in [(float("inf"), False), (1.0, True)]:
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 3, device="wave")).sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(model.weight.detach().cpu(), before) != moves
    assert scaler.get_scale() == 512.0


def test_recurrent_and_transformer_layers():
    for make, shape in [
        (lambda: nn.LSTM(4, 5, batch_first=True), (2, 3, 4)),
        (lambda: nn.GRU(4, 5), (3, 2, 4)),
        (lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), (2, 3, 4)),
    ]:
        reference = make()
        model = copy.deepcopy(reference).to("wave")
        x = torch.randn(shape)
        outputs = []
        for layer, device in [(reference, "cpu"), (model, "wave")]:
            y = layer(x.to(device))
            y = y[0] if isinstance(y, tuple) else y
            y.square().sum().backward()
            outputs.append([y.cpu()] + [p.grad.cpu() for p in layer.parameters()])
        torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_repeats_random_numbers(reentrant):
    from torch.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh()).to("wave")
    x = torch.randn(64, 8, device="wave", requires_grad=True)
    state = torch.wave.get_rng_state()
    y = checkpoint(model, x, use_reentrant=reentrant)
    after = torch.rand(3, device="wave")
    y.sum().backward()
    kept, x.grad = x.grad.cpu(), None
    torch.wave.set_rng_state(state)
    plain = model(x)
    assert torch.equal(plain.cpu(), y.cpu())
    assert torch.equal(torch.rand(3, device="wave").cpu(), after.cpu()), "as many numbers were drawn"
    plain.sum().backward()
    torch.testing.assert_close(x.grad.cpu(), kept)


def test_hooks_run_and_may_change_gradients():
    seen = []
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to("wave")
    handles = [
        model[0].register_forward_pre_hook(lambda m, inputs: (inputs[0] * 2,)),
        model[0].register_forward_hook(lambda m, inputs, output: seen.append(output.shape)),
        model[2].register_full_backward_hook(lambda m, given, taken: (given[0] * 3,)),
        model[0].weight.register_hook(lambda gradient: gradient + 1),
        model[2].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.device.type)),
    ]
    reference = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    reference.load_state_dict(model.state_dict())
    x = torch.randn(5, 3)
    model(x.to("wave")).sum().backward()
    middle = reference[1](reference[0](x * 2))
    middle.retain_grad()
    reference[2](middle).sum().backward(inputs=[middle, *reference[2].parameters()])
    reference[1](reference[0](x * 2)).backward(middle.grad * 3)
    assert seen == [(5, 4), "wave"]
    torch.testing.assert_close(model[2].weight.grad.cpu(), reference[2].weight.grad)
    torch.testing.assert_close(model[0].weight.grad.cpu(), reference[0].weight.grad + 1)
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_evaluation_without_gradients(mode):
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 5)
    ).eval()
    image = torch.rand(2, 3, 8, 8)
    with mode():
        expected = model(image)
    model.to("wave")
    weight = model[0].weight
    with mode():
        found = model(image.to("wave"))
        torch.testing.assert_close(found.cpu(), expected, rtol=2e-6, atol=2e-6)
        assert found.is_inference() == (mode is torch.inference_mode)
        # Views of a tensor made before stay views of it, and cannot leave its storage.
        view = weight.view(-1)[3:7]
        assert not view.is_inference() and view.data_ptr() == weight.data_ptr() + 12
        assert torch.equal(view.cpu(), weight.cpu().view(-1)[3:7])
        found[:, 1:3].zero_()
        assert found[:, 1:3].abs().sum().item() == 0 != found[:, 3:].abs().sum().item()
        with pytest.raises(RuntimeError, match="storage"):
            weight.as_strided((200, 2), (100, 1), 3)
