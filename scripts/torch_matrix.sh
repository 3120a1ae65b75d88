#!/bin/sh
# A short set of the PyTorch device's tests with the oldest and the newest torch that the device is made for, or with the
# versions named; each has a virtual environment of its own in target/torch-matrix. Packages come from where pip is
# configured to look: with PyTorch's CPU index in PIP_EXTRA_INDEX_URL they come without CUDA's libraries.
# `make torch-matrix` builds the device first, with what hides torch's symbols: each in turn.
set -eu
cd "$(dirname "$0")/.."

# shellcheck disable=SC2046 # two versions
[ $# -gt 0 ] || set -- $(scripts/torch_versions.sh)

tests='device hooks tensors moves elementwise on_cpu errors symbols'
files=
for test in $tests; do
    files="$files python/tests/test_$test.py"
done

failed=
for version in "$@"; do
    folder=target/torch-matrix/$version
    python=$folder/bin/python
    [ -x "$python" ] || python3 -m venv "$folder"
    "$python" -m pip install --quiet "torch==$version.*" numpy pytest expecttest hypothesis
    echo "torch $("$python" -c 'import torch; print(torch.__version__)')"
    # shellcheck disable=SC2086 # several files
    WAVE32_SYMBOLS=all PYTHONPATH=python "$python" -m pytest -q -rs $files || failed="$failed $version"
done
[ -z "$failed" ] || {
    echo "torch-matrix: failed with$failed" >&2
    exit 1
}
