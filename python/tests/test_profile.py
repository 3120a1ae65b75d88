"""`torch.wave.profile`: the table, the trace, nesting, inside of torch's own profiler."""

import json
from itertools import groupby

import torch
from torch import nn


def work():
    layer = nn.Conv2d(3, 8, 3).to("wave")
    layer(torch.rand(2, 3, 20, 20, device="wave")).relu().sum().backward()


def test_the_table_has_every_kernel_and_adds_up():
    with torch.wave.profile() as times:
        work()
    table = times.table(rows=1000)
    rows = [line.split() for line in table.splitlines()]
    assert rows[0][0] == "kernel" and rows[-1][0] == "all"
    assert {row[0] for row in rows[1:-1]} == {kernel for kernel, _, _ in times.launches}
    assert sum(int(row[1]) for row in rows[1:-1]) == int(rows[-1][1]) == len(times.launches) > 5
    assert abs(sum(float(row[2]) for row in rows[1:-1]) - float(rows[-1][2])) < 0.01 * len(rows)
    # Nothing is timed when nobody asks.
    work()
    with torch.wave.profile() as idle:
        pass
    assert idle.launches == []


def test_the_trace_is_what_viewers_read(tmp_path):
    with torch.wave.profile() as times:
        for _ in range(3):
            work()
    times.export_chrome_trace(str(tmp_path / "trace.json"))
    with open(tmp_path / "trace.json") as file:
        events = json.load(file)["traceEvents"]
    named, launches = [e for e in events if e["ph"] == "M"], [e for e in events if e["ph"] == "X"]
    assert named[0]["args"]["name"] == torch.wave.get_device_name()
    assert len(launches) == len(times.launches) > 10
    assert all(e["name"] and e["dur"] >= 0 and e["ts"] >= 0 for e in launches)
    # One queue with barriers between dependent launches; independent ones may overlap, none starts before the last.
    starts = [e["ts"] for e in launches]
    assert starts == sorted(starts)


def test_profiles_nest():
    with torch.wave.profile() as outer:
        work()
        with torch.wave.profile() as inner:
            work()
        work()
    # A launch that is slow, on a busy machine, may be cut into several under the time budget.
    outer_names, inner_names = ([name for name, _ in groupby(n for n, _, _ in p.launches)] for p in (outer, inner))
    assert outer_names == 3 * inner_names != []
    first = outer.launches.index(inner.launches[0])
    middle = outer.launches[first:first + len(inner.launches)]
    assert inner.launches == middle, "with the same clock"
    starts = [start for _, start, _ in outer.launches]
    assert starts == sorted(starts)


def test_inside_of_torchs_profiler(tmp_path):
    from torch.profiler import ProfilerActivity, profile, record_function

    work()
    with profile(activities=[ProfilerActivity.CPU]) as host, torch.wave.profile() as device:
        with record_function("a step"):
            work()
    names = {event.key for event in host.key_averages()}
    assert {"a step", "aten::conv2d", "aten::relu"} <= names and device.launches
    host.export_chrome_trace(str(tmp_path / "host.json"))
    with open(tmp_path / "host.json") as file:
        assert any(event.get("name") == "a step" for event in json.load(file)["traceEvents"])
