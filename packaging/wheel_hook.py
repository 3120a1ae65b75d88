"""Puts into the wheel what cargo made.

`pip install .` builds the device and the command. `make dist` has built everything with other settings and names the
folder in WAVE32_PARTS: `bin/`, `lib/`, `_native.abi3.so`, `sbom.cdx.json`, `THIRD-PARTY-LICENSES.txt`.
"""

import os
import subprocess
import sysconfig
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelHook(BuildHookInterface):
    def initialize(self, version, build_data):
        parts = os.environ.get("WAVE32_PARTS")
        programs, libraries, native, papers = self.dist(Path(parts)) if parts else self.cargo(Path(self.root))
        platform = os.environ.get("WAVE32_PLATFORM") or sysconfig.get_platform().replace("-", "_").replace(".", "_")
        python = "cp310-abi3" if native else "py3-none"
        build_data["pure_python"] = False
        build_data["tag"] = f"{python}-{platform}"
        include = build_data["force_include"]
        if native:
            include[str(native)] = "wave32/_native.abi3.so"
        for path, place in papers.items():
            include[str(path)] = f"{self.metadata.name.replace('-', '_')}-{self.metadata.version}.dist-info/{place}"
        for program in programs:
            build_data["shared_scripts"][str(program)] = program.name
        # The command looks in ../lib/wave32.
        for library, place in libraries.items():
            build_data["shared_data"][str(library)] = f"lib/wave32/{place}"

    def dist(self, parts):
        folder = parts / "lib"
        libraries = {path: path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()}
        papers = {
            parts / "sbom.cdx.json": "sboms/wave32.cdx.json",
            parts / "THIRD-PARTY-LICENSES.txt": "licenses/THIRD-PARTY-LICENSES.txt",
        }
        native = parts / "_native.abi3.so"
        return (
            sorted((parts / "bin").iterdir()),
            libraries,
            native if native.exists() else None,
            {path: place for path, place in papers.items() if path.exists()},
        )

    def cargo(self, root):
        target = Path(os.environ.get("CARGO_TARGET_DIR") or root / "target")
        command = ["cargo", "build", "--release", "--package", "wave32-torch", "--package", "wave32"]
        environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
        if "WAVE32_COMMIT" not in environment and (root / ".git").exists():
            commit = subprocess.run([root / "packaging/commit.sh"], capture_output=True, text=True)
            if commit.returncode == 0:
                environment["WAVE32_COMMIT"] = commit.stdout.strip()
        try:
            subprocess.run(command, cwd=root, check=True, env=environment)
        except FileNotFoundError:
            raise SystemExit("wave32: building needs Rust: https://rustup.rs") from None
        built = target / "release"
        return [built / "wave32"], {}, built / "lib_native.so", {}
