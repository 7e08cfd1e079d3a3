#!/bin/sh
# Runs as process 1 of new namespaces: sandbox.sh TREE FOLDER HOSTNAME [SOURCE=TARGET ...]
# Makes TREE (read-only, below an overlay in FOLDER) the root, bind-mounts each SOURCE, and executes tini.
set -eu
tree=$1 folder=$2 name=$3 root=$2/root
shift 3
cat >/dev/null # waits until the parent has moved this process into its cgroup

mount --make-rslave / # keeps the following mounts off the machine
mount -t overlay -o "lowerdir=$tree,upperdir=$folder/upper,workdir=$folder/work" overlay "$root"
cd "$root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /sys/fs/cgroup sys/fs/cgroup
mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs tmpfs tmp
# kubelet changes these machine-wide settings, so it gets copies
mkdir run/sysctl
for setting in kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes vm/overcommit_memory vm/panic_on_oom; do
	copy=run/sysctl/$(basename "$setting")
	cat "proc/sys/$setting" >"$copy"
	mount --bind "$copy" "proc/sys/$setting"
done
for bind in "$@"; do
	mkdir -p "./${bind#*=}"
	mount --bind "${bind%%=*}" "./${bind#*=}"
done
mkdir -p old
pivot_root . old
cd /
umount -l old
rmdir old
mount --make-rshared / # needed by kubelet to propagate mounts to pods

hostname "$name"
: >/etc/resolv.conf # the cluster's DNS is the only name server
ip link set lo up
sysctl -qw net.ipv4.ip_forward=1
echo ready
exec tini -s -- sleep infinity </dev/null
