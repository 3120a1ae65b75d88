"""Scripts that say `cuda`, as under `wave32 run --route vulkan`. The scripts know nothing of wave32."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
import torch

SCRIPTS = pathlib.Path(__file__).parent / "cuda_scripts"
PACKAGES = pathlib.Path(__file__).parent.parent


@pytest.fixture
def run_cuda(entry_point, tmp_path):
    """Runs Python as `wave32 run` does; its output."""

    def run(*arguments, fails=False, **environment):
        import wave32

        path = os.pathsep.join(
            [str(pathlib.Path(wave32.__file__).parent.parent), entry_point, os.environ.get("PYTHONPATH", "")]
        )
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", *map(str, arguments)], capture_output=True, text=True, cwd=tmp_path,
            timeout=900, env={**os.environ, "PYTHONPATH": path, "WAVE32_CUDA": "wave", **environment},
        )
        assert (done.returncode != 0) == fails, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    return run


@pytest.fixture
def run_lines(run_cuda):
    return lambda script, **options: run_cuda("-c", "import torch\n" + textwrap.dedent(script), **options)


def test_names_of_devices(run_lines):
    run_lines(
        """
        import copy, pickle
        d = torch.device("cuda")
        assert d.type == "cuda" and d.index is None and str(d) == "cuda" and repr(d) == "device(type='cuda')"
        zero = torch.device("cuda:0")
        assert zero == torch.device("cuda", 0) == torch.device(type="cuda", index=0) == torch.device(zero)
        assert zero != d and hash(zero) == hash(torch.device("cuda", 0)) and f"{zero}" == "cuda:0"
        assert isinstance(d, torch.device) and not isinstance("cuda", torch.device)
        assert pickle.loads(pickle.dumps(zero)) == zero and copy.deepcopy(zero) == zero
        assert torch.device("cpu").type == "cpu" and str(torch.device("meta")) == "meta"
        x = torch.zeros(2, device="cuda")
        assert x.device == zero and x.is_cuda and x.device.type == "cuda" and x.get_device() == 0
        assert x.type() == "torch.cuda.FloatTensor" and isinstance(x, torch.cuda.FloatTensor)
        assert not x.cpu().is_cuda and not torch.zeros(2).is_cuda
        with torch.device("cuda"):
            assert torch.ones(2).is_cuda and torch.ones(2, device="cpu").device.type == "cpu"
        torch.set_default_device("cuda")
        assert torch.ones(2).is_cuda and torch.nn.Linear(2, 2).weight.is_cuda
        """
    )


def test_every_way_to_a_device(run_lines):
    run_lines(
        """
        x = torch.arange(3.0)
        for name in ["cuda", "cuda:0", 0, torch.device("cuda"), torch.device("cuda", 0)]:
            assert x.to(name).is_cuda and x.to(device=name).is_cuda and x.to(name, torch.float16).dtype == torch.float16
            assert torch.empty(2, device=name).is_cuda and x.new_zeros(2, device=name).is_cuda
            assert torch.nn.Linear(2, 2).to(name).weight.is_cuda and torch.nn.Linear(2, 2, device=name).weight.is_cuda
            assert torch.tensor([1, 2], device=name).is_cuda and torch.as_tensor(x, dtype=None, device=name).is_cuda
            assert torch.load(saved(x), map_location=name if not isinstance(name, int) else "cuda").is_cuda
        assert x.cuda().is_cuda and x.cuda(0).is_cuda and x.cuda("cuda:0", non_blocking=True).is_cuda
        y = x.cuda()
        assert y.cuda() is y and y.to("cuda:0") is y and y.to("cuda") is y
        assert torch.nn.Linear(2, 2).cuda().cpu().weight.device.type == "cpu"
        assert x.type("torch.cuda.HalfTensor").dtype == torch.float16 and torch.cuda.LongTensor([1]).dtype == torch.int64
        assert torch.nn.utils.rnn.pack_sequence([y]).is_cuda
        """.replace("x = torch.arange", "import io\ndef saved(t):\n    file = io.BytesIO(); torch.save(t, file)\n"
                    "    file.seek(0); return file\nx = torch.arange", 1).replace("\n        ", "\n")
    )


def test_graphs_are_the_device_s(run_lines):
    """As PyTorch's notes on CUDA graphs have it: warm up on a side stream, capture, replay."""
    run_lines(
        """
        model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        static, target = torch.randn(5, 8, device="cuda"), torch.randint(3, (5,), device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                optimizer.zero_grad(set_to_none=True)
                torch.nn.functional.cross_entropy(model(static), target).backward()
                optimizer.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()):
            assert torch.cuda.is_current_stream_capturing()
            loss = torch.nn.functional.cross_entropy(model(static), target)
            loss.backward()
            optimizer.step()
        losses = []
        for _ in range(20):
            graph.replay()
            losses.append(loss.item())
        assert losses[-1] < 0.5 * losses[0], losses
        graphed = torch.cuda.make_graphed_callables(torch.nn.Linear(8, 2).cuda(), (torch.randn(5, 8, device="cuda"),))
        graphed(static).sum().backward()
        assert graphed.weight.grad.is_cuda
        """
    )


def test_what_cannot_be_kept_says_so(run_lines):
    out = run_lines(
        """
        for call in [
            lambda: torch.zeros(2, device="cuda:3"),
            lambda: torch.cuda.MemPool(),
            lambda: torch.cuda.utilization(),
            lambda: torch.nn.DataParallel(torch.nn.Linear(2, 2), device_ids=[0, 1]),
            lambda: torch.cuda._lazy_init(),
        ]:
            try:
                call()
            except RuntimeError as error:
                assert str(error).startswith(("wave32 run: ", "a process has one wave device")), error
                print("told:", error)
        drawn = [torch.rand(3, device="cuda", generator=torch.Generator("cuda").manual_seed(5)) for _ in range(2)]
        assert drawn[0].is_cuda and torch.equal(*drawn)
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = torch.nn.Linear(2, 2)
            assert torch.compile(model) is model and torch.compile(model) is model

            @torch.compile(fullgraph=True)
            def double(x):
                return 2 * x

            assert double(1) == 2 and len(caught) == 1
        """
    )
    assert out.count("told:") == 5


def test_questions_about_cuda(run_lines):
    run_lines(
        """
        import warnings
        c = torch.cuda
        assert c.is_available() and c.device_count() == 1 and c.current_device() == 0 and c.is_bf16_supported() in (True, False)
        c.set_device(0); c.set_device("cuda:0"); c.init(); c.synchronize(); c.synchronize(0); c.empty_cache()
        properties = c.get_device_properties(0)
        assert properties.name == c.get_device_name() == c.get_device_name(0) and properties.total_memory > 0
        assert c.get_device_capability() == (properties.major, properties.minor) == (0, 0)
        x = torch.zeros(1 << 10, device="cuda")
        assert c.memory_allocated() >= 4096 and c.max_memory_allocated(0) >= c.memory_allocated("cuda")
        free, total = c.mem_get_info()
        assert 0 < free <= total and "memory_allocated" in c.memory_summary()
        assert c.memory_stats()["allocated_bytes.all.current"] >= 4096
        # As ComfyUI pins a model's weights.
        host, runtime = torch.ones(16), c.cudart()
        assert runtime.cudaHostRegister(host.data_ptr(), host.nbytes, 1) == 0 == runtime.cudaHostUnregister(host.data_ptr())
        c.check_error(runtime.cudaProfilerStart()); c.check_error(runtime.cudaProfilerStop())
        assert 0 < runtime.cudaMemGetInfo(0)[0] <= total and runtime.cudaGetErrorString(0) == "no error"
        c.reset_peak_memory_stats()
        c.manual_seed(3); a = torch.rand(4, device="cuda"); c.manual_seed_all(3)
        assert torch.equal(a, torch.rand(4, device="cuda"))
        state = c.get_rng_state(); a = torch.rand(4, device="cuda"); c.set_rng_state(state)
        assert torch.equal(a, torch.rand(4, device="cuda"))
        with torch.random.fork_rng():
            torch.rand(4, device="cuda")
        start, end = c.Event(enable_timing=True), c.Event(enable_timing=True)
        with c.device(0), c.stream(c.Stream()):
            start.record(); x.add_(1); end.record()
        c.current_stream().synchronize(); end.synchronize()
        assert start.elapsed_time(end) >= 0 and not c.is_current_stream_capturing()
        c.nvtx.range_push("x"); c.nvtx.range_pop()
        for name, value in [("benchmark", True), ("deterministic", True), ("allow_tf32", False), ("enabled", False)]:
            setattr(torch.backends.cudnn, name, value)
        torch.backends.cuda.matmul.allow_tf32 = True
        if hasattr(torch._C, "_set_cublas_allow_fp16_accumulation"):  # since 2.7
            matmul = torch.backends.cuda.matmul
            for allowed_before in (False, "matmul", "forward", True):
                torch.wave.allow_fp16_accumulation(allowed_before)
                for is_allowed in (True, False):
                    matmul.allow_fp16_accumulation = is_allowed
                    assert matmul.allow_fp16_accumulation is is_allowed
                    assert torch.wave.allow_fp16_accumulation() == (allowed_before or ("matmul" if is_allowed else False))
            torch.wave.allow_fp16_accumulation(False)
        assert torch.backends.cudnn.version() is None
        assert torch.is_autocast_enabled() is False
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert torch.is_autocast_enabled() and torch.is_autocast_enabled("cuda")
            assert torch.get_autocast_gpu_dtype() == torch.bfloat16 == (x.view(32, 32) @ x.view(32, 32)).dtype

        class Double(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
            def forward(ctx, x):
                assert x.dtype == torch.float32 and not torch.is_autocast_enabled("cuda")
                return 2 * x

            @staticmethod
            @torch.amp.custom_bwd(device_type="cuda")
            def backward(ctx, grad):
                return 2 * grad

        with torch.autocast("cuda"):
            y = torch.ones(2, device="cuda", requires_grad=True)
            Double.apply(y.half()).sum().backward()
        assert y.grad.tolist() == [2, 2]
        """
    )


def test_checkpoints_are_those_of_cuda(run_lines, tmp_path):
    run_lines(
        """
        model = torch.nn.Linear(3, 2).cuda()
        torch.save({"model": model.state_dict(), "device": torch.device("cuda:0")}, "model.pt")
        for location, kind in [
            (None, "cuda"), ("cpu", "cpu"), ("cuda:0", "cuda"), (torch.device("cuda"), "cuda"), ({"cuda:0": "cpu"}, "cpu"),
            (lambda storage, where: storage, "cpu"), (lambda storage, where: storage.cuda(), "cuda"),
        ]:
            loaded = torch.load("model.pt", map_location=location)
            assert all(v.device.type == kind for v in loaded["model"].values()) and loaded["device"].type == "cuda"
            assert torch.equal(loaded["model"]["weight"].cpu(), model.weight.detach().cpu())
        """
    )
    # Where there is no wave32, they read as saved from CUDA.
    state = torch.load(tmp_path / "model.pt", map_location={"cuda:0": "cpu"})["model"]
    assert state["weight"].device.type == "cpu"


def test_a_process_takes_the_card_of_its_rank(run_lines):
    script = """
        import os
        print("card", os.environ["WAVE32_VISIBLE_DEVICES"], torch.ones(2, device=f"cuda:{os.environ['LOCAL_RANK']}").sum().item())
    """
    assert "card 0 2.0" in run_lines(script, LOCAL_RANK="1", LOCAL_WORLD_SIZE="2", WAVE32_CARDS="7,0")
    # The user's own choice stays, under its older name too.
    script = """
        import os
        print("card", os.environ.get("WAVE32_VISIBLE_DEVICES"), torch.ones(2, device="cuda").sum().item())
    """
    rank = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "WAVE32_CARDS": "7,7"}
    assert "card 0 2.0" in run_lines(script, WAVE32_VISIBLE_DEVICES="0", **rank)
    assert "card None 2.0" in run_lines(script, WAVE_VISIBLE_DEVICES="0", **rank)


def test_without_the_variable_nothing_changes(run_lines):
    run_lines(
        """
        assert torch.device.__module__ == "torch" and torch.device.__flags__ and type(torch.device) is type
        assert "wave32" not in (torch.zeros.__module__ or "") and not torch.zeros(1).is_cuda
        x = torch.zeros(1, device="wave")
        assert x.device.type == "wave" and str(x.device) == "wave:0" and not x.is_cuda
        """,
        WAVE32_CUDA="",
    )


def test_the_list_of_factories_is_whole():
    from wave32._cuda import _tensors

    with_device = {
        schema.name.removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::") and any("Device" in str(a.type) for a in schema.arguments)
    }
    # TorchScript's own forms of what Python does elsewhere.
    with_device -= {"Generator", "eq", "ne"}
    for owner, listed in [(torch, _tensors.FACTORIES), (torch.Tensor, _tensors.METHODS)]:
        public = {name for name in with_device if hasattr(owner, name) and not name.startswith("_")}
        public -= {"to", "pin_memory", "is_pinned"}  # Replaced by hand.
        assert public <= set(listed), public - set(listed)


def test_workers_of_every_kind(run_cuda, tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "main.py").write_text(
        textwrap.dedent(
            """
            import functools, torch
            import torch.multiprocessing as mp
            from torch.utils.data import DataLoader, TensorDataset

            def work(rank, make):
                assert torch.cuda.is_available() and make(2, device="cuda").is_cuda
                print("worker", rank, torch.ones(2, device="cuda").sum().item(), flush=True)

            if __name__ == "__main__":
                mp.spawn(work, args=(functools.partial(torch.zeros),), nprocs=1)
                data = TensorDataset(torch.arange(6.0))
                for context in ["fork", "spawn"]:
                    loader = DataLoader(data, 3, num_workers=1, pin_memory=True, multiprocessing_context=context)
                    print(context, sum(x.cuda(non_blocking=True).sum().item() for x, in loader))
            """
        )
    )
    out = run_cuda("-m", "package.main")
    assert "worker 0 2.0" in out and "fork 15.0" in out and "spawn 15.0" in out


needs_torchvision = pytest.mark.skipif(
    not (importlib.util.find_spec("torchvision") and importlib.util.find_spec("PIL")), reason="torchvision is not installed"
)


@pytest.mark.sampled(1)
@needs_torchvision
@pytest.mark.parametrize("how", ["amp_workers", "data_parallel"])
def test_a_training_script_of_torchvision_kind(run_cuda, how):
    shape = ["--model", "squeezenet1_1", "--images", "8", "--batch-size", "4", "--lr", "0.001"]
    extra = ["--amp", "--workers", "2"] if how == "amp_workers" else ["--data-parallel", "--workers", "0"]
    out = run_cuda(SCRIPTS / "train.py", *shape, *extra)
    assert "device cuda " in out and "\ntrained\n" in out
    if how == "amp_workers":
        resume = ["--resume", "checkpoint.pth", "--epochs", "2", "--map-location", "cuda:0"]
        out = run_cuda(SCRIPTS / "train.py", *shape, *extra, *resume)
        assert "resumed at epoch 1" in out and "epoch 1 lr" in out


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed")
def test_torchrun_with_nccl(run_cuda):
    out = run_cuda("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", SCRIPTS / "ddp.py")
    assert "rank 0 sum 3" in out and "rank 1 sum 3" in out


@needs_torchvision
@pytest.mark.skipif(not importlib.util.find_spec("ultralytics"), reason="ultralytics is not installed")
def test_a_detector_of_ultralytics(run_cuda, tmp_path):
    out = run_cuda(SCRIPTS / "yolo.py", YOLO_CONFIG_DIR=str(tmp_path), YOLO_OFFLINE="true")
    assert "predicted 1" in out and "\ntrained " in out
