#!/bin/sh
# Installs the wheel in clean roots of Debian 12, 13 and sid, with the oldest and the newest torch, as a stranger would
# (scripts/stranger.sh), and trains the demo. Nothing is on them but Python and Mesa: no Rust, no compiler.
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
failed=
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
    for torch in $(scripts/torch_versions.sh); do
        echo "== Debian $system, torch $torch"
        # A process list and devices of its own; all of it ends with the command.
        unshare --mount --pid --fork sh -c "mount --bind '$root' '$root' && mount -t proc proc '$root/proc' && mount --bind /dev '$root/dev' &&
            exec chroot '$root' env PATH=/usr/bin:/bin:/usr/sbin FULL=1 WAVE32_TORCH='torch==$torch.*' \
            sh /opt/stranger.sh /opt/$(basename "$wheel") /opt/try" || failed="$failed $system/$torch"
        rm -rf "$root/opt/try"
    done
done
[ -z "$failed" ] || {
    echo "strangers: failed on$failed" >&2
    exit 1
}
