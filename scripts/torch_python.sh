#!/bin/sh
# Prints a Python that can import torch: $WAVE32_PYTHON, the system's, or one in .venv, made on first use from
# PyTorch's CPU wheels. Exit code 1, with the reason, where there is none: PyPI's wheel for Linux brings several GB
# of CUDA libraries, too much for a test that nobody asked for.
set -eu
cd "$(dirname "$0")/.."
has_torch() {
    "$1" -c 'import torch' >/dev/null 2>&1
}
for python in ${WAVE32_PYTHON:-} python3 .venv/bin/python; do
    if has_torch "$python"; then
        echo "$python"
        exit 0
    fi
done
index=https://download.pytorch.org/whl/cpu
{
    if ! python3 -c 'import urllib.request as u; u.urlopen("'$index'/torch/", timeout=10)' 2>/dev/null; then
        echo "oracle: skipped: no Python here has torch and $index does not answer; set WAVE32_PYTHON to one that has"
        exit 1
    fi
    echo 'oracle: installing PyTorch (CPU) into .venv'
    python3 -m venv .venv && .venv/bin/pip install --quiet torch numpy --index-url $index || {
        echo 'oracle: skipped: PyTorch could not be installed; on Debian python3-venv is needed, or set WAVE32_PYTHON'
        exit 1
    }
} >&2
echo .venv/bin/python
