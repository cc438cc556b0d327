#!/bin/sh
# Runs the demonstration, experiments/demo.toml, and prints the path of its report.
#
#     scripts/demo.sh [PROGRAM]    default: target/release/dbdyno
#
# The run directory is results/demo. An interrupted run there is resumed; if it holds a complete
# run, a new directory with the time in its name is created.
set -eu

cd "$(dirname "$0")/.."

dbdyno=${1:-target/release/dbdyno}
experiment=experiments/demo.toml
directory=results/demo

# dbdyno handles Ctrl-C: it stops after the current slice and reports. This script waits for it.
trap : INT

code=0
if [ -e "$directory/run.sqlite" ]; then
    # Updates run.json, which has the status of the run.
    "$dbdyno" report "$directory" >/dev/null
    if grep -q '^  "status": "complete"' "$directory/run.json"; then
        directory=$directory-$(date +%Y%m%d-%H%M%S)
        "$dbdyno" run "$experiment" --out "$directory" || code=$?
    else
        echo "Resuming the unfinished run in $directory; remove it to start over."
        "$dbdyno" run --resume "$directory" || code=$?
    fi
else
    "$dbdyno" run "$experiment" --out "$directory" || code=$?
fi

if [ -e "$directory/report.html" ]; then
    printf '\nReport: %s/%s/report.html\n' "$PWD" "$directory"
fi
exit "$code"
