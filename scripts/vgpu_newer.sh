#!/bin/sh
# Runs programs on the virtual card under the HIP of later Debian releases, unpacked (not installed) below FOLDER/newer:
# trixie (HIP 5.7) and sid (HIP 6.x), with their own C library. FOLDER holds what `make vgpu` built.
set -eu

folder=$1
here=$(cd "$(dirname "$0")/.." && pwd)
mirror=${VGPU_MIRROR:-http://deb.debian.org/debian}

# unpack RELEASE PACKAGE...: those packages and all that they need, as if nothing were installed.
unpack() {
    release=$1
    shift
    root=$folder/newer/$release
    [ ! -e "$root/complete" ] || return 0
    rm -rf "$root"
    mkdir -p "$root/apt/state/lists/partial" "$root/apt/cache/archives/partial" "$root/apt/parts"
    : > "$root/apt/status"
    echo "deb [arch=amd64] $mirror $release main" > "$root/apt/sources.list"
    cat > "$root/apt/apt.conf" <<CONF
Dir::State "$root/apt/state";
Dir::State::status "$root/apt/status";
Dir::Cache "$root/apt/cache";
Dir::Etc::SourceList "$root/apt/sources.list";
Dir::Etc::SourceParts "$root/apt/parts";
APT::Sandbox::User "";
CONF
    APT_CONFIG=$root/apt/apt.conf apt-get update -qq
    APT_CONFIG=$root/apt/apt.conf apt-get install -qq -y --no-install-recommends --download-only "$@" >/dev/null
    for package in "$root"/apt/cache/archives/*.deb; do
        dpkg-deb -x "$package" "$root"
    done
    rm -rf "$root/apt"
    touch "$root/complete"
}
