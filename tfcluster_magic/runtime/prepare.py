"""Preparation of a task, before its program or server starts as a child process.

The output folder is created and claimed for this run, the program is found, names are resolved, and
the checkpoints of a resumed run are copied. The preparation runs in a thread, because a volume or a
name server may hang while the task must still react to SIGTERM. Standard library only, Python 3.8
syntax.
"""

from __future__ import annotations

import _thread
import errno
import os
import select
import time

from name_resolution import wait_for_names
from program_source import find_program
from task_config import ConfigError, TaskConfig
from writes import WRITTEN, EarlierCheckpoints, places_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from process import EventLoop

# Maximum seconds of two waits: for the addresses of host names, and for another task to copy the
# checkpoints.
PATIENCE = 600.0
QUIET_SECONDS = 2.0
# Seconds after which the errors of RECOVERING count as permanent. A volume returns these errors
# while it recovers: GlusterFS, for example, waits 42 s for a silent server.
VOLUME_PATIENCE = 60.0
RECOVERING = {
    errno.EAGAIN,
    errno.EBUSY,
    errno.EEXIST,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EIO,
    errno.ENOENT,
    errno.ENOTCONN,
    errno.ESTALE,
    errno.ETIMEDOUT,
}


class Preparation:
    """The preparation of one task, which runs in a thread. `finished` and `problem` are set in the
    thread of `loop`, which also prints the messages.
    """

    def __init__(self, config: TaskConfig, loop: EventLoop, say: Callable[[str], None]) -> None:
        self.finished = False
        self.problem = ""
        self.problem_message: dict[str, Any] | None = None
        """The problem as a message with a code; None if the problem has no code."""
        self.owns_folder = False
        """Whether the output folder exists and belongs to this run."""
        self.earlier: EarlierCheckpoints | None = None
        """The checkpoints that a program finds when it starts; None if it writes none."""
        self._config = config
        self._loop = loop
        self._say = say
        self._lines: list[str] = []
        self._result: list[str] = []
        self._told, self._tell = os.pipe()
        loop.on_fd(self._told, select.POLLIN, self._heard)
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        problem = ""
        try:
            self._prepare()
        except ConfigError as error:
            problem, self.problem_message = str(error), error.message
        except Exception as error:  # the task must end with a reason, never hang
            problem = f"cannot prepare the task: {error!r}"
        self._result.append(problem)
        os.write(self._tell, b".")

    def _heard(self) -> None:
        os.read(self._told, 512)
        while self._lines:
            self._say(self._lines.pop(0))
        if self._result:
            self._loop.off_fd(self._told)
            self.problem, self.finished = self._result[0], True

    def _later(self, text: str) -> None:
        self._lines.append(text)
        os.write(self._tell, b".")

    def _prepare(self) -> None:
        config = self._config
        patience = float(os.environ.get("TFCLUSTER_PATIENCE") or PATIENCE)
        make_folder(config.output_dir, config.owner, min(VOLUME_PATIENCE, patience), self._later)
        self.owns_folder = True
        if config.program.get("byHand"):
            find_program(config, patience, self._later)
        if config.working_dir and not os.path.isdir(config.working_dir):
            bring_files(config.program["dir"], config.working_dir, config.output_dir, self._later)
        hold_off = config.hold_off(dict(os.environ))
        if hold_off:
            self._later(f"waiting {hold_off:g} s: all workers start again together, or none")
            time.sleep(hold_off)
        needed = [host for host in config.hosts if config.needs(host, dict(os.environ))]
        wait_for_names(config.hosts, needed, patience, self._later)
        if config.resume_from and not config.in_graph:
            if config.copies_checkpoints:
                copy_checkpoints(config.resume_from, config.output_dir, self._later)
            else:
                wait_for_copy(config.output_dir, patience)
        if config.writes_results:
            folders = [config.output_dir, *places_of(config, config.start_dir)]
            self.earlier = EarlierCheckpoints(folders)


def make_folder(folder: str, owner: str, patience: float, say: Callable[[str], None]) -> None:
    """Create the output folder and claim it for the run with uid `owner`; raise ConfigError with
    the reason if this fails.

    A network volume under load may refuse a call that it accepts a moment later. So after a
    temporary error the call is repeated, for at most `patience` seconds.
    """
    started, pause, told = time.monotonic(), 0.1, ""
    while True:
        try:
            os.makedirs(folder, exist_ok=True)
            if owner:
                claim_folder(folder, owner)
            return
        except OSError as error:
            why = f"{folder}: {error.strerror}"
            waited = time.monotonic() - started
            if error.errno not in RECOVERING or waited > patience:
                raise ConfigError(f"cannot make the output folder {why}") from None
            if waited > min(QUIET_SECONDS, patience / 2) and why != told:
                say(f"waiting for the output folder {why}")
                told = why
        time.sleep(pause)
        pause = min(2.0, pause * 1.5)


# ---- the owner of an output folder ----
# The first run that uses an output folder creates a mark in it: a folder named by the run's uid. So
# a run never mixes its files with those of another run with the same number. Such runs exist,
# because a launch that does not see the log volume cannot know that a number is used. The mark is a
# folder, not a file, because the name of a new folder is visible at once on every volume.


OWN_PREFIX = ".tfcluster-"
"""Prefix of the folders that TFCluster itself creates in an output folder."""
OWNER_MARK = OWN_PREFIX + "run-"


def claim_folder(folder: str, uid: str) -> None:
    """Claim the folder for the run `uid`. Raises OSError, or ConfigError if the folder belongs to
    another run.
    """
    own = OWNER_MARK + uid
    # Another task of this run may create the mark at this moment. Every task creates the mark
    # before any other entry, so if the first listing finds a file of this run, the second one finds
    # the mark. The folder is listed because os.path.exists(mark) hides errors of the volume.
    if os.listdir(folder) and own not in os.listdir(folder):
        raise ConfigError(_used_by_another_run(folder))
    os.makedirs(os.path.join(folder, own), exist_ok=True)
    if any(name.startswith(OWNER_MARK) and name != own for name in os.listdir(folder)):
        raise ConfigError(_used_by_another_run(folder))


def _used_by_another_run(folder: str) -> str:
    return (
        f"the output folder {folder} has files of an earlier run of that number, which are left "
        "as they are: launch again for the next number, or with another --name; a notebook of the "
        "cluster sees which numbers are used"
    )


# ---- files next to a program whose original folder does not exist here ----


CODE = (".py", ".sh", ".pyc")


def bring_files(program: str, missing: str, folder: str, say: Callable[[str], None]) -> None:
    """Copy the data files in the folder `program` to `folder` unless they exist there. The program
    starts in `folder`, because its working folder `missing` does not exist here.
    """
    count = 0
    for below, folders, files in os.walk(program, followlinks=True):
        # Leave out folders such as `..data`, to which the files of a ConfigMap are links.
        folders[:] = sorted(each for each in folders if not each.startswith(".."))
        for name in sorted(each for each in files if not each.endswith(CODE)):
            target = os.path.join(folder, os.path.relpath(os.path.join(below, name), program))
            try:
                count += _copy_once(os.path.join(below, name), target)
            except OSError as error:
                say(f"cannot copy {name} to {folder}: {error.strerror}")
    also = f", with copies of {count} files beside it" if count else ""
    say(f"{missing} is not there, so the program starts in {folder}{also}")


def _copy_once(source: str, target: str) -> bool:
    """Copy a file in one step, unless `target` exists; return whether it was copied. Other tasks
    may copy the same file at the same time.
    """
    import shutil

    if os.path.lexists(target):
        return False
    os.makedirs(os.path.dirname(target), exist_ok=True)
    partial = f"{target}.{os.getpid()}{PARTIAL}"
    shutil.copyfile(source, partial)
    os.replace(partial, target)
    return True


# ---- checkpoints of an old run: one task copies them into the new run's folder, once ----
# Event files and logs are not copied. TensorFlow's index file "checkpoint" is changed to name the
# copies. A marker file shows that all files are copied.


COPIED_MARK = ".resumed-from"
PARTIAL = ".partial"


def copy_checkpoints(old: str, new: str, say: Callable[[str], None]) -> None:
    """Copy all files of the folder `old` except logs and event files to the folder `new`. Raises
    ConfigError.
    """
    marker = os.path.join(new, COPIED_MARK)
    if os.path.exists(marker):
        # An earlier attempt has copied the checkpoints, and may have continued the training since.
        return
    if not os.path.isdir(old):
        raise ConfigError(
            f"cannot resume: the old run's folder {old} does not exist; launch without resuming"
        )
    try:
        count = _copy_files(old, new)
        with open(marker + PARTIAL, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(old + "\n")
        os.replace(marker + PARTIAL, marker)
    except OSError as error:
        raise ConfigError(f"cannot resume: copying {old} to {new} failed: {error}") from None
    say(f"resumes from {old}, {count} files" if count else f"nothing to resume from in {old}")


def _copy_files(old: str, new: str) -> int:
    import shutil

    def fail(error: OSError) -> None:
        raise error

    count = 0
    for folder, folders, files in os.walk(old, onerror=fail):
        target = os.path.normpath(os.path.join(new, os.path.relpath(folder, old)))
        os.makedirs(target, exist_ok=True)
        # Our own folders, such as the owner's mark, progress reports and links to folders written
        # elsewhere, belong to the old run.
        own = (OWN_PREFIX, WRITTEN) if folder == old else (OWN_PREFIX,)
        folders[:] = sorted(name for name in folders if not name.startswith(own))
        for name in sorted(files):
            stays = name.endswith((".log", PARTIAL)) or ".tfevents." in name or name == COPIED_MARK
            if stays or not os.path.isfile(os.path.join(folder, name)):
                continue
            partial = os.path.join(target, name + PARTIAL)
            shutil.copy2(os.path.join(folder, name), partial)
            if name == "checkpoint":
                _point_index_to_copies(partial, folder)
            os.replace(partial, os.path.join(target, name))
            count += 1
    return count


def _point_index_to_copies(index: str, folder: str) -> None:
    # TensorFlow writes absolute paths into the index. With these paths, the new run would restore
    # from the old folder, and fail after the old folder is deleted.
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
    """Wait until another task has copied the checkpoints to the folder `new`. Raises ConfigError
    after `patience` seconds.
    """
    until, pause = time.monotonic() + patience, 0.05
    while not os.path.exists(os.path.join(new, COPIED_MARK)):
        if time.monotonic() > until:
            raise ConfigError(f"cannot resume: no checkpoints were copied within {patience:g} s")
        # The folder may be on a network volume, where other machines' changes raise no event.
        time.sleep(pause)
        pause = min(1.0, pause * 1.5)
