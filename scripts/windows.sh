#!/bin/sh
# Runs wave32.exe under Wine, with Vulkan on lavapipe: devices, a choice, the seeds, planted faults, wrong use. Fails where one
# of them does (docs/windows.md). `make windows` installs what this needs and builds the program.
#
#   scripts/windows.sh PROGRAM FOLDER
#
# FOLDER gets Wine's prefix, the report and the last output.
set -eu

program=$(realpath "$1")
mkdir -p "$2"
cd "$2"

export WINEPREFIX="$PWD/prefix" WINEDEBUG=-all WINEDLLOVERRIDES='mscoree,mshtml='
for name in /usr/share/vulkan/icd.d/lvp_icd*.json; do
    export VK_DRIVER_FILES="$name" VK_ICD_FILENAMES="$name"
done

# Wine's Vulkan wants a display.
rm -f display
mkfifo display
Xvfb -displayfd 3 -nolisten tcp 3>display 2>/dev/null &
server=$!
trap 'wineserver -k 2>/dev/null || true; kill $server; rm -f display' EXIT
read -r number <display
export DISPLAY=":$number"

timeout 300 wine wineboot --init >/dev/null 2>&1
# Rust's library wants this of Windows. Wine 8 lacks it.
random=$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll
[ -e "$random" ] || x86_64-w64-mingw32-gcc -shared -O2 -x c - -o "$random" -ladvapi32 <<'END'
#include <windows.h>
#include <ntsecapi.h>
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length) { return RtlGenRandom(data, (ULONG)length); }
END

fail() {
    echo "windows: $*" >&2
    sed 's/^/    /' output >&2
    exit 1
}

# run CODE ARGUMENT...: the command must end with that code.
run() {
    wanted=$1
    shift
    code=0
    timeout 600 wine "$program" "$@" >output 2>&1 || code=$?
    [ "$code" -eq "$wanted" ] || fail "wave32 $*: exit code $code, not $wanted"
}

# says TEXT...: the last output has each of these.
says() {
    for text; do
        grep -qF -- "$text" output || fail "the output lacks: $text"
    done
}

line() {
    echo "MIOpenDriver conv -n 1 -c 8 -H $1 -W 12 -k 8 -y 3 -x 3 -F 1"
}

wine --version
run 0 --version
cat output
run 0 devices
says 'vulkan:0  llvmpipe' 'route cpu'
cat output
run 0 explain "$(line 20)"
says 'plan: '
run 0 bench "$(line 20)" --reps 20
says 'device timestamps'

run 0 verify seeds --max-gflop 0.001 --dtype f32,f16,bf16 --json report.json
says 'vulkan:0  bf16   wrw' 'cpu       bf16   wrw' 'ALL RIGHT'
tail -n 1 output

# Both faults are told, and the third problem still passes; the report is written over the last one.
begin=$(date +%s)
export WAVE32_INJECT='hang:-H 20,crash:-H 21'
run 1 verify "$(line 20)" "$(line 21)" "$(line 22)" --device vulkan --deadline 6 --json report.json
unset WAVE32_INJECT
says 'no answer within 6s' 'the child died of exception 0xc0000409 (abort)' 'FAILED: 1 passed, 2 failed'
[ "$(($(date +%s) - begin))" -lt 60 ] || fail 'a planted hang did not end at its deadline'
grep -q '"HANG"' report.json || fail 'the report lacks the hang'
tail -n 1 output

# A child whose parent is killed ends too; the last line here sees that.
export WAVE32_INJECT='hang:-H 20'
timeout -s KILL 10 wine "$program" verify "$(line 20)" --device vulkan --deadline 600 >output 2>&1 &
killed=$!
sleep 7
children=$(pgrep -fc 'wave32.exe __verify-child') || true
[ "$children" -gt 0 ] || fail 'no child works before its parent is killed'
wait "$killed" 2>/dev/null || true
unset WAVE32_INJECT

run 2 verify no-such-suite
run 2 no-such-command
run 2 doctor
run 2 verify seeds --memory-cap 1G
run 3 verify seeds --device vulkan:9
run 3 verify seeds --device hip

# It waits for all processes: no child is left.
timeout 60 wineserver -w || fail 'a process was left behind'
echo 'windows: all of it'
