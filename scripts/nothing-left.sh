#!/bin/sh
# Fails when tests left something behind: a server or a worker at work, or a directory of theirs.
#
#     scripts/nothing-left.sh list > FILE     before the tests: what is there already
#     scripts/nothing-left.sh since FILE      after them: fails on anything else
set -eu

# A line for each directory and process of dbdyno's, whoever it belongs to.
list() {
    for directory in "${TMPDIR:-/tmp}"/dbdyno-* /var/tmp/dbdyno-*; do
        if [ -e "$directory" ]; then
            echo "directory $directory"
        fi
    done
    for cwd in /proc/[0-9]*/cwd; do
        at=$(readlink "$cwd" 2>/dev/null) || continue
        case $at in
        */dbdyno-*/data | */data/servers/*)
            pid=${cwd#/proc/}
            echo "process ${pid%/cwd} in $at"
            ;;
        esac
    done
}

case "${1-}" in
list) list ;;
since)
    new=$(list | grep -vxFf "$2" || true)
    if [ -n "$new" ]; then
        echo "$new" | sed 's/^/nothing-left: still there: /' >&2
        exit 1
    fi
    ;;
*)
    echo "usage: scripts/nothing-left.sh list | since FILE" >&2
    exit 2
    ;;
esac
