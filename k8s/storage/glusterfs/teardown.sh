#!/bin/sh
# Removes the folder of a deleted claim, and nothing else. Runs in a helper pod; VOL_DIR is the folder, CLAIMS the parent of all such
# folders.
set -eu
name=${VOL_DIR#"$CLAIMS"/}
case $name in
pvc-*/* | "$VOL_DIR") echo "refused: $VOL_DIR does not lie directly in $CLAIMS" >&2 && exit 1 ;;
pvc-*) ;;
*) echo "refused: $VOL_DIR is not called like a claim's folder" >&2 && exit 1 ;;
esac
# Without the mount, the folder is missing; this must not count as removed.
if [ "$(stat -f -c %t "$CLAIMS")" != 65735546 ]; then
	echo "refused: on this node nothing is mounted by FUSE at $CLAIMS" >&2
	exit 1
fi
rm -rf "$VOL_DIR"
