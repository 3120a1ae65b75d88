#!/bin/sh
# The HIP route on the virtual card, under AMD's own runtime: the device suite, convolutions and operations of every
# kind, and that every kernel of the card's code object ran at least once in a test that passed.
#
#   scripts/hip_on_vgpu.sh PATH/TO/wave32-vgpu [OPTIONS OF `wave32-vgpu run`]
set -eu
export LC_ALL=C
cd "$(dirname "$0")/.."
launcher=$1
shift
host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export "CARGO_TARGET_${host}_RUNNER=$launcher run $* --"
export WAVE32_REQUIRE_HIP=1 WAVE32_TEST_DEVICE=hip WAVE32_TEST_KERNELS="$folder/launched"

cargo test -p wave32-hip --test conformance -- card
cargo test -p wave32-verify --test solvers -- every_kernel
cargo test -p wave32-ops --tests

# A row TEXT TAG DTYPES ... of the table is the kernels TEXT_TAG_DTYPE.
awk '!/^ *(#|$)/ { n = split($3, dtypes, ","); for (i = 1; i <= n; i++) print $1 "_" $2 "_" dtypes[i] }' \
    kernels/variants.txt | sort >"$folder/all"
sort -u "$folder/launched" >"$folder/ran"
missing=$(comm -23 "$folder/all" "$folder/ran")
[ -z "$missing" ] || {
    echo "kernels that no passing test launched:" $missing >&2
    exit 1
}
echo "all $(wc -l <"$folder/all") kernels ran in tests that passed"
