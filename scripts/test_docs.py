#!/usr/bin/env python3
"""What the documents say, held to the sources and the logs: `python3 scripts/test_docs.py`. Needs no package."""

import ast
import json
import re
import unittest
from pathlib import Path

import compatibility_page
import drivers

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()


def rows(text, width=None):
    """The rows of Markdown tables, as lists of cells."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not re.match(r"^\|[\s:|-]+\|$", line)]
    found = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for row in found if width is None or len(row) == width]


def section(text, heading):
    """What stands below a heading, up to the next one of its level."""
    level = heading.split()[0]
    start = text.index(heading + "\n")
    end = text.find(f"\n{level} ", start + len(heading))
    return text[start : end if end >= 0 else None]


def numbers(text):
    return re.findall(r"\d+(?:\.\d+)?", text)


def golden():
    lines = (ROOT / "crates/kernels/golden/resources.tsv").read_text().splitlines()
    table = [line.split("\t") for line in lines if not line.startswith("#")]
    return [dict(zip(table[0], row)) for row in table[1:]], lines


class Readme(unittest.TestCase):
    """Figures of the front page equal those of its logs."""

    def setUp(self):
        self.measured = section(README, "## Measured")
        self.figures = {row[0].split(",")[0]: row for row in rows(self.measured, 3)}

    def numbers_of(self, what):
        return numbers(self.figures[what][2])

    def test_it_is_short(self):
        self.assertLessEqual(len(README.splitlines()), 130)

    def test_networks_beside_cuda(self):
        text = (DOCS / "logs/bench_torch_h200.txt").read_text()
        page, one = (DOCS / "bench_torch.md").read_text().split("## One image at a time")
        single = (DOCS / "logs/bench_torch_b1_h100.txt").read_text()
        log = {(r[0], r[1]): r for r in rows(text, 8)}
        self.assertEqual(rows(page, 8), rows(text, 8))
        self.assertEqual(rows(one.split("## What a call costs")[0], 8), rows(single, 8))
        for name, model in (("ResNet-50", "resnet50"), ("VGG16-BN", "vgg16_bn"), ("MobileNetV2", "mobilenet_v2")):
            expected = [log[model, step][column] for step in ("forward", "train") for column in (2, 4)]
            row = next(r for r in rows(self.measured, 3) if r[0].startswith(name) and r[1] == "H200")
            self.assertEqual(numbers(row[2]), expected, name)
        self.assertIn("Batch 32, 224x224, f32; wave: NVIDIA H200", text)

    def test_convolutions_beside_cudnn(self):
        log = [r for r in rows((DOCS / "bench_h200.md").read_text(), 10) if r[0] == "f32"]
        self.assertEqual([(r[1], r[2]) for r in log], [("fwd", "31"), ("bwd", "31"), ("wrw", "31")])
        self.assertEqual(self.numbers_of("convolutions alone"), [f"{float(r[3]):.2f}" for r in log])
        self.assertIn("31 problems", self.figures["convolutions alone"][0])

    def test_cpu_beside_torch(self):
        log = re.search(r"fwd ([\d.]+), bwd ([\d.]+), wrw ([\d.]+)", (DOCS / "cpu_vs_torch.md").read_text())
        self.assertEqual(self.numbers_of("CPU backend"), list(log.groups()))
        self.assertIn("2 threads each", (DOCS / "cpu_vs_torch.md").read_text())

    def test_verify(self):
        what = "`verify seeds nets fuzz:300 --all-solvers`"
        passed, failed = self.numbers_of(what)
        runs = (DOCS / "verify_runs.txt").read_text().split("\nwave32 verify ")
        command = "seeds nets fuzz:300:15 --all-solvers --device vulkan --dtype f32,f16,bf16 --max-gflop none"
        run = next(run for run in runs if run.startswith(command)).split("\nthe same")[0]
        self.assertIn(f"ALL RIGHT: {passed} passed, {failed} failed", run)
        self.assertIn("NVIDIA H200", run)
        self.assertEqual(self.figures[what][1], "H200")

    def test_errors_of_training_steps(self):
        log = [r for r in rows((DOCS / "models.md").read_text(), 8) if r[0] != "model"]
        worst = max(float(r[a]) / float(r[a + 1]) for r in log for a in (2, 4))
        claimed = self.numbers_of("one training step of 13 networks beside f64")[0]
        self.assertLessEqual(worst, float(claimed))
        self.assertGreater(worst, float(claimed) - 0.1)
        self.assertEqual({len({r[0] for r in log}), len(log) // 2}, {13})

    def test_modelled_network(self):
        log = rows((DOCS / "model_networks.md").read_text(), 10)
        row = next(r for r in log if r[:4] == ["resnet50", "12", "training", "float32"])
        self.assertEqual(self.numbers_of(self.modelled()), row[7].split(" - "))

    def modelled(self):
        what = next(r for r in rows(self.measured, 3) if "**modelled**" in r[1])
        self.figures[what[0]] = what
        self.assertIn("RX 5700 XT", what[1])
        return what[0]

    def test_loops(self):
        table, lines = golden()
        self.assertFalse([r for r in table if r["vgpr_spills"] + r["sgpr_spills"] + r["scratch"] != "000"])
        text = re.sub(r"\s+", " ", self.measured)
        self.assertIn("clang 19.1.7 and by RADV's compiler of Mesa 22.3.6,", text)
        head = "\n".join(lines[:3])
        self.assertTrue("19.1.7" in head and "Mesa 22.3.6" in head, head)
        tiles = [
            100 * int(r["hot_fma"]) / int(r["hot_instructions"])
            for r in table
            if re.match(r"(igemm|wrw)_.*_f32$", r["variant"])
            and r["target"] in ("gfx1010", "navi10") and int(r["hot_instructions"])
        ]  # fmt: skip
        self.assertIn(f"Multiply-adds are {min(tiles):.0f} to {max(tiles):.0f} %", text)

    def test_every_log_is_named_with_its_machine(self):
        page = (DOCS / "figures.md").read_text()
        for log in ("bench_torch.md", "bench_h200.md", "verify_runs.txt", "models.md", "cpu_vs_torch.md", "model_networks.md"):
            self.assertIn(f"({log}", page)
            self.assertTrue((DOCS / log).is_file(), log)

    def test_logs_say_their_runs(self):
        page = (DOCS / "figures.md").read_text()
        logs = sorted((DOCS / "logs").iterdir())
        self.assertEqual({log.name for log in logs}, set(re.findall(r"\(logs/([^)]+)\)", page)))
        for log in logs:
            text = log.read_text()
            for what in ("date", "machine", "commit"):
                self.assertRegex(text[:2000], rf'(?m)^ *"?{what}"?: ', log.name)
            self.assertNotRegex(text, r"(?<!\w)/(root|home|work)/", log.name)
            self.assertLess(len(text), 200_000, log.name)


class Drivers(unittest.TestCase):
    """docs/drivers.md is what its table says, and the front page what both say."""

    def setUp(self):
        self.rows = [row for row in drivers.table()[1] if row["chip"] in drivers.RDNA1]
        self.of_dot = drivers.needing("DOT=1")

    def test_the_page_is_made_from_the_table(self):
        self.assertEqual((DOCS / "drivers.md").read_text(), drivers.page(), "run: python3 scripts/drivers.py --page")

    def test_it_has_each_kernel(self):
        today = {row["variant"] for row in golden()[0]}
        compiled = {}
        for row in self.rows:
            compiled.setdefault((row["mesa"], row["chip"]), set()).add(row["kernel"])
        for where, kernels in compiled.items():
            self.assertEqual((kernels ^ today) - self.of_dot, set(), f"{where}: run `make drivers`")
        # One driver has these instructions, and two of the chips.
        self.assertEqual(sorted(chip for (_, chip), kernels in compiled.items() if self.of_dot <= kernels), ["navi12", "navi14"])

    def test_no_spills(self):
        self.assertEqual([row["kernel"] for row in self.rows if drivers.spilling(row) or not drivers.of_32_lanes(row)], [])
        versions = sorted({re.match(r"Mesa ([\d.]+)", row["mesa"])[1] for row in self.rows})
        of_all = [row for row in self.rows if row["kernel"] not in self.of_dot]
        self.assertEqual(len(of_all) % (len(versions) * len(drivers.RDNA1)), 0)
        self.assertIn(f"RADV's compiler of Mesa {', '.join(versions[:-1])} and {versions[-1]}.", re.sub(r"\s+", " ", README))

    def test_first_use(self):
        [row] = [r for r in rows((DOCS / "drivers.md").read_text(), 5) if r[0].startswith("resnet50, training")]
        for seconds in map(float, row[2:]):
            self.assertIn(round(seconds), (1, 2, 3), f"other pages say 1 to 3 s, not {seconds}")


class Compatibility(unittest.TestCase):
    """docs/compatibility.md is what its log says."""

    def test_the_page_is_made_from_its_log(self):
        page = (DOCS / "compatibility.md").read_text()
        log = re.findall(r"\[log\]\(logs/([\w.]+)\)", page)[0]
        made = compatibility_page.page(*compatibility_page.read(DOCS / "logs" / log), log)
        self.assertEqual(page, made, f"run: python3 scripts/compatibility.py --out docs/logs/{log} --page docs/compatibility.md")


class Kernels(unittest.TestCase):
    """The shares of multiply-adds on docs/kernels.md are the golden table's."""

    def test_shares(self):
        table, _ = golden()
        page = rows(section((DOCS / "kernels.md").read_text(), "## How good the loops are"), 4)[1:]
        self.assertGreater(len(page), 5)
        for name, _, *said in page:
            for claim, (compiler, target) in zip(said, (("llvm", "gfx1010"), ("aco", "navi10"))):
                shares = [
                    100 * int(r["hot_fma"]) / int(r["hot_instructions"])
                    for r in table
                    if r["variant"].startswith(name.strip("`*")) and r["variant"].endswith("_f32")
                    and (r["compiler"], r["target"]) == (compiler, target) and int(r["hot_instructions"])
                ]  # fmt: skip
                least, most = f"{min(shares):.0f}", f"{max(shares):.0f}"
                self.assertEqual(claim, least if least == most else f"{least} to {most}", f"{name} {compiler}")


NAME = re.compile(r"\bWAVE(?:32)?_[A-Z0-9_]*[A-Z0-9]\b")
LITERAL = re.compile(r"""["'](WAVE(?:32)?_[A-Z0-9_]*[A-Z0-9])["']""")
# Literals of that form which are no variables: hipDNN's name of our engine.
NO_VARIABLES = {"WAVE32_CONV"}


def is_test(path):
    return "tests" in path.parts or path.parts[0] in ("fuzz", "scripts") or re.search(r"tests?\.rs$|testing", path.name)


def variables():
    """The variables that product code names, and those that tests and scripts name."""
    product, other = set(), set()
    folders = ("crates", "vgpu", "fuzz", "python", "scripts")
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".rs", ".py")):
        relative, text = path.relative_to(ROOT), path.read_text()
        if relative.name == Path(__file__).name:
            continue
        parts = [text, ""] if is_test(relative) else text.split("#[cfg(test)]", 1)
        (other if is_test(relative) else product).update(LITERAL.findall(parts[0]))
        other.update(LITERAL.findall("".join(parts[1:])))
    for path in [*(ROOT / "scripts").glob("*.sh"), ROOT / "Makefile", ROOT / ".ci/run"]:
        other.update(NAME.findall(path.read_text()))
    # The virtual card asks for its variables without their prefix.
    settings = (ROOT / "vgpu/card/src/settings.rs").read_text().split("#[cfg(test)]")[0]
    asked = re.findall(r'\b(?:set|flag|number)\("([A-Z_]+)"\)', settings)
    assert len(asked) > 5, asked
    product.update(f"WAVE32_VGPU_{name}" for name in asked)
    return product - NO_VARIABLES, other - NO_VARIABLES


class Variables(unittest.TestCase):
    """docs/variables.md and the table in docs/TESTING.md name what the sources read, and nothing else."""

    def setUp(self):
        self.product, self.other = variables()
        self.page = [r for r in rows((DOCS / "variables.md").read_text()) if NAME.search(r[0])]
        tests = section((DOCS / "TESTING.md").read_text(), "## Variables of the tests")
        self.test_rows = [set(NAME.findall(row[0])) for row in rows(tests, 3) if NAME.search(row[0])]
        self.tests = set().union(*self.test_rows)

    def test_the_sources_have_what_one_expects(self):
        for name in ("WAVE32_SOLVER", "WAVE32_CUDA", "WAVE32_VGPU_TRACE", "WAVE32_INJECT"):
            self.assertIn(name, self.product)

    def test_each_variable_of_the_product_is_on_the_page(self):
        said = {name for row in self.page for cell in row[:2] for name in NAME.findall(cell)} | self.tests
        self.assertEqual(sorted(self.product - said), [])

    def test_each_variable_of_the_tests_is_on_a_page(self):
        said = {name for row in self.page for cell in row[:2] for name in NAME.findall(cell)} | self.tests
        self.assertEqual(sorted(self.other - said), [])

    def test_the_pages_name_nothing_that_is_not_read(self):
        known = self.product | self.other
        for row in self.page:
            names = {name for cell in row[:2] for name in NAME.findall(cell)}
            self.assertTrue(names & known, f"{row[0]}: nothing reads it")
        for names in self.test_rows:
            # The last of a row may be an older name.
            self.assertTrue(names & known, f"{names}: nothing reads it")

    def test_documents_name_no_other_variable(self):
        said = {name for row in self.page for cell in row[:2] for name in NAME.findall(cell)} | self.tests
        for path in [ROOT / "README.md", *DOCS.glob("*.md")]:
            if path.name in ("variables.md", "TESTING.md", "miopen_abi.md"):
                continue
            names = {name for name in NAME.findall(path.read_text()) if name not in NO_VARIABLES}
            unknown = names - said - {"WAVE32_VGPU", "WAVE32_MIOPEN_ROUTE"}
            self.assertEqual(sorted(unknown), [], path.name)


class PythonApi(unittest.TestCase):
    """docs/python_api.md has every public name."""

    def setUp(self):
        self.page = (DOCS / "python_api.md").read_text()

    def test_every_public_name(self):
        for file, prefix in (("python/wave32/_device.py", ""), ("python/wave32/__init__.py", "wave32.")):
            tree = ast.parse((ROOT / file).read_text())
            assigned = next(n for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "__all__")
            names = ast.literal_eval(assigned.value)
            self.assertGreater(len(names), 0)
            for name in names:
                found = re.search(rf"`{re.escape(prefix + name)}(\(|`)", self.page)
                self.assertTrue(found, f"{prefix}{name} is not on the page")

    def test_parts_of_classes(self):
        tree = ast.parse((ROOT / "python/wave32/_device.py").read_text())
        classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
        fields = [n.target.id for n in classes["DeviceProperties"].body if isinstance(n, ast.AnnAssign)]
        self.assertGreater(len(fields), 5)
        for name in fields:
            self.assertIn(f"`{name}`", self.page)
        for name in ("Stream", "Event"):
            for method in (n.name for n in classes[name].body if isinstance(n, ast.FunctionDef)):
                if not method.startswith("_"):
                    self.assertRegex(self.page, rf"`{method}(\(|`)", f"{name}.{method}")
        tree = ast.parse((ROOT / "python/wave32/_profile.py").read_text())
        profile = next(n for n in tree.body if isinstance(n, ast.ClassDef))
        for method in (n.name for n in profile.body if isinstance(n, ast.FunctionDef) and n.name[0] != "_"):
            self.assertIn(f"`.{method}(", self.page)


# Texts on the page of errors that others print, without a thread to show.
OTHERS = (
    "wave32: command not found", "No module named", "error: externally-managed-environment",
    "is not a supported wheel on this platform", "`llvmpipe` in", "the first convolution never returns",
    "VAE decode takes minutes", "black, grey or tiled", "Expected all tensors to be on the same device",
    "IndexError: ... raised late",
)  # fmt: skip


class Errors(unittest.TestCase):
    """docs/troubleshooting.md."""

    def test_entries(self):
        entries = (DOCS / "troubleshooting.md").read_text().split("\n### ")[1:]
        self.assertGreaterEqual(len(entries), 40)
        sources = ""
        for folder in ("crates", "python"):
            for path in sorted((ROOT / folder).rglob("*")):
                if path.suffix in (".rs", ".py") and "tests" not in path.parts:
                    sources += path.read_text()
        # A string of Rust goes on after a backslash at the end of a line; Python joins two that follow each other.
        sources = re.sub(r'\\\n\s*|"\n\s*f?"', "", sources)
        sources = re.sub(r"\{[\w.:?]*\}", "...", sources)
        for entry in entries:
            title = entry.splitlines()[0]
            with self.subTest(title):
                self.assertIn("**Do:** ", entry)
                if "([seen](https://github.com/" in entry or any(text in title for text in OTHERS):
                    continue
                # Where the text is ours, its longest piece without numbers and names stands in the sources.
                pieces = re.split(r"\.\.\.|\d[\d.]*(?: s)?|gfx\w+|[A-Z_0-9]{8,}=?|`", title)
                piece = max(pieces, key=len).strip(" ,;:()=")
                self.assertGreater(len(piece), 9)
                self.assertTrue(piece in sources, f"no source prints {piece!r}")


class Cards(unittest.TestCase):
    """docs/hardware.md has the boards that wave32 knows."""

    def test_boards(self):
        page = {row[0]: row for row in rows((DOCS / "hardware.md").read_text(), 6)}
        for target in ("gfx1010", "gfx1011", "gfx1012", "gfx1013"):
            text = (ROOT / f"crates/cards/src/targets/{target}.rs").read_text()
            boards = re.findall(r'Board \{\s*name: "([^"]+)".*?compute_units: (\d+).*?mib: (\d+)', text, re.S)
            self.assertGreater(len(boards), 0)
            for name, units, mib in boards:
                self.assertIn(name, page)
                self.assertEqual(page[name][1:4], [f"`{target}`", units, f"{int(mib) // 1024} GB"])


class Expect(unittest.TestCase):
    """docs/expect.md: sizes are those of docs/memory.json, times those of docs/model_networks.md."""

    def test_memory(self):
        log = json.loads((DOCS / "memory.json").read_text())
        page = {(r[0], r[1]): r for r in rows((DOCS / "expect.md").read_text(), 6)}
        scale = (224 / log["size"]) ** 2
        seen = 0
        for model in {row["model"] for row in log["rows"]}:
            for mode in ("train", "infer"):
                points = sorted((r["batch"], r["allocated"]) for r in log["rows"] if (r["model"], r["mode"]) == (model, mode))
                if len(points) < 2:
                    continue
                (b0, m0), (b1, m1) = points[0], points[-1]
                image = (m1 - m0) / (b1 - b0)
                fixed = m1 - image * b1
                row = page[model, {"train": "training", "infer": "inference"}[mode]]
                self.assertEqual(row[2:4], [f"{max(fixed, 0) / 2**20:.0f}", f"{image * scale / 2**20:.1f}"])
                for cell, gib in zip(row[4:], (5, 7)):
                    self.assertEqual(cell, f"{int((gib * 2**30 - max(fixed, 0)) / (image * scale)):d}")
                seen += 1
        self.assertEqual(seen, len([k for k in page if k[1] in ("training", "inference")]))

    def test_times(self):
        log = {tuple(r[:4]): r for r in rows((DOCS / "model_networks.md").read_text(), 10)}
        page = rows(section((DOCS / "expect.md").read_text(), "## How long it takes, modelled"), 7)[1:]
        self.assertGreater(len(page), 5)
        for row in page:
            source = log[tuple(row[:4])]
            self.assertEqual(row[4:], [source[7], source[8], source[9]])


class Symbols(unittest.TestCase):
    """What is looked up outside torch's stable ABI is in the table that says what happens without it."""

    def test_every_symbol_is_told(self):
        calls = (ROOT / "crates/torch/src/abi/calls.rs").read_text()
        listed = re.findall(r'^ {8}(\w+) = "', calls[calls.index("    optional {\n") :], re.M)
        self.assertGreater(len(listed), 40)
        page = section((DOCS / "torch.md").read_text(), "## Outside of torch's stable ABI")
        told = [name for row in rows(page, 3) for name in re.findall(r"`(\w+)`", row[0])]
        # C++'s operators new and delete: required, and in no ABI of torch's.
        listed += re.findall(r"^ {8}(_Z\w+): ", calls[: calls.index("    optional {\n")], re.M)
        self.assertEqual(sorted(told), sorted(listed))

    def test_every_copied_table_is_told(self):
        folder = ROOT / "crates/torch/src"
        readers = [p.relative_to(folder).as_posix() for p in folder.rglob("*.rs") if "Table::of(" in p.read_text()]
        self.assertGreater(len(readers), 2)
        page = section((DOCS / "torch.md").read_text(), "## Outside of torch's stable ABI")
        told = [file for row in rows(page, 3) for file in re.findall(r"`(\w+/\w+\.rs)`", row[0])]
        self.assertEqual(sorted(told), sorted(readers))


class Registries(unittest.TestCase):
    """Packages come from where the machine's own apt, pip and cargo look: nothing here names a registry's host."""

    HOSTS = re.compile(
        r"download\.pytorch\.org|pypi\.org|pythonhosted\.org|crates\.io|\b(?:deb|ftp|snapshot|security)\.debian\.org"
        r"|\b(?:archive|ports|security)\.ubuntu\.com|npmjs\.(?:org|com)|sh\.rustup\.rs|static\.rust-lang\.org|repo\.radeon\.com"
        r"|nightlies\.amd\.com"
    )
    # AMD's builds for RDNA1 are nowhere else: people are told where, and no script fetches from there.
    TOLD = {"README.md", "docs/coming_from.md", "crates/doctor/src/native.rs"}
    SKIPPED = {".git", ".venv", "target", "trees", "__pycache__"}

    def files(self, folder=ROOT):
        for path in sorted(folder.iterdir()):
            if path.name in self.SKIPPED or path.is_symlink():
                continue
            if path.is_dir():
                yield from self.files(path)
            elif path.name != "Cargo.lock" and path != Path(__file__).resolve():
                yield path

    def test_no_host_stands_in_the_tree(self):
        found = set()
        for path in self.files():
            try:
                text = path.read_text()
            except UnicodeDecodeError:
                continue
            found |= {(str(path.relative_to(ROOT)), host) for host in self.HOSTS.findall(text)}
        self.assertEqual(found, {(name, "nightlies.amd.com") for name in self.TOLD})


if __name__ == "__main__":
    unittest.main()
