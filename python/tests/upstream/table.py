"""The table of a run, and what of its failures is known."""

from __future__ import annotations

import collections
import json
import pathlib
import re
from collections.abc import Iterable
from typing import Any

KNOWN = pathlib.Path(__file__).resolve().parent / "known.json"
BAD = ("failed", "abort", "timeout")


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    """Lines of a file of results; a last line that was cut off is left out."""
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines


def last(lines: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The last result of each test."""
    return {line["id"]: line for line in lines if "id" in line}


def known() -> list[dict[str, str]]:
    """Classified failures: `id` and `error` are patterns, `class` and `reason` say what it is.

    Class `torch`: torch itself allows it to no device from outside; `reason` quotes its check, and the row leaves the
    sum. Classes `test` (the test expects CUDA's behaviour) and `open` (a defect of ours, not mended yet) stay in it.
    """
    return json.loads(KNOWN.read_text())


def classify(line: dict[str, Any], rows: list[dict[str, str]]) -> dict[str, str] | None:
    """The row that a failure is known by."""
    for row in rows:
        if re.search(row["id"], line["id"]) and re.search(row.get("error", ""), line.get("reason", "")):
            return row
    return None


def _grouped(reason: str) -> str:
    """A reason without what differs from test to test."""
    reason = reason.split("\n")[0]
    return re.sub(r"torch\.\w+|\b\d+\b", "*", reason)[:90]


def _count(lines: list[dict[str, Any]], cpu: dict[str, str], rows: list[dict[str, str]]) -> dict[str, int]:
    count: dict[str, int] = collections.Counter()
    for line in lines:
        outcome = line["outcome"]
        if outcome == "skipped":
            count["by us" if line["reason"].startswith("by us") else "skipped"] += 1
            continue
        count["run"] += 1
        count[outcome] += 1
        if line.get("fallbacks"):
            count["with fallbacks"] += 1
        if outcome in BAD:
            row = classify(line, rows)
            if row is not None and row["class"] == "torch":
                count["torch"] += 1
            elif cpu.get(line["id"]) in BAD:
                count["cpu too"] += 1
            elif line["id"] not in cpu:
                count["unasked"] += 1
    return count


def share(count: dict[str, int]) -> str:
    """passed / (run + skipped by us), without the rows that torch's own check forbids."""
    whole = count["run"] + count["by us"] - count["torch"]
    return f"{100 * count['passed'] / whole:.1f} %" if whole else "-"


COLUMNS = ["run", "passed", "failed", "abort", "timeout", "torch", "cpu too", "with fallbacks", "skipped", "by us"]


def markdown(lines: list[dict[str, Any]]) -> str:
    """The table, the reasons for skipping, and what failed."""
    head = next((line for line in lines if "sample" in line), {})
    name = next((line["name"] for line in lines if "name" in line), head.get("device"))
    rows = known()
    cpu = {line["cpu_of"]: line["outcome"] for line in lines if "cpu_of" in line}
    by_file: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for line in last(lines).values():
        by_file[line["id"].split("::")[0]].append(line)
    files = {line["file"]: line for line in lines if "tests" in line and "file" in line}
    text = [
        f"torch {head.get('torch')}, {name}; sample {head.get('sample')}, seed {head.get('seed')}, "
        f"deadline {head.get('deadline'):g} s a test, {head.get('jobs')} at a time.", "",
        "| file | taken of | " + " | ".join(COLUMNS) + " | share |",
        "|---|---" * 1 + "|---" * (len(COLUMNS) + 1) + "|",
    ]
    whole: dict[str, int] = collections.Counter()
    unreached = 0
    for file, about in files.items():
        count = _count(by_file[file], cpu, rows)
        whole.update(count)
        missing = about["taken"] - len(by_file[file])
        unreached += missing
        taken = f"{about['taken']} of {about['tests']}" + (f" ({missing} not reached)" if missing else "")
        text.append(f"| {file} | {taken} | " + " | ".join(str(count[c]) for c in COLUMNS) + f" | {share(count)} |")
    taken, tests = (sum(about[key] for about in files.values()) for key in ("taken", "tests"))
    taken = f"{taken} of {tests}" + (f" ({unreached} not reached)" if unreached else "")
    text.append(f"| all | {taken} | " + " | ".join(str(whole[c]) for c in COLUMNS) + f" | {share(whole)} |")
    wanted = {file: None for line in lines for file in line.get("wanted", ())}
    broken = {line["file"] for line in lines if "error" in line and "file" in line}
    unopened = [file for file in wanted if file not in files and file not in broken]
    if unreached or unopened:
        text.append(f"\nNot reached for want of time: {unreached} of the tests taken"
                    + (f"; none of {', '.join(unopened)}" if unopened else "") + ".")
    if unasked := whole["unasked"]:
        text.append(f"\n{unasked} failures were not run on the CPU as well.")
    for line in lines:
        if "error" in line and "file" in line:
            text.append(f"\n`{line['file']}` could not be loaded: {line['error']}")
    skipped = collections.Counter(
        _grouped(line["reason"]) for line in last(lines).values() if line["outcome"] == "skipped"
    )
    text += ["", "Skipped, by reason:", ""] + [f"- {number}: {reason}" for reason, number in skipped.most_common()]
    return "\n".join(text) + "\n"


def report(lines: list[dict[str, Any]], path: pathlib.Path | None) -> int:
    """Prints what is not known and writes the table; 1 where something unknown failed or a process ended."""
    text = markdown(lines)
    rows = known()
    cpu = {line["cpu_of"]: line["outcome"] for line in lines if "cpu_of" in line}
    unknown = 0
    for line in last(lines).values():
        if line["outcome"] not in BAD:
            continue
        row = classify(line, rows)
        if line["outcome"] == "abort" or row is None and cpu.get(line["id"]) not in BAD:
            unknown += 1
            print(f"{line['outcome']}: {line['id']}\n    {line.get('reason', '')[:400]}")
    print(text)
    print(f"{unknown} unknown failures")
    if path is not None:
        path.write_text(text)
    return 1 if unknown or not last(lines) or any("error" in line and "file" in line for line in lines) else 0
