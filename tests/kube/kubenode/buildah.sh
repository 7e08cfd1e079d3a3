#!/bin/sh
# Runs as process 1 of new mount and pid namespaces: buildah.sh TREE FOLDER HOSTS [SOURCE=TARGET ...] -- COMMAND ...
# Makes TREE the root with a writable layer in memory, bind-mounts each SOURCE, and executes COMMAND.
set -eu
tree=$1 folder=$2 hosts=$3
shift 3

mount -t tmpfs tmpfs "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root"
mount -t overlay -o "lowerdir=$tree,upperdir=$folder/upper,workdir=$folder/work" overlay "$folder/root"
cd "$folder/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
while [ "$1" != -- ]; do
	if [ -d "${1%%=*}" ]; then mkdir -p "./${1#*=}"; else : >>"./${1#*=}"; fi
	mount --bind "${1%%=*}" "./${1#*=}"
	shift
done
shift
echo "$hosts" >etc/hosts
mkdir old
pivot_root . old
cd /
umount -l old
rmdir old
exec "$@"
