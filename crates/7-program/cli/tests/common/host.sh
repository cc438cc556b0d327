#!/bin/sh
# Another host on this machine, for tests: network, processes and directories of its own, and an sshd. Needs
# root and Debian's openssh-server, openssh-client, iproute2 and util-linux.
#
#     host.sh run DIRECTORY NAME CABLE HERE ADDRESS    be the host, with its files in DIRECTORY; CABLE is our end of
#                                                      its network, HERE our address there, ADDRESS the host's
#     host.sh remove NAME CABLE                        remove the network of a host that was killed
#
# DIRECTORY/bin/ssh knows the host as db1.
set -eu
export PATH="/usr/sbin:/usr/bin:/sbin:/bin"

write_ssh_files() { # DIRECTORY ADDRESS
	for key in host_key user_key; do
		ssh-keygen -q -t ed25519 -N '' -f "$1/$key"
	done
	cp "$1/user_key.pub" "$1/authorized_keys"
	echo "$2 $(cat "$1/host_key.pub")" >"$1/known_hosts"
	cat >"$1/sshd_config" <<END
ListenAddress $2
HostKey /mnt/host_key
PidFile none
UsePAM no
AuthorizedKeysFile /mnt/authorized_keys
PermitRootLogin yes
PasswordAuthentication no
StrictModes no
UseDNS no
END
	cat >"$1/ssh_config" <<END
Host db1
    HostName $2
    User root
    IdentityFile $1/user_key
    IdentitiesOnly yes
    UserKnownHostsFile $1/known_hosts
    StrictHostKeyChecking yes
END
	# ssh does not look for a configuration in $HOME.
	mkdir "$1/bin"
	printf '#!/bin/sh\nexec /usr/bin/ssh -F %s/ssh_config "$@"\n' "$1" >"$1/bin/ssh"
	chmod 755 "$1/bin/ssh"
}

case $1 in
run)
	directory=$2 name=$3 cable=$4 here=$5 address=$6
	mkdir -p -m 755 "$directory" "$directory/var-cache"
	mkdir -m 700 "$directory/root"
	mkdir -m 1777 "$directory/tmp" "$directory/var-tmp"
	ip netns add "$name"
	ip link add "$cable" type veth peer name eth0 netns "$name"
	ip address add "$here/30" dev "$cable"
	ip link set "$cable" up
	ip -n "$name" address add "$address/30" dev eth0
	ip -n "$name" link set eth0 up
	ip -n "$name" link set lo up
	write_ssh_files "$directory" "$address"
	# DIRECTORY may be hidden by the other mounts.
	# shellcheck disable=SC2016
	exec ip netns exec "$name" unshare --mount --pid --fork --mount-proc --kill-child sh -c '
		mount --bind "$0" /mnt
		mount --bind /mnt/root /root
		mount --bind /mnt/tmp /tmp
		mount --bind /mnt/var-tmp /var/tmp
		mount --bind /mnt/var-cache /var/cache
		mkdir -p -m 755 /run/sshd
		exec /usr/sbin/sshd -D -f /mnt/sshd_config -E /mnt/sshd.log' "$directory"
	;;
remove)
	ip link del "$3" || true
	ip netns del "$2" || true
	;;
*)
	sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
