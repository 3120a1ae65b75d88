#!/usr/bin/env python3
"""Fails where a wheel is not what its name says (by auditwheel; by torch-abi-audit for the device in it) or lacks a licence.

    packaging/audit.py PLATFORM WHEEL...
"""

import json
import subprocess
import sys
import tempfile
import zipfile

DEVICE = "wave32/_native.abi3.so"
PAPERS = ["licenses/LICENSE-MIT", "licenses/LICENSE-APACHE", "licenses/THIRD-PARTY-LICENSES.txt", "sboms/wave32.cdx.json"]


def answer(*command):
    return json.loads(subprocess.run([sys.executable, "-m", *command], check=True, stdout=subprocess.PIPE).stdout)


def faults(platform, wheel):
    """What is wrong with it."""
    told = answer("auditwheel", "show", "--json", wheel)
    # Another one where a library wants newer symbols, or a library that not every system has.
    if told["overall_tag"] != platform:
        yield f"auditwheel says {told['overall_tag']}: {json.dumps(told, indent=1)}"
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = archive.namelist()
        for paper in PAPERS:
            if not any(name.endswith(f".dist-info/{paper}") for name in names):
                yield f"has no {paper}"
        if DEVICE not in names:
            return
        report = answer("torch_abi_audit.cli", "--json", archive.extract(DEVICE, folder))
    # docs/torch.md: it imports nothing of torch, and of Python what the limited API has.
    if not report["extensions"] or not all(map(is_right, report["extensions"])):
        yield f"torch-abi-audit says {json.dumps(report, indent=1)}"


def is_right(library):
    torch, python = library["torch"], library["cpython"]
    return not library["error"] and not torch["uses_torch"] and python["intent"] and python["compliant"]


def main():
    platform, *wheels = sys.argv[1:]
    found = [f"{wheel}: {fault}" for wheel in wheels for fault in faults(platform, wheel)]
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
