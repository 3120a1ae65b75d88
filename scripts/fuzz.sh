#!/bin/sh
# Runs a fuzzer for so many seconds: `scripts/fuzz.sh TARGET SECONDS`; without arguments it lists the targets.
#
# libFuzzer finds its way by what the compiler counts, which needs no nightly compiler. What it finds lies in
# `target/fuzz/TARGET`: new inputs in `corpus`, what breaks a parser in `crash-*`. The inputs that are kept are in
# `fuzz/corpus/TARGET`; the tests run those.
set -eu
cd "$(dirname "$0")/.."

here=$PWD
if [ "$#" -ne 2 ]; then
    ls fuzz/corpus
    exit 2
fi
name=$1 seconds=$2
[ -d "fuzz/corpus/$name" ] || { echo "there is no target $name" >&2; exit 2; }
package=targets
[ -f "fuzz/card/src/bin/$name.rs" ] && package=card

RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1" \
    cargo build --release --manifest-path "fuzz/$package/Cargo.toml" --target-dir target/fuzz/build \
    --target x86_64-unknown-linux-gnu --bin "$name"

found=target/fuzz/$name
mkdir -p "$found/corpus"
cd "$found"
# The card tells of each queue that stops.
exec "$here/target/fuzz/build/x86_64-unknown-linux-gnu/release/$name" corpus "$here/fuzz/corpus/$name" \
    -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -close_fd_mask=2 -print_final_stats=1
