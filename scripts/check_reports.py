#!/usr/bin/env python3
"""Checks the files in reports/ and makes docs/cards.md of them.

    python3 scripts/check_reports.py            # check, then write docs/cards.md
    python3 scripts/check_reports.py --check    # check, and fail where docs/cards.md is not what it would write

A report comes from a stranger. It is refused where it is large, of another schema, or holds a script, and where a string
in it looks like a home folder, a serial number, or an address of a network card or a network. Needs the package jsonschema.
"""

import argparse
import datetime
import ipaddress
import json
import math
import re
import sys
from pathlib import Path

import jsonschema

ROOT = Path(__file__).resolve().parent.parent
LARGEST = 1_000_000
HEX = "[0-9A-Fa-f]"

SCRIPTS = re.compile(r"<\s*/?\s*(script|iframe|object|embed|svg|img|style|link)\b|javascript:|data:text|\bon(?:error|load|click|toggle|focus|mouse\w+)\s*=", re.I)
PRIVATE = {
    "a home folder": re.compile(r"/(?:home|Users)/[^/\s\]]|/root/|\b[A-Za-z]:\\+Users\\"),
    "a MAC address": re.compile(rf"\b{HEX}{{2}}(?:[:-]{HEX}{{2}}){{5,}}\b"),
    "a UUID": re.compile(rf"\b{HEX}{{8}}(?:-{HEX}{{4}}){{3}}-{HEX}{{12}}\b|\bGPU-{HEX}{{8,}}|\b{HEX}{{32}}\b"),
    "a serial number": re.compile(
        r"\b(?:serial(?:[ _-]*(?:number|no\.?))?|s/n|unique[ _-]?id|asset[ _-]?tag)\s*[:=]\s*(?!\[)[A-Za-z0-9][\w./-]{3,}", re.I
    ),
    "an e-mail address": re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+"),
}
NUMBERS = re.compile(r"(?<![\w.-])(\d+\.\d+\.\d+\.\d+)(?![\w.-]*\d)")


class Refused(Exception):
    """A file that reports/ does not take."""


def strings(value, at=""):
    """Every string of a value, names of fields too, with its place."""
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from strings(item, f"{at}/{index}")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield f"{at}/{name}", name
            yield from strings(item, f"{at}/{name}")


def no_constant(name):
    raise Refused(f"{name} is no number of JSON")


def load(path, schema):
    """The report of a file, or Refused."""
    if path.is_symlink() or not path.is_file():
        raise Refused("it is no plain file")
    if path.stat().st_size > LARGEST:
        raise Refused(f"it has {path.stat().st_size} bytes; {LARGEST} are taken")
    try:
        report = json.loads(path.read_text(encoding="utf-8"), parse_constant=no_constant)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise Refused(f"it is no JSON: {error}") from None
    version = report.get("schema") if isinstance(report, dict) else None
    if version != schema["properties"]["schema"]["const"]:
        raise Refused(f"its schema is {version!r}; known is {schema['properties']['schema']['const']}")
    errors = sorted(jsonschema.Draft202012Validator(schema).iter_errors(report), key=lambda e: list(e.absolute_path))
    if errors:
        place = "/".join(map(str, errors[0].absolute_path))
        raise Refused(f"it does not fit reports/schema.json at {place or 'its top'}: {errors[0].message[:200]}")
    for at, text in strings(report):
        if SCRIPTS.search(text):
            raise Refused(f"{at} holds what a browser would run or load")
        for what, pattern in PRIVATE.items():
            if pattern.search(text):
                raise Refused(f"{at} holds what looks like {what}")
        for number in NUMBERS.findall(text):
            try:
                ipaddress.ip_address(number)
            except ValueError:
                continue
            raise Refused(f"{at} holds what looks like an IP address")
    return report


def load_all(folder):
    """The reports of a folder by name, and the reasons for which files are refused."""
    schema = json.loads((ROOT / "reports/schema.json").read_text(encoding="utf-8"))
    reports, refused = {}, []
    for path in sorted(folder.iterdir()):
        if path.name in ("schema.json", "README.md"):
            continue
        try:
            if path.suffix != ".json":
                raise Refused("only .json files are taken")
            reports[path.name] = load(path, schema)
        except Refused as reason:
            refused.append(f"{path.name}: {reason}")
    return reports, refused


def label(device):
    """What a device is, in a word that nobody takes for another."""
    name = device["name"].lower()
    if device["class"] == "card":
        makers = {"nvidia": "NVIDIA card", "radeon": "Radeon card", "amd": "Radeon card", "intel": "Intel GPU"}
        return next((text for maker, text in makers.items() if maker in name), "other card")
    return {"virtual-card": "virtual card", "software-driver": "software driver", "processor": "processor"}[device["class"]]


def cell(text):
    """Text of a stranger in a table of Markdown."""
    return re.sub(r"[|`<>\[\]\\*_]", " ", str(text)).replace("\n", " ").strip()


def speed(report, device):
    """Geometric mean of modelled over measured of each pass."""
    rows = [row for bench in report["benches"] if bench["device"] == device["id"] for row in bench["rows"]]
    parts = []
    for direction in ("fwd", "bwd", "wrw"):
        ratios = [
            row["model_ms"] / row["time"]["median_ms"]
            for row in rows
            if row["direction"] == direction and row["time"] and row["model_ms"] and row["time"]["median_ms"] > 0
        ]
        if ratios:
            parts.append(f"{direction} {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f} ({len(ratios)})")
    return ", ".join(parts) or "-"


def entries(name, report):
    """A line of the table for each device of a report that was verified."""
    devices = {device["id"]: device for device in report["devices"]}
    day = datetime.datetime.fromtimestamp(report["unix_time"], datetime.timezone.utc).date()
    for check in report["checks"]:
        device = devices.get(check["device"])
        # What is the same everywhere says nothing of a card.
        if device is None or (device["class"] == "processor" and len(report["checks"]) > 1):
            continue
        passed, failed = (sum(group[key] for group in check["groups"]) for key in ("passed", "failed"))
        right = f"{passed} of {passed + failed}"
        if failed:
            right = f"**{right}**: " + ", ".join(sorted({f["verdict"] for f in check["failures"]}))
        yield [
            label(device), cell(device["name"]), check["device"].split(":")[0], cell(device["driver"]), cell(device["mesa"] or "-"),
            cell(report["machine"]["kernel"] or "-"), right, speed(report, device), f"{day}, {cell(report['wave32'])}",
            f"[{name}](../reports/{name})",
        ]  # fmt: skip


HEAD = ["what it is", "name", "route", "driver", "Mesa", "kernel", "right", "modelled / measured", "day, wave32", "report"]


def page(reports):
    """docs/cards.md."""
    rows = [row for name, report in reports.items() for row in entries(name, report)]
    rows.sort(key=lambda row: (["Radeon card", "NVIDIA card", "Intel GPU", "other card", "virtual card"].index(row[0])
                               if row[0] not in ("software driver", "processor") else 9, row[1], row[2]))  # fmt: skip
    radeon = sum(row[0] == "Radeon card" for row in rows)
    real = f"{radeon} of these lines are from a real Radeon." if radeon else "**No line is from a real Radeon yet.**"
    lines = [
        "# Cards that were tried",
        "",
        "`scripts/check_reports.py` makes this page from the files in [reports](../reports). `wave32 report` makes such a file,",
        "and [report.md](report.md) says how to send yours.",
        "",
        real,
        "*Virtual card* means that the processor executed the instructions of an RX 5600 XT: right or wrong counts, its times",
        "mean nothing. *Software driver* means that Mesa computed on the processor.",
        "",
        "*Right* counts problems of the seeds and networks, each compared with an independent result. *Modelled / measured* is",
        "the time that the cost model ([model.md](model.md)) predicts for the card, divided by the measured time. It is a",
        "geometric mean over the layers of the suite `shapes` (their number is in brackets). Above 1 the card is faster than predicted.",
        "",
        "| " + " | ".join(HEAD) + " |",
        "|" + "---|" * len(HEAD),
    ]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the page would change")
    parser.add_argument("--reports", type=Path, default=ROOT / "reports", help="the folder of reports")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/cards.md", help="the page")
    args = parser.parse_args(argv)
    reports, refused = load_all(args.reports)
    for line in refused:
        print(f"refused: {line}", file=sys.stderr)
    if refused:
        return 1
    text = page(reports)
    if args.check:
        if not args.page.is_file() or args.page.read_text(encoding="utf-8") != text:
            print(f"{args.page} is not what the reports say; run scripts/check_reports.py", file=sys.stderr)
            return 1
    else:
        args.page.write_text(text, encoding="utf-8")
    print(f"{len(reports)} reports, {len(text.splitlines())} lines of {args.page.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
