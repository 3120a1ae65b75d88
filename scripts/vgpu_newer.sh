#!/bin/sh
# Runs the programs of vgpu/tests/hip on the virtual card under the HIP of later Debian releases: trixie's 5.7 and sid's
# 6.x, unpacked (not installed) below FOLDER/newer together with their own C library; then those of crates/preload on the
# strict card with the library PRELOAD. Then the program WAVE32 proves the seeds on the strict card under those releases'
# Mesa, unpacked with its C library into folders that become the root. FOLDER holds what `make vgpu` built.
#
#   scripts/vgpu_newer.sh FOLDER PRELOAD WAVE32 [SUITE...]
set -eu

folder=$1
preload=$2
wave32=$3
shift 3
suites=${*:-seeds}
here=$(cd "$(dirname "$0")/.." && pwd)
tests=$here/vgpu/tests/hip
preloaded=$here/crates/preload/tests/programs
mkdir -p "$folder/newer/bin"

# build RELEASE SOURCE OUT [--genco]: 5.7 runs what this system's hipcc makes; 6.x wants its own headers.
build() {
    flags=$(sed -n 's,^// flags: ,,p' "$2")
    if [ "$1" = trixie ]; then
        # shellcheck disable=SC2086 # several words
        HIP_PLATFORM=amd hipcc --offload-arch=gfx1010 -O2 -std=c++17 -I"$tests" $flags ${4:-} "$2" -o "$3"
        return
    fi
    usr=$folder/newer/$1/usr
    library=$(ls "$usr"/lib/x86_64-linux-gnu/libamdhip64.so.[0-9])
    ln -sf "$(command -v clang-offload-bundler-15)" "$folder/newer/bin/clang-offload-bundler"
    set -- "$@" ''
    kind=-c
    [ -z "${4:-}" ] || kind=--cuda-device-only
    # shellcheck disable=SC2086
    PATH=$folder/newer/bin:$PATH clang++-19 -x hip --offload-arch=gfx1010 -O2 -std=c++17 -I"$tests" $flags \
        --rocm-path="$usr" --hip-path="$usr" --hip-version="${library##*.}.4.0" -isystem "$usr/include" \
        -D__HIP_PLATFORM_AMD__ -mcode-object-version=4 -w \
        --rocm-device-lib-path=/usr/lib/x86_64-linux-gnu/amdgcn/bitcode $kind "$2" -o "$3.o"
    if [ "$kind" = -c ]; then
        clang++-19 "$3.o" "$library" -Wl,--unresolved-symbols=ignore-in-shared-libs -o "$3"
    else
        mv "$3.o" "$3"
    fi
}

failed=0
for release in trixie sid; do
    root=$folder/newer/$release
    "$here/scripts/debian_unpack.sh" "$root" "$release" @libamdhip64-dev rocminfo
    libraries=$root/usr/lib/x86_64-linux-gnu
    name=$(basename "$(ls "$libraries"/libamdhip64.so.*.*.*)")
    echo "Debian $release: $name"
    run() {
        # shellcheck disable=SC2086 # several options
        HSA_ENABLE_SDMA=$sdma LD_PRELOAD=$with timeout 240 "$folder/wave32-vgpu" run $options -- \
            "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries:$folder/lib" --argv0 "$1" "$@"
    }
    sdma=1 options='' with=''
    run "$root/usr/bin/rocminfo" | grep -q 'Marketing Name: *AMD Radeon RX 5600 XT' || {
        echo "  rocminfo does not list the card"
        failed=1
    }
    mkdir -p "$root/programs"
    for source in "$tests"/*.hip; do
        # A program that executes itself would start without these libraries.
        [ "$(basename "$source")" != fork.hip ] || continue
        program=$root/programs/$(basename "$source" .hip)
        if [ ! -e "$program" ] || [ -n "$(find "$source" "$tests/check.h" -newer "$program")" ]; then
            build "$release" "$source" "$program"
            ! grep -q '^// module' "$source" || build "$release" "$source" "$program.co" --genco
        fi
        options=$(sed -n 's,^// options: ,,p' "$source")
        death=$(sed -n 's,^// dies: ,,p' "$source")
        for sdma in 1 0; do
            status=0
            run "$program" > "$program.out" 2>&1 || status=$?
            if [ -n "$death" ]; then
                grep -qF "$death" "$program.out" && [ "$status" -ne 0 ] && continue
            else
                [ "$status" -eq 0 ] && grep -qx passed "$program.out" && continue
            fi
            failed=1
            echo "  $(basename "$program"), HSA_ENABLE_SDMA=$sdma: status $status: $(tail -n 2 "$program.out")"
        done
    done
    sdma=1 options=--strict with=$preload
    for use in 'kinds default' 'kinds mapped' 'kinds numa' 'kinds mem-alloc-host' 'kinds registered' 'kinds managed' \
        device_kinds busy 'refusals refused'; do
        # shellcheck disable=SC2086 # program and argument
        set -- $use
        program=$root/programs/$1
        shift
        [ -e "$program" ] || build "$release" "$preloaded/${program##*/}.hip" "$program"
        if ! run "$program" "$@" > "$program.out" 2>&1 || ! grep -qx passed "$program.out"; then
            failed=1
            echo "  $use, coarse-grained: $(tail -n 2 "$program.out")"
        fi
    done
done
# rooted ROOT PROGRAM...: with ROOT as the root. A user may do so in a namespace of his own.
rooted() {
    mkdir -p "$1/proc" "$1/dev" "$1/tmp"
    for link in lib lib64; do
        [ -e "$1/$link" ] || ln -s "usr/$link" "$1/$link"
    done
    user=''
    [ "$(id -u)" -eq 0 ] || user=--map-root-user
    # shellcheck disable=SC2016 # the shell inside
    unshare $user --mount --pid --fork sh -c \
        'cd "$1" && mount -t proc proc proc && mount --rbind /dev dev && mount -t tmpfs tmpfs tmp && shift && exec chroot . "$@"' \
        sh "$@"
}

for release in trixie sid; do
    root=$folder/newer/$release-mesa
    "$here/scripts/debian_unpack.sh" "$root" "$release" mesa-vulkan-drivers libvulkan1 vulkan-tools
    mkdir -p "$root/card/lib"
    cp "$folder/wave32-vgpu" "$wave32" "$root/card/"
    cp "$folder/lib/libwave32_vgpu.so" "$root/card/lib/"
    mesa=$(rooted "$root" /card/wave32-vgpu run -- vulkaninfo --summary 2>&1 | sed -n 's/.*driverInfo *= *//p' | head -n 1)
    echo "Debian $release: ${mesa:-no driver}"
    # shellcheck disable=SC2086 # several suites
    if ! rooted "$root" /card/wave32-vgpu run --strict --check -- "/card/${wave32##*/}" verify $suites --device vulkan:0 \
        --dtype f32,f16,bf16 --max-gflop 0.0005 --jobs 2 > "$root/verify.out" 2>&1; then
        failed=1
    fi
    # Not another driver of that Mesa.
    grep -q 'RADV NAVI10' "$root/verify.out" || failed=1
    grep 'passed,' "$root/verify.out" || tail -n 5 "$root/verify.out"
done
[ "$failed" -eq 0 ] && echo 'all programs passed under both'
exit "$failed"
