"""scripts/compatibility.py: a network that is wrong, crashes, hangs or runs on the CPU gets a row that says so; the rest goes on."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
if not SCRIPTS.is_dir():
    pytest.skip("scripts/ is not beside the tests", allow_module_level=True)

# Instead of the real networks: each goes wrong in a way of its own on wave.
NETWORKS = '''
import os, signal, time
from typing import NamedTuple
import torch
from torch import nn

NAMES = ("plain", "wrong", "crashes", "raises", "hangs", "on the CPU", "last")

class Case(NamedTuple):
    model: nn.Module
    inputs: tuple
    teach: tuple = None

class Net(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name, self.layer = name, nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))

    def forward(self, x):
        y = self.layer(x)
        if x.device.type == "wave":
            if self.name == "wrong":
                y = y * 1.01
            if self.name == "crashes":
                os.kill(os.getpid(), signal.SIGSEGV)
            if self.name == "raises":
                raise RuntimeError("a reason")
            if self.name == "hangs":
                time.sleep(600)
        return {"out": y, "more": [torch.linalg.matrix_exp(y[:4]) if self.name == "on the CPU" else y, None, 3]}

def case(name, small):
    torch.manual_seed(0)
    return Case(Net(name), (torch.randn(4, 8),))
'''


@pytest.fixture
def run(tmp_path):
    for name in ("bench_vs_cudnn", "compatibility", "compatibility_page", "measuring", "models_table"):
        shutil.copy(SCRIPTS / f"{name}.py", tmp_path)
    (tmp_path / "networks.py").write_text(NETWORKS)
    path = os.pathsep.join(os.path.abspath(part) for part in sys.path if part)

    def run(*arguments):
        command = [sys.executable, "compatibility.py", "--out", "log.jsonl", "--small", "--seconds", "0", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stderr
        return done.stderr

    return run


def test_rows(run, tmp_path, monkeypatch):
    assert "7 networks to measure" in run("--deadline", "20")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import compatibility_page

    head, rows = compatibility_page.read(tmp_path / "log.jsonl")
    assert head["command"] == "scripts/compatibility.py --small --seconds 0 --deadline 20"
    found = compatibility_page.joined(rows)
    verdicts = {name: compatibility_page.verdict(*both) for name, both in found.items()}
    assert verdicts["plain"] == verdicts["last"] == verdicts["on the CPU"] == "right", verdicts
    assert verdicts["wrong"] == "**wrong**"
    assert "SIGSEGV" in verdicts["crashes"] and verdicts["raises"] == "wave failed: RuntimeError: a reason"
    assert verdicts["hangs"] == "wave failed: no answer within 20.0 s"
    # One that failed on wave has its row of the judge all the same.
    assert all("own" in judge for _, judge in found.values())
    assert found["on the CPU"][0]["fallbacks"] == ["aten::linalg_matrix_exp"] and found["plain"][0]["fallbacks"] == []
    assert found["plain"][0]["memory"] > 0
    # What is in the log is not measured again, and the page says all of it.
    assert "0 networks to measure" in run()
    run("--page", "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "7 networks: 3 right, 1 wrong (wrong), 3 not compared (crashes, raises, hangs). 1 of them ran an operator on the CPU." in page
    assert "| wrong | **wrong** | none |" in page and "| on the CPU | right | aten::linalg_matrix_exp |" in page


def test_networks_have_names_of_their_own(monkeypatch):
    pytest.importorskip("torchvision")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import networks

    assert len(networks.NAMES) == len(set(networks.NAMES)) == 60
    for name in ("torchvision/retinanet_resnet50_fpn", "torchvision/raft_small", "torchvision/resnet50"):
        model = networks.case(name, small=True).model
        # Nothing is all zeros, or what is behind it would not be compared.
        assert all(parameter.any() for parameter in model.parameters() if parameter.dim() > 1), name
