"""The facts for the checks of a launch on this machine (`launch_checks.local`), gathered once.

Gathering the facts creates no file and no folder, and does not import TensorFlow to find out
whether a Python has it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...i18n import _
from ...launch_checks.local import LocalFacts, TaskPython, WrittenFolder, emptied
from ...paths import home_dir
from ...spec import Spec, TFCluster
from ...spec.task_file import guard_path
from . import capacity, quota
from .hours_file import HoursFile
from .run_store import RunFolder
from .task_processes import scrubbed

# -- the Python of the tasks -----------------------------------------------------------------------


def find_python(path: str | None) -> TaskPython:
    """Return the Python at `path`; without a path, the current one."""
    from ...program.interpreters import find_modules  # no other command needs it

    if path is None or path == sys.executable:
        found = importlib.util.find_spec("tensorflow") is not None
        return TaskPython(sys.executable, has_tensorflow=found)
    if not os.path.isfile(path):
        allowed = _("there is no such file: name a Python by its path")
        return TaskPython(path, named=True, trouble=allowed)
    if not os.access(path, os.X_OK):
        allowed = _("it is not executable: name a Python by its path")
        return TaskPython(path, named=True, trouble=allowed)
    modules = find_modules(path, ["tensorflow"], scrubbed(os.environ))
    if modules.trouble:
        allowed = _("it is not a working Python: {trouble}").format(trouble=modules.trouble)
        return TaskPython(path, named=True, trouble=allowed)
    return TaskPython(path, named=True, has_tensorflow="tensorflow" in modules.found)


# -- all facts of a launch -------------------------------------------------------------------------

NEEDED_DISK = 1 << 20


def gather_facts(
    spec: Spec,
    runs: Sequence[tuple[RunFolder, TFCluster]],
    hours: HoursFile,
    folders: Mapping[str, Path],
    state_dir: Path,
    resume_from: Path | None,
) -> LocalFacts:
    """Return the facts for the checks of this launch.

    Args:
        spec: the spec to launch.
        runs: all runs that have a record.
        hours: the ledger of hours.
        folders: the user's folders, by the names in `storage.FOLDER_NAMES`.
        state_dir: the folder of the records.
        resume_from: the folder with the old checkpoints.

    Raises:
        TFClusterError: the hub's limits cannot be read.
    """
    log_dir = folders["log"]
    facts = capacity.room_facts(spec, runs, hours, time.time())
    if spec.after:
        facts = emptied(facts)  # the run starts later, when other resources may be free
    return LocalFacts(
        **vars(facts),
        volumes=quota.bounded_volumes(folders, state_dir, facts.limits),
        python=find_python(spec.interpreter),
        guarded=sys.platform != "linux" or guard_path() is not None,
        log_dir=WrittenFolder(log_dir, why_not_writable(log_dir) or ""),
        state_dir=WrittenFolder(state_dir, why_not_writable(state_dir) or ""),
        lost_output=resume_from if resume_from and not resume_from.is_dir() else None,
        lost_program=_lost_program(spec),
        warnings=[*host_warnings(log_dir), *_resume_warnings(resume_from)],
    )


def _resume_warnings(folder: Path | None) -> list[str]:
    """Return a warning if the run that is to be resumed has left no checkpoints in `folder`."""
    if folder is None or not folder.is_dir() or _has_checkpoints(folder):
        return []
    text = _(
        "{folder} has no checkpoint, so training starts from the beginning. Keras' "
        "BackupAndRestore deletes its backup when training succeeds: save with ModelCheckpoint, too"
    )
    return [text.format(folder=folder)]


def _has_checkpoints(folder: Path) -> bool:
    """Return whether `folder` has a file other than logs, event files and files of TFCluster."""
    for _folder, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".tfcluster")]
        if any(
            not name.startswith(".") and ".tfevents." not in name
            for name in files
            if not name.endswith(".log")
        ):
            return True
    return False


def _lost_program(spec: Spec) -> Path | None:
    """Return the path of a program that the spec names by its path and that does not exist. If the
    run waits for other runs, return None, because one of them may still write the program.
    """
    if spec.program is None or not spec.program.path or spec.after:
        return None
    place = home_dir() / spec.program.path
    return None if place.exists() else place


def host_warnings(log_dir: Path) -> list[str]:
    """Return the problems of this machine that do not prevent a launch."""
    found = []
    if sys.platform != "linux":
        found.append(
            _("TensorFlow listens on every network interface: this platform has no loopback guard")
        )
    with contextlib.suppress(OSError):
        if shutil.disk_usage(_nearest_existing(log_dir)).free < NEEDED_DISK:
            found.append(
                _(
                    "the disk of the log folder {log_dir} is full: "
                    "logs and checkpoints will be lost"
                ).format(log_dir=log_dir)
            )
    return found


def why_not_writable(folder: Path) -> str | None:
    """Return the reason why files cannot be written to `folder`; None if they can. The folder need
    not exist yet.
    """
    there = _nearest_existing(folder)
    if not there.is_dir():
        return _("{there} is not a folder").format(there=there)
    if not os.access(there, os.W_OK | os.X_OK):
        return _("user {user} may not write in {there}").format(user=_user_name(), there=there)
    with contextlib.suppress(OSError):
        if os.statvfs(there).f_flag & os.ST_RDONLY:
            return _("{there} is on a read-only file system").format(there=there)
    return None


def _nearest_existing(folder: Path) -> Path:
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    return folder


def _user_name() -> str:
    return os.environ.get("USER") or str(os.getuid())
