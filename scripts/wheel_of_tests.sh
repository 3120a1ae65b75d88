#!/bin/sh
# A wheel of what the tests have built: the device, the command and the drop-in, as they are in BUILD.
#
#   scripts/wheel_of_tests.sh PYTHON FOLDER BUILD
set -eu

python=$1
folder=$(realpath -m "$2")
build=$(realpath "$3")
rm -rf "$folder"
mkdir -p "$folder/parts/bin" "$folder/parts/lib"
strip -o "$folder/parts/bin/wave32" "$build/wave32"
strip -o "$folder/parts/_native.abi3.so" "$build/lib_native.so"
strip -o "$folder/parts/lib/libwave32_preload.so" "$build/libwave32_preload.so"
[ ! -e "$build/../rocm-test/lib/libMIOpen.so.1" ] || strip -o "$folder/parts/lib/libMIOpen.so.1" "$build/../rocm-test/lib/libMIOpen.so.1"
WAVE32_PARTS=$folder/parts "$python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$folder" "$(dirname "$0")/.."
