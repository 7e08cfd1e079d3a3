"""A run's folder as its supervisor sees it: whether it is still the run's, and undamaged.

The check is cheap enough for every turn of the supervisor, and treats a volume that fails for the
moment as one that still has the run. It writes damaged files again, because other programs read
them while the run goes on.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ... import state_files
from . import repair
from .store import RunFolder


class Presence:
    """The folder of one run. `lock_fd` holds the run's lock."""

    def __init__(self, folder: RunFolder, uid: str, lock_fd: int) -> None:
        """Raises OSError, Unreadable."""
        self._folder, self._uid, self._lock_fd = folder, uid, lock_fd
        # Kept open, so that no later folder gets its inode number.
        self._fd = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._contents: dict[Path, tuple[state_files.Stamp | None, bytes]] = {}
        self.remember(folder.record_file, state_files.content(folder.record_file))

    @property
    def is_lost(self) -> bool:
        """Return whether the folder or the record is gone, or belongs to another run of the same
        number.
        """
        try:
            here = os.stat(self._folder.path)
            os.lstat(self._folder.record_file)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        if not os.path.samestat(here, os.fstat(self._fd)):
            return True
        record = self._folder.record_file
        if state_files.stamp(record) == self._contents[record][0]:
            return False  # a record is written once
        with contextlib.suppress(FileNotFoundError, state_files.Unreadable):
            return self._folder.load_record().metadata.uid != self._uid
        return False

    def remember(self, file: Path, content: bytes) -> None:
        """Remember what was written to one of the files, to write it again if it is damaged."""
        self._contents[file] = state_files.stamp(file), content

    def restore(self) -> None:
        """Write damaged files again, and retake the lock if its file was replaced."""
        if self.is_lost:
            return
        for file, (stamp, content) in self._contents.items():
            if state_files.stamp(file) != stamp:
                with contextlib.suppress(OSError):  # the disk fails: try again next time
                    state_files.write(file, content, spares=self._folder.spares)
                    self._contents[file] = state_files.stamp(file), content
        with contextlib.suppress(OSError):
            self._folder.tasks.mkdir(mode=0o700, exist_ok=True)
        self._lock_again()

    def _lock_again(self) -> None:
        try:
            if os.path.samestat(os.lstat(self._folder.lock_file), os.fstat(self._lock_fd)):
                return
        except FileNotFoundError:
            pass
        except OSError:
            return
        fresh = self._folder.lock()
        if fresh is not None:  # otherwise a reader holds it for a moment
            repair.note_boot(fresh)
            os.close(self._lock_fd)
            self._lock_fd = fresh
