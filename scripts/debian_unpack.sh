#!/bin/sh
# Unpacks packages of a Debian release into a folder, with all that they need, as if nothing were installed. Nothing is
# installed. Does nothing where the folder is complete.
#
#   scripts/debian_unpack.sh FOLDER RELEASE[,RELEASE] PACKAGE...
#
# Of several releases the first is preferred. `+NAME` is that package without what it needs; `@NAME-dev` is +NAME-dev and
# the library NAME-N that it is of. What the patterns in WITHOUT match is left out.
set -eu

case $1 in /*) root=$1 ;; *) root=$PWD/$1 ;; esac
releases=$2
shift 2
[ ! -e "$root/complete" ] || exit 0
echo "unpacking $* of Debian $releases into $root"
rm -rf "$root"
mkdir -p "$root/apt/state/lists/partial" "$root/apt/cache/archives/partial" "$root/apt/parts"
: > "$root/apt/status"
mirror=$("$(dirname "$0")/debian_mirror.sh")
for release in $(echo "$releases" | tr , ' '); do
    echo "deb [arch=amd64] $mirror $release main"
done > "$root/apt/sources.list"
cat > "$root/apt/apt.conf" <<CONF
APT::Default-Release "${releases%%,*}";
Dir::State "$root/apt/state";
Dir::State::status "$root/apt/status";
Dir::Cache "$root/apt/cache";
Dir::Etc::SourceList "$root/apt/sources.list";
Dir::Etc::SourceParts "$root/apt/parts";
APT::Sandbox::User "";
CONF
export APT_CONFIG="$root/apt/apt.conf"
apt-get update -qq
whole='' alone=''
for package in "$@"; do
    name=${package#[@+]}
    case $package in
    @*)
        whole="$whole $(apt-cache depends "$name" | sed -n "s/.*Depends: \(${name%-dev}-[0-9]*\)\$/\1/p")"
        alone="$alone $name"
        ;;
    +*) alone="$alone $name" ;;
    *) whole="$whole $name" ;;
    esac
done
# shellcheck disable=SC2086 # several words
apt-get install -qq -y --no-install-recommends --download-only $whole >/dev/null
# shellcheck disable=SC2086
[ -z "$alone" ] || (cd "$root/apt/cache/archives" && apt-get download -qq $alone)
set -f
without=''
for pattern in ${WITHOUT:-}; do
    without="$without --exclude=$pattern"
done
set +f
for package in "$root"/apt/cache/archives/*.deb; do
    (
        set -f
        # shellcheck disable=SC2086 # an option a pattern
        dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" $without
    )
done
rm -rf "$root/apt"
touch "$root/complete"
