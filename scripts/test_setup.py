#!/usr/bin/env python3
"""scripts/setup.sh and python_env.sh on systems that are not here: stand-ins take the place of each package manager, of pip
and of uv. And what a package index shows of README.md. `python3 scripts/test_setup.py`."""

import importlib.util
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
from pathlib import Path

SETUP = Path(__file__).resolve().with_name("setup.sh")
ROOT = SETUP.parents[1]
# A package is there once it was installed. `not-had` are names that this release does not have; where there is a file `had`, it has
# the names in it alone.
STANDIN = """#!/bin/sh
here=$(dirname "$0")/..
for last; do :; done
case "$(basename "$0") $1 $2" in
'rpm -q --whatprovides' | 'rpm -q '* | 'pacman -Q '*) exec grep -qx -- "$last" "$here/installed" ;;
'dpkg-query -W '*) ! grep -qx -- "$last" "$here/installed" || echo 'install ok installed' ;;
'apt-get update '*) ;;
*)
    echo "$(basename "$0") $*" >> "$here/log"
    ! grep -qx -- "$last" "$here/not-had" || exit 1
    [ ! -e "$here/had" ] || grep -qx -- "$last" "$here/had" || exit 1
    echo "$last" >> "$here/installed"
    ;;
esac
"""
# The driver for a card and the one without, and what loads them: a user's first need.
SYSTEMS = {
    "debian": (["dpkg-query", "apt-get"], {"libvulkan1", "mesa-vulkan-drivers"}),
    "fedora": (["dnf", "rpm"], {"vulkan-loader", "mesa-vulkan-drivers"}),
    "arch": (["pacman"], {"vulkan-icd-loader", "vulkan-radeon", "vulkan-swrast"}),
    "opensuse": (["zypper", "rpm"], {"libvulkan1", "libvulkan_radeon", "libvulkan_lvp"}),
}

# A Python without torch, and its uv; `config` is what pip is configured for, `uv-works` says whether uv can.
PYTHON = """#!/bin/sh
here=$(dirname "$0")
case "$*" in
*'import torch'*) exit 1 ;;
*'pip config list'*) cat "$here/config" ;;
*) echo "$*" >> "$here/log" ;;
esac
"""
UV = """#!/bin/sh
here=$(dirname "$0")
echo "uv $*" >> "$here/log"
[ -e "$here/uv-works" ]
"""


class Setup(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def system(self, commands, not_had=()):
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        (folder / "bin").mkdir()
        for name in ["sh", "basename", "dirname", "grep", "tr", "env", "python3"]:
            (folder / "bin" / name).symlink_to(shutil.which(name))
        for name, text in {"cargo": "#!/bin/sh\n", "id": "#!/bin/sh\necho 0\n", **dict.fromkeys(commands, STANDIN)}.items():
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        for name, lines in {"installed": (), "not-had": not_had, "log": ()}.items():
            (folder / name).write_text("".join(line + "\n" for line in lines))
        return folder

    def setup_sh(self, folder, *arguments):
        environment = {"PATH": str(folder / "bin"), "HOME": str(folder)}
        return subprocess.run(
            [SETUP, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )

    def installed(self, folder):
        return set((folder / "installed").read_text().split())

    def test_each_system_gets_its_own_names_and_a_second_run_installs_nothing(self):
        for name, (commands, wanted) in SYSTEMS.items():
            with self.subTest(name):
                folder = self.system(commands)
                done = self.setup_sh(folder, "demo", "--yes")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertLessEqual(wanted, self.installed(folder))
                self.assertFalse([p for p in self.installed(folder) if "hip" in p or "clang" in p or "validation" in p])
                log = (folder / "log").read_text()
                self.assertEqual(self.setup_sh(folder, "demo", "--yes").returncode, 0)
                self.assertEqual((folder / "log").read_text(), log)
                self.assertEqual(self.setup_sh(folder, "test", "--yes").returncode, 0)
                self.assertTrue([p for p in self.installed(folder) if p.startswith("clang")])

    def test_nothing_is_installed_without_a_yes(self):
        for name, (commands, _) in SYSTEMS.items():
            with self.subTest(name):
                folder = self.system(commands)
                done = self.setup_sh(folder, "demo")
                self.assertEqual((done.returncode, (folder / "log").read_text()), (1, ""), done.stderr)
                self.assertIn("nothing is installed without asking", done.stderr)

    def test_an_older_release_gets_the_older_compiler_and_is_told_what_it_lacks(self):
        folder = self.system(SYSTEMS["debian"][0], not_had=["clang-19", "clang-18", "lld-19", "lld-18", "hipcc"])
        done = self.setup_sh(folder, "test", "--yes")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue({"clang-17", "lld-17"} <= self.installed(folder) and "clang-16" not in self.installed(folder))
        self.assertIn("not installed: hipcc\n", done.stderr)

    def test_the_names_are_those_of_each_release(self):
        """scripts/packages has what is known of each; whatever is asked for beside is not there."""
        files = sorted(SETUP.with_name("packages").glob("*.txt"))
        self.assertGreaterEqual({file.stem.split("-")[0] for file in files}, {*SYSTEMS, "ubuntu"})
        for file in files:
            rows = [line.split(maxsplit=1) for line in file.read_text().splitlines() if not line.startswith("#")]
            self.assertEqual({len(row) for row in rows}, {2}, f"{file}: a name without a source")
            had = [name for name, _ in rows if name[0] != "-"]
            lacks = sorted(name[1:] for name, _ in rows if name[0] == "-")
            distribution = file.stem.split("-")[0].replace("ubuntu", "debian")
            asked = set()
            for kind in ["demo", "test", *(["windows"] if distribution == "debian" else [])]:
                with self.subTest(file.stem, kind=kind):
                    folder = self.system(SYSTEMS[distribution][0])
                    (folder / "had").write_text("".join(name + "\n" for name in had))
                    # One without venv.
                    (folder / "bin/python3").unlink()
                    (folder / "bin/python3").write_text("#!/bin/sh\nexit 1\n")
                    (folder / "bin/python3").chmod(0o755)
                    done = self.setup_sh(folder, kind, "--yes")
                    self.assertEqual(done.returncode, 0, done.stderr)
                    told = re.search("not installed: (.*)", done.stderr)
                    self.assertEqual(sorted(told[1].split()) if told else [], lacks if kind == "test" else [])
                    asked |= {line.split()[-1] for line in (folder / "log").read_text().splitlines()}
            # Later choices of several are not asked for.
            self.assertEqual([n for n in had if n not in asked and not re.fullmatch(r"(clang|lld|llvm)-\d+", n)], [], file)

    def test_an_unknown_system_goes_on(self):
        done = self.setup_sh(self.system([]), "demo", "--yes")
        self.assertEqual(done.returncode, 0)
        self.assertIn("this package manager is not known", done.stderr)


class PythonEnv(unittest.TestCase):
    def calls(self, config="", uv_works=True, terminal=False):
        """What a fresh environment is filled with."""
        with tempfile.TemporaryDirectory() as folder:
            scripts, programs = Path(folder) / "scripts", Path(folder) / ".venv/bin"
            scripts.mkdir()
            programs.mkdir(parents=True)
            shutil.copy(SETUP.with_name("python_env.sh"), scripts)
            for name, text in {"python": PYTHON, "uv": UV}.items():
                (programs / name).write_text(text)
                (programs / name).chmod(0o755)
            (programs / "config").write_text(config)
            if uv_works:
                (programs / "uv-works").touch()
            environment = {name: value for name, value in os.environ.items() if not name.startswith(("WAVE32_", "PIP_"))}
            reader, writer = pty.openpty() if terminal else os.pipe()
            with open(reader, "rb"), open(writer, "wb") as errors:
                done = subprocess.run(
                    [scripts / "python_env.sh", "numpy"], env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=60
                )
            self.assertEqual((done.returncode, done.stdout), (0, f"{programs / 'python'}\n"))
            return (programs / "log").read_text().replace(str(programs), "").splitlines()

    def test_an_index_of_the_machine_is_taken(self):
        for config in ["global.index-url='https://mirror.example/simple'", ":env:.extra-index-url='https://mirror.example/cpu'"]:
            self.assertEqual(self.calls(config), ["-m pip install --quiet torch torchvision", "-m pip install --quiet numpy"])

    def test_else_uv_fetches_the_build_for_the_cpu(self):
        uv = "uv pip install --quiet --python /python --torch-backend=cpu torch torchvision"
        numpy = "-m pip install --quiet numpy"
        self.assertEqual(self.calls("global.cert='/x'"), ["-m pip install --quiet uv", uv, numpy])
        pip = "-m pip install --quiet torch torchvision"
        self.assertEqual(self.calls(uv_works=False), ["-m pip install --quiet uv", uv, pip, numpy])

    def test_a_person_sees_how_far_pytorch_is(self):
        uv, torch, numpy = self.calls(terminal=True)
        self.assertEqual(torch, "uv pip install --python /python --torch-backend=cpu torch torchvision")
        self.assertEqual(self.calls(uv_works=False, terminal=True)[2], "-m pip install torch torchvision")


class Readme(unittest.TestCase):
    """packaging/readme_hook.py: no link on an index leads nowhere."""

    TEXT = "a [b](docs/x.md#y) [c](https://c.example/) [d](#d)\n\n![e](docs/e.png)\n\nf [g\nh](i.md)\n"

    def setUp(self):
        interface = types.SimpleNamespace(MetadataHookInterface=object)
        spec = importlib.util.spec_from_file_location("readme_hook", ROOT / "packaging/readme_hook.py")
        self.hook = importlib.util.module_from_spec(spec)
        with unittest.mock.patch.dict(sys.modules, {"hatchling.metadata.plugin.interface": interface}):
            spec.loader.exec_module(self.hook)

    def test_without_an_address_links_are_text(self):
        self.assertEqual(self.hook.shown(self.TEXT, "", "1"), "a b [c](https://c.example/) [d](#d)\n\nf g\nh\n")
        self.assertEqual(re.findall(r"\]\((?!https?:|#)", self.hook.shown((ROOT / "README.md").read_text(), "", "1")), [])

    def test_with_an_address_links_lead_to_the_version_there(self):
        url = "https://x.example/y"
        self.assertIn(f"[b]({url}/blob/v1/docs/x.md#y)", self.hook.shown(self.TEXT, url, "1"))
        self.assertIn(f"![e]({url}/raw/v1/docs/e.png)", self.hook.shown(self.TEXT, url, "1"))
        readme = self.hook.shown((ROOT / "README.md").read_text(), url, "1")
        paths = re.findall(rf"\]\({url}/(?:blob|raw)/v1/([^)#]+)", readme)
        self.assertGreater(len(paths), 10)
        self.assertEqual([path for path in paths if not (ROOT / path).exists()], [])
        self.assertEqual(re.findall(r"\]\((?!https?:|#)", readme), [])


if __name__ == "__main__":
    os.environ.pop("CDPATH", None)
    unittest.main()
