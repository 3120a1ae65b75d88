#!/bin/sh
# Runs a command and keeps its output, below what one has to know of the run: command, date, machine, commit.
#
#   MACHINE='shared with a build' scripts/logged.sh FILE COMMAND ARGUMENT...
#
# MACHINE says what /proc does not. The checkout's path becomes `.`; what cargo compiles is left out. The exit code is the command's.
set -eu

file=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
system=$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release)
begin=$(date +%s)
{
    echo "command: $*" | sed "s|$root|.|g"
    echo "date: $(date -u +%F)"
    echo "machine: $(nproc) cores, $processor; $system${MACHINE:+; $MACHINE}; load $(cut -d ' ' -f 1 /proc/loadavg) at the start"
    echo "commit: $("$root/packaging/commit.sh")"
    echo
} > "$file.new"
code=0
"$@" > "$file.raw" 2>&1 || code=$?
{
    tr '\r' '\n' < "$file.raw" | sed -e "s|$root|.|g" -e "s|$HOME/|~/|g" |
        grep -vE '^ *(Compiling|Finished|Running|Blocking|Downloading|Downloaded|Updating) |^make(\[[0-9]+\])?: (Entering|Leaving)' || true
    echo
    echo "exit code $code after $(($(date +%s) - begin)) s"
} >> "$file.new"
rm "$file.raw"
mv "$file.new" "$file"
exit "$code"
