#!/bin/sh
# The drop-in before AMD's own MIOpen, on the virtual card: Debian's MIOpen 7.2.4 with its rocBLAS, unpacked, not installed.
# Convolutions, plans and batch norm's training have to be ours and right; what the rest of MIOpen can do on RDNA1 is told.
# Exit code 1 where something of ours is wrong. See docs/miopen_real.md.
#
#   scripts/miopen_real.sh FOLDER LIBRARY WAVE32
#
# FOLDER holds what `make vgpu` built; MIOpen, 0.5 GB, goes below FOLDER/miopen. LIBRARY is the drop-in, WAVE32 the command.
set -eu

folder=$1
library=$(realpath "$2")
command=$(realpath "$3")
here=$(cd "$(dirname "$0")/.." && pwd)
tests=$here/crates/miopen/tests/c
real=$folder/miopen/experimental
# rocBLAS for other cards, and what MIOpen has found on them.
WITHOUT='*gfx8* *gfx9* *gfx103* *gfx11* *gfx12* ./usr/share/miopen/db/*' \
    "$here/scripts/debian_unpack.sh" "$real" experimental,sid libmiopen1 +libmiopen-dev @libamdhip64-dev
libraries=$real/usr/lib/x86_64-linux-gnu
[ -e "$libraries/libMIOpen.so.1" ] && [ -e "$libraries/libamdhip64.so.7" ] || {
    echo "Debian's experimental release has another MIOpen or HIP by now: $(ls "$libraries" | grep -E 'MIOpen|amdhip64')" >&2
    exit 1
}
work=$(mktemp -d /tmp/wXXXXXX)
trap 'rm -rf "$work"' EXIT
failed=0

fails() {
    failed=1
    echo "  WRONG: $1"
}

for name in convolutions threads misuse torch_replay layers; do
    cc -std=gnu17 -O2 -Wall -Wextra -Werror -Wno-unused-function -Wno-deprecated-declarations -Wno-enum-conversion -pthread \
        -DREAL_HEADER -I"$real/usr/include" -o "$work/$name" "$tests/$name.c" -Wl,--unresolved-symbols=ignore-in-shared-libs \
        "$libraries/libMIOpen.so.1" "$libraries/libamdhip64.so.7" -lm -ldl
done

# at_home COMMAND: with a home, caches and temporary files of its own.
at_home() {
    mkdir -p "$work/home"
    HOME=$work/home XDG_CACHE_HOME=$work/home/cache XDG_CONFIG_HOME=$work/home/config XDG_DATA_HOME=$work/home/data \
        XDG_STATE_HOME=$work/home/state TMPDIR=$work/home "$@"
}

# run OPTIONS PROGRAM ARGUMENT...: on the card, before MIOpen where $with names the drop-in.
run() {
    options=$1
    program=$work/$2
    shift 2
    # shellcheck disable=SC2086 # none, or some
    LD_PRELOAD=$with at_home timeout -k 10 "${deadline:-300}" "$folder/wave32-vgpu" run $options -- "$libraries/ld-linux-x86-64.so.2" \
        --library-path "$libraries:$folder/lib" --argv0 "$program" "$program" "$@" > "$work/out" 2>&1
}

# Ours: has to pass, on the strict card.
ours() {
    run --strict "$@" && tail -n 1 "$work/out" | grep -qx passed && echo "  $*" && return
    fails "$*: $(grep -m 1 FAILED "$work/out" || tail -n 2 "$work/out")"
}

# Theirs: passes, or says in its own words why not. A result that is there and not right is wrong.
theirs() {
    status=0
    run "$@" || status=$?
    shift
    why=$(grep -m 1 -E '^MIOpen Error|: error: |<inline asm>' "$work/out" | cut -c 1-160) || true
    if [ "$status" -eq 0 ]; then
        echo "  right:   $*"
    elif [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
        echo "  HANGS:   $* (ended after ${deadline:-300} s)"
    elif grep -q 'FAILED.* status [0-9]' "$work/out"; then
        echo "  fails:   $*: $why"
    else
        fails "$*: $(grep -m 1 FAILED "$work/out" || tail -n 2 "$work/out")"
    fi
}

with=$library
echo "AMD's MIOpen: $(basename "$(realpath "$libraries/libMIOpen.so.1")") of Debian, HIP $(basename "$(realpath "$libraries/libamdhip64.so.7")")"
echo 'The table of its calls:'
python3 "$here/scripts/miopen_header.py" "$real/usr/include" "$libraries/libMIOpen.so.1" "$library" | sed 's/^/  /' > "$work/table" || fails 'a call is missing'
cat "$work/table"

echo 'Ours, before it:'
ours convolutions
ours threads
ours misuse
ours torch_replay "$tests/kinds.txt" --torch 2.9 --once
ours torch_replay "$tests/kinds.txt" --torch 1.12 --bias --dtype f16 --once
ours torch_replay "$tests/kinds.txt" --torch 2.9 --benchmark --channels-last --dtype bf16 --own-stream --once
ours layers norm-training --threads 2
ours layers norm-backward --threads 2

echo 'Its own layers, between two convolutions of ours, in two threads on the strict card:'
run '' layers --list || fails 'the list of layers'
cp "$work/out" "$work/list"
while read -r layer; do
    case $layer in norm-training | norm-backward) ;; *) theirs --strict layers "$layer" --threads 2 </dev/null ;; esac
done < "$work/list"

echo 'The same by ours alone (WAVE32_ROUTE=ours):'
export WAVE32_ROUTE=ours
while read -r layer; do
    ours layers "$layer" </dev/null
done < "$work/list"

echo 'All by its own, convolutions too (WAVE32_ROUTE=vendor):'
export WAVE32_ROUTE=vendor
theirs '' layers add
theirs '' layers norm-training
unset WAVE32_ROUTE
exit "$failed"
