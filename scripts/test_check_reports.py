#!/usr/bin/env python3
"""Tests of check_reports.py: `python3 scripts/test_check_reports.py`."""

import contextlib
import copy
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_reports as check

GOOD = json.loads(next(iter(sorted((check.ROOT / "reports").glob("llvmpipe*.json")))).read_text(encoding="utf-8"))


class Files(unittest.TestCase):
    def run_on(self, files, *args):
        """The script on a folder of these files: its exit code, what it said, the page."""
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "reports").mkdir()
            for name, content in files.items():
                text = content if isinstance(content, str) else json.dumps(content)
                (folder / "reports" / name).write_text(text, encoding="utf-8")
            page = folder / "cards.md"
            said = io.StringIO()
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                code = check.main(["--reports", str(folder / "reports"), "--page", str(page), *args])
            return code, said.getvalue(), page.read_text(encoding="utf-8") if page.is_file() else ""

    def refused(self, content, words, name="x.json"):
        code, said, page = self.run_on({name: content})
        self.assertEqual((code, page), (1, ""), said)
        self.assertIn(words, said)

    def changed(self, **fields):
        return {**copy.deepcopy(GOOD), **fields}

    def test_good_files_make_a_page(self):
        code, said, page = self.run_on({"a.json": GOOD})
        self.assertEqual((code, said), (0, ""))
        self.assertIn("| software driver | llvmpipe", page)
        self.assertIn("**No line is from a real Radeon yet.**", page)
        self.assertIn("(../reports/a.json)", page)

    def test_a_page_that_is_not_up_to_date_is_found(self):
        self.assertEqual(self.run_on({"a.json": GOOD}, "--check")[0], 1)

    def test_the_committed_reports_and_page_fit(self):
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(check.main(["--check"]), 0)

    def test_large_files(self):
        self.refused(self.changed(wave32="x" * 1_000_001), "1000000 are taken")

    def test_other_schemas_and_no_reports(self):
        self.refused(self.changed(schema=2), "its schema is 2")
        self.refused([], "its schema is None")
        self.refused({}, "its schema is None")
        self.refused("{", "no JSON")
        self.refused("[" * 100_000, "no JSON")
        self.refused(self.changed(seconds=1).__str__(), "no JSON")
        self.refused(json.dumps(self.changed(seconds=float("nan"))), "no number of JSON")
        self.refused(GOOD, "only .json", name="x.html")

    def test_fields_that_nobody_knows(self):
        self.refused(self.changed(extra=1), "does not fit")
        self.refused(self.changed(devices=[{**GOOD["devices"][0], "note": "x"}]), "at devices/0")
        self.refused(self.changed(seconds="1"), "at seconds")

    def test_scripts(self):
        for text in ["<script>", "< SCRIPT src=x>", "<img src=x onerror=alert(1)>", "javascript:alert(1)", "</style>"]:
            self.refused(self.changed(wave32=text), "a browser would run")
            self.refused(self.changed(doctor={"a": [{text: 1}]}), "a browser would run")

    def test_private_text(self):
        for text, words in {
            "in /home/ada/x": "a home folder",
            "/Users/eve": "a home folder",
            "/root/.bashrc": "a home folder",
            r"C:\Users\eve": "a home folder",
            "eth0 02:42:ac:11:00:02": "a MAC address",
            "02-42-AC-11-00-02": "a MAC address",
            "Serial Number: 4C53000112": "a serial number",
            "unique_id=c0ffee12": "a serial number",
            "123e4567-e89b-12d3-a456-426614174000": "a UUID",
            "GPU-18f2a4c39b7d6e10": "a UUID",
            "at 192.168.178.23.": "an IP address",
            "ada@example.org": "an e-mail address",
        }.items():
            lines = [{"text": text, "new": False}]
            self.refused(self.changed(kernel_log={"source": "x", "lines": lines, "left_out": 0, "note": None}), words)

    def test_what_redaction_leaves_is_no_finding(self):
        text = "~/.../x [serial] Serial: [serial] [ip] [mac] 580.95.05 0000:03:00.0 libMIOpen.so.1.0.50203"
        self.assertEqual(self.run_on({"a.json": self.changed(wave32=text)})[0], 0)

    def test_strangers_names_do_not_break_the_table(self):
        devices = [{**device, "name": "a | [b](c) `d`\n| e"} for device in GOOD["devices"]]
        code, _, page = self.run_on({"a.json": self.changed(devices=devices)})
        self.assertEqual(code, 0)
        lines = [line for line in page.splitlines() if "a.json" in line]
        self.assertTrue(lines and all(line.count("|") == len(check.HEAD) + 1 for line in lines), lines)

    def test_speed_beside_the_model(self):
        row = GOOD["benches"][0]["rows"][0]
        rows = [{**row, "direction": "fwd", "model_ms": m, "time": {**row["time"], "median_ms": 1.0}} for m in (0.5, 2.0, 8.0)]
        report = self.changed(benches=[{**GOOD["benches"][0], "rows": rows}])
        device = next(d for d in GOOD["devices"] if d["id"] == report["benches"][0]["device"])
        self.assertEqual(check.speed(report, device), "fwd 2.00 (3)")


if __name__ == "__main__":
    unittest.main()
