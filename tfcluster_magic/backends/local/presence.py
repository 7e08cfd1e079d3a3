"""Whether a run's folder is still its own: neither removed, nor made anew by a later launch.

Promises an answer that is cheap enough for each look round, and to take a volume that fails for now
for one that has the run still. It only reads.
"""

from __future__ import annotations

import os

from .. import files
from .store import Record, RunFolder


class Presence:
    """The place of one run on the disk, as its supervisor sees it."""

    def __init__(self, folder: RunFolder, uid: str) -> None:
        self._record_file, self._uid = folder.record_file, uid
        self._known: tuple[int, int] | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the record is gone, or that of another run which has the same number by now."""
        try:
            info = os.stat(self._record_file)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        stamp = info.st_mtime_ns, info.st_size
        if stamp != self._known:  # a record is written once
            record = files.read(self._record_file, Record)
            if record is None:
                return False
            if record.metadata.uid != self._uid:
                return True
            self._known = stamp
        return False
