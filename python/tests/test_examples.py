"""Each of examples/ runs with --small on the device and on the CPU, without an operator on the CPU, and agrees."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
if not EXAMPLES.is_dir():
    pytest.skip("examples/ is not beside the tests", allow_module_level=True)

# What is compared, and the distance that is allowed, relative to the largest value. Trainings drift apart: their first steps count.
SCRIPTS = {
    "katago": ([], {"losses": 2e-3, "policy": 1e-4, "value": 1e-4}, ["torch"]),
    "sdxl_unet": ([], {"latents": 2e-2}, ["diffusers"]),
    "stable_diffusion": (["--stress", "--f16-sums"], {"latents": 2e-2, "mean": 1e-2, "deviation": 1e-2, "stress_largest": 2e-2}, ["diffusers", "transformers"]),
    "upscale": ([], {"corner": 1e-4, "mean": 1e-4}, ["torchvision"]),
    "whisper": ([], {"tokens": 0, "heard": 1e-4, "logits": 1e-3}, ["transformers"]),
    "yolo": (["--steps", "4"], {"losses": 2e-3}, ["torchvision"]),
}  # fmt: skip


def started(name, device, arguments, folder):
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "--small", "--json", "--device", device, *arguments]
    # `make python` names its folder relative to the checkout.
    path = os.pathsep.join(os.path.abspath(part) for part in sys.path if part)
    environment = {**os.environ, "PYTHONPATH": path, "WAVE32_FALLBACK": "quiet", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def line_of(process):
    try:
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, f"exit {process.returncode}\n{out}\n{err}"
    assert out.count("\n") == 1, f"--json prints one line\n{out}"
    return json.loads(out)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SCRIPTS)
def test_example(name, tmp_path):
    arguments, compared, packages = SCRIPTS[name]
    for package in packages:
        pytest.importorskip(package)
    for device in ("wave", "cpu"):
        (tmp_path / device).mkdir()
    ours, theirs = (started(name, device, arguments, tmp_path / device) for device in ("wave", "cpu"))
    try:
        ours, theirs = line_of(ours), line_of(theirs)
    finally:
        for process in (ours, theirs):
            if isinstance(process, subprocess.Popen):
                process.kill()
    assert ours["fallbacks"] == {}
    assert ours["device"] == "wave" and ours["torch"] == torch.__version__
    assert ours["peak_memory"] > 0 and ours["peak_reserved"] >= ours["peak_memory"] // 2
    assert ours["seconds"].keys() == theirs["seconds"].keys() and min(ours["seconds"].values()) > 0
    for key, allowed in compared.items():
        found, expected = (torch.tensor(line[key], dtype=torch.float64).flatten()[:4] for line in (ours, theirs))
        distance = ((found - expected).abs().max() / expected.abs().max()).item()
        assert distance <= allowed, f"{key}: {found.tolist()} and {expected.tolist()}"
    assert ours.get("seams", 0) < 1e-5
    assert ours.get("stress_error", 0) < 5e-3
    pictures = {"stable_diffusion", "upscale"} & {name}
    assert len(list((tmp_path / "wave").glob("*.png"))) == len(pictures)


def test_every_script_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SCRIPTS, "common"}


@pytest.mark.parametrize("picture", [torch.full((1, 3, 8, 8), float("nan")), torch.full((1, 3, 8, 8), -1.0)])
def test_a_picture_that_shows_nothing_is_refused(picture, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import stable_diffusion

    with pytest.raises(SystemExit, match="NaN|one colour"):
        stable_diffusion.checked(picture)
    picture[..., ::2] = 0.5
    picture[..., 1::2] = -0.5
    assert stable_diffusion.checked(picture).std() > 0.1
