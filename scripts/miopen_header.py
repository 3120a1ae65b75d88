#!/usr/bin/env python3
"""Holds crates/miopen/abi.txt against MIOpen's own header, and the drop-in's exports against MIOpen's own library.

    miopen_header.py INCLUDE VENDOR DROP_IN [HIP_INCLUDE]

INCLUDE is the folder of miopen/miopen.h. Exit code 1 where a function of the header has no row or other parameters there,
or where the library exports a call that the drop-in does not.
"""
import json
import os
import subprocess
import sys

SIZES = {"_Bool": "b", "bool": "b", "float": "f", "double": "d"}
SIZES |= dict.fromkeys(["int", "unsigned int", "int32_t", "uint32_t"], "i")
SIZES |= dict.fromkeys(["long", "unsigned long", "long long", "unsigned long long"], "l")
# SQLite inside MIOpen.
INTERNAL = {"miopen_sqlite3_memvfs_init"}


def declarations(nodes):
    for node in nodes:
        if node["kind"] == "LinkageSpecDecl":
            yield from declarations(node.get("inner", []))
        else:
            yield node


def header(folders):
    """Each function's parameters, in the table's letters."""
    source = "#define __HIP_PLATFORM_AMD__\n#define MIOPEN_BETA_API 1\n#include <miopen/miopen.h>\n"
    command = ["clang++-19", "-x", "c++", "-std=gnu++17", "-fsyntax-only", "-Xclang", "-ast-dump=json", "-"]
    command += [f"-I{folder}" for folder in folders]
    dump = subprocess.run(command, input=source, stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout
    nodes = list(declarations(json.loads(dump)["inner"]))
    enums = {node["name"] for node in nodes if node["kind"] in ("EnumDecl", "TypedefDecl") and "name" in node}

    def letter(parameter):
        wanted = parameter.get("desugaredQualType", parameter["qualType"]).replace("const", "").strip()
        if wanted.endswith(("*", "]", ")")):
            return "p"
        # What is left of the header's own types are its enumerations.
        return SIZES.get(wanted) or ("i" if wanted.removeprefix("enum ") in enums else f"?{wanted}?")

    functions = {}
    for node in nodes:
        if node["kind"] == "FunctionDecl" and node["name"].startswith("miopen"):
            letters = "".join(letter(p["type"]) for p in node.get("inner", []) if p["kind"] == "ParmVarDecl")
            pointer = node["type"]["qualType"].split("(")[0].strip().endswith("*")
            functions[node["name"]] = ("p=" if pointer else "") + letters
    return functions


def exports(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], stdout=subprocess.PIPE, text=True, check=True).stdout
    names = {line.split()[-1].split("@")[0] for line in lines.splitlines()}
    return {name for name in names if name.startswith("miopen")} - INTERNAL


def main():
    include, vendor, drop_in, *more = sys.argv[1:]
    table = {}
    for line in open(os.path.join(os.path.dirname(__file__), "../crates/miopen/abi.txt")):
        if line.startswith("miopen"):
            name, _, _, *letters = line.split()
            table[name] = "".join(letters)
    functions = header([include, *more])
    wrong = [f"{name}: the header has ({letters}), abi.txt ({table.get(name, 'no row')})"
             for name, letters in sorted(functions.items()) if table.get(name) != letters]
    missing = sorted(exports(vendor) - exports(drop_in))
    wrong += [f"{name}: exported by {vendor}, and not by the drop-in" for name in missing]
    print("\n".join(wrong or [f"{len(functions)} functions of its header, {len(exports(vendor))} of its exports: all are in the table"]))
    sys.exit(bool(wrong or len(functions) < 200))


if __name__ == "__main__":
    main()
