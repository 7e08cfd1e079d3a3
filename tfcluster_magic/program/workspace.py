"""The workspace: where snapshots that are too large for a record lie, until a launch is accepted.

Promises that a launch that is refused leaves no snapshot behind, and that one that was there before
stays. Owns nothing else of the folder; `program` knows how a snapshot is stored.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import TFClusterError
from ..i18n import _
from ..paths import home_dir
from ..spec import Program


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for the snapshot of a launch that is not accepted yet; removed at the end.

    Raises:
        TFClusterError: no temporary folder can be made.
    """
    import tempfile

    try:
        folder = tempfile.mkdtemp(prefix="tfcluster-")
    except OSError as error:
        raise TFClusterError(
            _("no temporary folder can be made: {why}; free space, or set TMPDIR").format(
                why=error.strerror
            )
        ) from None
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def kept(
    program: Program | None, taken_in: Path, workspace: Callable[[], Path] = home_dir
) -> Iterator[None]:
    """Keep the snapshot in the user's workspace, unless what is done inside fails.

    One that another launch has taken up meanwhile, or may be about to, stays in any case.

    Raises:
        TFClusterError: the workspace cannot be written, or (of `workspace`) there is none.
    """
    if program is None or program.files is not None:
        yield
        return
    from . import snapshots

    home = workspace()
    final = snapshots.stored_folder(home, program.sha256)
    with _among_launches(final.parent) as we_are_alone:
        was_there = final.exists()
        snapshots.store(
            snapshots.load(program, taken_in), program.sha256, home, source=program.source
        )
        stored_at = final.stat().st_mtime_ns
        try:
            yield
        except BaseException:
            if not was_there and we_are_alone() and final.stat().st_mtime_ns == stored_at:
                shutil.rmtree(final, ignore_errors=True)
            raise
        with suppress(OSError):
            os.utime(final)  # for a launch that stored it and is refused: it is in use


@contextmanager
def _among_launches(folder: Path) -> Iterator[Callable[[], bool]]:
    """Be seen by other launches that use `folder`; gives whether there is none of them now."""
    fd = -1
    with suppress(OSError):  # whoever writes there will say why it cannot
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_SH)

    def alone() -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (OSError, ValueError):  # another launch, or a volume without locks
            return False
        return True

    try:
        yield alone
    finally:
        if fd >= 0:
            os.close(fd)
