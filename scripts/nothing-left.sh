#!/bin/sh
# Fails when tests left something behind: a server or a worker at work, or a directory of theirs.
#
#     scripts/nothing-left.sh
set -eu

left=0
for directory in "${TMPDIR:-/tmp}"/dbdyno-* /var/tmp/dbdyno-*; do
    [ -e "$directory" ] || continue
    echo "nothing-left: $directory is still there" >&2
    left=1
done
for cwd in /proc/[0-9]*/cwd; do
    at=$(readlink "$cwd" 2>/dev/null) || continue
    case $at in
    */dbdyno-*/data | */data/servers/*)
        pid=${cwd#/proc/}
        echo "nothing-left: process ${pid%/cwd} still works in $at" >&2
        left=1
        ;;
    esac
done
exit $left
