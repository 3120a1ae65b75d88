#!/bin/sh
# Prints a Python that can import torch: the system's, or one in .venv, made on first use (CPU wheels).
set -eu
cd "$(dirname "$0")/.."
for python in python3 .venv/bin/python; do
    if "$python" -c 'import torch' >/dev/null 2>&1; then
        echo "$python"
        exit 0
    fi
done
{
    echo 'setup: installing PyTorch (CPU) into .venv for the oracle checks'
    python3 -m venv .venv || {
        echo 'setup: python3 -m venv failed; on Debian install python3-venv' >&2
        exit 1
    }
    .venv/bin/pip install --quiet torch numpy --extra-index-url https://download.pytorch.org/whl/cpu
} >&2
echo .venv/bin/python
