#!/bin/sh
# Links a shared library from an archive of cargo's, with the exports of a version script and nothing else:
#
#   scripts/link.sh LIBRARY EXPORTS ARCHIVE [INPUT...]
set -eu

library=$1
exports=$2
archive=$3
shift 3
# All of the archive, then what no exported call reaches is thrown away; the link fails where an exported one is missing.
# Never unloaded: the runtime keeps pointers to our kernels' code. Renamed into place: a running program keeps the file
# that it has.
"${CC:-cc}" -shared -o "$library.new" "$@" \
    -Wl,-soname,"$(basename "$library")" -Wl,--version-script="$exports" -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
    -Wl,--no-undefined-version \
    -Wl,--gc-sections -Wl,-z,defs -Wl,-z,nodelete -Wl,-z,relro -Wl,-z,now -Wl,--as-needed -lgcc_s -lpthread -lm -ldl -lc
mv "$library.new" "$library"
