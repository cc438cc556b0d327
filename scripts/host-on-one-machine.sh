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
script=$(dirname "$0")/../crates/7-program/cli/tests/common/host.sh
name=dbdyno-host

fail() {
    echo "host-on-one-machine: $1" >&2
    exit 1
}

[ "$(id -u)" -eq 0 ] || fail "run it as root: it creates a network"
for program in /usr/sbin/sshd /usr/bin/ssh; do
    [ -x "$program" ] || fail "$program does not exist: install openssh-server and openssh-client"
done
command -v ip > /dev/null || fail "there is no program ip: install iproute2"
if ip netns list | grep -q "^$name\>"; then
    fail "there is such a host; if it is not in use, remove it: sh $script remove $name $name"
fi

dir=$(mktemp -d /var/tmp/dbdyno-host.XXXXXX)
host=
stop() {
    [ -z "$host" ] || kill -KILL "$host" || true
    wait || true
    sh "$script" remove "$name" "$name"
    rm -rf "$dir"
}
trap stop EXIT
trap 'exit 130' INT TERM HUP

sh "$script" run "$dir/host" "$name" "$name" 10.213.255.1 10.213.255.2 &
host=$!
tries=0
until "$dir/host/bin/ssh" db1 true 2> "$dir/ssh"; do
    tries=$((tries + 1))
    kill -0 "$host" 2> /dev/null && [ "$tries" -lt 100 ] || fail "no login: $(cat "$dir/ssh")"
    sleep 0.1
done
PATH=$dir/host/bin:$PATH "$@"
