#!/bin/sh
# Prints a Python that has PyTorch and the packages named: $WAVE32_PYTHON, which is used as it is, or one in .venv, made
# and filled on first use. PyTorch comes from its CPU wheels where their index answers, else from PyPI (several GB: the
# wheel for Linux brings CUDA's libraries along). WAVE32_TORCH=2.10.0 asks for that version.
set -eu
cd "$(dirname "$0")/.."

if [ -n "${WAVE32_PYTHON:-}" ]; then
    "$WAVE32_PYTHON" -c 'import torch' || {
        echo "WAVE32_PYTHON=$WAVE32_PYTHON cannot import torch" >&2
        exit 1
    }
    echo "$WAVE32_PYTHON"
    exit 0
fi

python="$PWD/.venv/bin/python"
{
    [ -x "$python" ] || python3 -m venv .venv || {
        echo 'python: no virtual environment could be made; on Debian apt-get install python3-venv, or set WAVE32_PYTHON' >&2
        exit 1
    }
    wanted="torch${WAVE32_TORCH:+==$WAVE32_TORCH}"
    has=$("$python" -c 'import torch; print(torch.__version__.split("+")[0])' 2>/dev/null || true)
    if [ -z "$has" ] || [ "${WAVE32_TORCH:-$has}" != "$has" ]; then
        index=https://download.pytorch.org/whl/cpu
        if "$python" -c 'import urllib.request as u; u.urlopen("'$index'/torch/", timeout=10)' 2>/dev/null; then
            echo "python: installing $wanted (CPU wheels) into .venv"
            "$python" -m pip install --quiet "$wanted" torchvision --index-url $index
        else
            echo "python: installing $wanted from PyPI into .venv: several GB, some minutes"
            "$python" -m pip install --quiet "$wanted" torchvision
        fi
    fi
    [ $# -eq 0 ] || "$python" -m pip install --quiet "$@"
} >&2
echo "$python"
