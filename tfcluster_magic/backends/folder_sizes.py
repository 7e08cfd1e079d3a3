"""How much lies in a person's folders, measured by the account that asks.

Promises to come to an end however much lies there: a file system of its own is asked how full it
is, any other folder is walked for a bounded time, and what was cut off is told as such. What was
measured is kept for a moment, in memory and in the state folder, since every command is a process
of its own; of what is nearly full only for a few seconds, for room is made there.
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
from ..quota.storage import OWN, WARN, Part, Volume
from ..spec import Model

SECONDS, ENTRIES = 1.0, 300_000
"""The most that the walks of one measuring take."""
KEPT, KEPT_WHEN_FULL = 60.0, 3.0
PART = 10
"""So many times as long as it took is kept what was measured: a form asks while somebody types."""
LARGEST = 5


class Folder(msgspec.Struct, frozen=True):
    """One that is to be measured; `allowed` in bytes. `runs`: it holds `<cluster>/<n>`."""

    name: str
    path: Path
    allowed: int | None = None
    runs: bool = False


class _Kept(Model, frozen=True):
    at: float = 0.0
    took: float = 0.0
    volumes: tuple[Volume, ...] = ()


_KEPT: dict[str, _Kept] = {}


def measure(
    folders: Sequence[Folder],
    keep_in: Path | None = None,
    *,
    but: Sequence[Folder] = (),
    seconds: float = SECONDS,
) -> list[Volume]:
    """Each of them as full as it is, or was a moment ago; `keep_in` is a folder for a file.

    What lies in another one, or in those of `but`, does not count.
    """
    about = repr([(each.name, str(each.path), each.allowed) for each in folders])
    file = keep_in / "storage.json" if keep_in is not None else None
    kept = _KEPT.get(about) or _read(file, about)
    now = time.time()
    if kept is not None and 0 <= now - kept.at < _fresh(kept):
        return list(kept.volumes)
    begun = time.monotonic()
    walk = _Walk(begun + seconds, {os.path.realpath(f.path) for f in (*folders, *but)})
    found = [_measured(each, walk) for each in folders]
    _KEPT.clear()
    _KEPT[about] = _Kept(at=now, took=time.monotonic() - begun, volumes=tuple(found))
    _write(file, about, _KEPT[about])
    return found


def _fresh(kept: _Kept) -> float:
    full = any(each.share >= WARN for each in kept.volumes)
    return max(KEPT_WHEN_FULL, PART * kept.took) if full else KEPT


def _measured(folder: Folder, walk: _Walk) -> Volume:
    found = Volume(name=folder.name, path=str(folder.path), allowed=folder.allowed)
    replace = msgspec.structs.replace
    try:
        used = _own_file_system(folder)
        has_room = used is not None and used < WARN * (folder.allowed or 0)
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


def _own_file_system(folder: Folder) -> int | None:
    """Bytes taken of the file system that the folder is, where it has one of about its size."""
    room = os.statvfs(folder.path)
    size = room.f_blocks * room.f_frsize
    if folder.allowed is None or not 0 < size <= folder.allowed * OWN:
        return None
    # By what is free: a file system is smaller than its volume, and full all the same.
    return folder.allowed - min(room.f_bavail * room.f_frsize, folder.allowed)


class _Walk:
    """One walk over several folders with one bound; none goes into another of them."""

    def __init__(self, until: float, others: Collection[str]) -> None:
        self.cut = False
        self._until, self._left, self._others = until, ENTRIES, others

    def parts(self, folder: Folder) -> list[Part]:
        """What lies right below it, or its runs, with all that is in each. Raises OSError."""
        found = []
        for entry in list(os.scandir(folder.path)):
            if folder.runs and entry.is_dir(follow_symlinks=False):
                found += [
                    Part(
                        name=f"{entry.name}-{one.name}",
                        used=self._size(one),
                        run=one.name.isdecimal(),
                    )
                    for one in self._entries(entry.path)
                ]
            elif os.path.realpath(entry.path) not in self._others:
                found.append(Part(name=entry.name, used=self._size(entry)))
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


def _read(file: Path | None, about: str) -> _Kept | None:
    known = state_files.read(file, dict[str, _Kept]) if file is not None else None
    return (known or {}).get(about)


def _write(file: Path | None, about: str, kept: _Kept) -> None:
    if file is None or not file.parent.is_dir():
        return
    with contextlib.suppress(OSError):  # a full disk: it is measured again
        state_files.write(file, msgspec.json.encode({about: kept}))
