"""Which checkpoint of a run is the newest, from TensorFlow's `checkpoint` files.

Promises the name alone, such as `model.ckpt-278`, whole or not at all. Reads at most the first
64 KiB of each `checkpoint` file, two folders deep; opens no checkpoint, and never raises.
"""

from __future__ import annotations

import os
import re
import stat

from .bounded_walk import files_below

_DEPTH = 2
_PATH = re.compile(rb'^model_checkpoint_path:\s*"((?:[^"\\\n]|\\.)*)"\s*$', re.MULTILINE)
_LONGEST = 100


def newest_checkpoint(folder: str | os.PathLike[str]) -> str | None:
    """The name of the newest checkpoint below `folder`; None without any."""
    newest: tuple[float, str] | None = None
    for entry in files_below(os.fspath(folder), _DEPTH):
        found = _dated_name(entry.path) if entry.name == "checkpoint" else None
        if found is not None:
            newest = found if newest is None else max(newest, found)
    return newest[1] if newest else None


def _dated_name(path: str) -> tuple[float, str] | None:
    try:
        # A program may have put anything under that name, also a pipe that nobody writes to.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            written = os.fstat(file.fileno()).st_mtime
            named = _PATH.search(file.read(64 << 10))
    except OSError:
        return None
    name = named.group(1).rpartition(b"/")[2].decode("utf-8", "replace") if named else ""
    return (written, name[:_LONGEST]) if name else None
