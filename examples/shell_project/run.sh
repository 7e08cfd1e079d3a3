#!/bin/sh
# What every task starts. A shell script prepares what Python cannot: variables that are read at import.
#
#     tfcluster launch --workers 2 examples/shell_project -- --epochs 8
export TF_USE_LEGACY_KERAS=1 # Keras 3 cannot train on MultiWorkerMirroredStrategy
echo "task $(hostname): starting with arguments: $*"
exec python train.py "$@"
