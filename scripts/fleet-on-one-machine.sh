#!/bin/sh
# Runs an experiment on three nodes of a Slurm that it starts on this machine, for trying fleet runs. Needs
# root and Debian's slurm-wlm, munge and procps. The nodes share the CPUs: each may use so many percent of
# one CPU, together less than the machine has.
#
#     sh scripts/fleet-on-one-machine.sh EXPERIMENT DIRECTORY PERCENT PERCENT PERCENT
set -eu

if [ "$#" -ne 5 ]; then
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
experiment=$1 out=$2
shift 2
cd "$(dirname "$0")/.."
program=${CARGO_TARGET_DIR:-target}/release/dbdyno
slurm=crates/cli/tests/fleet/slurm.sh
dir=$(mktemp -d /tmp/dbdyno-slurm.XXXXXX)
scratch=$(mktemp -d /var/tmp/dbdyno-scratch.XXXXXX)
trap 'bash "$slurm" down "$dir"; rm -rf "$dir" "$scratch"' EXIT
trap 'exit 130' INT TERM HUP

bash "$slurm" up "$dir" 6817 6818 6819 6820
number=0
for percent in "$@"; do
    number=$((number + 1))
    bash "$slurm" limit "$dir" "node$number" "$percent"
done
SLURM_CONF=$dir/slurm.conf "$program" fleet run "$experiment" --nodelist 'node[1-3]' --out "$out" \
    --scratch "$scratch"
