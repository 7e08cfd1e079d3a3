#!/bin/sh
# Run a script with a Python that TFCluster supports: $PYTHON if it is supported, else the newest of python3.13 to python3.10.
supported() { command -v "$1" >/dev/null 2>&1 && "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }
for python in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.10; do
	supported "$python" && exec "$python" "$@"
done
echo "TFCluster needs Python 3.10, 3.11, 3.12 or 3.13 (TensorFlow has no wheels for others)." >&2
echo "Found: ${PYTHON:-python3} = $("${PYTHON:-python3}" --version 2>/dev/null || echo none)" >&2
echo "Install one (Debian/Ubuntu: apt install python3 python3-venv; elsewhere: python.org, pyenv, uv python install 3.12)," >&2
echo "then: make run PYTHON=/path/to/python3.12" >&2
exit 1
