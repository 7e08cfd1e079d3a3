"""Brings the checkpoints of an old run into a new run's folder, once, by one task for all.

Event files and logs stay behind, and the index that TensorFlow calls "checkpoint" is made to name
the copies. A marker file says that the copy is complete. Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import os
import time

from task_config import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MARKER = ".resumed-from"
PARTIAL = ".partial"


def copy_checkpoints(old: str, new: str, say: Callable[[str], None]) -> None:
    """Copy everything but logs and event files. Raises ConfigError."""
    marker = os.path.join(new, MARKER)
    if os.path.exists(marker):
        # An earlier attempt has copied, and may have trained on since.
        return
    if not os.path.isdir(old):
        raise ConfigError(
            f"cannot resume: the old run's folder {old} does not exist; launch without resuming"
        )
    try:
        count = _copy(old, new)
        with open(marker + PARTIAL, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(old + "\n")
        os.replace(marker + PARTIAL, marker)
    except OSError as error:
        raise ConfigError(f"cannot resume: copying {old} to {new} failed: {error}") from None
    say(f"resumes from {old}, {count} files" if count else f"nothing to resume from in {old}")


def _copy(old: str, new: str) -> int:
    import shutil

    def fail(error: OSError) -> None:
        raise error

    count = 0
    for folder, folders, files in os.walk(old, onerror=fail):
        target = os.path.normpath(os.path.join(new, os.path.relpath(folder, old)))
        os.makedirs(target, exist_ok=True)
        folders.sort()
        for name in sorted(files):
            stays = name.endswith((".log", PARTIAL)) or ".tfevents." in name or name == MARKER
            if stays or not os.path.isfile(os.path.join(folder, name)):
                continue
            partial = os.path.join(target, name + PARTIAL)
            shutil.copy2(os.path.join(folder, name), partial)
            if name == "checkpoint":
                _name_copies(partial, folder)
            os.replace(partial, os.path.join(target, name))
            count += 1
    return count


def _name_copies(index: str, folder: str) -> None:
    # TensorFlow writes absolute paths into the index; kept as they are, the new run would restore
    # from the old folder, and fail once that is deleted.
    with open(index, encoding="utf-8", errors="surrogateescape") as file:
        lines = file.read().split("\n")
    for number, line in enumerate(lines):
        key, quote, path = line.rstrip('"').partition(': "')
        base = os.path.basename(path)
        if quote and os.path.isabs(path) and os.path.exists(os.path.join(folder, f"{base}.index")):
            lines[number] = f'{key}: "{base}"'
    with open(index, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write("\n".join(lines))


def wait_for_copy(new: str, patience: float) -> None:
    """Return once another task has copied. Raises ConfigError after `patience` seconds."""
    until, pause = time.monotonic() + patience, 0.05
    while not os.path.exists(os.path.join(new, MARKER)):
        if time.monotonic() > until:
            raise ConfigError(f"cannot resume: no checkpoints were copied within {patience:g} s")
        # The folder may be on a network volume, where other machines' changes raise no event.
        time.sleep(pause)
        pause = min(1.0, pause * 1.5)
