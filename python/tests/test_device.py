"""`torch.wave`, memory, fallbacks, errors."""

import gc
import os
import subprocess
import sys
import textwrap

import pytest
import torch


def test_device_is_known():
    assert torch.wave.is_available() and torch.wave.device_count() == 1
    assert torch.device("wave").type == "wave" and torch.zeros(1, device="wave:0").device.index == 0
    assert torch.accelerator.current_accelerator().type == "wave" or torch.cuda.is_available()
    properties = torch.wave.get_device_properties()
    assert properties.name == torch.wave.get_device_name() and properties.total_memory > 1 << 20
    torch.wave.synchronize()
    with pytest.raises(RuntimeError):
        torch.wave.set_device(1)


def test_nothing_is_registered_twice():
    """Older torch refuses a second implementation of an operator, and then `import wave32` fails."""
    # An installed wave32 is loaded by `import torch`, before anything can watch.
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    watch = """
        import torch
        names, own = [], torch.library.Library.impl
        def impl(self, operator, function, dispatch_key="", **options):
            names.append((self.ns, str(operator), dispatch_key or self.dispatch_key))
            return own(self, operator, function, dispatch_key, **options)
        torch.library.Library.impl = impl
        import wave32
        print(len(names), sorted({name for name in names if names.count(name) > 1}))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(watch)], env=environment, capture_output=True, text=True, timeout=120)
    count, twice = done.stdout.split(" ", 1)
    assert int(count) > 100 and twice.strip() == "[]", done.stdout + done.stderr


def test_memory_is_accounted():
    gc.collect()
    torch.wave.empty_cache()
    before = torch.wave.memory_allocated()
    x = torch.empty(1 << 20, device="wave")
    assert torch.wave.memory_allocated() - before == 4 << 20
    view = x[5:]
    del x
    assert torch.wave.memory_allocated() - before == 4 << 20
    del view
    assert torch.wave.memory_allocated() == before
    assert torch.wave.max_memory_allocated() >= before + (4 << 20)
    assert torch.wave.memory_reserved() >= 4 << 20
    torch.wave.reset_peak_memory_stats()
    assert torch.wave.max_memory_allocated() == before
    torch.wave.empty_cache()
    assert torch.wave.memory_reserved() < 4 << 20 or before > 0


def test_what_programs_read_of_the_memory():
    # ComfyUI's way to what a model may take.
    stats = torch.wave.memory_stats()
    x = torch.ones(64 << 20, device="wave", dtype=torch.uint8)
    now = torch.wave.memory_stats()
    for name in ("allocated_bytes", "active_bytes", "requested_bytes"):
        assert now[f"{name}.all.current"] >= stats[f"{name}.all.current"] + x.nbytes
        assert now[f"{name}.all.peak"] >= now[f"{name}.all.current"]
    assert now["reserved_bytes.all.current"] - now["active_bytes.all.current"] == now["inactive_split_bytes.all.current"] >= 0
    free, total = torch.wave.mem_get_info()
    assert 0 < free <= total
    try:
        torch.wave.set_memory_cap(torch.wave.memory_reserved() + (1 << 20))
        assert torch.wave.mem_get_info() == (1 << 20, total), "within the cap"
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(64 << 20, device="wave", dtype=torch.uint8)
    finally:
        torch.wave.set_memory_cap(None)
    after = torch.wave.memory_stats()
    assert after["num_ooms"] == now["num_ooms"] + 1 and after["num_alloc_retries"] > now["num_alloc_retries"]


def test_calls_leak_nothing():
    w = torch.randn(8, 8, device="wave")

    def calls():
        y = (w @ w).relu_().t().contiguous().view(-1)
        torch.cat([y, y]).resize_(500)
        torch._foreach_add_([w, w], 0.0)
        y.to("cpu", torch.float64).sum().item()
        with pytest.raises(RuntimeError):
            w.view(7)

    calls()
    gc.collect()
    before = torch.wave.memory_allocated()
    for _ in range(50):
        calls()
    gc.collect()
    assert torch.wave.memory_allocated() == before


def test_out_of_memory_raises_and_goes_on():
    torch.wave.set_memory_cap(torch.wave.memory_reserved() + (64 << 20))
    try:
        kept = torch.ones(1 << 20, device="wave")
        with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 512\.00 MiB.*allocated by tensors"):
            torch.empty(128 << 20, device="wave")
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1 << 50, device="wave")
        assert kept.sum().item() == 1 << 20
    finally:
        torch.wave.set_memory_cap(None)
    assert torch.empty(32 << 20, device="wave").numel() == 32 << 20
    torch.wave.empty_cache()


def test_cap_reads_units():
    with pytest.raises(ValueError):
        torch.wave.set_memory_cap("a lot")
    torch.wave.set_memory_cap("100G")
    torch.wave.set_memory_cap(None)


def test_fallbacks_are_counted_and_right():
    x = torch.randn(5, 5)
    w = x.to("wave")
    values, indices = torch.mode(w, 1)
    expected = torch.mode(x, 1)
    assert torch.equal(values.cpu(), expected.values) and torch.equal(indices.cpu(), expected.indices)
    torch.mode(w, 1)
    assert torch.wave.fallbacks()["aten::mode"] == 2


def test_fallbacks_write_in_place_out_and_lists():
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    w, v = x.to("wave"), y.to("wave")
    w.nextafter_(v)
    x.nextafter_(y)
    assert torch.equal(w.cpu(), x)
    out = torch.empty(0, device="wave")
    torch.logcumsumexp(v, 0, out=out)
    torch.testing.assert_close(out.cpu(), torch.logcumsumexp(y, 0))
    torch._foreach_addcdiv_([w, v], [v, w], [v.abs() + 1, w.abs() + 1])
    torch._foreach_addcdiv_([x, y], [y, x], [y.abs() + 1, x.abs() + 1])
    torch.testing.assert_close([w.cpu(), v.cpu()], [x, y])
    # A view, through its base.
    w[1:, ::2].lgamma_()
    x[1:, ::2].lgamma_()
    torch.testing.assert_close(w.cpu(), x, equal_nan=True)


def test_native_kernels_can_fall_back():
    # lgamma has kernels for floats up to 32 bits: of f64 it answers NoKernel and Rust calls the CPU.
    x = torch.randn(6, 6, dtype=torch.float64)
    w = x.to("wave")
    assert w[:, ::2].lgamma_().data_ptr() == w.data_ptr()
    x[:, ::2].lgamma_()
    assert torch.equal(w.cpu(), x)
    assert torch.wave.fallbacks() == {"aten::lgamma.out": 1}


def test_promotion_with_numbers():
    for x in [torch.randn(3), torch.arange(3), torch.randn(3, dtype=torch.float64), torch.tensor([True, False])]:
        for call in [lambda t: t + 1, lambda t: t * 2.5, lambda t: 3 - t.to(torch.float16), lambda t: t > 0]:
            assert call(x.to("wave")).dtype == call(x).dtype
            assert torch.equal(call(x.to("wave")).cpu(), call(x))


def test_refused_fallback(run_python):
    out = run_python(
        """
        x = torch.ones(3, device="wave")
        try:
            torch.mode(x, 0)
        except NotImplementedError as error:
            print("refused", error)
        try:
            torch.zeros(4, dtype=torch.float64, device="wave").lgamma_()
        except NotImplementedError as error:
            print("refused natively", error)
        print(x.cpu().sum().item(), torch.wave.fallbacks())
        """,
        WAVE32_FALLBACK="error",
    )
    assert "refused " in out and "refused natively" in out and "aten::mode" in out and "3.0 {}" in out


def test_fallback_is_told_once(run_python):
    out = run_python(
        "x = torch.ones(3, device='wave')\nfor _ in range(3): torch.mode(x, 0)", WAVE32_FALLBACK="warn"
    )
    assert out.count("aten::mode runs on the CPU") == 1


def test_the_older_names_of_variables(run_python):
    # An empty variable counts as unset; a variable's own name wins.
    modes = """
        x = torch.ones(3, device="wave")
        try:
            torch.mode(x, 0)
            print("ran")
        except NotImplementedError as error:
            print("refused")
        """
    assert "refused" in run_python(modes, WAVE_FALLBACK="error", WAVE32_FALLBACK="")
    assert "ran" in run_python(modes, WAVE_FALLBACK="error", WAVE32_FALLBACK="quiet")
    index = """
        try:
            torch.ones(4, device="wave")[torch.tensor([9], device="wave")]
            print("late")
            torch.wave.synchronize()
        except IndexError:
            print("told")
        """
    assert "late" not in run_python(index, WAVE_LAUNCH_BLOCKING="1")
    assert "late" in run_python(index, WAVE_LAUNCH_BLOCKING="1", WAVE32_LAUNCH_BLOCKING="0")


def test_environment(run_python):
    out = run_python(
        """
        try:
            torch.empty(64 << 20, device="wave")
        except torch.OutOfMemoryError as error:
            print("capped")
        """,
        WAVE32_MEMORY_CAP="32M",
    )
    assert "capped" in out
    # Older names, which begin with WAVE_, are read too.
    wrong = {
        "WAVE32_MEMORY_CAP": "much", "WAVE32_VISIBLE_DEVICES": "x", "WAVE32_TIMEOUT": "-1",
        "WAVE_MEMORY_CAP": "much", "WAVE_VISIBLE_DEVICES": "x", "WAVE_TIMEOUT": "-1",
    }  # fmt: skip
    out = run_python(
        f"""
        import os
        for name, value in {wrong}.items():
            os.environ[name] = value
            try:
                torch.wave.reopen()
                torch.ones(1, device="wave")
            except RuntimeError as error:
                print("told:", error)
            del os.environ[name]
        """
    )
    assert all(f"told: wave: {name}={value}" in out for name, value in wrong.items())


def test_seeds():
    torch.manual_seed(7)
    assert torch.wave.initial_seed() == 7
    state = torch.wave.get_rng_state()
    a = torch.rand(5, device="wave")
    torch.manual_seed(7)
    assert torch.equal(torch.rand(5, device="wave").cpu(), a.cpu())
    torch.wave.set_rng_state(state)
    assert torch.equal(torch.wave.get_rng_state(), state)
    with torch.random.fork_rng(device_type="wave"):
        torch.wave.manual_seed(9)
    assert torch.wave.initial_seed() == 7


def test_accelerator_module_and_events():
    if torch.accelerator.current_accelerator().type != "wave":
        pytest.skip("another accelerator comes first here")
    torch.accelerator.synchronize()
    if hasattr(torch.accelerator, "memory_allocated"):
        assert torch.accelerator.memory_allocated() == torch.wave.memory_allocated()
        torch.accelerator.empty_cache()
    start, end = torch.wave.Event(enable_timing=True), torch.wave.Event(enable_timing=True)
    start.record()
    torch.ones(1 << 20, device="wave").add_(1)
    end.record()
    assert 0 < start.elapsed_time(end) < 60_000
    with torch.wave.stream(torch.wave.Stream()):
        torch.wave.current_stream().synchronize()


def test_a_kernel_with_a_scalar_takes_keywords_and_defaults():
    x = torch.zeros(3, device="wave")
    torch.ops.aten.fill_.Scalar(self=x, value=2)
    assert x.tolist() == [2, 2, 2]
    with pytest.raises((RuntimeError, TypeError)):
        torch.ops.aten.fill_.Scalar(x, "two")
