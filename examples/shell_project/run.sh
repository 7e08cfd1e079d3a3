#!/bin/sh
# Every task starts this script. It sets a variable that Python programs read at import.
#
#     tfcluster launch --workers 2 examples/shell_project -- --epochs 8
export TF_USE_LEGACY_KERAS=1 # Keras 3 cannot train on MultiWorkerMirroredStrategy
echo "task $(hostname): starting with arguments: $*"
exec python train.py "$@"
