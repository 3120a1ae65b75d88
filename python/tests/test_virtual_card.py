"""PyTorch on the virtual card: Mesa's own RADV, and its machine code of Navi 10, strictly executed (docs/vgpu.md)."""

import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

LAUNCHER, DRIVER = os.environ.get("WAVE32_VGPU"), os.environ.get("WAVE32_RADV_ICD")
# `make test` has built the launcher and installed the driver: there nothing is skipped.
assert (LAUNCHER and DRIVER) or not os.environ.get("WAVE32_REQUIRE_VGPU"), "WAVE32_VGPU or WAVE32_RADV_ICD is not set"
pytestmark = pytest.mark.skipif(not (LAUNCHER and DRIVER), reason="WAVE32_VGPU and WAVE32_RADV_ICD name launcher and driver")


def on_the_card(script, **environment):
    return run_on_the_card("-X", "faulthandler", "-c", textwrap.dedent(script), **environment)


def run_on_the_card(*arguments, **environment):
    done = subprocess.run(
        [LAUNCHER, "run", "--strict", "--check", "--", sys.executable, *arguments],
        capture_output=True, text=True, timeout=600,
        env={**os.environ, "VK_DRIVER_FILES": DRIVER, "VK_ICD_FILENAMES": DRIVER, **environment},
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_training_steps_are_the_cpu_s(fresh_seed):
    """Convolutions, batch norm, pooling, attention, a loss, two optimizers, a graph; no fallback, no strict finding."""
    out = on_the_card(
        f"""
        import copy, torch, wave32
        from torch import nn
        from torch.nn import functional as F
        assert "RADV NAVI10" in torch.wave.get_device_name(), torch.wave.get_device_name()
        torch.manual_seed({fresh_seed})

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
                self.second, self.last = nn.Conv2d(8, 16, 3, stride=2), nn.Linear(16, 5)

            def forward(self, x):
                x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
                x = F.gelu(self.second(x)).flatten(2).transpose(1, 2)
                return self.last(F.scaled_dot_product_attention(x, x, x).mean(1))

        one = Net()
        other = copy.deepcopy(one).to("wave")
        x, y = torch.randn(3, 3, 13, 14), torch.randint(5, (3,))
        optimizers = [(torch.optim.SGD(net.parameters(), 0.05, momentum=0.9), torch.optim.AdamW(net.parameters(), 0.01, eps=0.01))
                      for net in (one, other)]
        for step in range(2):
            losses = []
            for net, device, pair in ((one, "cpu", optimizers[0]), (other, "wave", optimizers[1])):
                loss = F.cross_entropy(net(x.to(device)), y.to(device))
                pair[step].zero_grad()
                loss.backward()
                pair[step].step()
                losses.append(loss.item())
            assert abs(losses[0] - losses[1]) < 1e-4 * abs(losses[0]), losses
        for (name, mine), theirs in zip(other.named_parameters(), one.parameters()):
            torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-3, atol=1e-4, msg=lambda text: f"{{name}}: {{text}}")
        graph, (one, other) = torch.wave.Graph(), (copy.deepcopy(other), other)
        x, y = x.to("wave"), y.to("wave")

        other.zero_grad()

        def step(net):
            F.cross_entropy(net(x), y).backward()
            with torch.no_grad():
                for weight in net.parameters():
                    weight.sub_(0.05 * weight.grad)
            net.zero_grad()

        step(one), step(other)
        with torch.wave.graph(graph):
            step(other)
        for _ in range(2):
            x.normal_()
            graph.replay()
            step(one)
        for mine, theirs in zip(other.parameters(), one.parameters()):
            assert torch.equal(mine.cpu(), theirs.cpu())
        fallen = dict(wave32._native.fallbacks())
        assert not fallen, fallen
        print("trained")
        """
    )
    assert out.endswith("trained\n"), out


def test_a_sample_of_the_operators(fresh_seed):
    """Other operators each time, compared with the CPU as `test_sweep.py` does; no strict finding."""
    pytest.importorskip("expecttest", reason="torch's own tests need it")
    sweep = pathlib.Path(__file__).with_name("opinfo_sweep.py")
    out = run_on_the_card(str(sweep), "--seconds", "12", "--samples", "2", "--seed", str(fresh_seed))
    passed, failed = (int(re.search(rf"(\d+) {word}", out).group(1)) for word in ("passed", "failed"))
    assert passed > 0 and failed == 0, out


def test_attention_sums_in_f16_where_forward_passes_may(fresh_seed):
    """As many queries as the kernel without local memory wants; both ways are right, and not the same."""
    out = on_the_card(
        f"""
        import torch, wave32
        from torch.nn import functional as F
        torch.manual_seed({fresh_seed})
        q, k, v = (torch.randn(1, 1, rows, 40).half() for rows in (20480, 21, 21))
        exact = F.scaled_dot_product_attention(q.float(), k.float(), v.float())
        made = []
        for which in (False, "forward"):
            torch.wave.allow_fp16_accumulation(which)
            made.append(F.scaled_dot_product_attention(*(x.to("wave") for x in (q, k, v))).float().cpu())
            assert (made[-1] - exact).norm() < 7e-3 * exact.norm(), which
        assert not torch.equal(*made)
        print("attended")
        """
    )
    assert out == "attended\n", out


def test_a_script_that_says_cuda(entry_point):
    """As `wave32 run` has it: the script knows nothing of wave32."""
    out = on_the_card(
        """
        import torch
        assert torch.cuda.is_available() and "NAVI10" in torch.cuda.get_device_name(0)
        x = torch.randn(2, 4, 9, 9, device="cuda", dtype=torch.half)
        net = torch.nn.Conv2d(4, 6, 3).half().cuda()
        with torch.no_grad():
            mine = net(x)
        theirs = torch.nn.functional.conv2d(x.cpu().float(), net.weight.cpu().float(), net.bias.cpu().float())
        torch.testing.assert_close(mine.float().cpu(), theirs, rtol=5e-3, atol=5e-3)
        print("computed")
        """,
        PYTHONPATH=os.pathsep.join([entry_point, os.environ.get("PYTHONPATH", "")]), WAVE32_CUDA="wave",
    )
    assert out.endswith("computed\n"), out
