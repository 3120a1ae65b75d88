#!/bin/sh
# AMD's MIOpen and the drop-in, modelled side by side: writes docs/model_miopen.md (scripts/model_miopen.py).
#
#   scripts/model_miopen.sh FOLDER LIBRARY
#
# FOLDER holds what `make vgpu` built; LIBRARY is the drop-in.
set -eu

folder=$(realpath "$1")
library=$(realpath "$2")
here=$(cd "$(dirname "$0")/.." && pwd)
real=$("$here/scripts/miopen_debian.sh" "$folder")
libraries=$real/usr/lib/x86_64-linux-gnu
# A short name: below it lies a loader whose path has to fit into a program in the usual one's place.
work=$(mktemp -d /tmp/wXXXXXX)
trap 'rm -rf "$work"' EXIT
cc -std=gnu17 -O2 -Wall -Wextra -Werror -Wno-unused-function -Wno-deprecated-declarations -Wno-enum-conversion -DREAL_HEADER \
    -I"$real/usr/include" -o "$work/layer_times" "$here/crates/miopen/tests/c/layer_times.c" \
    -Wl,--unresolved-symbols=ignore-in-shared-libs "$libraries/libMIOpen.so.1" "$libraries/libamdhip64.so.7" -lm -ldl
python3 "$here/scripts/model_miopen.py" --launcher "$folder/wave32-vgpu" --program "$work/layer_times" --libraries "$libraries" \
    --drop-in "$library" --out "$here/docs/model_miopen.md"
