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
real=$("$here/scripts/miopen_debian.sh" "$folder")
libraries=$real/usr/lib/x86_64-linux-gnu
# A short name: below it lies a loader whose path has to fit into a program in the usual one's place.
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
python3 "$here/scripts/miopen_header.py" "$real/usr/include" "$libraries/libMIOpen.so.1" "$library" > "$work/table" || fails 'a call is missing'
sed 's/^/  /' "$work/table"

echo 'Ours, before it:'
ours convolutions
# The compiler's cache is HIP's: of its own kernels, and of rocBLAS's, which MIOpen loads.
left=$(find "$work/home" -type f ! -path '*/cache/comgr/*' ! -path '*/wave32-vgpu-*')
[ -z "$left" ] || fails "files were written: $left"
ours threads
ours misuse --behind
ours torch_replay "$tests/kinds.txt" --torch 2.9 --once
ours torch_replay "$tests/kinds.txt" --torch 1.12 --bias --dtype f16 --once
# Its batch norm at inference cuts off what bf16 has no room for, where the test wants rounding.
grep -v norm "$tests/kinds.txt" > "$work/kinds"
ours torch_replay "$work/kinds" --torch 2.9 --benchmark --channels-last --dtype bf16 --own-stream --once
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

unset WAVE32_ROUTE
echo 'All by its own, convolutions too (WAVE32_ROUTE=vendor), and without the assembly that Debian left out:'
export WAVE32_ROUTE=vendor
deadline=120
theirs '' layers add
export MIOPEN_DEBUG_CONV_WINOGRAD=0
theirs '' layers add
theirs '' layers norm-training
unset WAVE32_ROUTE MIOPEN_DEBUG_CONV_WINOGRAD

# The command, as a program of these libraries, since it starts itself: told their loader by a path that is no longer.
ln -s "$libraries/ld-linux-x86-64.so.2" "$work/ld"
python3 - "$command" "$work/wave32" "$work/ld" <<'PYTHON'
import sys
source, to, loader = sys.argv[1:]
program, usual = open(source, "rb").read(), b"/lib64/ld-linux-x86-64.so.2\0"
assert program.count(usual) >= 1 and len(loader) < len(usual)
open(to, "wb").write(program.replace(usual, loader.encode().ljust(len(usual), b"\0"), 1))
PYTHON
chmod +x "$work/wave32"
wave32() {
    at_home timeout -k 10 300 "$folder/wave32-vgpu" run -- env LD_LIBRARY_PATH="$libraries:$folder/lib" "$work/wave32" "$@"
}

echo 'Its solvers, probed, and taken where they were proven (WAVE32_ROUTE=probe):'
for shape in '-c 3 -H 10 -W 9 -k 6' '-c 6 -H 10 -W 9 -k 4'; do
    wave32 probe "MIOpenDriver conv -n 2 $shape -y 3 -x 3 -p 1 -q 1 -F 1" --no-rewrites > "$work/out" 2>&1 || fails "probe: $(tail -n 2 "$work/out")"
    grep -E '^[0-9]+ of|^n2' "$work/out" | sed 's/^/  /'
done
# No time on this card is one of hardware; so that they are taken, all are said to be fast.
sed -i -E 's/"ms": [0-9.]+/"ms": 0.0000001/' "$work/home/state/wave32/probe/tables/"*.json
export WAVE32_ROUTE=probe WAVE32_LOG=1 XDG_STATE_HOME="$work/home/state"
ours layers add
# Of the two convolutions, that by Find; Find 2.0 stays ours.
[ "$(grep -c ' vendor .* measured by the probe' "$work/out")" = 1 ] || fails 'no solver of its own was taken'
unset WAVE32_ROUTE WAVE32_LOG XDG_STATE_HOME

echo 'Installed into a copy of its folder, and out again:'
mkdir "$work/copy"
for file in "$libraries"/*; do
    case ${file##*/} in libMIOpen*) cp -a "$file" "$work/copy/" ;; *) ln -s "$file" "$work/copy/" ;; esac
done
state_of() { (cd "$work/copy" && find . -name '*MIOpen*' -printf '%p %y %m %s %T@ %l\n' | sort && sha256sum libMIOpen.so.1.0); }
state_of > "$work/before"
at_home "$command" miopen install --into "$work/copy" --library "$library" --yes > "$work/out" 2>&1 || fails "install: $(tail -n 2 "$work/out")"
with=
libraries=$work/copy
ours convolutions --count 20
ours layers softmax
at_home "$command" miopen uninstall --into "$work/copy" --yes > "$work/out" 2>&1 || fails "uninstall: $(tail -n 2 "$work/out")"
state_of > "$work/after"
if cmp -s "$work/before" "$work/after"; then echo '  the folder is as it was'; else fails 'the folder is not as it was'; fi

echo 'As the doctor reads it:'
at_home "$command" doctor --root "$real" | sed -n '/ROCm/,/no PyTorch/p' | grep -v 'no PyTorch'
exit "$failed"
