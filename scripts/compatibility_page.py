"""The page that scripts/compatibility.py makes from its log."""

import json
import re
import statistics

# An error is right up to this, or up to four times the judge's own in f32.
LIMITS = {"forward": 1e-4, "gradients": 1e-3}
TIMES = ("forward", "training")
# Shorter timing of a network says nothing about speed.
LEAST_SECONDS = 0.5


def read(log):
    """The head of a log, and its rows by device and name: the last of each counts."""
    text = log.read_text() if log.exists() else ""
    rows = [json.loads(line) for line in text.splitlines() if line.startswith('{"device"')]
    head = text.partition('\n{"device"')[0]
    return json.loads(head) if '"command"' in head else {}, {(row["device"], row["name"]): row for row in rows}


def is_right(row):
    """Whether wave's errors of a joined row are those of a right f32 computation."""
    own, found = row.get("own", {}), row.get("error of wave", {})
    return bool(found) and all(found[kind] <= max(limit, 4 * own.get(kind, 0)) for kind, limit in LIMITS.items())


def joined(rows):
    """By network: wave's row and the judge's as (wave, judge)."""
    names = list(dict.fromkeys(name for _, name in rows))
    return {name: tuple(rows.get((device, name), {"failed": "not run"}) for device in ("wave", "judge")) for name in names}


def verdict(wave, judge):
    for who, row in (("wave", wave), ("the judge", judge)):
        if "failed" in row:
            return f"{who} failed: {row['failed']}".replace("|", "\\|")
    if "error of wave" not in judge:
        return "not compared"
    return "right" if is_right(judge) else "**wrong**"


def pair(judge, kind):
    """wave's error and the judge's own."""
    found, own = judge.get("error of wave", {}).get(kind), judge.get("own", {}).get(kind)
    return [f"{value:.1e}" if value is not None else "" for value in (found, own)]


def memory(row):
    return f"{row['memory'] / 2**20:.0f}" if "memory" in row else ""


def times(wave, judge, kind):
    """Milliseconds of CUDA and of wave, and their ratio."""
    ours, theirs = wave.get(kind), judge.get(kind)
    cells = [f"{value * 1e3:.2f}" if value else "" for value in (theirs, ours)]
    return [*cells, f"{theirs / ours:.2f}" if ours and theirs else ""]


def summary(found, count):
    """Counts, and with times the ratios' geometric means."""
    verdicts = {name: verdict(*both) for name, both in found.items()}
    right = [name for name, said in verdicts.items() if said == "right"]
    wrong = [name for name, said in verdicts.items() if said == "**wrong**"]
    other = [name for name in found if name not in right + wrong]
    fallbacks = [name for name, (wave, _) in found.items() if wave.get("fallbacks")]
    lines = [
        f"{len(found)}{f' of {count}' if count > len(found) else ''} networks: {len(right)} right, {len(wrong)} wrong{' (' + ', '.join(wrong) + ')' if wrong else ''}, {len(other)} not compared"
        f"{' (' + ', '.join(other) + ')' if other else ''}. {len(fallbacks) or 'None'} of them ran an operator on the CPU."
        f"{' The others were not run.' if count > len(found) else ''}",
        "",
    ]
    ratios = {kind: {n: j[kind] / w[kind] for n, (w, j) in found.items() if kind in w and kind in j} for kind in TIMES}
    if all(ratios.values()):
        lines += ["| | networks | geometric mean of CUDA's time over wave's | least |", "|---|---|---|---|"]
        for kind, values in ratios.items():
            least = min(values, key=values.get)
            lines.append(f"| {kind} | {len(values)} | {statistics.geometric_mean(values.values()):.2f} | {values[least]:.2f} ({least}) |")
        lines.append("")
    return lines


def seconds(command):
    """Of timing each network."""
    found = re.search(r"--seconds ([\d.]+)", command)
    return float(found[1]) if found else LEAST_SECONDS


def page(head, rows, log):
    found = joined(rows)
    timed = any(kind in wave for wave, _ in found.values() for kind in TIMES)
    if timed and seconds(head["command"]) < LEAST_SECONDS:
        # They stay in the log.
        timed = False
        found = {name: tuple({k: v for k, v in row.items() if k not in TIMES} for row in both) for name, both in found.items()}
    judge = "CUDA" if any("memory" in judge for _, judge in found.values()) else "PyTorch's CPU"
    inexact = [name for name, (_, judge) in found.items() if "no f64" in judge]
    lines = [
        "# Networks by name", "",
        "Which networks of torchvision, timm, diffusers and transformers compute right on the device `wave`, with random weights and nothing",
        "downloaded (`scripts/compatibility.py`, networks in `scripts/networks.py`). Those of the last two packages have the architecture of the",
        "published ones with fewer layers and channels.", "",
        f"- command: `{head['command']}`", f"- date: {head['date']}", f"- machine: {head['machine']}",
        f"- commit: {head['commit']} ([log](logs/{log}))", "",
        *summary(found, head.get("networks", 0)), *(["\n".join(head["note"]), ""] if "note" in head else []),
        f"- **Right**: the error is at most {LIMITS['forward']:g} of the outputs' length, {LIMITS['gradients']:g} of the gradients', or four times that of",
        f"  {judge} in f32. Errors are distances to the same network in f64, relative, in the Euclidean norm: of the worst output of a",
        "  forward pass, and of all gradients of one training pass. For gradients, ReLUs are replaced by SiLUs and max pools by average pools:",
        "  [why](models.md). \"Own\" is the error of " + judge + " in f32.",
        "- diffusers embeds the time step in f32, in the f64 network too, with sines of large numbers. The own error lacks that, wave's has it.",
        "- Of detectors, the dense outputs and the losses are compared, not the chosen boxes: rounding can decide which of two is chosen.",
        "- **Memory**: the peak in training, MiB of tensors.",
        "- Speed beside CUDA, of sixty other networks: [bench_networks.md](bench_networks.md).",
        *([f"- Compared with f32, because f64 did not run: {', '.join(inexact)}."] if inexact else []),
        *(["- Times are milliseconds; ratios are CUDA's time (eager, TF32 off) over wave's: above 1, wave is faster."] if timed else []),
        "",
    ]  # fmt: skip
    titles = ["network", "verdict", "fallbacks", "outputs: wave", "own", "gradients: wave", "own", "memory"]
    if timed:
        titles += ["memory, CUDA", "forward, CUDA", "wave", "ratio", "training, CUDA", "wave", "ratio"]
    lines += [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name, (wave, judged) in found.items():
        cells = [name, verdict(wave, judged), ", ".join(wave.get("fallbacks", [])) or ("" if "failed" in wave else "none")]
        cells += [*pair(judged, "forward"), *pair(judged, "gradients"), memory(wave)]
        if timed:
            cells += [memory(judged), *times(wave, judged, "forward"), *times(wave, judged, "training")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
