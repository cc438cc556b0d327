#!/bin/sh
# Runs an experiment on three nodes of a Slurm that it starts on this machine, for trying fleet runs. Needs
# root and Debian's slurm-wlm, munge and procps. The nodes share the CPUs: each may use so many percent of
# one CPU, together less than the machine has.
#
#     sh scripts/fleet-on-one-machine.sh EXPERIMENT DIRECTORY PERCENT PERCENT PERCENT
set -eu

usage() {
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

fail() {
    echo "fleet-on-one-machine: $1" >&2
    exit 1
}

[ "$#" -eq 5 ] || usage
experiment=$1 out=$2
shift 2
for percent in "$@"; do
    case $percent in
    '' | *[!0-9]* | 0* | ????*)
        echo "fleet-on-one-machine: $percent is not a percentage of a CPU, such as 80" >&2
        exit 2
        ;;
    esac
done
root=$(dirname "$0")/..
program=${CARGO_TARGET_DIR:-$root/target}/release/dbdyno
slurm=$root/crates/7-program/cli/tests/fleet/slurm.sh
[ "$(id -u)" -eq 0 ] || fail "run it as root: it starts a Slurm"
[ -x "$program" ] || fail "$program does not exist: run \`make build\`"
for needed in slurmctld slurmd munged; do
    [ -x "/usr/sbin/$needed" ] || fail "/usr/sbin/$needed does not exist: install slurm-wlm and munge"
done
# So that nothing is started for an experiment with an error.
"$program" check "$experiment" > /dev/null

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
