#!/bin/sh
# Unpacks Debian's MIOpen 7.2.4 with its HIP and rocBLAS below FOLDER/miopen, 0.5 GB, without installing it, and prints where:
# `scripts/miopen_debian.sh FOLDER`.
set -eu

real=$1/miopen/experimental
# rocBLAS for other cards, and what MIOpen has found on them.
WITHOUT='*gfx8* *gfx9* *gfx103* *gfx11* *gfx12* ./usr/share/miopen/db/*' \
    "$(dirname "$0")/debian_unpack.sh" "$real" experimental,sid libmiopen1 +libmiopen-dev @libamdhip64-dev >&2
libraries=$real/usr/lib/x86_64-linux-gnu
[ -e "$libraries/libMIOpen.so.1" ] && [ -e "$libraries/libamdhip64.so.7" ] || {
    echo "Debian's experimental release has another MIOpen or HIP by now: $(cd "$libraries" && echo *MIOpen* *amdhip64*)" >&2
    exit 1
}
echo "$real"
