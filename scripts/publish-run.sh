#!/bin/sh
# Publishes a finished run: the experiment, the report as text, the tables, and the measurements as
# run.sqlite.xz, without what no figure depends on.
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
compact=$(mktemp)
trap 'rm -f "$compact"' EXIT
cargo run --quiet -p dbdyno-results --example compact-run -- "$run/run.sqlite" "$compact"
# Without alignment of bytes (pb=0) it is smaller.
xz --lzma2=preset=9e,pb=0 --stdout "$compact" > "$to/run.sqlite.xz"
du -sh "$to"
