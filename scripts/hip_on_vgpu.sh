#!/bin/sh
# The HIP route on the virtual card, under AMD's own runtime: the device suite, convolutions and operations of every
# kind, and that every kernel of the card's code object ran at least once in a test that passed.
#
#   scripts/hip_on_vgpu.sh PATH/TO/wave32-vgpu [OPTIONS OF `wave32-vgpu run`]
set -eu
export LC_ALL=C
cd "$(dirname "$0")/.."
launcher=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The workspace's build, as `make test` makes it: FOLDER NAME PROGRAM a line.
cargo test --workspace --no-run --message-format=json >"$folder/messages"
python3 - "$folder/messages" >"$folder/tests" <<'PYTHON'
import json, os, sys
for line in open(sys.argv[1]):
    message = json.loads(line)
    if message.get("executable") and message["profile"]["test"] and "test" in message["target"]["kind"]:
        folder = os.path.dirname(message["manifest_path"])
        print(folder, message["target"]["name"], message["executable"])
PYTHON

export WAVE32_REQUIRE_HIP=1 WAVE32_TEST_DEVICE=hip WAVE32_TEST_KERNELS="$folder/launched"
while read -r package name program; do
    case ${package##*/}/$name in
    hip/conformance) filter=card ;;
    verify/solvers) filter=every_kernel ;;
    ops/* | miopen/activation | miopen/batch_norm | miopen/layers | miopen/plans | miopen/pooling) filter= ;;
    *) continue ;;
    esac
    echo "${package##*/} $name"
    (cd "$package" && "$launcher" run --report "$folder/${package##*/}.$name.report" "$@" -- "$program" ${filter:+"$filter"} </dev/null)
done <"$folder/tests"

# A row TEXT TAG DTYPES ... of the table is the kernels TEXT_TAG_DTYPE.
awk '!/^ *(#|$)/ { n = split($3, dtypes, ","); for (i = 1; i <= n; i++) print $1 "_" $2 "_" dtypes[i] }' \
    kernels/variants.txt | sort >"$folder/all"
sort -u "$folder/launched" >"$folder/ran"
missing=$(comm -23 "$folder/all" "$folder/ran")
[ -z "$missing" ] || {
    echo "kernels that no passing test launched: $(echo "$missing" | tr '\n' ' ')" >&2
    exit 1
}
echo "all $(wc -l <"$folder/all") kernels ran in tests that passed"
python3 - "$folder"/*.report <<'PYTHON'
import json, sys
reports = [json.load(open(path)) for path in sys.argv[1:]]
operations = set().union(*(report["operations"] for report in reports))
instructions = sum(kernel["instructions"] for report in reports for kernel in report["kernels"].values())
findings = [finding["message"] for report in reports for finding in report["findings"]]
print(f"{len(operations)} different operations executed, {instructions / 1e6:.0f} million instructions of waves")
sys.exit("\n".join(findings) or None)
PYTHON
