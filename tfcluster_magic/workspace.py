"""The workspace: where snapshots that are too large for a record lie, until a launch is accepted.

Promises that a launch that is refused leaves no snapshot behind, and that one that was there before
stays. Owns nothing else of the folder; `program` knows how a snapshot is stored.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import TFClusterError
from .models import Program
from .paths import home_dir


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
            f"no temporary folder can be made: {error.strerror}; free space, or set TMPDIR"
        ) from None
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def kept(program: Program | None, taken_in: Path) -> Iterator[None]:
    """Keep the snapshot in the user's workspace, unless what is done inside fails.

    Raises:
        TFClusterError: the workspace cannot be written.
    """
    if program is None or program.files is not None:
        yield
        return
    from .program import store

    home = home_dir()
    final = store.stored_folder(home, program.sha256)
    was_there = final.exists()
    store.store(store.load(program, taken_in), program.sha256, home, source=program.source)
    try:
        yield
    except BaseException:
        if not was_there:
            shutil.rmtree(final, ignore_errors=True)
        raise
