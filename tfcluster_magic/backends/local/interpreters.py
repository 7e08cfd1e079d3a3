"""Whether a Python can run tasks: it is there, it starts, and it finds TensorFlow.

Promises an answer that is at most `GOOD_FOR` seconds old, and that TensorFlow is not imported for
it. Owns the short memory that lets a form ask while a person types.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable

from ...errors import Problem
from ...i18n import _
from .tasks import scrub

GOOD_FOR, BAD_FOR = 60.0, 5.0
"""Seconds in which it is not asked again; a person who installs TensorFlow does not wait long."""
_PATIENCE = 10.0
_NONE = 3
_QUESTION = (
    "import importlib.util, sys; "
    f"sys.exit(0 if importlib.util.find_spec('tensorflow') else {_NONE})"
)
_known: dict[tuple[str, float], tuple[float, bool, str | None]] = {}


def obstacle(path: str | None, wants_tensorflow: bool) -> Problem | None:
    """What stands against tasks that run with this Python; None for the one that launches."""
    if path is None or path == sys.executable:
        if not wants_tensorflow or importlib.util.find_spec("tensorflow") is not None:
            return None
        return Problem("tensorflow", sys.executable, _without_tensorflow(sys.executable))
    if not os.path.isfile(path):
        allowed = _("there is no such file: name a Python by its path")
        return Problem("--python", path, allowed)
    if not os.access(path, os.X_OK):
        return Problem("--python", path, _("it is not executable: name a Python by its path"))
    has_tensorflow, trouble = _ask(path)
    if trouble is not None:
        allowed = _("it does not start as a Python: {trouble}").format(trouble=trouble)
        return Problem("--python", path, allowed)
    if wants_tensorflow and not has_tensorflow:
        return Problem("--python", path, _without_tensorflow(path))
    return None


def _without_tensorflow(path: str) -> str:
    return _(
        "this Python has no TensorFlow, and the tasks run with it: "
        "install it with `{python} -m pip install tensorflow-cpu`"
    ).format(python=path)


def _ask(path: str, clock: Callable[[], float] = time.monotonic) -> tuple[bool, str | None]:
    """Whether it has TensorFlow, and why it does not start."""
    key = (path, os.stat(path).st_mtime)
    found = _known.get(key)
    if found is not None and clock() < found[0]:
        return found[1:]
    has, trouble = _run(path)
    _known[key] = (clock() + (GOOD_FOR if has else BAD_FOR), has, trouble)
    return has, trouble


def _run(path: str) -> tuple[bool, str | None]:
    try:
        done = subprocess.run(
            [path, "-c", _QUESTION],
            env=scrub(os.environ),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, _("it said nothing for {seconds:g} s").format(seconds=_PATIENCE)
    except OSError as error:
        return False, error.strerror or str(error)
    if done.returncode in (0, _NONE):
        return done.returncode == 0, None
    last = done.stderr.strip().splitlines()[-1:]
    return False, last[0] if last else f"exit {done.returncode}"
