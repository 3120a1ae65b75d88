#!/bin/sh
# Prints the mirror of Debian that this machine's own apt uses, or $VGPU_MIRROR.
set -eu

# shellcheck disable=SC2016 # apt's own variables
uris=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages')
mirror=${VGPU_MIRROR:-$(echo "$uris" | grep debian | grep -v security | head -n 1)}
[ -n "$mirror" ] || {
    echo 'debian_mirror: apt here names no mirror of Debian; set VGPU_MIRROR to one' >&2
    exit 1
}
echo "$mirror"
