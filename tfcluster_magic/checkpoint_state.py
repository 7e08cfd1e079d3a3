"""At which step the newest checkpoint of a run was taken, from TensorFlow's `checkpoint` files.

Promises the number in the name of the newest checkpoint (`model.ckpt-278` gives 278; TensorFlow
2's CheckpointManager counts saves there unless the program gives it the step). Reads at most the
first 64 KiB of each `checkpoint` file, two folders deep; opens no checkpoint, and
never raises.
"""

from __future__ import annotations

import os
import re

from .bounded_walk import files_below

_DEPTH = 2
_PATH = re.compile(rb'^model_checkpoint_path:\s*"((?:[^"\\\n]|\\.)*)"\s*$', re.MULTILINE)
_STEP = re.compile(rb"-(\d{1,18})$")


def checkpoint_step(folder: str | os.PathLike[str]) -> int | None:
    """The step of the newest checkpoint below `folder`; None if none names its step."""
    newest: tuple[float, int] | None = None
    for entry in files_below(os.fspath(folder), _DEPTH):
        found = _dated_step(entry.path) if entry.name == "checkpoint" else None
        if found is not None:
            newest = found if newest is None else max(newest, found)
    return newest[1] if newest else None


def _dated_step(path: str) -> tuple[float, int] | None:
    try:
        with open(path, "rb") as file:
            written = os.fstat(file.fileno()).st_mtime
            named = _PATH.search(file.read(64 << 10))
    except OSError:
        return None
    number = _STEP.search(named.group(1)) if named else None
    return (written, int(number.group(1))) if number else None
