#!/bin/sh
# Runs the demonstration, experiments/demo.toml, and says where its report is.
#
#     scripts/demo.sh [DBDYNO]    DBDYNO is the program, target/release/dbdyno by default
#
# The run directory is results/demo. A run there that was interrupted goes on; beside one that is
# complete a new one is made, with the time in its name.
set -eu

cd "$(dirname "$0")/.."

dbdyno=${1:-target/release/dbdyno}
experiment=experiments/demo.toml
directory=results/demo

# Ctrl-C is for dbdyno, which ends after its slice and reports. This script waits for it.
trap : INT

code=0
if [ -e "$directory/run.sqlite" ]; then
    # Writes run.json anew, and that says how the run stands.
    "$dbdyno" report "$directory" >/dev/null
    if grep -q '^  "status": "complete"' "$directory/run.json"; then
        directory=$directory-$(date +%Y%m%d-%H%M%S)
        "$dbdyno" run "$experiment" --out "$directory" || code=$?
    else
        echo "Going on with the unfinished run in $directory; remove it to start over."
        "$dbdyno" run --resume "$directory" || code=$?
    fi
else
    "$dbdyno" run "$experiment" --out "$directory" || code=$?
fi

if [ -e "$directory/report.html" ]; then
    printf '\nThe report, for a browser: %s/%s/report.html\n' "$PWD" "$directory"
fi
exit "$code"
