"""The files below a folder that somebody else fills, with a bound on the work.

Promises breadth first order, so that the bound cuts off what lies deepest; never follows a link to
a folder, and passes over what cannot be read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

ENTRIES = 4000
"""Directory entries looked at in one walk: a run of 600 tasks with six files each."""


def files_below(
    folder: str, depth: int, enter: Callable[[str], bool] | None = None
) -> Iterator[os.DirEntry[str]]:
    """Files in `folder` and `depth` levels below it, in folders whose name `enter` accepts."""
    level, left = [folder], ENTRIES
    for _level in range(depth + 1):
        below: list[str] = []
        for parent in level:
            entries = _entries(parent, left)
            left -= len(entries)
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    yield entry
                elif enter is None or enter(entry.name):
                    below.append(entry.path)
        level = below


def _entries(folder: str, at_most: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry, _number in zip(entries, range(at_most), strict=False)]
    except OSError:
        return []
