#!/bin/sh
# Vulkan programs of others on the virtual card, each compared with its own CPU code or with numpy: engines and compilers of
# PyPI on the installed Mesa, and ggml's tests of Debian sid, unpacked with sid's Mesa. Prints a table. See docs/vgpu.md.
#
#   scripts/vgpu_foreign_vulkan.sh FOLDER [PROGRAM...]
#
# FOLDER holds what `make vgpu` built; what is installed, 2.2 GB, goes below FOLDER/foreign. Each program runs plain and
# `--strict`, and where the strict card stops accesses past a buffer's end, `--strict --robust` as well. STRICT=0 leaves
# these out.
set -eu

folder=$(realpath "$1")
shift
here=$(cd "$(dirname "$0")/.." && pwd)
tests=$here/vgpu/tests/vulkan
foreign=$folder/foreign
python=$foreign/python/bin/python
sid=$foreign/sid
mkdir -p "$foreign/logs"
[ $# -gt 0 ] || set -- ncnn wgpu taichi quadrants iree onnxruntime slangpy vkdispatch ggml

icd=${WAVE32_RADV_ICD:-$(ls /usr/share/vulkan/icd.d/radeon_icd*.json)}
# Whatever may be cached would hide the compiler.
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 MESA_SHADER_CACHE_DISABLE=true TI_OFFLINE_CACHE=0 QD_OFFLINE_CACHE=0
XDG_RUNTIME_DIR=$(mktemp -d)
export XDG_RUNTIME_DIR
trap 'rm -rf "$XDG_RUNTIME_DIR"' EXIT

# install PACKAGE...: into an environment of their own.
install() {
    [ -x "$python" ] || python3 -m venv "$foreign/python"
    "$python" -m pip install --quiet --disable-pip-version-check --only-binary :all: numpy "$@"
}

# card OPTIONS PROGRAM [ARGUMENT...]: on the installed Mesa.
card() {
    options=$1
    shift
    # shellcheck disable=SC2086 # several options
    VK_DRIVER_FILES=$icd VK_ICD_FILENAMES=$icd timeout -k 5 900 "$folder/wave32-vgpu" run $options -- "$@"
}

# ggml OPTIONS: on sid's Mesa. Its C library is sid's too, so the program is started by its own dynamic linker.
ggml() {
    libraries=$sid/usr/lib/x86_64-linux-gnu
    sed "s,\"libvulkan_radeon,\"$libraries/libvulkan_radeon," "$sid"/usr/share/vulkan/icd.d/radeon_icd*.json \
        > "$foreign/sid_icd.json"
    # It looks for its backends where it is started.
    command="env -C $libraries/ggml/backends0 $folder/wave32-vgpu run $1 -- $libraries/ld-linux-x86-64.so.2
        --library-path $libraries:$folder/lib $sid/usr/libexec/x86_64-linux-gnu/llama.cpp-tests/test-backend-ops"
    version=$(basename "$(realpath "$libraries/libggml.so.0")")
    VK_DRIVER_FILES=$foreign/sid_icd.json timeout -k 5 7200 "$python" "$tests/ggml_ops.py" "$command" "${version#libggml.so.}"
}

prepare() {
    case $1 in
    ncnn | wgpu | taichi | quadrants | slangpy | vkdispatch) install "$1" ;;
    iree) install iree-base-compiler iree-base-runtime ;;
    onnxruntime) install onnxruntime-webgpu onnx ;;
    ggml)
        install
        WITHOUT='./usr/share/doc* ./usr/share/locale* ./usr/share/man*' \
            "$here/scripts/debian_unpack.sh" "$sid" sid llama.cpp-tests libggml0-backend-vulkan mesa-vulkan-drivers
        ;;
    *)
        echo "vgpu_foreign_vulkan: there is no $1" >&2
        exit 2
        ;;
    esac
}

start() {
    case $1 in
    ncnn) card "$2" "$python" "$tests/ncnn_net.py" ;;
    wgpu) card "$2" "$python" "$tests/wgpu_compute.py" ;;
    taichi | quadrants) card "$2" "$python" "$tests/taichi_kernels.py" "$1" ;;
    iree) card "$2" "$python" "$tests/iree_modules.py" ;;
    onnxruntime) card "$2" "$python" "$tests/onnx_models.py" ;;
    slangpy) card "$2" "$python" "$tests/slang_functions.py" ;;
    vkdispatch) card "$2" "$python" "$tests/fft_vkdispatch.py" ;;
    ggml) ggml "$2" ;;
    esac
}

# row PROGRAM [OPTIONS]: runs it; a line of the table.
row() {
    log=$foreign/logs/$1$(echo "$2" | tr -d ' ').txt
    begin=$(date +%s)
    ended=0
    start "$1" "$2" > "$log" 2>&1 || ended=$?
    # The last line of what the programs print themselves; else how it ended.
    said=$(grep -a '^[^ ].*: [0-9]* \(right\|wrong\|refused\)' "$log" | tail -n 1)
    printf '| %-36s | %-17s | %5s s |\n' "${said:-$1: ended with $ended, see $log}" "${2:-plain}" "$(($(date +%s) - begin))"
    # 1 is wrong; 3 refused, which is no failure of the card's.
    case $ended in 0 | 3) ;; *) failed=1 ;; esac
}

failed=0
for program; do
    prepare "$program"
    row "$program" ''
    [ "${STRICT:-1}" = 1 ] || continue
    row "$program" --strict
    grep -aq "past the buffer's records" "$foreign/logs/$program--strict.txt" || continue
    row "$program" '--strict --robust'
done
grep -ahE '^  (wrong|refused)|^wave32-vgpu: ' "$foreign"/logs/*.txt | sort | uniq -c | sort -rn > "$foreign/logs/told" || true
echo "what was wrong or refused, and what the card said: $foreign/logs"
exit $failed
