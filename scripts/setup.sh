#!/bin/sh
# Installs what the build and the tests use beyond Rust, gcc and Python, on Debian and Ubuntu.
# Idempotent, and quick where everything is there. Other systems get the list.
set -eu

packages="libvulkan1 mesa-vulkan-drivers vulkan-validationlayers clang-19 lld-19 llvm-19 kmod xz-utils zstd
    hipcc rocminfo libamdhip64-dev libhsa-runtime-dev"

command -v cargo >/dev/null 2>&1 || {
    echo 'setup: Rust is missing; install it from https://rustup.rs' >&2
    exit 1
}
command -v c++ >/dev/null 2>&1 || packages="$packages g++"
python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || packages="$packages python3-venv"

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "setup: not a Debian system; the equivalents of these should be there: $packages" >&2
    exit 0
fi

missing=
for package in $packages; do
    state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    [ "$state" = 'install ok installed' ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || {
        echo "setup: install these as root, then run this again:$missing" >&2
        exit 1
    }
    as_root=sudo
fi
echo "setup: installing$missing"
$as_root apt-get update -qq || echo 'setup: the package lists could not be refreshed; trying with those at hand' >&2
left=
for package in $missing; do
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends "$package" >/dev/null || left="$left $package"
done
[ -z "$left" ] || {
    echo "setup: not installed:$left" >&2
    echo 'setup: without clang-19 and lld-19 code objects for Radeon cards are left out of the build; without Mesa only the CPU is verified; without hipcc nothing is tested on the virtual card' >&2
}
