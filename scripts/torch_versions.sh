#!/bin/sh
# Prints the oldest and the newest version of torch that the device is made for.
set -eu

for name in OLDEST NEWEST; do
    sed -n "s/^pub const $name: Version = (\([0-9]*\), \([0-9]*\));/\1.\2/p" "$(dirname "$0")/../crates/host/src/torch.rs"
done
