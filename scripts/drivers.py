#!/usr/bin/env python3
"""What the RADV of three Debian releases makes of every kernel, and how long that takes: `make drivers`.

    scripts/drivers.py --program target/debug/examples/drivers --launcher target/vgpu/wave32-vgpu --folder target/vgpu/newer \\
        --answers target/drivers [--resume]
    scripts/drivers.py --page            # the page again, from docs/drivers.tsv

The installed RADV is asked, and those of Debian 13 and sid, which scripts/debian_unpack.sh unpacks into the folder. Writes
docs/drivers.tsv and, from it, docs/drivers.md. `--networks` runs networks on the virtual card and writes the names of the
kernels that their first step takes to docs/drivers_networks.json; it needs torchvision and the device `wave`.
"""
import argparse
import collections
import csv
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent
TABLE, PAGE, NETWORKS = (HERE / "docs" / name for name in ("drivers.tsv", "drivers.md", "drivers_networks.json"))
RELEASES = {"": "Debian 12", "trixie": "Debian 13", "sid": "Debian sid"}
# RADV of Mesa 26 has no null device; there the virtual card takes its place, which is an RDNA1 card.
ON_VIRTUAL_CARD = {"sid"}
BOARDS = {
    "navi10": "RX 5700, RX 5600", "navi12": "Pro 5600M", "navi14": "RX 5500, RX 5300", "navi21": "RX 6800 to 6950",
    "navi31": "RX 7900", "navi44": "RX 9060", "navi48": "RX 9070",
}  # fmt: skip
RDNA1 = ("navi10", "navi12", "navi14")
KEYS = ("vgprs", "sgprs", "lds", "vgpr_spills", "sgpr_spills", "scratch", "occupancy", "code_bytes", "hot_fma",
        "hot_instructions", "subgroup", "wave64_lines")  # fmt: skip
HEAD = """# Today's drivers

Your driver translates each of wave32's kernels to your card's instructions when it is first used. This page shows what Mesa's RADV, the
usual Vulkan driver of Radeons under Linux, makes of them in three releases: {mesas}.
`make drivers` makes this page and [drivers.tsv](drivers.tsv), which has each kernel.

**No card took part.** RADV compiles for a chip that is not there. [What is proven, and how](proof.md) says where results were
checked. How fast this code runs on a card was not measured.

- Date: {date}. Machine: {machine}; other programs ran at the same time.
- Kernels of [matrix instructions](performance.md#matrix-instructions) are compiled where chip and driver have these:
  {matrix_places}.
  {matrix}.
- So are those of [dot products](performance.md#dot-products): {dot_places}. {dot}.
- On RDNA1 (NAVI10, 12 and 14): {rdna1}.
- On all chips: {all}.
- Mesa 22.3.6 is installed. The newer ones are Debian's packages, unpacked into a folder; each starts with its own C library and Vulkan
  loader.
- Mesa 22.3.6 and 25.0.7 compile without any device (`RADV_FORCE_FAMILY`). Mesa 26 cannot do that any more. There the
  [virtual card](vgpu.md) takes the place of the kernel's driver. It is an RDNA1 card, so Mesa 26 was not asked about newer chips.

## Registers

*Spill*: kernels that move registers to memory for want of room. *Lowest occupancy*: how many waves one SIMD holds of the kernel with the
fewest; registers, LDS and wave slots limit it.
{mesa_tables}

Kernels that spill, with the number of registers that each spills:

{spilling}

Mesa 22.3.6 gives no kernel more than 144 registers on NAVI31, which was new then.

## Waves of 32 lanes

wave32's kernels need waves of 32 lanes, and RADV can also compile for 64. So wave32 requires a subgroup size of 32
(`VkPipelineShaderStageRequiredSubgroupSizeCreateInfo`). The last column above counts the kernels for which two witnesses say that RADV
obeyed:

- RADV says 32 (`VkPipelineExecutablePropertiesKHR::subgroupSize`). To test this witness, one kernel a chip is also compiled with 64
  required. The run fails unless RADV then says 64.
- The instructions use masks of 32 lanes only: `exec_lo` and `vcc_lo`, never `exec`, nor `vcc` in a vector instruction.

## Multiply-adds

The share of multiply-adds in the hottest loop in %, and the occupancy. f32, NAVI10. More multiply-adds are better
([how they are counted](kernels.md#what-is-counted)).

{loops}

The newer releases use more registers, so fewer waves fit for some kernels. Mesa 26.2.6 also reads LDS by 64 bits at most where
the older ones read by 128, which takes more instructions. The gate of 85 % for some kernels
([which](kernels.md#how-resources-are-gated)) holds with the first two; with 26.2.6 the 13 have 80 to 86 %. Whether a card computes slower or faster by this was
not measured. wave32's tiles are chosen for the code of Mesa 22.3.6.

## First use

When a process first launches a kernel, RADV compiles it, and that launch waits. wave32 keeps the result in `~/.cache/wave32`, in a file
for each driver version and card. Later processes read it and do not compile. After a driver update all is compiled anew.

Time to compile a kernel: processor time of `vkCreateComputePipelines` without a cache, the quicker of {times} tries.

{times_table}

What the first step of a network waits for: the sum over its kernels, as an RX 5700 XT chooses them
([which they are](drivers_networks.json), on the virtual card by `scripts/drivers.py --networks`). NAVI10.

{networks}

One thread compiles, one kernel after the other. wave32 does not compile in the background what it may need later: what there would be to
gain is this time, once for each driver version.

## Not tried

- Mesa 23 and 24; Mesa 26 for RDNA2, RDNA3 and RDNA4.
- AMD's own Vulkan drivers (AMDVLK, Windows).
- A card.
"""
NETWORK = """
import json, sys
import torch, torchvision, wave32
name, batch, step = sys.argv[1], int(sys.argv[2]), sys.argv[3]
net = getattr(torchvision.models, name)().to("wave").train(step == "training")
with torch.wave.profile() as profiler:
    images = torch.randn(batch, 3, 224, 224).to("wave")
    if step == "training":
        labels = torch.randint(1000, (batch,)).to("wave")
        optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
        torch.nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    else:
        with torch.no_grad():
            net(images)
print(json.dumps(sorted(name for name, *_ in profiler.by_kernel())))
"""


def networks(launcher):
    """The kernels of a network's first step on an RX 5700 XT, which must have compiled before the second."""
    found = {}
    for name, batch, step in (("resnet50", 12, "training"), ("resnet50", 12, "inference"), ("mobilenet_v2", 12, "training")):
        command = [launcher, "run", "--card", "rx5700xt", "--time", "--sample", "--", sys.executable, "-c", NETWORK]
        done = subprocess.run(
            [*command, name, str(batch), step], capture_output=True, text=True, timeout=1800, check=True,
            env={**os.environ, "WAVE32_TIMEOUT": "1800"},
        )  # fmt: skip
        found[f"{name}, {step}, batch {batch}, 224x224, f32"] = json.loads(done.stdout.splitlines()[-1])
        print(name, step, len(list(found.values())[-1]), file=sys.stderr)
    NETWORKS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        name = next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    return f"{name}, {os.cpu_count()} cores"


def asked(args, release):
    """Rows of one release: by kernel and figures, the chips and their times."""
    environment, more = dict(os.environ), []
    if release:
        root = args.folder / f"{release}-mesa"
        packages = ("mesa-vulkan-drivers", "libvulkan1", "vulkan-tools")
        subprocess.run([HERE / "scripts/debian_unpack.sh", root, release, *packages], check=True)
        environment["WAVE32_RADV_ROOT"] = str(root)
    if release in ON_VIRTUAL_CARD:
        more = ["--launcher", args.launcher]
    if args.only:
        more += ["--only", args.only]
    answer = args.answers / f"{release or 'installed'}{args.only and '-' + args.only}.tsv"
    if not (args.resume and answer.exists()):
        command = [args.program, "--times", str(args.times), *more]
        text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout
        args.answers.mkdir(parents=True, exist_ok=True)
        answer.write_text(text, encoding="utf-8")
    text = answer.read_text(encoding="utf-8")
    drivers = {line.removeprefix("# driver: ") for line in text.splitlines() if line.startswith("# driver: ")}
    [driver] = drivers
    rows = collections.defaultdict(list)
    for row in csv.DictReader((line for line in text.splitlines() if line[0] != "#"), delimiter="\t"):
        rows[(row["kernel"], *(row[key] for key in KEYS))].append((row["chip"], float(row["ms"])))
    return driver.removeprefix("radv "), rows, datetime.date.fromtimestamp(answer.stat().st_mtime)


def gather(args):
    lines, dates = [], []
    for release, name in RELEASES.items():
        print(f"asking the RADV of {name}", file=sys.stderr)
        mesa, rows, date = asked(args, release)
        dates.append(date)
        for (kernel, *figures), found in sorted(rows.items()):
            chips, times = zip(*found)
            lines.append([name, mesa, kernel, ",".join(chips), *figures, ",".join(f"{ms:.1f}" for ms in times)])
        if args.only:
            known = [line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines()]
            lines += [row for row in known if row[:2] == [name, mesa] and args.only not in row[2]]
            lines.sort(key=lambda row: (list(RELEASES.values()).index(row[0]), row[2], *row[4:-1]))
    head = [
        "# Made by `make drivers`. Chips with the same figures share a row; ms has a time for each of them: processor time of",
        f"# vkCreateComputePipelines without any cache, the quickest of {args.times}.",
        f"# date: {min(dates)}",
        f"# machine: {processor()}",
        f"# times: {args.times}",
    ]
    columns = ["release", "mesa", "kernel", "chips", *KEYS, "ms"]
    TABLE.write_text("\n".join([*head, *("\t".join(row) for row in [columns, *lines])]) + "\n", encoding="utf-8")


def table():
    """What docs/drivers.tsv says in its head, and a row for each kernel and chip."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    said = dict(line[2:].split(": ", 1) for line in lines if re.match("# [a-z]+: ", line))
    rows = []
    for row in csv.DictReader((line for line in lines if line[0] != "#"), delimiter="\t"):
        numbers = {key: int(row[key]) for key in KEYS}
        for chip, ms in zip(row["chips"].split(","), row["ms"].split(",")):
            rows.append({**row, **numbers, "chip": chip, "ms": float(ms)})
    return said, rows


def share(row):
    return 100 * row["hot_fma"] / row["hot_instructions"]


def of_chips(rows):
    """The table of one Mesa."""
    lines = [
        "| chip | kernels | spill VGPRs | spill SGPRs | scratch, bytes | most VGPRs | lowest occupancy | waves of 32 lanes |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for chip, of_chip in chips(rows):
        cells = [
            f"{chip.upper()} ({BOARDS[chip]})",
            len(of_chip),
            sum(row["vgpr_spills"] > 0 for row in of_chip),
            sum(row["sgpr_spills"] > 0 for row in of_chip),
            sum(row["scratch"] for row in of_chip),
            max(row["vgprs"] for row in of_chip),
            min(row["occupancy"] for row in of_chip),
            sum(map(of_32_lanes, of_chip)),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def chips(rows):
    """The rows of each chip, in the order of BOARDS."""
    found = [(chip, [row for row in rows if row["chip"] == chip]) for chip in BOARDS]
    return [(chip, of_chip) for chip, of_chip in found if of_chip]


def of_times(by_mesa):
    lines = ["| Mesa | chip | median, ms | 95 of 100 within, ms | slowest, ms | all, s |", "|---|---|---:|---:|---|---:|"]
    for mesa, rows in by_mesa.items():
        for chip, of_chip in chips(rows):
            times = [row["ms"] for row in of_chip]
            slowest = max(of_chip, key=lambda row: row["ms"])
            within = statistics.quantiles(times, n=20)[-1]
            lines.append(
                f"| {mesa} | {chip.upper()} | {statistics.median(times):.0f} | {within:.0f} "
                f"| {slowest['ms']:.0f} (`{slowest['kernel']}`) | {sum(times) / 1e3:.1f} |"
            )
    return lines


def of_loops(by_mesa, chip):
    """Shares of multiply-adds in the hottest loops and occupancy, f32: of each tile kernel, and of the other kernels together."""
    lines = [f"| kernel | {' | '.join(by_mesa)} |", "|---|" + "---|" * len(by_mesa)]
    of_mesas = [{row["kernel"]: row for row in rows if row["chip"] == chip and row["kernel"].endswith("_f32")} for rows in by_mesa.values()]
    for kernel in sorted(name for name in of_mesas[0] if name.startswith(("igemm_", "wrw_"))):
        cells = [f"{share(rows[kernel]):.0f}, {rows[kernel]['occupancy']}" for rows in of_mesas]
        lines.append(f"| `{kernel}` | {' | '.join(cells)} |")
    for group in ("skinny_", "direct_"):
        cells = []
        for rows in of_mesas:
            of_group = [row for name, row in rows.items() if name.startswith(group)]
            shares = [share(row) for row in of_group if row["hot_instructions"]]
            waves = [row["occupancy"] for row in of_group]
            cells.append(f"{min(shares):.0f} to {max(shares):.0f}, {min(waves)} to {max(waves)}")
        lines.append(f"| `{group}*` | {' | '.join(cells)} |")
    return lines


def of_networks(by_mesa):
    mesas = list(by_mesa)
    lines = [f"| first step of | kernels | {' | '.join(f'{mesa}, s' for mesa in mesas)} |", "|---|---:|" + "---:|" * len(mesas)]
    for name, kernels in json.loads(NETWORKS.read_text()).items():
        cells = []
        for rows in by_mesa.values():
            times = {row["kernel"]: row["ms"] for row in rows if row["chip"] == "navi10"}
            cells.append(f"{sum(times[kernel] for kernel in kernels) / 1e3:.1f}")
        lines.append(f"| {name} | {len(kernels)} | {' | '.join(cells)} |")
    return lines


def spilling(row):
    return row["vgpr_spills"] or row["sgpr_spills"] or row["scratch"]


def of_32_lanes(row):
    return row["subgroup"] == 32 and row["wave64_lines"] == 0


def verdict(rows):
    """How many keep what wave32 counts on."""
    kept = sum(not spilling(row) for row in rows)
    right = sum(map(of_32_lanes, rows))
    return (
        f"{kept} of {len(rows)} compiled kernels neither spill registers nor use scratch memory, {right} of {len(rows)} are for "
        "waves of 32 lanes"
    )


def by_place(rows):
    """Rows by Mesa and chip."""
    found = collections.defaultdict(list)
    for row in rows:
        found[row["mesa"], row["chip"]].append(row)
    return found.items()


def spill(place):
    (mesa, chip), rows = place
    kernels = ", ".join(f"`{row['kernel']}` ({row['vgpr_spills']})" for row in rows)
    return f"- {mesa}, {chip.upper()}: {kernels}."


def needing(flag):
    """Names of the kernels with that flag, `MATRIX=1` or `DOT=1`."""
    rows = [line.split() for line in (HERE / "kernels/variants.txt").read_text(encoding="utf-8").splitlines()]
    return {f"{row[0]}_{row[1]}_{dtype}" for row in rows if flag in row for dtype in row[2].split(",")}


def places(rows):
    return ", ".join(f"{chip.upper()} by {mesa}" for (mesa, chip), _ in by_place(rows))


def page():
    """The text of docs/drivers.md."""
    said, rows = table()
    by_mesa = collections.defaultdict(list)
    for row in rows:
        by_mesa[f"{row['mesa']} ({row['release']})"].append(row)
    spills = [row for row in rows if spilling(row)]
    of_matrix, of_dot = ([row for row in rows if row["kernel"] in names] for names in map(needing, ("MATRIX=1", "DOT=1")))
    return HEAD.format(
        mesas=", ".join(f"Mesa {mesa.removeprefix('Mesa ')}" for mesa in by_mesa),
        date=said["date"],
        machine=said["machine"],
        times=said["times"],
        rdna1=verdict([row for row in rows if row["chip"] in RDNA1]),
        all=verdict(rows),
        matrix_places=places(of_matrix),
        matrix=verdict(of_matrix),
        dot_places=places(of_dot),
        dot=verdict(of_dot),
        mesa_tables="\n".join(line for mesa, of in by_mesa.items() for line in ["", f"### {mesa}", "", *of_chips(of)]),
        spilling="\n".join(map(spill, by_place(spills))) or "None.",
        loops="\n".join(of_loops(by_mesa, "navi10")),
        times_table="\n".join(of_times(by_mesa)),
        networks="\n".join(of_networks(by_mesa)),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", help="the example `drivers` of crates/kernels/compiler")
    parser.add_argument("--launcher", help="wave32-vgpu")
    parser.add_argument("--folder", type=pathlib.Path, help="where Debian's releases are unpacked")
    parser.add_argument("--times", type=int, default=2, help="how often each kernel is compiled; the quickest counts")
    parser.add_argument("--answers", type=pathlib.Path, help="where the answers of each release are kept")
    parser.add_argument("--resume", action="store_true", help="do not ask those again whose answers are there")
    parser.add_argument("--only", default="", help="only kernels with this in their names; of the others the table's rows stay")
    parser.add_argument("--page", action="store_true", help="only the page, from the table")
    parser.add_argument("--networks", action="store_true", help="only the networks' kernels")
    args = parser.parse_args()
    if args.networks:
        networks(args.launcher)
    elif not args.page:
        gather(args)
    PAGE.write_text(page(), encoding="utf-8")
    if any(row["chip"] in RDNA1 and (spilling(row) or not of_32_lanes(row)) for row in table()[1]):
        raise SystemExit("drivers: on RDNA1 a kernel spills or is not for waves of 32 lanes: docs/drivers.md names it")


if __name__ == "__main__":
    main()
