#!/bin/sh
# Links the drop-in for MIOpen: FOLDER/lib/libMIOpen.so.1 from the archive that cargo makes of crates/miopen.
#
#   scripts/rocm.sh FOLDER ARCHIVE
set -eu

folder=$1
archive=$2
table=$(dirname "$0")/../crates/miopen/abi.txt
mkdir -p "$folder/lib"
exports=$folder/exports.map
# Every call of MIOpen's, and nothing else; the link fails where one is missing.
calls=$(sed -n 's/^\(miopen[A-Za-z0-9_]*\) .*/\1/p' "$table")
printf 'MIOPEN_HIP_1 {\nglobal:\n%s\nlocal:\n    *;\n};\n' "$(printf '    %s;\n' $calls)" >"$exports"
printf -- '-Wl,--require-defined=%s\n' $calls >"$folder/calls"
# All of the archive, then what no exported call reaches is thrown away. Never unloaded: the runtime keeps pointers to
# our kernels' code. Renamed into place: a running program keeps the file that it has.
"${CC:-cc}" -shared -o "$folder/lib/libMIOpen.so.1.new" \
    -Wl,-soname,libMIOpen.so.1 -Wl,--version-script="$exports" "@$folder/calls" -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
    -Wl,--gc-sections -Wl,-z,defs -Wl,-z,nodelete -Wl,-z,relro -Wl,-z,now -Wl,--as-needed -lgcc_s -lpthread -lm -ldl -lc
mv "$folder/lib/libMIOpen.so.1.new" "$folder/lib/libMIOpen.so.1"
ln -sf libMIOpen.so.1 "$folder/lib/libMIOpen.so"
