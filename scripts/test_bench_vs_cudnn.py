#!/usr/bin/env python3
"""Tests of bench_vs_cudnn.py's parts that need no GPU: `python3 scripts/test_bench_vs_cudnn.py`."""

import contextlib
import io
import json
import math
import random
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import bench_vs_cudnn as bench

SHAPE = {
    "name": "layer", "n": 2, "c": 4, "h": 8, "w": 9, "k": 6, "r": 3, "s": 3,
    "stride": 2, "pad": 1, "dilation": 1, "groups": 2, "gflop": 0.5,
}  # fmt: skip


def rows_of(dtype="f32", shape=SHAPE):
    return [bench.new_row(shape, direction, dtype) for direction in bench.PASSES]


def report(ms, label="layer", chosen=True, error=None, dtype="f32"):
    """What `wave32 bench --json` writes, as far as the script reads it."""
    rows = [
        {
            "label": label, "direction": d, "dtype": dtype, "chosen": chosen, "solver": "igemm", "config": "a|b",
            "error": error, "time": None if error else {"median_ms": v, "min_ms": v, "max_ms": v, "runs": 3},
        }
        for d, v in zip(bench.PASSES, ms)
    ]  # fmt: skip
    subject = {"id": "vulkan:0", "name": "Card", "driver": "1.2"}
    return {"wave32": "0.1.0", "subject": subject, "rows": rows}


class Pure(unittest.TestCase):
    def test_line_has_every_field(self):
        words = bench.line(SHAPE, "f16").split(" # ")[0].split()
        self.assertEqual(words[:2], ["MIOpenDriver", "convfp16"])
        flags = dict(zip(words[2::2], words[3::2]))
        self.assertEqual(flags, {
            "-n": "2", "-c": "4", "-H": "8", "-W": "9", "-k": "6", "-y": "3", "-x": "3", "-p": "1", "-q": "1",
            "-u": "2", "-v": "2", "-l": "1", "-j": "1", "-m": "conv", "-g": "2", "-F": "0",
        })  # fmt: skip

    def test_shares_are_medians_over_rounds(self):
        rows = rows_of()
        for ms in ([2.0, 4.0, 8.0], [4.0, 4.0, 8.0], [3.0, 4.0, 8.0]):
            bench.add_ours(rows, report(ms))
        rows[0]["graph_ms"], rows[0]["eager_ms"] = [6.0, 1.0, 7.0], [9.0]
        self.assertEqual(bench.share(rows[0], "graph"), 2.0)
        self.assertEqual(bench.share(rows[0], "eager"), 3.0)
        self.assertIsNone(bench.share(rows[1], "graph"))
        self.assertAlmostEqual(bench.spread(rows[0], "ours_ms"), 1 / 3)

    def test_only_chosen_rows_of_the_same_problem_count(self):
        rows = rows_of()
        self.assertEqual(bench.add_ours(rows, report([1, 1, 1], chosen=False)), 0)
        self.assertEqual(bench.add_ours(rows, report([1, 1, 1], label="other")), 0)
        self.assertEqual(bench.add_ours(rows, report([1, 1, 1], dtype="f16")), 0)
        self.assertTrue(all(not r["ours_ms"] for r in rows))
        self.assertEqual(bench.add_ours(rows, report([1, 1, 1], error="out of memory")), 3)
        self.assertEqual(rows[2]["errors"], ["wave32: out of memory"])

    def test_means_against_products(self):
        seed = random.randrange(1 << 32)
        rng = random.Random(seed)
        rows, product = [], 1.0
        for i in range(7):
            [row] = rows_of(shape=SHAPE | {"name": str(i)})[:1]
            row["graph_ms"], row["ours_ms"] = [rng.uniform(0.1, 9)], [rng.uniform(0.1, 9)]
            product *= row["graph_ms"][0] / row["ours_ms"][0]
            rows.append(row)
        got, count = bench.means(rows)["f32", "fwd", "graph"]
        self.assertTrue(math.isclose(got, product ** (1 / 7), rel_tol=1e-12), f"seed {seed}")
        self.assertEqual(count, 7)
        self.assertNotIn(("f32", "fwd", "eager"), bench.means(rows))

    def test_weights_and_classes(self):
        self.assertAlmostEqual(bench.weighted_mean([2.0, 0.5], [3.0, 1.0]), 2.0**0.5)
        kinds = {
            "grouped": {}, "depthwise": {"groups": 4}, "first layers, C <= 4": {"groups": 1}, "1x1": {"groups": 1, "c": 8, "r": 1},
            "3x3": {"groups": 1, "c": 8, "stride": 1}, "3x3, batch 1": {"groups": 1, "c": 8, "stride": 1, "n": 1},
            "strided, dilated, 5x5, 7x7": {"groups": 1, "c": 8},
        }  # fmt: skip
        for kind, change in kinds.items():
            self.assertEqual(bench.class_of(SHAPE | change), kind)

    def test_figures(self):
        values = {0.012345: "0.0123", 1.0: "1.00", 12.345: "12.3", 123.45: "123", 99999.0: "99999", None: "-"}
        for value, text in values.items():
            self.assertEqual(bench.figure(value), text)

    def test_document(self):
        rows = rows_of()
        bench.add_ours(rows, report([2.0, 4.0, 8.0]))
        bench.add_ours(rows, report([2.0, 4.0, 8.0]))
        rows[0]["graph_ms"], rows[0]["eager_ms"], rows[0]["backend"] = [1.0, 1.0], [4.0], "CudnnDepthwise2d"
        rows[1]["errors"].append("cuDNN: refused")
        text = bench.render({"meta": {"GPU": "H"}, "rows": rows})
        lines = text.splitlines()
        rows[0]["last_ms"], rows[0]["fixed_ms"] = [0.5, 0.5], [8.0]
        lines = bench.render({"meta": {"GPU": "H"}, "rows": rows}).splitlines()
        # The better layout is the faster one: 0.5 ms of 2 ms.
        self.assertIn("| f32 | fwd | 1 | 0.250 | 0.500 | 0.250 | 4.00 | 2.00 | 0.250 | 0.250 |", lines)
        self.assertIn("| grouped | f32 | 1 | 0.250 | - | - |", lines)
        row = next(line for line in lines if line.startswith("| layer | f32 | fwd"))
        cells = [c.strip() for c in row.strip("|").split("|")]
        # 0.5 GFLOP in 2 ms are 0.25 TFLOPS; the bar in the configuration must not split a cell.
        self.assertEqual(
            cells[4:], ["1.00", "0.500", "8.00", "4.00", "2.00", "0.250", "igemm a/b", "0.250", "2.00"]
        )
        header = next(line for line in lines if line.startswith("| problem"))
        self.assertEqual(header.count("|"), row.count("|"))
        self.assertIn("- layer bwd f32: cuDNN: refused", lines)
        self.assertIn("- GPU: H", lines)


class Program(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name)

    def fake_wave32(self, body):
        path = self.path / "wave32"
        path.write_text(f"#!{sys.executable}\nimport json, sys\nargs = sys.argv[1:]\n{body}\n")
        path.chmod(0o755)
        return str(path)

    def args(self, wave32, *more):
        return bench.arguments(["--wave32", wave32, "--results", str(self.path / "r.json"), *more])

    def test_runs_the_binary_on_its_line(self):
        body = (
            "assert args[0] == 'bench' and ' -k 6 ' in args[1] and args[args.index('--direction') + 1] == 'fwd,bwd,wrw'\n"
            f"open(args[args.index('--json') + 1], 'w').write(json.dumps({report([1.0, 2.0, 3.0])!r}))\nsys.exit(1)"
        )
        rows, meta = rows_of(), {}
        bench.add_ours(rows, bench.run_ours(self.args(self.fake_wave32(body)), SHAPE, "f32", 20), meta)
        self.assertEqual([r["ours_ms"] for r in rows], [[1.0], [2.0], [3.0]])
        self.assertEqual(meta["wave32"], "0.1.0, vulkan:0 Card, 1.2")

    def test_failures_of_the_binary_are_named(self):
        with self.assertRaisesRegex(RuntimeError, "exit code 3: error: no device"):
            wave32 = self.fake_wave32("print('error: no device', file=sys.stderr); sys.exit(3)")
            bench.run_ours(self.args(wave32), SHAPE, "f32", 20)
        with self.assertRaisesRegex(RuntimeError, "no answer within 1 s"):
            bench.run_ours(self.args(self.fake_wave32("import time; time.sleep(60)")), SHAPE, "f32", 1)

    def test_merge_only_and_ours_json(self):
        rows = rows_of()
        for row in rows:
            row["graph_ms"] = [3.0]
        (self.path / "r.json").write_text(json.dumps({"meta": {}, "rows": rows}))
        ours = self.path / "ours.json"
        ours.write_text(json.dumps(report([1.0, 2.0, 3.0])))
        out = self.path / "docs" / "table.md"
        words = ["--merge-only", "--results", str(self.path / "r.json"), "--ours-json", str(ours), "--out", str(out)]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            bench.main(words)
        self.assertIn("| f32 | bwd | 1 | 1.50 | 1.50 | - | - | - | 1.50 | 1.50 |", out.read_text())
        self.assertEqual(printed.getvalue().strip(), out.read_text().strip())
        ours.write_text(json.dumps(report([1.0, 2.0, 3.0], label="stranger")))
        with self.assertRaisesRegex(SystemExit, "no problem in common"):
            bench.main(words)

    def test_wrong_use_is_said(self):
        for words in (["--wave32", str(self.path)], ["--dtype", "f64", "--merge-only"], ["--rounds", "0", "--merge-only"]):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as stop:
                bench.arguments(words)
            self.assertEqual(stop.exception.code, 2)
        with self.assertRaisesRegex(SystemExit, "no/such.json"):
            bench.main(["--merge-only", "--results", "/no/such.json"])


if __name__ == "__main__":
    unittest.main()
