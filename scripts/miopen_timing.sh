#!/bin/sh
# How long the drop-in's calls take on the processor, on the virtual card: Find, and a first convolution with and without
# HIP's own loading of modules. A quiet machine matters.
#
#   scripts/miopen_timing.sh FOLDER LIBRARY
#
# FOLDER holds what `make vgpu` built; LIBRARY is the drop-in.
set -eu

launcher=$1/wave32-vgpu
library=$(realpath "$2")
tests=$(dirname "$0")/../crates/miopen/tests/c
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
hip=$(cc -print-file-name=libamdhip64.so)
cc -O2 -fPIC -shared -o "$folder/module_load.so" "$tests/module_load.c" -Wl,--no-as-needed "$hip" -ldl
cc -std=gnu17 -O2 -o "$folder/timing" "$tests/timing.c" "$library" "$hip" -lm -ldl
# In the process before HIP, for the program, and as the HIP that the drop-in asks, for the drop-in: it is one library.
for _ in 1 2 3 4 5; do
    LD_LIBRARY_PATH=$(dirname "$library") LD_PRELOAD=$folder/module_load.so WAVE32_HIP_LIBRARY=$folder/module_load.so \
        timeout 300 "$launcher" run -- "$folder/timing"
done
