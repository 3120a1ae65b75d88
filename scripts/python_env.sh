#!/bin/sh
# Prints a Python that has PyTorch and the packages named: $WAVE32_PYTHON, which is used as it is, or one in .venv, made
# and filled on first use. Packages come from the index that pip is configured for. Where none is, uv fetches PyTorch's
# CPU build, whose index it knows; where that does not answer, PyTorch comes from PyPI (several GB: its wheel for Linux
# brings CUDA's libraries along). WAVE32_TORCH=2.10.0 asks for that version.
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
# A person sees how far the gigabytes are.
quiet=1
[ ! -t 2 ] || quiet=
{
    [ -x "$python" ] || python3 -m venv .venv || {
        echo 'python: no virtual environment could be made; on Debian apt-get install python3-venv, or set WAVE32_PYTHON' >&2
        exit 1
    }
    wanted="torch${WAVE32_TORCH:+==$WAVE32_TORCH}"
    has=$("$python" -c 'import torch; print(torch.__version__.split("+")[0])' 2>/dev/null || true)
    if [ -z "$has" ] || [ "${WAVE32_TORCH:-$has}" != "$has" ]; then
        configured=$("$python" -m pip config list 2>/dev/null | grep -E '[.:](extra-)?index-url' || true)
        if [ -z "$configured" ] && "$python" -m pip install --quiet uv &&
            UV_SYSTEM_CERTS=1 "$(dirname "$python")/uv" pip install ${quiet:+--quiet} --python "$python" --torch-backend=cpu "$wanted" torchvision; then
            echo "python: $wanted (CPU build) is in .venv"
        else
            echo "python: installing $wanted into .venv from pip's index: several GB and some minutes where that is PyPI"
            "$python" -m pip install ${quiet:+--quiet} "$wanted" torchvision
        fi
    fi
    [ $# -eq 0 ] || "$python" -m pip install --quiet "$@"
} >&2
echo "$python"
