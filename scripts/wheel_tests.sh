#!/bin/sh
# The PyTorch device's tests on an installed wheel, away from the checkout's Python; what they skip is told at the end.
#
#   scripts/wheel_tests.sh WHEEL [PYTEST ARGUMENT...]
#
# A release lacks the feature fault-injection: test_faults.py and test_symbols.py are among the skipped.
set -eu

wheel=$(realpath "$1")
shift
cd "$(dirname "$0")/.."
python=$(scripts/python_env.sh numpy pytest expecttest hypothesis)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
unset PYTHONPATH

purelib() {
    "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
}
"$python" -m venv "$folder/venv"
own=$folder/venv/bin/python
purelib "$python" > "$(purelib "$own")/torch.pth"
"$own" -m pip install --quiet --no-index --no-deps "$wheel"
cp -r python/tests "$folder/tests"
cd "$folder/tests"
"$own" -c '
import sys, wave32
print("wheel-tests:", wave32.__file__)
assert wave32.__file__.startswith(sys.prefix), sys.prefix
'
PATH=$folder/venv/bin:$PATH "$own" -m pytest -q -rs -p no:cacheprovider "$@"
