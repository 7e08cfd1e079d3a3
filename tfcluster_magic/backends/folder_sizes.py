"""Sizes of a user's folders, measured as that user.

Measuring always ends: if a folder is a file system of its own, its usage is read; any other folder
is walked for a bounded time, and the result says whether the walk was cut off. Results are cached
in memory and in the state folder, since every command is a process of its own. Results of nearly
full folders are cached only for seconds, because their users will soon free space.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from .. import state_files
from ..i18n import _
from ..quota.storage import OWN_VOLUME_FACTOR, WARN_FROM, FolderEntry, FolderUsage
from ..spec import Model

MOST_SECONDS, MOST_ENTRIES = 1.0, 300_000
"""A pair of limits for one measurement: the maximum seconds that it takes, and the maximum number
of files and folders that it reads.
"""
CACHE_SECONDS, CACHE_SECONDS_WHEN_FULL = 60.0, 3.0
CACHE_FACTOR = 10
"""Factor for the time that a result is cached if a folder is nearly full. The time is this factor
times the duration of the measurement, but at least CACHE_SECONDS_WHEN_FULL. A longer measurement is
repeated less often, because the launch form requests results often.
"""
LARGEST = 5


class MeasuredFolder(msgspec.Struct, frozen=True):
    """A folder to measure. `allowed` is its limit in bytes. If `runs` is true, the folder contains
    the output of runs, each run's output in a subfolder `<cluster>/<n>`.
    """

    name: str
    path: Path
    allowed: int | None = None
    runs: bool = False


class _CachedSizes(Model, frozen=True):
    at: float = 0.0
    took: float = 0.0
    volumes: tuple[FolderUsage, ...] = ()


_CACHE: dict[str, _CachedSizes] = {}


def measure(
    folders: Sequence[MeasuredFolder],
    keep_in: Path | None = None,
    *,
    but: Sequence[MeasuredFolder] = (),
    seconds: float = MOST_SECONDS,
) -> list[FolderUsage]:
    """Return the usage of each folder, possibly from the cache; `keep_in` is the folder of the
    cache file. The size of a folder excludes nested folders that are measured themselves or that
    are in `but`.
    """
    about = repr([(each.name, str(each.path), each.allowed) for each in folders])
    file = keep_in / "storage.json" if keep_in is not None else None
    kept = _CACHE.get(about) or _read(file, about)
    now = time.time()
    if kept is not None and 0 <= now - kept.at < _cache_seconds(kept):
        return list(kept.volumes)
    begun = time.monotonic()
    walk = _BoundedWalk(begun + seconds, {os.path.realpath(f.path) for f in (*folders, *but)})
    found = [_measure(each, walk) for each in folders]
    _CACHE.clear()
    _CACHE[about] = _CachedSizes(at=now, took=time.monotonic() - begun, volumes=tuple(found))
    _write(file, about, _CACHE[about])
    return found


def _cache_seconds(kept: _CachedSizes) -> float:
    full = any(each.share >= WARN_FROM for each in kept.volumes)
    return max(CACHE_SECONDS_WHEN_FULL, CACHE_FACTOR * kept.took) if full else CACHE_SECONDS


def _measure(folder: MeasuredFolder, walk: _BoundedWalk) -> FolderUsage:
    found = FolderUsage(name=folder.name, path=str(folder.path), allowed=folder.allowed)
    replace = msgspec.structs.replace
    try:
        used = _used_of_own_file_system(folder)
        has_room = used is not None and used < WARN_FROM * (folder.allowed or 0)
        parts = [] if has_room else walk.parts(folder)
    except FileNotFoundError:
        return replace(found, used=0)
    except OSError as error:
        text = _("not measured: {why}")
        return replace(found, note=text.format(why=error.strerror or error))
    largest = sorted(parts, key=lambda part: -part.used)[:LARGEST]
    return replace(
        found,
        used=sum(part.used for part in parts) if used is None else used,
        at_least=used is None and walk.cut,
        largest=tuple(part for part in largest if part.used),
    )


def _used_of_own_file_system(folder: MeasuredFolder) -> int | None:
    """Return the used bytes of a folder that is a file system of its own. Return None if the folder
    is only a part of a larger file system. That is assumed if the file system is much larger than
    the folder's limit, or if the folder has no limit.
    """
    room = os.statvfs(folder.path)
    size = room.f_blocks * room.f_frsize
    if folder.allowed is None or not 0 < size <= folder.allowed * OWN_VOLUME_FACTOR:
        return None
    # The allowed size minus the free space: a full file system then counts as full, although it is
    # a little smaller than its volume.
    return folder.allowed - min(room.f_bavail * room.f_frsize, folder.allowed)


class _BoundedWalk:
    """One walk over several folders. The limits on time and on the number of entries apply to all
    these folders together. While it walks one of these folders, it skips the others.
    """

    def __init__(self, until: float, others: Collection[str]) -> None:
        self.cut = False
        self._until, self._left, self._others = until, MOST_ENTRIES, others

    def parts(self, folder: MeasuredFolder) -> list[FolderEntry]:
        """Return the entries directly below a folder with their total sizes. If the folder contains
        the output of runs (`folder.runs`), return one entry for each run instead. Raises OSError.
        """
        found = []
        for entry in list(os.scandir(folder.path)):
            if folder.runs and entry.is_dir(follow_symlinks=False):
                found += [
                    FolderEntry(
                        name=f"{entry.name}-{one.name}",
                        used=self._size(one),
                        run=one.name.isdecimal(),
                    )
                    for one in self._entries(entry.path)
                ]
            elif os.path.realpath(entry.path) not in self._others:
                found.append(FolderEntry(name=entry.name, used=self._size(entry)))
        return found

    def _size(self, entry: os.DirEntry[str]) -> int:
        total, below = self._bytes(entry), [entry]
        while below:
            one = below.pop()
            with contextlib.suppress(OSError):
                if not one.is_dir(follow_symlinks=False):
                    continue
                if one is not entry and one.path in self._others:
                    continue
            for each in self._entries(one.path):
                total += self._bytes(each)
                below.append(each)
        return total

    def _entries(self, path: str) -> Iterator[os.DirEntry[str]]:
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                self._left -= 1
                if self._left < 0 or time.monotonic() > self._until:
                    self.cut = True
                    return
                yield entry

    def _bytes(self, entry: os.DirEntry[str]) -> int:
        with contextlib.suppress(OSError):
            return entry.stat(follow_symlinks=False).st_blocks * 512
        return 0


def _read(file: Path | None, about: str) -> _CachedSizes | None:
    known = state_files.read(file, dict[str, _CachedSizes]) if file is not None else None
    return (known or {}).get(about)


def _write(file: Path | None, about: str, kept: _CachedSizes) -> None:
    if file is None or not file.parent.is_dir():
        return
    with contextlib.suppress(OSError):  # the disk is full: measure again next time
        state_files.write(file, msgspec.json.encode({about: kept}))
