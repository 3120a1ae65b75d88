#!/bin/sh
# Installs what is missing of a list of system packages, after asking; --yes does not ask.
#
#   scripts/setup.sh demo|test|windows [--yes]
#
# demo: a Vulkan driver, a C++ compiler, Python. test: also all that the tests and the code objects for ROCm use. windows:
# also Wine and a compiler for Windows (Debian, Ubuntu). Idempotent, and quick where everything is there. Each distribution has its own names; a|b is a, or else b.
set -eu

list=${1:-test}
yes=${2:-}
case $list in
demo | test | windows) ;;
*)
    echo 'setup: scripts/setup.sh demo|test|windows [--yes]' >&2
    exit 2
    ;;
esac

command -v cargo >/dev/null 2>&1 || {
    echo 'setup: Rust is missing; install it from https://rustup.rs' >&2
    exit 1
}

if command -v dpkg-query >/dev/null 2>&1; then
    packages='libvulkan1 mesa-vulkan-drivers'
    command -v c++ >/dev/null 2>&1 || packages="$packages g++"
    python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || packages="$packages python3-venv"
    [ "$list" != test ] || packages="$packages vulkan-validationlayers clang-19|clang-18|clang-17|clang-16|clang-15
        lld-19|lld-18|lld-17|lld-16|lld-15 llvm-19|llvm-18|llvm-17|llvm-16|llvm-15 kmod xz-utils zstd hipcc rocminfo
        libamdhip64-dev libhsa-runtime-dev"
    [ "$list" != windows ] || packages="$packages gcc-mingw-w64-x86-64 wine wine64 xvfb"
    has() { [ "$(dpkg-query -W -f '${Status}' "$1" 2>/dev/null || true)" = 'install ok installed' ]; }
    install='apt-get install -y -qq --no-install-recommends'
elif [ "$list" = windows ]; then
    echo 'setup: packages for Windows are known of Debian and Ubuntu alone' >&2
    exit 1
elif command -v dnf >/dev/null 2>&1; then
    packages='vulkan-loader mesa-vulkan-drivers gcc-c++ python3 python3-pip'
    [ "$list" != test ] || packages="$packages vulkan-validation-layers clang lld llvm kmod xz zstd hipcc rocminfo rocm-hip-devel"
    has() { rpm -q "$1" >/dev/null 2>&1; }
    install='dnf install -y -q'
elif command -v pacman >/dev/null 2>&1; then
    packages='vulkan-icd-loader vulkan-radeon vulkan-swrast gcc python python-pip'
    [ "$list" != test ] || packages="$packages vulkan-validation-layers clang lld llvm kmod xz zstd hip-runtime-amd rocminfo"
    has() { pacman -Q "$1" >/dev/null 2>&1; }
    install='pacman -S --needed --noconfirm'
elif command -v zypper >/dev/null 2>&1; then
    packages='libvulkan1 libvulkan_radeon libvulkan_lvp gcc-c++ python3 python3-pip'
    [ "$list" != test ] || packages="$packages vulkan-validationlayers clang lld llvm kmod xz zstd"
    has() { rpm -q --whatprovides "$1" >/dev/null 2>&1; }
    install='zypper --non-interactive install --no-recommends'
else
    echo 'setup: this package manager is not known; a Vulkan driver, g++ and Python with venv should be there' >&2
    exit 0
fi

has_one() {
    for name in $(echo "$1" | tr '|' ' '); do
        ! has "$name" || return 0
    done
    return 1
}

missing=
for package in $packages; do
    has_one "$package" || missing="$missing $package"
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
echo "setup: missing:$missing"
if [ "$yes" != --yes ]; then
    [ -t 0 ] || {
        echo "setup: nothing is installed without asking, and there is no terminal to ask on: install it yourself, or say yes: make ... YES=1" >&2
        exit 1
    }
    printf 'setup: may I install this with %s? [y/N] ' "${install%% *}"
    read -r answer
    case $answer in y | Y | yes) ;; *) exit 1 ;; esac
fi
if command -v apt-get >/dev/null 2>&1; then
    $as_root apt-get update -qq || echo 'setup: the package lists could not be refreshed; trying with those at hand' >&2
    as_root="${as_root:+$as_root }env DEBIAN_FRONTEND=noninteractive"
fi
# One by one: what a release does not have must not keep the others away.
left=
install_one() {
    for name in $(echo "$1" | tr '|' ' '); do
        # shellcheck disable=SC2086 # several words
        ! $as_root $install "$name" >/dev/null || return 0
    done
    return 1
}
for package in $missing; do
    install_one "$package" || left="$left $package"
done
[ -z "$left" ] || {
    echo "setup: not installed:$left" >&2
    [ "$list" != test ] || echo 'setup: without clang (15 or newer) and lld code objects for Radeon cards are left out of the build; without Mesa only the CPU is verified; without hipcc nothing is tested on the virtual card' >&2
}
