#!/bin/sh
# Builds the virtual card into FOLDER: the launcher, and the library once for each x86-64 level, from which the dynamic
# linker picks by the processor. LEVELS: x86-64-v2 x86-64-v3 x86-64-v4, or `host` for this machine's alone.
set -eu

folder=$1
shift
[ "$#" -gt 0 ] || set -- x86-64-v2 x86-64-v3 x86-64-v4
if [ "$*" = host ]; then
    level=$(/lib64/ld-linux-x86-64.so.2 --help | sed -n 's/^ *\(x86-64-v[234]\) (supported.*/\1/p' | head -n 1)
    set -- "${level:-x86-64-v2}"
fi

mkdir -p "$folder/lib"
rm -rf "$folder/lib/glibc-hwcaps"
# The first level is the lowest: each processor runs it. So the program wave32-vgpu is built for it too.
place=$folder/lib
program="--package wave32-vgpu"
for level; do
    # shellcheck disable=SC2086 # Two words or none.
    RUSTFLAGS="-C target-cpu=$level" \
        cargo build --release --package wave32-card $program --target-dir "$folder/build/$level"
    program=
    [ "$level" = "$1" ] || place=$folder/lib/glibc-hwcaps/$level
    mkdir -p "$place"
    # Renamed into place: a running program keeps the file that it has.
    cp "$folder/build/$level/release/libwave32_vgpu.so" "$place/libwave32_vgpu.so.new"
    mv "$place/libwave32_vgpu.so.new" "$place/libwave32_vgpu.so"
done
cp --remove-destination "$folder/build/$1/release/wave32-vgpu" "$folder/wave32-vgpu"
echo "built: $folder/wave32-vgpu run -- PROGRAM"
