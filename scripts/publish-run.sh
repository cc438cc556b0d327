#!/bin/sh
# Publishes a finished run, or a finished fleet run: the experiment, the tables, and the measurements as run.sql.xz
# (of a fleet run NODE.sql.xz, and the comparison as text), without what no figure depends on.
#
#     sh scripts/publish-run.sh PROGRAM EXPERIMENT RUN_DIRECTORY runs/NAME
set -eu

if [ "$#" -ne 4 ]; then
    sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
program=$(realpath "$1") experiment=$2 run=$3 to=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Without alignment of bytes (pb=0) it is smaller.
publish() {
    cargo run --quiet -p dbdyno-results --example compact-run -- "$1" > "$scratch/compact"
    xz --lzma2=preset=9e,pb=0 --stdout "$scratch/compact" > "$2.sql.xz"
}

report() {
    COLUMNS=100 "$program" report "$@" --color never | sed '/^Written to /d' > "$scratch/report.txt"
}

mkdir -p "$to"
if [ -f "$run/fleet.json" ]; then
    for node in "$run"/*/run.sqlite; do
        node=${node%/run.sqlite}
        publish "$node/run.sqlite" "$to/${node##*/}"
        set -- "$@" "${node##*/}"
    done
    shift 4
    # Runs are named by their paths.
    (cd "$run" && report "$@" --out "$scratch/comparison")
    cp "$scratch/comparison/comparison.csv" "$scratch/report.txt" "$to/"
else
    publish "$run/run.sqlite" "$to/run"
    report "$run"
    for export in relative.csv summary.csv changes.csv insert_steps.csv; do
        [ ! -f "$run/$export" ] || cp "$run/$export" "$to/$export"
    done
fi
[ "$experiment" -ef "$to/experiment.toml" ] || cp "$experiment" "$to/experiment.toml"
du -sh "$to"
