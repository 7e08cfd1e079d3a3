"""The environment for programs with Estimators; TensorFlow 2.15 is the last version that has them.

It contains exactly the packages of requirements/tensorflow-2.15.txt and is kept in the user's
cache, so another clone needs no registry. Standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "requirements" / "tensorflow-2.15.txt"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tfcluster"
FOLDER = CACHE / "tensorflow-2.15"
NEWEST_PYTHON = (3, 11)  # TensorFlow 2.15 has no wheels for newer Pythons


def python() -> Path | None:
    """Return the interpreter of the environment; None if it is missing or has other pins."""
    stamp = FOLDER / "made-of.txt"
    found = FOLDER / "bin" / "python"
    return found if stamp.exists() and stamp.read_text() == _digest() else None


def main() -> int:
    """Make the environment if it is missing, and print its interpreter."""
    if sys.version_info[:2] > NEWEST_PYTHON:
        print("TensorFlow 2.15 needs Python 3.11 or older: its programs are not tried here")
        return 0
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "tensorflow-2.15.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if python() is None:
            _make()
    print(python())
    return 0


def _make() -> None:
    print("installing TensorFlow 2.15 for programs of its time (250 MB) ...", file=sys.stderr)
    shutil.rmtree(FOLDER, ignore_errors=True)
    for words in (
        [sys.executable, "-m", "venv", str(FOLDER)],
        [str(FOLDER / "bin/python"), "-m", "pip", "install", "-q", "--no-deps", "-r", str(PINS)],
    ):
        done = subprocess.run(words, check=False)
        if done.returncode:
            sys.exit(f"could not make {FOLDER}: `{' '.join(words)}` failed. Try again.")
    (FOLDER / "made-of.txt").write_text(_digest())


def _digest() -> str:
    return hashlib.sha256(f"{sys.version}\n{PINS.read_text()}".encode()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
