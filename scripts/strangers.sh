#!/bin/sh
# Installs the wheel in clean roots of Debian 12, 13 and sid, with the oldest and the newest torch, as a stranger would
# (scripts/stranger.sh), and trains the demo. Nothing is on them but Python and Mesa: no Rust, no compiler. The Debian package and
# the archive are tried too, where they lie beside the wheel.
#
#   scripts/strangers.sh FOLDER WHEEL [SYSTEM...]
#
# As root. Needs mmdebstrap. The roots stay in FOLDER; what was installed into them goes away with each.
set -eu
cd "$(dirname "$0")/.."

folder=$(realpath -m "$1")
wheel=$(realpath "$2")
shift 2
[ "$#" -gt 0 ] || set -- bookworm trixie sid
[ "$(id -u)" -eq 0 ] || {
    echo 'strangers: only root can enter a root of its own' >&2
    exit 1
}
command -v mmdebstrap >/dev/null || {
    echo 'strangers: apt-get install mmdebstrap' >&2
    exit 1
}
mirror=$(scripts/debian_mirror.sh)
mkdir -p "$folder"
beside=$(dirname "$wheel")
failed=
# Runs a command in a root. A process list and devices of its own; all of it ends with the command.
inside() {
    # shellcheck disable=SC2016 # the inner shell's
    unshare --mount --pid --fork sh -c 'root=$0; mount --bind "$root" "$root" && mount -t proc proc "$root/proc" &&
        mount --bind /dev "$root/dev" && exec chroot "$root" env PATH=/usr/bin:/bin:/usr/sbin:/sbin "$@"' "$@"
}
# shellcheck disable=SC2016 # the root's shell's
try_package='set -eu
export HOME=/opt/try
files() { find / -xdev \( -path /proc -o -path /dev -o -path /opt -o -path /tmp -o -path /var/lib/dpkg -o -path /var/log \) -prune -o -print | sort; }
mkdir /opt/try
files > /opt/try/before
dpkg -i /opt/wave32_*.deb
wave32 --version
wave32 devices
dpkg -P wave32
files | diff /opt/try/before -
! grep -rl wave32 /var/lib/dpkg/status /var/lib/dpkg/info'
for system; do
    root=$folder/$system
    [ -e "$root/ready" ] || {
        rm -rf "$root"
        mmdebstrap --quiet --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' --include=python3,python3-venv,ca-certificates,libvulkan1,mesa-vulkan-drivers \
            "$system" "$root" "$mirror"
        touch "$root/ready"
    }
    # How this machine reaches its package index.
    for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
        [ ! -e "$file" ] || cp -L "$file" "$root$file"
    done
    cp "$wheel" scripts/stranger.sh "$root/opt/"
    for package in "$beside"/wave32_*_amd64.deb; do
        [ -e "$package" ] || continue
        echo "== Debian $system, $(basename "$package")"
        cp "$package" "$root/opt/"
        inside "$root" sh -c "$try_package" || failed="$failed $system/deb"
        rm -rf "$root/opt/try" "$root"/opt/wave32_*.deb
    done
    for archive in "$beside"/wave32-*-linux.tar.xz; do
        [ -e "$archive" ] || continue
        echo "== Debian $system, $(basename "$archive")"
        mkdir -p "$root/opt/try"
        tar -C "$root/opt/try" -xJf "$archive"
        inside "$root" sh -c '/opt/try/wave32-*/bin/wave32 --version' || failed="$failed $system/archive"
        rm -rf "$root/opt/try"
    done
    for torch in $(scripts/torch_versions.sh); do
        echo "== Debian $system, torch $torch"
        inside "$root" FULL=1 "WAVE32_TORCH=torch==$torch.*" sh /opt/stranger.sh "/opt/$(basename "$wheel")" /opt/try ||
            failed="$failed $system/$torch"
        rm -rf "$root/opt/try"
    done
done
[ -z "$failed" ] || {
    echo "strangers: failed on$failed" >&2
    exit 1
}
