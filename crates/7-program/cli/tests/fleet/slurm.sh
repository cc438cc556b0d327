#!/bin/bash
# A real Slurm for tests: a controller and three nodes on this machine, each with its own process table
# and host name, listening on 127.0.0.1 only. Needs root and Debian's slurm-wlm, munge and procps.
#
#     slurm.sh up DIR PORT PORT PORT PORT    start it; the ports are those of the controller and the nodes
#     slurm.sh kill DIR NODE                 a power failure of a node
#     slurm.sh cut DIR NODE                  Slurm cannot reach a node any more; its jobs go on
#     slurm.sh mend DIR NODE                 Slurm can reach the node again
#     slurm.sh limit DIR NODE PERCENT        a node gets this share of a CPU; exits with 3 if that is not permitted
#     slurm.sh start DIR NODE                start the node again
#     slurm.sh down DIR                      end everything
set -euo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
D=$2
clean=(env -i "PATH=$PATH" HOME=/root LANG=C.UTF-8 "SLURM_CONF=$D/slurm.conf")

wait_for() { # SECONDS COMMAND...
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || { echo "not ready: $*" >&2; tail -n 5 "$D"/log/* >&2; return 1; }
		sleep 0.1
	done
}

# Starts a host: a process table of its own, which ends with its first process.
host() {
	rm -f "$D/$1.ready"
	setsid "${clean[@]}" unshare --uts --ipc --mount --pid --fork --kill-child --mount-proc \
		bash -c "hostname $1; mount --bind $D/hosts /etc/hosts; mount -t tmpfs -o mode=755 local $D/local; : >$D/$1.ready; while :; do sleep infinity & wait; done" \
		</dev/null >"$D/log/$1.host" 2>&1 &
	echo $! >"$D/$1.outer"
	wait_for 30 test -e "$D/$1.ready"
	pgrep -P "$(cat "$D/$1.outer")" >"$D/$1.init"
}

# Runs a command in a host.
on() {
	local init
	init=$(cat "$D/$1.init")
	shift
	"${clean[@]}" nsenter -t "$init" -u -i -m -p --wd=/ -- "$@"
}

node() {
	host "$1"
	mkdir -p "$D/spool/$1"
	on "$1" slurmd -f "$D/slurm.conf" -N "$1"
}

is_idle() { [ "$("${clean[@]}" sinfo -h -N -n "$1" -o %T)" = idle ]; }

# The processes of a host.
processes() {
	local namespace pid
	namespace=$(readlink "/proc/$(cat "$D/$1.init")/ns/pid")
	for pid in /proc/[0-9]*; do
		[ "$(readlink "$pid/ns/pid" 2>/dev/null)" != "$namespace" ] || echo "${pid#/proc/}"
	done
}

# Stopped, Slurm's programs on a node neither answer nor send anything.
signal_slurm() { # NODE SIGNAL
	local pid
	for pid in $(processes "$1"); do
		case $(cat "/proc/$pid/comm" 2>/dev/null) in
		slurmd | slurmstepd) kill "-$2" "$pid" ;;
		esac
	done
}

# Periods are short, so that also slices of a few milliseconds are slow.
limit() { # NODE PERCENT
	local root=/sys/fs/cgroup group pid
	[ ! -d $root/cpu ] || root=$root/cpu
	group=$root/dbdyno-tests-$$
	mkdir "$group" 2>/dev/null || return 3
	echo "$group" >"$D/$1.group"
	# The shortest time that the kernel accepts, as often as the share allows.
	local quota=1000 period=$((100 * 1000 / $2))
	if [ -e "$group/cpu.max" ]; then
		echo "$quota $period" >"$group/cpu.max" || return 1
	elif [ -e "$group/cpu.cfs_quota_us" ]; then
		{ echo $period >"$group/cpu.cfs_period_us" && echo $quota >"$group/cpu.cfs_quota_us"; } || return 1
	else
		return 3
	fi
	for pid in $(processes "$1"); do echo "$pid" >"$group/cgroup.procs" || return 3; done
}

# Ends a host with all its processes.
end() {
	[ ! -e "$D/$1.outer" ] || kill -9 "$(cat "$D/$1.outer")" 2>/dev/null || true
	[ ! -e "$D/$1.init" ] || kill -9 "$(cat "$D/$1.init")" 2>/dev/null || true
	rm -f "$D/$1.outer" "$D/$1.init"
	if [ -e "$D/$1.group" ]; then
		wait_for 10 rmdir "$(cat "$D/$1.group")" || true
		rm "$D/$1.group"
	fi
}

case $1 in
up)
	mkdir -p "$D"/{local,log,spool,state}
	echo "127.0.0.1 localhost ctl node1 node2 node3" >"$D/hosts"
	(umask 077 && head -c 128 /dev/urandom >"$D/key")
	setsid "${clean[@]}" munged --force --foreground --num-threads=2 --socket="$D/munge" \
		--key-file="$D/key" --pid-file="$D/munge.pid" --seed-file="$D/munge.seed" \
		--log-file="$D/log/munged" </dev/null >"$D/log/munged.out" 2>&1 &
	echo $! >"$D/munged.outer"
	wait_for 30 test -S "$D/munge"
	hardware=$(slurmd -C | sed -n '1s/^NodeName=[^ ]* //p')
	cat >"$D/slurm.conf" <<-EOS
		ClusterName=tests
		SlurmctldHost=ctl(127.0.0.1)
		SlurmctldPort=$3
		SlurmUser=root
		SlurmdUser=root
		AuthType=auth/munge
		CredType=cred/munge
		AuthInfo=socket=$D/munge,cred_expire=5
		CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
		StateSaveLocation=$D/state
		SlurmdSpoolDir=$D/spool/%n
		SlurmctldPidFile=$D/slurmctld.pid
		SlurmdPidFile=$D/slurmd-%n.pid
		SlurmctldLogFile=$D/log/slurmctld
		SlurmdLogFile=$D/log/slurmd-%n
		MailProg=/bin/true
		MpiDefault=none
		SwitchType=switch/none
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		SelectType=select/cons_tres
		SelectTypeParameters=CR_CPU_Memory
		JobCompType=jobcomp/none
		AccountingStorageType=accounting_storage/none
		# A dead node is found in 10 to 20 s, a cancelled job is gone in 2 s.
		ReturnToService=2
		SlurmdTimeout=10
		MessageTimeout=5
		KillWait=2
		SchedulerParameters=sched_min_interval=100000,bf_interval=2
		SlurmdParameters=config_overrides
		NodeName=DEFAULT $hardware
		NodeName=node1 NodeHostname=node1 NodeAddr=127.0.0.1 Port=$4
		NodeName=node2 NodeHostname=node2 NodeAddr=127.0.0.1 Port=$5
		NodeName=node3 NodeHostname=node3 NodeAddr=127.0.0.1 Port=$6
		PartitionName=main Nodes=node[1-3] Default=YES MaxTime=INFINITE State=UP
	EOS
	host ctl
	on ctl slurmctld -f "$D/slurm.conf"
	wait_for 30 "${clean[@]}" scontrol ping
	for name in node1 node2 node3; do node $name; done
	for name in node1 node2 node3; do wait_for 30 is_idle $name; done
	;;
kill) end "$3" ;;
start) node "$3" ;;
cut) signal_slurm "$3" STOP ;;
mend) signal_slurm "$3" CONT ;;
limit) limit "$3" "$4" || exit $? ;;
down)
	for name in node1 node2 node3 ctl munged; do end $name; done
	;;
*)
	echo "usage: slurm.sh up|kill|start|cut|mend|limit|down DIR …" >&2
	exit 2
	;;
esac
