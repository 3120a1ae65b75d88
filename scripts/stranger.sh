#!/bin/sh
# Installs the wheel as a stranger does, uses it, and takes it off again; nothing may be left.
#
#   scripts/stranger.sh WHEEL FOLDER [SITE]
#
# FOLDER gets a virtual environment of python3, a home and a folder to work in. PyTorch is the one in SITE, another environment's
# site-packages folder; without SITE pip installs WAVE32_TORCH (default: torch) first. FULL=1 trains the whole demo too.
set -eu

wheel=$(realpath "$1")
folder=$(realpath -m "$2")
site=${3:-}
rm -rf "$folder"
mkdir -p "$folder/home" "$folder/work"
export HOME="$folder/home" XDG_CACHE_HOME="$folder/home/cache" XDG_STATE_HOME="$folder/home/state" PYTHONDONTWRITEBYTECODE=1
unset PYTHONPATH CARGO_TARGET_DIR
cd "$folder/work"

step() {
    echo "stranger: $*"
}
step a virtual environment with PyTorch
python3 -m venv "$folder/venv"
PATH=$folder/venv/bin:$PATH
if [ -n "$site" ]; then
    echo "$site" > "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"
else
    pip install --quiet --no-compile "${WAVE32_TORCH:-torch}"
fi
installed() {
    find "$folder/venv" ! -type d | sort
}
installed > "$folder/before"
written() {
    (cd "$folder" && find home work ! -type d | sort)
}
written > "$folder/written-before"

step pip install "$(basename "$wheel")"
pip install --quiet --no-index --no-deps "$wheel"
wave32 --version
libraries=$folder/venv/lib/wave32
step what is here
code=0
wave32 doctor > doctor.txt || code=$?
# 1: something is wrong on this machine, and the doctor says what.
[ "$code" -le 1 ] || {
    cat doctor.txt
    exit 1
}
wave32 devices
if [ -e "$libraries/libMIOpen.so.1" ]; then
    grep -qF "$libraries/libMIOpen.so.1" doctor.txt
    step "MIOpen's place, and out of it again"
    rocm=$folder/rocm
    mkdir "$rocm"
    # To the command a library is what begins as one.
    printf '\177ELF of AMD' > "$rocm/libMIOpen.so.1.0.1"
    ln -s libMIOpen.so.1.0.1 "$rocm/libMIOpen.so.1"
    vendors() {
        find "$rocm" -mindepth 1 -printf '%P %l %i %M %u %T@\n' | sort
        sha256sum "$rocm"/*
    }
    vendors > "$folder/rocm-before"
    wave32 miopen install --yes --into "$rocm"
    cmp "$libraries/libMIOpen.so.1" "$rocm/libMIOpen.so.1"
    wave32 miopen status --into "$rocm" | tee status.txt
    grep -q "wave32's .*; the vendor's is kept as " status.txt
    wave32 miopen uninstall --yes --into "$rocm"
    vendors | diff "$folder/rocm-before" -
fi
step the seeds
wave32 verify seeds --max-gflop 0.0005 --dtype f32 > verify.txt || {
    cat verify.txt
    exit 1
}
tail -n 1 verify.txt
step a training step
python - <<'PYTHON'
from copy import deepcopy
import torch, wave32

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
                            torch.nn.Linear(8 * 32 * 32, 10))
image, label = torch.randn(4, 3, 32, 32), torch.tensor([1, 2, 3, 4])
losses = {}
for device in "cpu", "wave":
    copy = deepcopy(model).to(device)
    optimizer = torch.optim.SGD(copy.parameters(), 1e-3)
    losses[device] = []
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(copy(image.to(device)), label.to(device))
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        losses[device].append(loss.item())
print(torch.__version__, torch.wave.get_device_name(), losses)
assert all(abs(a - b) < 1e-3 for a, b in zip(losses["cpu"], losses["wave"])), losses
assert not torch.wave.fallbacks(), torch.wave.fallbacks()
# An error of the device is a C++ exception on its way: it needs the system's unwinder.
try:
    torch.zeros(8, device="wave").view(3)
except RuntimeError as error:
    print("an error as it should be:", error)
else:
    raise AssertionError("8 elements were viewed as 3")
PYTHON
step an unmodified script that says cuda
cat > script.py <<'PYTHON'
import torch

assert torch.cuda.is_available()
layer = torch.nn.Conv2d(3, 4, 3).cuda()
print("cuda:", torch.cuda.get_device_name(), layer(torch.ones(1, 3, 8, 8, device="cuda")).sum().item())
PYTHON
# Its GPU may be the software driver.
wave32 run --route vulkan -- python script.py
if [ -n "${FULL:-}" ]; then
    step the demo
    wave32 demo
fi
step uninstall
pip uninstall --quiet --yes wave32
installed > "$folder/after"
diff "$folder/before" "$folder/after" || {
    echo 'stranger: pip left these' >&2
    exit 1
}
# What docs/install.md says stays, what Vulkan drivers keep, and this script's files.
left=$(written | comm -13 "$folder/written-before" - | grep -v -e '^home/cache/wave32/' -e '^home/state/wave32/changes/' \
    -e '^work/wave32-demo/' -e '^home/cache/mesa_shader_cache' -e '^home/cache/nvidia/' -e '^work/\(doctor\|verify\|status\)\.txt$' \
    -e '^work/script\.py$' || true)
[ -z "$left" ] || {
    printf 'stranger: these are left:\n%s\n' "$left" >&2
    exit 1
}
echo 'stranger: all right'
