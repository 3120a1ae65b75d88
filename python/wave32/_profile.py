"""`torch.wave.profile`: device time by kernel, as a table and as a Chrome trace."""

from __future__ import annotations

import json
from typing import Any

from wave32 import _native


class profile:
    """Takes the time of every launch inside of it.

    >>> with torch.wave.profile() as times:
    ...     model(x)
    >>> print(times.table())
    >>> times.export_chrome_trace("trace.json")
    """

    _open: list[profile] = []

    def __init__(self, print_table: bool = False) -> None:
        self._print = print_table
        self.launches: list[tuple[str, float, float]] = []

    @classmethod
    def _collect(cls, go_on: bool) -> None:
        """Gives what was timed since the last call to every profile that is open: they may be nested."""
        launches = _native.profile(go_on)
        for times in cls._open:
            times.launches += launches

    def __enter__(self) -> profile:
        self._collect(True)
        self._open.append(self)
        return self

    def __exit__(self, *_: Any) -> bool:
        try:
            self._collect(len(self._open) > 1)
        finally:
            self._open.remove(self)
        if self._print:
            print(self.table())
        return False

    def by_kernel(self) -> list[tuple[str, int, float]]:
        """(kernel, launches, seconds), most time first."""
        sums: dict[str, list[float]] = {}
        for kernel, _, seconds in self.launches:
            entry = sums.setdefault(kernel, [0, 0.0])
            entry[0] += 1
            entry[1] += seconds
        return sorted(((k, int(n), s) for k, (n, s) in sums.items()), key=lambda row: -row[2])

    def table(self, rows: int = 20) -> str:
        """The kernels that took most time."""
        sums = self.by_kernel()
        total = sum(seconds for _, _, seconds in sums) or 1e-30
        lines = [f"{'kernel':<48} {'launches':>8} {'ms':>10} {'us each':>9} {'share':>6}"]
        for kernel, count, seconds in sums[:rows]:
            each, share = seconds / count * 1e6, seconds / total
            lines.append(f"{kernel:<48} {count:>8} {seconds * 1e3:>10.3f} {each:>9.1f} {share:>6.1%}")
        launches = sum(count for _, count, _ in sums)
        lines.append(f"{'all':<48} {launches:>8} {total * 1e3:>10.3f}")
        return "\n".join(lines)

    def export_chrome_trace(self, path: str) -> None:
        """Writes what chrome://tracing and Perfetto read."""
        name = _native.properties()[0]
        events: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": 0, "args": {"name": name}}]
        events += [
            {"name": kernel, "cat": "kernel", "ph": "X", "pid": 0, "tid": 0, "ts": start * 1e6, "dur": seconds * 1e6}
            for kernel, start, seconds in self.launches
        ]
        with open(path, "w") as file:
            json.dump({"traceEvents": events}, file)
