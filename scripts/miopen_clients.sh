#!/bin/sh
# Stock clients of MIOpen with the drop-in in its place, on the virtual card: onnxruntime-rocm of PyPI, and Debian's MIGraphX.
# What onnxruntime needs beside MIOpen and HIP is stood in for by libraries that say which of their functions was called,
# and fail; MIGraphX has Debian's. See docs/miopen_clients.md.
#
#   scripts/miopen_clients.sh FOLDER LIBRARY
#
# FOLDER holds what `make vgpu` built; the clients, 3 GB, go below FOLDER/clients. LIBRARY is the drop-in.
set -eu

folder=$1
library=$(dirname "$(realpath "$2")")
here=$(cd "$(dirname "$0")/.." && pwd)
clients=$folder/clients
mkdir -p "$clients/stand-ins"

# stand_in SONAME PATTERN: a library with those of the provider's undefined functions whose names match. What makes,
# configures or destroys a handle succeeds; all else says its name and fails.
stand_in() {
    nm -D --undefined-only "$provider" | awk '{ sub("@.*", "", $NF); print $NF }' | grep -E "$2" | awk '
        BEGIN { print "#include <stdio.h>" }
        /Create$/ { print "int " $1 "(void **made) { static int one; *made = &one; return 0; }"; next }
        /Destroy$|SetStream$/ { print "int " $1 "(void) { return 0; }"; next }
        { print "int " $1 "(void) { fprintf(stderr, \"stand-in: " $1 " was called\\n\"); return 7; }" }
    ' > "$clients/stand-ins/$1.c" || true
    cc -shared -fPIC -Wl,-soname,"$1" -o "$clients/stand-ins/$1" "$clients/stand-ins/$1.c"
}

# onnxruntime-rocm 1.22.2 is made for ROCm 7.2; Debian's development releases have its HIP.
"$here/scripts/debian_unpack.sh" "$clients/rocm7" experimental,sid @libamdhip64-dev +librocm-smi64-1
hip=$clients/rocm7/usr/lib/x86_64-linux-gnu
[ -e "$hip/libamdhip64.so.7" ] || {
    echo "Debian's experimental release has no HIP 7 any more: $(ls "$hip"/libamdhip64.so.*.*.*)" >&2
    exit 1
}
[ -e "$clients/onnxruntime/complete" ] || {
    echo "installing onnxruntime-rocm into $clients/onnxruntime"
    rm -rf "$clients/onnxruntime"
    python3 -m venv "$clients/onnxruntime"
    "$clients/onnxruntime/bin/pip" install --quiet --disable-pip-version-check \
        onnxruntime-rocm==1.22.2.post3 'numpy<2.3' 'onnx<1.20'
    touch "$clients/onnxruntime/complete"
}
provider=$(ls "$clients"/onnxruntime/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime_providers_rocm.so)
stand_in libhipblas.so.3 '^(hipblas|rocblas)'
stand_in libhipfft.so.0 '^hipfft'
stand_in libroctracer64.so.4 '^roctracer'

python=$clients/onnxruntime/bin/python3
for options in '' --half; do
    # shellcheck disable=SC2086 # may be no word
    timeout 900 "$folder/wave32-vgpu" run --strict -- "$hip/ld-linux-x86-64.so.2" \
        --library-path "$library:$hip:$clients/stand-ins:$folder/lib:/usr/lib/x86_64-linux-gnu" \
        --argv0 "$python" "$python" "$here/crates/miopen/tests/clients/onnxruntime_models.py" $options
done

# MIGraphX proves its results itself, against its own reference on the processor.
root=$clients/migraphx
WITHOUT='*gfx8* *gfx9* *gfx103* *gfx11* *gfx12* *libMIOpen*' "$here/scripts/debian_unpack.sh" "$root" sid migraphx-tools +migraphx
migraphx=$root/usr/lib/x86_64-linux-gnu
mkdir -p "$root/home"
for run in 1 2 3; do
    [ "$run" -lt 3 ] && options='' || options=--fp16
    "$python" "$here/crates/miopen/tests/clients/migraphx_net.py" "$root/home/net.onnx"
    # shellcheck disable=SC2086 # may be no word
    HOME=$root/home TMPDIR=$root/home timeout 300 "$folder/wave32-vgpu" run --strict -- "$migraphx/ld-linux-x86-64.so.2" \
        --library-path "$library:$migraphx/migraphx/lib:$migraphx:$folder/lib" --argv0 migraphx-driver \
        "$root/usr/bin/migraphx-driver" verify $options --onnx "$root/home/net.onnx" > "$root/home/out" 2>&1 || true
    grep 'MIGraphX verification passed' "$root/home/out" || {
        tail -n 20 "$root/home/out" >&2
        exit 1
    }
done
