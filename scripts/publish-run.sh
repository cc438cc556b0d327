#!/bin/sh
# Keeps a finished run for others to read, and to report on anew: the experiment, the report as text,
# the exports, and all that was measured, packed.
#
#     sh scripts/publish-run.sh PROGRAM EXPERIMENT RUN_DIRECTORY docs/runs/NAME
set -eu

if [ "$#" -ne 4 ]; then
    sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
program=$1 experiment=$2 run=$3 to=$4

mkdir -p "$to"
COLUMNS=100 "$program" report "$run" --color never | sed '/^Written to /d' > "$to/report.txt"
[ "$experiment" -ef "$to/experiment.toml" ] || cp "$experiment" "$to/experiment.toml"
for export in relative.csv summary.csv training.csv; do
    [ ! -f "$run/$export" ] || cp "$run/$export" "$to/$export"
done
xz -9 --keep --stdout "$run/run.sqlite" > "$to/run.sqlite.xz"
du -sh "$to"
