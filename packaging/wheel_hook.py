"""Puts into the wheel what cargo made.

`pip install .` builds the device and the command. `make dist` has built everything with other settings and names the
folder in WAVE32_PARTS: `_native.abi3.so`, `bin/wave32`, `lib/wave32/*`, `sbom.json`.
"""

import os
import subprocess
import sysconfig
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelHook(BuildHookInterface):
    def initialize(self, version, build_data):
        root = Path(self.root)
        parts = os.environ.get("WAVE32_PARTS")
        if parts:
            parts = Path(parts)
            native, command = parts / "_native.abi3.so", parts / "bin/wave32"
            libraries = sorted(path for path in (parts / "lib/wave32").iterdir() if path.is_file())
            build_data["sbom_files"] = [str(parts / "sbom.json")]
        else:
            built = self.cargo(root)
            native, command, libraries = built / "lib_native.so", built / "wave32", []
        build_data["pure_python"] = False
        platform = os.environ.get("WAVE32_PLATFORM") or sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"cp310-abi3-{platform}"
        build_data["force_include"][str(native)] = "wave32/_native.abi3.so"
        build_data["shared_scripts"][str(command)] = "wave32"
        # The command looks in ../lib/wave32.
        for library in libraries:
            build_data["shared_data"][str(library)] = f"lib/wave32/{library.name}"

    def cargo(self, root):
        target = Path(os.environ.get("CARGO_TARGET_DIR") or root / "target")
        command = ["cargo", "build", "--release", "--package", "wave32-torch", "--package", "wave32"]
        try:
            subprocess.run(command, cwd=root, check=True, env={**os.environ, "CARGO_TARGET_DIR": str(target)})
        except FileNotFoundError:
            raise SystemExit("wave32: building needs Rust: https://rustup.rs") from None
        return target / "release"
