"""Forks, and how a process ends."""

import pytest


def test_fork_after_use_is_refused_and_harmless(run_python):
    out = run_python(
        """
        import os
        x = torch.ones(3, device="wave")
        child = os.fork()
        if child == 0:
            assert torch.wave._is_in_bad_fork() and not torch.wave.is_available()
            try:
                x.cpu()
            except RuntimeError as error:
                print("told:", error, flush=True)
            del x
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(x.sum().item())
        """
    )
    assert "told: Cannot re-initialize wave in forked subprocess" in out and "3.0" in out


def test_fork_before_use_is_fine(run_python):
    out = run_python(
        """
        import os
        child = os.fork()
        print(torch.ones(3, device="wave").sum().item(), flush=True)
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """
    )
    assert out.count("3.0") == 2


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "keep = torch.ones(3, device='wave', requires_grad=True); (keep * 2).sum().backward()",
        "import builtins; builtins.kept = [torch.ones(3, device='wave') for _ in range(9)]",
        "import threading; t = threading.Thread(target=lambda: torch.ones(3, device='wave').cpu()); t.start()",
        "torch.ones(1 << 20, device='wave'); raise SystemExit(0)",
        "import atexit; x = torch.ones(3, device='wave'); atexit.register(lambda: print(x.cpu()))",
    ],
)
def test_clean_exit(ending, run_python):
    out = run_python(ending)
    assert "Segmentation" not in out and "Traceback" not in out


def test_a_wait_past_its_deadline_raises_and_the_process_goes_on(run_python):
    out = run_python(
        """
        import os
        x = torch.empty(1 << 22, device="wave")
        try:
            for _ in range(100):
                x.copy_(x.clone())
            x.cpu()
        except RuntimeError as error:
            print("told:", error)
        try:
            torch.ones(3, device="wave")
        except RuntimeError as error:
            print("later:", error)
        os.environ["WAVE32_TIMEOUT"] = "60"
        torch.wave.reopen()
        y = torch.ones(3, device="wave")
        try:
            x.cpu()
        except RuntimeError as error:
            print("gone:", error)
        del x
        print(y.sum().item())
        """,
        WAVE32_TIMEOUT="0.000001",
    )
    assert "told: wave: the GPU did not finish" in out and "later:" in out and "gone:" in out and "3.0" in out


def test_host_memory_does_not_grow(run_python):
    run_python(
        """
        import gc, warnings

        def resident():
            gc.collect()
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096

        w = torch.randn(4, 4, device="wave")
        # Touch the whole ring of staging memory, which a process pays for once.
        for _ in range(40):
            torch.ones(1 << 18).to("wave").cpu()

        def calls():
            w.view(2, 8).unfold(0, 1, 1).as_strided((2, 2), (1, 2), 1)       # lists, optional ints
            w[:, ::2].zero_()                                              # falls back from Rust
            torch.empty(2, 3, 4, 5, device="wave", memory_format=torch.channels_last).resize_(300)
            torch.fft.fft(w, norm="ortho")                                 # strings
            torch._foreach_mul_([w, w], 0.5)
            for wrong in [lambda: w.view(7), lambda: w.unfold(5, 1, 1), lambda: torch.empty(1 << 50, device="wave")]:
                try:
                    wrong()
                except (RuntimeError, IndexError):
                    pass

        for _ in range(300):
            calls()
        before = resident()
        for _ in range(1000):
            calls()
        grown = resident() - before
        # A tensor has over 200 bytes, so one leaked a call would be twice this.
        assert grown < 100_000, f"{grown} bytes more"
        """
    )
