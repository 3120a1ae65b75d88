"""A sample of the operators and modules that torch's own tests know, another one each time.

`opinfo_sweep.py` runs all of them.
"""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("expecttest", reason="torch's own tests need it")


@pytest.mark.parametrize(("what", "seconds"), [((), 15), (("--modules",), 8)], ids=["operators", "modules"])
def test_sample(what, seconds, fresh_seed):
    sweep = pathlib.Path(__file__).with_name("opinfo_sweep.py")
    command = [sys.executable, str(sweep), *what, "--seconds", str(seconds), "--samples", "3", "--seed", str(fresh_seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "2"})
    print(done.stdout)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
