"""What torch asks a device's C++ hooks for: generators, pinned memory, storages that grow."""

import copy
import inspect
import pickle

import pytest
import torch
from wave32 import _hooks, _native
from wave32._libraries import VERSION

pytestmark = pytest.mark.skipif(VERSION > _native.torch_versions()[1], reason="newer than the device was tried with")
needs_handles = pytest.mark.skipif(torch.__version__ < "2.13", reason="libtorch hands no generators over before")


def test_all_of_them_are_taken():
    assert _hooks.SETTLED == {"generator", "resize"} | (set() if torch.cuda.is_available() else {"pinned"})


def draw(generator):
    made = [
        torch.rand(9, device="wave", generator=generator), torch.randn(9, device="wave", generator=generator),
        torch.randint(0, 99, (9,), device="wave", generator=generator).float(),
        torch.randperm(9, device="wave", generator=generator).float(),
        torch.multinomial(torch.ones(9, device="wave"), 3, generator=generator).float(),
        torch.empty(9, device="wave").bernoulli_(0.5, generator=generator),
        torch.nn.init.kaiming_uniform_(torch.empty(3, 3, device="wave"), generator=generator).flatten(),
    ]  # fmt: skip
    return torch.cat(made).cpu()


@needs_handles
def test_a_generator_of_the_device(fresh_seed):
    generator = torch.Generator("wave").manual_seed(fresh_seed)
    assert generator.device == torch.device("wave", 0) and generator.initial_seed() == fresh_seed
    before, default = generator.get_state(), torch.wave.get_rng_state()
    first, second = draw(generator), draw(generator)
    assert not torch.equal(first, second)
    # The device's own sequence is left alone.
    assert torch.equal(torch.wave.get_rng_state(), default)
    generator.set_state(before)
    assert torch.equal(draw(generator), first)
    assert torch.equal(draw(torch.Generator(device="wave:0").manual_seed(fresh_seed)), first)
    assert not torch.equal(draw(torch.Generator("wave").manual_seed(fresh_seed + 1)), first)
    assert generator.seed() != fresh_seed and generator.initial_seed() != fresh_seed


@needs_handles
@pytest.mark.parametrize("how", ["clone", "pickle", "deepcopy"])
def test_a_generator_is_copied(how):
    generator = torch.Generator("wave").manual_seed(7)
    draw(generator)
    make = {"clone": lambda g: g.clone_state(), "pickle": lambda g: pickle.loads(pickle.dumps(g)), "deepcopy": copy.deepcopy}
    twin = make[how](generator)
    assert twin.device == generator.device and twin.initial_seed() == 7
    found, expected = draw(twin), draw(generator)
    assert torch.equal(found, expected)
    # A copy of its own.
    draw(twin)
    assert not torch.equal(twin.get_state(), generator.get_state())


def test_generators_of_other_devices_and_their_ends():
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'wave'"):
        torch.rand(3, generator=torch.Generator("wave"))
    for _ in range(1000):
        torch.Generator("wave").clone_state()
    with pytest.raises(RuntimeError):
        torch.Generator("wave").set_state(torch.zeros(3, dtype=torch.uint8))


@pytest.mark.skipif(torch.cuda.is_available(), reason="then memory is pinned for CUDA")
def test_pinned_memory():
    made, plain = torch.empty(5, 7, pin_memory=True), torch.randn(9)
    assert made.is_pinned() and made[2:, 1].is_pinned()
    # A storage of torch 2.10 asks CUDA, whatever pinned it.
    if inspect.signature(torch.UntypedStorage.is_pinned).parameters["device"].default != "cuda":
        assert made.untyped_storage().is_pinned()
    assert not plain.is_pinned() and not plain.untyped_storage().is_pinned()
    pinned = plain.pin_memory()
    assert pinned.is_pinned() and torch.equal(pinned, plain) and pinned.data_ptr() != plain.data_ptr()
    assert pinned.pin_memory().data_ptr() == pinned.data_ptr()
    assert torch.equal(pinned.to("wave", non_blocking=True).cpu(), plain)
    back = plain.to("wave").to("cpu", non_blocking=True)
    assert back.is_pinned() and torch.equal(back, plain)
    assert torch.zeros(0, pin_memory=True).numel() == 0
    # Memory that was given back is not pinned when another tensor gets it.
    for _ in range(50):
        torch.empty(33, pin_memory=True)
        assert not torch.empty(33).is_pinned()
    made.resize_(50, 70).fill_(1)
    assert made.is_pinned() and made.sum() == 3500


@pytest.mark.skipif(torch.cuda.is_available(), reason="then memory is pinned for CUDA")
def test_a_loader_pins_its_batches():
    data = torch.utils.data.TensorDataset(torch.arange(10.0))
    for (batch,) in torch.utils.data.DataLoader(data, 5, pin_memory=True):
        assert batch.is_pinned()
        assert torch.equal(batch.to("wave", non_blocking=True).cpu(), batch)


def test_a_storage_grows_and_shrinks():
    x = torch.arange(6.0, device="wave")
    storage, view = x.untyped_storage(), x[2:4]
    before = torch.wave.memory_allocated()
    storage.resize_(4000)
    assert storage.nbytes() == 4000 and torch.wave.memory_allocated() > before
    # All that lie on it see it, and what it held.
    wide = torch.empty(0, device="wave").set_(storage, 0, (1000,))
    wide[6:] = 7
    assert x.tolist() == [0, 1, 2, 3, 4, 5] and view.tolist() == [2, 3] and wide.sum() == 15 + 994 * 7
    view.fill_(9)
    assert x.tolist() == [0, 1, 9, 9, 4, 5] and wide[:4].tolist() == [0, 1, 9, 9]
    del wide
    storage.resize_(0)
    assert storage.nbytes() == 0 and torch.wave.memory_allocated() <= before
    # As FSDP does: memory comes back, and is filled anew.
    storage.resize_(24)
    x.copy_(torch.ones(6))
    assert x.tolist() == [1] * 6 and view.tolist() == [1, 1]
    with pytest.raises(torch.OutOfMemoryError):
        storage.resize_(1 << 50)
    assert x.tolist() == [1] * 6


def test_importing_opens_nothing(run_python):
    out = run_python("from wave32 import _hooks, _native\nprint(_native.is_open(), sorted(_hooks.SETTLED))")
    assert "False ['generator'" in out
