#!/bin/sh
# Makes the folder of a new claim. Runs in a helper pod; VOL_DIR is the folder, CLAIMS where all of them lie.
set -eu
name=${VOL_DIR#"$CLAIMS"/}
case $name in
pvc-*/* | "$VOL_DIR") echo "refused: $VOL_DIR does not lie directly in $CLAIMS" >&2 && exit 1 ;;
pvc-*) ;;
*) echo "refused: $VOL_DIR is not called like a claim's folder" >&2 && exit 1 ;;
esac
# On a node where the volume is not mounted the folder would be made on the node's own disk.
if [ "$(stat -f -c %t "$CLAIMS")" != 65735546 ]; then
	echo "refused: on this node nothing is mounted by FUSE at $CLAIMS" >&2
	exit 1
fi
mkdir -p "$VOL_DIR"
# Volumes of this kind get no fsGroup from Kubernetes: the users' group, for all that is made in it.
chgrp 100 "$VOL_DIR"
chmod 2775 "$VOL_DIR"
