#!/usr/bin/env python3
"""What is in a release that others made: a CycloneDX list, and the licences' texts.

    packaging/papers.py FOLDER

Writes FOLDER/sbom.cdx.json and FOLDER/THIRD-PARTY-LICENSES.txt, the same for the same commit (SOURCE_DATE_EPOCH).
"""

import datetime
import html
import json
import os
import re
import subprocess
import sys
import uuid
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

# What a release has: the device, the command, the drop-ins, the virtual card.
ROOTS = ["wave32-torch", "wave32", "wave32-miopen", "wave32-hipdnn", "wave32-preload", "wave32-vgpu", "wave32-card"]
DIGITS = """The images of `wave32 demo` (wave32/digits.gz in the wheel for PyTorch) are the test set of "Optical Recognition of
Handwritten Digits" by E. Alpaydin and C. Kaynak, UCI Machine Learning Repository,
https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits. The licence is CC BY 4.0:
https://creativecommons.org/licenses/by/4.0/. They are changed: packed into one file of bytes."""


class Other(NamedTuple):
    """What is no package of cargo's."""

    name: str
    version: str
    licence: str
    text: str
    url: PackageURL | None = None
    type: ComponentType = ComponentType.LIBRARY


def packages():
    """What the roots need at run time, sorted; none of ours."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    by_id = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    members = set(metadata["workspace_members"])
    left = [i for i in members if by_id[i]["name"] in ROOTS]
    seen = set()
    while left:
        at = left.pop()
        if at in seen:
            continue
        seen.add(at)
        left += [d["pkg"] for d in nodes[at]["deps"] if any(kind["kind"] is None for kind in d["dep_kinds"])]
    found = [by_id[i] for i in seen - members]
    version = next(by_id[i]["version"] for i in members)
    return version, sorted(found, key=lambda package: (package["name"], package["version"]))


def others():
    def rustc(*arguments):
        return subprocess.run(["rustc", *arguments], check=True, capture_output=True, text=True).stdout.strip()

    rust = re.search("^release: (.*)$", rustc("--version", "--verbose"), re.M)[1]
    notices = Path(rustc("--print", "sysroot"), "share/doc/rust/COPYRIGHT-library.html")
    if not notices.exists():
        sys.exit(f"papers: {notices} is missing: the notices of Rust's standard library, which rustup installs")
    body = re.sub("<[^>]*>", "", notices.read_text().partition("<body>")[2])
    ziglang = distribution("ziglang")

    def zig(name, licence, part, text):
        url = PackageURL("pypi", name="ziglang", version=ziglang.version, subpath=part)
        return Other(name, ziglang.version, licence, ziglang.locate_file(text).read_text().strip(), url)

    return [
        Other(
            "Rust's standard library", rust, "MIT OR Apache-2.0", re.sub(r"\n\s*\n", "\n\n", html.unescape(body)).strip(),
            PackageURL("github", "rust-lang", "rust", rust),
        ),
        zig("zig's compiler-rt", "MIT", "lib/compiler_rt", "ziglang/LICENSE"),
        zig(
            "LLVM's libunwind, of zig", "Apache-2.0 WITH LLVM-exception", "lib/libunwind", "ziglang/lib/libunwind/LICENSE.TXT"
        ),
        Other("Optical Recognition of Handwritten Digits", "1998", "CC-BY-4.0", DIGITS, type=ComponentType.DATA),
    ]  # fmt: skip


def sbom(version, found, others):
    date = int(os.environ["SOURCE_DATE_EPOCH"])
    licences = LicenseFactory()
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"wave32/{version}/{date}"))
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(date, datetime.timezone.utc)
    bom.metadata.component = Component(name="wave32", version=version, type=ComponentType.APPLICATION, bom_ref="wave32")
    for package in found:
        # Old manifests write MIT/Apache-2.0.
        text = (package["license"] or "").replace("/", " OR ")
        url = PackageURL("cargo", name=package["name"], version=package["version"])
        bom.components.add(
            Component(
                name=package["name"],
                version=package["version"],
                type=ComponentType.LIBRARY,
                purl=url,
                bom_ref=str(url),
                licenses=[licences.make_from_string(text)] if text else [],
            )
        )
    for other in others:
        bom.components.add(
            Component(
                name=other.name,
                version=other.version,
                type=other.type,
                purl=other.url,
                bom_ref=other.name,
                licenses=[licences.make_from_string(other.licence)],
            )
        )
    bom.register_dependency(bom.metadata.component, bom.components)
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)


def texts(found, others):
    """Each text once, under the packages that have it."""
    owners = {}
    for package in found:
        folder = Path(package["manifest_path"]).parent
        files = [p for p in sorted(folder.iterdir()) if p.is_file() and p.name.lower().startswith(("licen", "copying", "notice"))]
        name = f"{package['name']} {package['version']} ({package['license']})"
        for file in files:
            owners.setdefault(file.read_text(errors="replace").strip(), []).append(name)
        if not files:
            owners.setdefault(f"Its package has no text; its licence is {package['license']}.", []).append(name)
    for other in others:
        owners.setdefault(other.text, []).append(f"{other.name} {other.version} ({other.licence})")
    line = "-" * 100
    return "".join(f"{line}\n" + "\n".join(dict.fromkeys(names)) + f"\n{line}\n{text}\n\n" for text, names in owners.items())


def main():
    folder = Path(sys.argv[1])
    version, found = packages()
    more = others()
    (folder / "sbom.cdx.json").write_text(sbom(version, found, more))
    (folder / "THIRD-PARTY-LICENSES.txt").write_text(texts(found, more))


if __name__ == "__main__":
    main()
