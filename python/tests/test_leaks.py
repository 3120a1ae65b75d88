"""What a long training leaves behind: nothing."""

import pytest

SCRIPT = """
    import ctypes, gc, os
    import wave32._native as native
    from torch import nn

    class Heap(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in [
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]]

    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Heap

    # Each step is its own little training step: everything it makes dies with it.
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64, 5),
    ).to("wave")
    optimizers = [torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9), torch.optim.Adam(model.parameters(), 1e-4)]

    def step(number):
        optimizer = optimizers[number % 2]
        x, y = torch.randn(4, 1, 8, 8), torch.randint(0, 5, (4,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to("wave")), y.to("wave"))
        loss.backward()
        optimizer.step()
        assert loss.item() == loss.item(), "not a number"

    def held():
        gc.collect()
        torch.wave.synchronize()
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        heap = mallinfo()
        return resident, heap.uordblks + heap.hblkhd, {
            "allocated": torch.wave.memory_allocated(), "reserved": torch.wave.memory_reserved(),
            "files": len(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task")),
            "fallbacks": torch.wave.fallbacks(), **dict(native.counts()),
        }

    # The ring of staging memory is touched once in a process' life, and every kernel compiled once.
    for _ in range(40):
        torch.ones(1 << 18).to("wave").cpu()
    for number in range(WARM):
        step(number)
    resident, used, before = held()
    for number in range(STEPS):
        step(number)
    more_resident, more_used, after = held()
    grown = (more_resident - resident, more_used - used)
    print(grown, after)
    # Which uploads are known to have landed, and how a block is cut, depends on when the driver answers.
    for name in ["uploads", "blocks"]:
        assert after.pop(name) <= before.pop(name) + 8, name
    assert after == before, (before, after)
    assert not after["fallbacks"]
    # What the allocator has given out; what it keeps for itself comes in steps, and stops somewhere.
    assert grown[0] < 16_000_000 and grown[1] < 64_000 + 100 * STEPS, f"{grown} bytes more"
"""


def test_a_thousand_steps_leave_nothing(run_python):
    run_python(SCRIPT.replace("WARM", "200").replace("STEPS", "1000"))


@pytest.mark.parametrize("kind", ["an error in backward", "an exception in the loop"])
def test_failed_steps_leave_nothing(run_python, kind):
    run_python(
        f"""
        import gc
        import time

        class Fails(torch.autograd.Function):
            @staticmethod
            def forward(context, x):
                return x.clone()

            @staticmethod
            def backward(context, gradient):
                raise ValueError("on purpose")

        w = torch.randn(64, 64, device="wave", requires_grad=True)

        def step():
            try:
                y = (w @ w).relu()
                if {kind == "an error in backward"}:
                    Fails.apply(y).sum().backward()
                else:
                    y.view(7)
            except (ValueError, RuntimeError):
                w.grad = None
            else:
                raise SystemExit("did not fail")

        def held():
            # torch's own thread may still let go of a failed graph.
            gc.collect()
            return min(time.sleep(0.01) or torch.wave.memory_allocated() for _ in range(20))

        for _ in range(5):
            step()
        before = held()
        for _ in range(50):
            step()
        assert held() == before
        assert torch.isfinite((w * 2).sum()).item()
        """
    )
