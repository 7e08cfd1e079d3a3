#!/usr/bin/env bash
# Prepare, train, and sum up; --data_dir was an option of last year's script.
set -e
cd "$(dirname "$0")"
mkdir -p work
python prepare.py > work/numbers.txt
python -u fit.py work/numbers.txt "$@"
echo "finished $TFCLUSTER_TASK"
