#!/bin/sh
# A route on the virtual card: `hip` under AMD's own HIP runtime, `vulkan` under Mesa's own RADV. The device suite,
# convolutions and operations of every kind, and that every kernel ran at least once in a test that passed.
#
#   scripts/kernels_on_vgpu.sh PATH/TO/wave32-vgpu hip|vulkan [OPTIONS OF `wave32-vgpu run`]
set -eu
export LC_ALL=C
cd "$(dirname "$0")/.."
launcher=$1
route=$2
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The workspace's build, as `make test` makes it: FOLDER NAME PROGRAM a line.
cargo test --workspace --features wave32-torch/fault-injection --no-run --message-format=json >"$folder/messages"
python3 - "$folder/messages" >"$folder/tests" <<'PYTHON'
import json, os, sys
for line in open(sys.argv[1]):
    message = json.loads(line)
    if message.get("executable") and message["profile"]["test"] and "test" in message["target"]["kind"]:
        folder = os.path.dirname(message["manifest_path"])
        print(folder, message["target"]["name"], message["executable"])
PYTHON

export WAVE32_TEST_DEVICE="$route" WAVE32_TEST_KERNELS="$folder/launched"
if [ "$route" = hip ]; then
    export WAVE32_REQUIRE_HIP=1
else
    icd=${WAVE32_RADV_ICD:?"RADV's ICD file is meant; \`make vgpu-kernels\` finds it"}
    export WAVE32_REQUIRE_VULKAN=1 VK_DRIVER_FILES="$icd" VK_ICD_FILENAMES="$icd"
fi
while read -r package name program; do
    filter='' deadline=600 report=$folder/${package##*/}.$name.report
    case $route/${package##*/}/$name in
    hip/hip/conformance) filter=card ;;
    # Its findings are meant.
    vulkan/vulkan/planted) deadline=1 report=$folder/planted ;;
    vulkan/vulkan/device | vulkan/vulkan/queue | vulkan/vulkan/conformance) ;;
    hip/verify/solvers) filter=every_kernel solvers=$program ;;
    vulkan/verify/solvers) filter=every_kernel ;;
    # All operations are one program.
    hip/ops/* | vulkan/ops/*) deadline=1800 ;;
    hip/miopen/activation | hip/miopen/batch_norm | hip/miopen/layers | hip/miopen/plans | hip/miopen/pooling) ;;
    *) continue ;;
    esac
    echo "$route: ${package##*/} $name"
    # A card as slow as this one is given a plan's launches one by one: no barrier stands between them. Each kernel becomes a pipeline,
    # as each is launched, which is checked at the end.
    (cd "$package" && "$launcher" run --report "$report" --deadline "$deadline" "$@" -- "$program" ${filter:+"$filter"} \
        --skip launches_of_a_plan_wait_only_where_they_must --skip every_shipped_kernel_becomes_a_pipeline </dev/null)
done <"$folder/tests"
if [ "$route" = hip ]; then
    # The card above has no dot products. Under Vulkan tests emulate them.
    (cd crates/verify && "$launcher" run --card rx5500xt --report "$folder/dot.report" --deadline 600 "$@" -- \
        "$solvers" every_kernel_of_dot_products </dev/null)
fi

# A row TEXT TAG DTYPES ... of the table is the kernels TEXT_TAG_DTYPE; those of matrix instructions, which tests emulate, are for Vulkan.
awk -v route="$route" '!/^ *(#|$)/ && (route == "vulkan" || !/ MATRIX=1/) { n = split($3, dtypes, ","); for (i = 1; i <= n; i++) print $1 "_" $2 "_" dtypes[i] }' \
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
