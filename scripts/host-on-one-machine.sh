#!/bin/sh
# Runs a command with another host on this machine, to try experiments with `[host.NAME]`: ssh of the command
# knows it as db1, at the address 10.213.255.2. It has a network, processes and directories of its own and
# shares the CPUs. Needs root and Debian's openssh-server, openssh-client, iproute2 and util-linux.
#
#     sh scripts/host-on-one-machine.sh target/release/dbdyno run experiments/host.toml
set -eu

if [ "$#" -eq 0 ]; then
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
script=$(dirname "$0")/../crates/cli/tests/common/host.sh
dir=$(mktemp -d /var/tmp/dbdyno-host.XXXXXX)
host=
stop() {
    [ -z "$host" ] || kill -KILL "$host" || true
    wait || true
    sh "$script" remove dbdyno-host dbdyno-host
    rm -rf "$dir"
}
trap stop EXIT
trap 'exit 130' INT TERM HUP

sh "$script" run "$dir/host" dbdyno-host dbdyno-host 10.213.255.1 10.213.255.2 &
host=$!
tries=0
until "$dir/host/bin/ssh" db1 true 2>"$dir/ssh"; do
    tries=$((tries + 1))
    if [ "$tries" -eq 100 ]; then
        cat "$dir/ssh" >&2
        exit 1
    fi
    sleep 0.1
done
PATH=$dir/host/bin:$PATH "$@"
