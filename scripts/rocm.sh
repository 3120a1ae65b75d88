#!/bin/sh
# Links the drop-in for MIOpen: FOLDER/lib/libMIOpen.so.1 from the archive that cargo makes of crates/miopen.
#
#   scripts/rocm.sh FOLDER ARCHIVE
set -eu

folder=$1
archive=$2
here=$(dirname "$0")
table=$here/../crates/miopen/abi.txt
made=$folder/made
mkdir -p "$folder/lib" "$made"
# Every call of MIOpen's, and nothing else; the link fails where one is missing.
sed -n 's/^\(miopen[A-Za-z0-9_]*\) .*/\1/p' "$table" | sort -u > "$made/names"
printf 'MIOPEN_HIP_1 {\nglobal:\n%s\nlocal:\n    *;\n};\n' "$(sed 's/.*/    &;/' "$made/names")" > "$made/exports.map"
# Our functions step back behind slots of their names, which lead to them or to the vendor's (crates/miopen/src/vendor/next.rs).
sed 's/.*/& wave32_&/' "$made/names" > "$made/renamed"
"${OBJCOPY:-objcopy}" --redefine-syms="$made/renamed" "$archive" "$made/archive.a"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../Cargo.toml" | head -n 1)
"$here/slots.sh" "$version" < "$made/names" > "$made/slots.s"
"$here/link.sh" "$folder/lib/libMIOpen.so.1" "$made/exports.map" "$made/archive.a" "$made/slots.s"
rm -r "$made"
ln -sf libMIOpen.so.1 "$folder/lib/libMIOpen.so"
