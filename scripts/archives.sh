#!/bin/sh
# The archive and the Debian package, from scripts/dist.sh's parts:
#
#   scripts/archives.sh FOLDER VERSION
set -eu

folder=$1
version=$2
parts=$folder/parts
tree=$folder/tree/wave32-$version
rm -rf "$folder/tree" "$folder/deb"
mkdir -p "$tree/bin" "$tree/lib/wave32"
"$parts/bin/wave32" __pages "$folder/tree/pages"
pages=$folder/tree/pages
install -m 755 "$parts/bin/wave32" "$tree/bin"
install -m 644 "$parts"/lib/* "$tree/lib/wave32"
install -D -m 644 -t "$tree/share/man/man1" "$pages"/man/*
install -D -m 644 "$pages/bash/wave32.bash" "$tree/share/bash-completion/completions/wave32"
install -D -m 644 "$pages/zsh/_wave32" "$tree/share/zsh/site-functions/_wave32"
install -D -m 644 "$pages/fish/wave32.fish" "$tree/share/fish/vendor_completions.d/wave32.fish"
install -D -m 644 -t "$tree/share/doc/wave32" README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$parts/THIRD-PARTY-LICENSES.txt" \
    "$parts/sbom.cdx.json"

archive() {
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner "$@"
}
archive -C "$folder/tree" -c "wave32-$version" | xz -6 -T1 > "$folder/wave32-$version-x86_64-linux.tar.xz"

deb=$folder/deb
mkdir -p "$deb/DEBIAN" "$deb/usr"
cp -r "$tree/bin" "$tree/lib" "$tree/share" "$deb/usr"
mv "$deb/usr/share/zsh/site-functions" "$deb/usr/share/zsh/vendor-completions"
gzip -9 -n "$deb"/usr/share/man/man1/*
# Debian's place and name for the licences.
cat LICENSE-MIT LICENSE-APACHE > "$deb/usr/share/doc/wave32/copyright"
rm "$deb"/usr/share/doc/wave32/LICENSE-*
cat > "$deb/DEBIAN/control" <<CONTROL
Package: wave32
Version: $version
Architecture: amd64
Maintainer: the wave32 authors <wave32@localhost>
Section: science
Priority: optional
Depends: libc6 (>= 2.28), libvulkan1
Recommends: mesa-vulkan-drivers
Installed-Size: $(du -sk "$deb/usr" | cut -f1)
Description: convolutions on AMD RDNA and any other Vulkan GPU
 The command wave32 (doctor, verify, bench, run), a drop-in for ROCm's libMIOpen.so.1, and a library that gives RDNA1 cards
 memory that they can use. The PyTorch device comes as a Python wheel.
CONTROL
find "$deb" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group --build -Zxz "$deb" "$folder/wave32_${version}_amd64.deb" >/dev/null
rm -rf "$folder/tree" "$deb"
