#!/bin/sh
# Links the drop-in for MIOpen: FOLDER/lib/libMIOpen.so.1 from the archive that cargo makes of crates/miopen.
#
#   scripts/rocm.sh FOLDER ARCHIVE
set -eu

folder=$1
archive=$2
exports=$(dirname "$0")/../crates/miopen/exports.map
mkdir -p "$folder/lib"
# All of the archive, then what no exported call reaches is thrown away. Never unloaded: the runtime keeps pointers to
# our kernels' code. Renamed into place: a running program keeps the file that it has.
"${CC:-cc}" -shared -o "$folder/lib/libMIOpen.so.1.new" \
    -Wl,-soname,libMIOpen.so.1 -Wl,--version-script="$exports" -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
    -Wl,--gc-sections -Wl,-z,defs -Wl,-z,nodelete -Wl,-z,relro -Wl,-z,now -Wl,--as-needed -lgcc_s -lpthread -lm -ldl -lc
mv "$folder/lib/libMIOpen.so.1.new" "$folder/lib/libMIOpen.so.1"
ln -sf libMIOpen.so.1 "$folder/lib/libMIOpen.so"
