#!/bin/sh
# Prints the checkout's commit and its day: what `wave32 --version` tells.
set -eu
cd "$(dirname "$0")/.."

# Not that of a repository around an unpacked archive.
[ -e .git ] || {
    echo 'commit: not a checkout' >&2
    exit 1
}
commit=$(git describe --always --dirty --abbrev=12 --exclude '*')
echo "$commit $(git log -1 --format=%cs)"
