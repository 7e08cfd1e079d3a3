"""A run's folder as its supervisor sees it: whether it is still its own, and whole.

Promises an answer that is cheap enough for each look round, and to take a volume that fails for now
for one that has the run still. What is damaged in the folder is written again, for the supervisor
knows it: other programs read these files while the run goes on.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from .. import files
from . import repair
from .store import RunFolder


class Presence:
    """The place of one run on the disk. `lock_fd` holds the run's lock."""

    def __init__(self, folder: RunFolder, uid: str, lock_fd: int) -> None:
        """Raises OSError, Unreadable."""
        self._folder, self._uid, self._lock_fd = folder, uid, lock_fd
        # Open, so that no later folder gets its number.
        self._place = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._kept: dict[Path, tuple[files.Stamp | None, bytes]] = {}
        self.keep(folder.record_file, files.content(folder.record_file))

    @property
    def is_lost(self) -> bool:
        """Whether folder or record are gone, or those of another run which has the same number."""
        try:
            here = os.stat(self._folder.path)
            os.lstat(self._folder.record_file)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        if not os.path.samestat(here, os.fstat(self._place)):
            return True
        if files.stamp(self._folder.record_file) == self._kept[self._folder.record_file][0]:
            return False  # a record is written once
        with contextlib.suppress(FileNotFoundError, files.Unreadable):
            return self._folder.load_record().metadata.uid != self._uid
        return False

    def keep(self, file: Path, content: bytes) -> None:
        """Take what has been written to one of the files as what it has to be."""
        self._kept[file] = files.stamp(file), content

    def restore(self) -> None:
        """Write what is damaged again, and take the lock again when its file was replaced."""
        if self.is_lost:
            return
        for file, (stamp, content) in self._kept.items():
            if files.stamp(file) != stamp:
                with contextlib.suppress(OSError):  # a disk that fails: the next time
                    files.write(file, content, spares=self._folder.spares)
                    self._kept[file] = files.stamp(file), content
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
        if fresh is not None:  # else a reader holds it for a moment
            repair.note_boot(fresh)
            os.close(self._lock_fd)
            self._lock_fd = fresh
