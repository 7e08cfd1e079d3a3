#!/bin/sh
# Makes the folder of a new claim. Runs in a helper pod; VOL_DIR is the folder, CLAIMS the parent of all such folders.
set -eu
name=${VOL_DIR#"$CLAIMS"/}
case $name in
pvc-*/* | "$VOL_DIR") echo "refused: $VOL_DIR does not lie directly in $CLAIMS" >&2 && exit 1 ;;
pvc-*) ;;
*) echo "refused: $VOL_DIR is not called like a claim's folder" >&2 && exit 1 ;;
esac
# Without the mount the folder would be on the node's own disk.
if [ "$(stat -f -c %t "$CLAIMS")" != 65735546 ]; then
	echo "refused: on this node nothing is mounted by FUSE at $CLAIMS" >&2
	exit 1
fi
mkdir -p "$VOL_DIR"
# Kubernetes applies no fsGroup to such volumes, so the folder and its files must belong to the users' group.
chgrp 100 "$VOL_DIR"
chmod 2775 "$VOL_DIR"
