#!/bin/sh
# Builds a release into FOLDER: the wheels, an archive, a Debian package, checksums. zig links against glibc 2.28's symbols.
#
#   scripts/dist.sh FOLDER
#
# The same commit gives the same bytes with the same Rust, clang and zig (docs/RELEASING.md).
set -eu
cd "$(dirname "$0")/.."

folder=$(realpath -m "$1")
glibc=2.28
triple=x86_64-unknown-linux-gnu
platform=manylinux_2_28_x86_64
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
build=$folder/build
parts=$folder/parts
mkdir -p "$folder"

[ -x "$folder/tools/bin/python" ] || python3 -m venv "$folder/tools"
python=$folder/tools/bin/python
"$python" -m pip install --quiet --requirement packaging/tools.txt
PATH=$folder/tools/bin:$PATH

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
WAVE32_COMMIT=$(packaging/commit.sh)
export SOURCE_DATE_EPOCH WAVE32_COMMIT
# No path of this machine in what is built.
remap="--remap-path-prefix=$PWD=wave32 --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
# glslang, of the build scripts alone, is this machine's C++ compiler's.
export CXX_x86_64_unknown_linux_gnu="${CXX:-c++}" CXXSTDLIB_x86_64_unknown_linux_gnu=stdc++

echo "dist: wave32 $version ($WAVE32_COMMIT)"
RUSTFLAGS=$remap cargo zigbuild --release --locked --target $triple.$glibc --target-dir "$build" --package wave32 \
    --package wave32-miopen --package wave32-hipdnn --package wave32-preload --package wave32-vgpu
# libtorch's C++ exceptions pass through the device's frames: both must have the system's unwinder. zig links one of its own in the
# place of -lgcc_s, and an error then ends the process.
RUSTFLAGS=$remap cargo-zigbuild rustc --release --locked --target $triple.$glibc --target-dir "$build" --package wave32-torch --lib \
    -- -C "link-arg=$(${CC:-cc} -print-file-name=libgcc_s.so.1)"
made=$build/$triple/release
readelf --dynamic "$made/lib_native.so" | grep -q 'NEEDED.*libgcc_s.so.1' || {
    echo "dist: $made/lib_native.so is not linked with libgcc_s.so.1" >&2
    exit 1
}

# scripts/link.sh calls $CC with no arguments of its own.
printf '#!/bin/sh\nexec "%s" -m ziglang cc -target x86_64-linux-gnu.%s -s "$@"\n' "$python" $glibc > "$folder/zig-cc"
chmod +x "$folder/zig-cc"
rm -rf "$parts" "$folder/vgpu" "$folder/wheels"
mkdir -p "$parts/bin" "$parts/lib" "$folder/vgpu/bin" "$folder/vgpu/lib" "$folder/wheels"
CC=$folder/zig-cc scripts/rocm.sh "$folder/rocm" "$made/libwave32_miopen.a"
CC=$folder/zig-cc scripts/link.sh "$parts/lib/libwave32_hipdnn_plugin.so" crates/hipdnn/exports.map "$made/libwave32_hipdnn.a"
install -m 755 "$folder/rocm/lib/libMIOpen.so.1" "$made/libwave32_preload.so" "$parts/lib"
install -m 755 "$made/wave32" "$parts/bin"
install -m 755 "$made/lib_native.so" "$parts/_native.abi3.so"
install -m 755 "$made/wave32-vgpu" "$folder/vgpu/bin"
for level in x86-64-v2 x86-64-v3 x86-64-v4; do
    RUSTFLAGS="$remap -C target-cpu=$level" cargo zigbuild --release --locked --target $triple.$glibc \
        --target-dir "$build/$level" --package wave32-card
    # The lowest serves whoever has no better.
    place=$folder/vgpu/lib
    [ $level = x86-64-v2 ] || place=$place/glibc-hwcaps/$level
    install -D -m 755 "$build/$level/$triple/release/libwave32_vgpu.so" "$place/libwave32_vgpu.so"
done
"$python" packaging/papers.py "$parts"
cp "$parts/sbom.cdx.json" "$parts/THIRD-PARTY-LICENSES.txt" "$folder/vgpu"

wheel() {
    WAVE32_PARTS=$1 WAVE32_PLATFORM=$platform "$python" -m pip wheel --quiet --no-deps --no-build-isolation \
        --wheel-dir "$folder/wheels" "$2"
}
wheel "$parts" .
wheel "$folder/vgpu" packaging/vgpu

scripts/archives.sh "$folder" "$version"
"$python" packaging/audit.py $platform "$folder"/wheels/*.whl
for file in "$folder"/wheels/*.whl; do
    size=$(stat -c %s "$file")
    [ "$size" -le 25000000 ] || {
        echo "dist: $(basename "$file") has $size bytes; 25,000,000 are allowed" >&2
        exit 1
    }
done
"$python" -m twine check --strict "$folder"/wheels/*.whl
mv "$folder"/wheels/*.whl "$folder"
rmdir "$folder/wheels"
(cd "$folder" && sha256sum -- *.whl *.tar.xz *.deb > SHA256SUMS && ls -l -- *.whl *.tar.xz *.deb)
