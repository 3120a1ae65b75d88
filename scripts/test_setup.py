#!/usr/bin/env python3
"""scripts/setup.sh and python_env.sh on systems that are not here: stand-ins take the place of each package manager, of pip
and of uv. `python3 scripts/test_setup.py`."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SETUP = Path(__file__).resolve().with_name("setup.sh")
# A package is there once it was installed. `not-had` are names that this release does not have.
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

    def test_an_unknown_system_goes_on(self):
        done = self.setup_sh(self.system([]), "demo", "--yes")
        self.assertEqual(done.returncode, 0)
        self.assertIn("this package manager is not known", done.stderr)


class PythonEnv(unittest.TestCase):
    def calls(self, config="", uv_works=True):
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
            done = subprocess.run(
                [scripts / "python_env.sh", "numpy"], env=environment, capture_output=True, text=True, timeout=60
            )
            self.assertEqual((done.returncode, done.stdout), (0, f"{programs / 'python'}\n"), done.stderr)
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


if __name__ == "__main__":
    os.environ.pop("CDPATH", None)
    unittest.main()
