"""Archives of users' data in one folder, each with its checksum in a file beside it.

An archive is finished only after it has been read back and every file in it has matched its
manifest. No data is deleted before that. A failed archive leaves no file that looks finished. When
a console starts, it removes the unfinished archives of a console that was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import os
import tarfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import quote

import msgspec

from ... import state_files
from ...errors import BackendUnavailable, Conflict, NotFound, TFClusterError
from ...i18n import _
from ...paths import private
from ...spec import Model
from .packer import MANIFEST

FOLDER = "archives"
SUFFIX = ".tar.gz"
_BLOCK = 1024 * 1024

Pack = Callable[[str, int, Callable[[str], None]], Awaitable[None]]


class Archive(Model, frozen=True, omit_defaults=False):
    """One archive.

    `state` is `packing`, `done` or `failed`. `missed` is the number of files that could not be
    packed. `detail` says what packing waits for, why packing failed, or what failed after it. While
    `state` is `packing`, `size` is the number of bytes written so far.
    """

    file: str
    user: str
    at: float
    state: str
    step: str = ""
    detail: str = ""
    size: int = 0
    files: int = 0
    missed: int = 0
    sha256: str = ""


class Archives:
    """The archives of one hub, in one folder. Make a single instance for a folder; it is not
    thread-safe.
    """

    def __init__(self, folder: Path, pack: Pack) -> None:
        self._folder, self._pack = folder, pack
        self._jobs: dict[str, Archive] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._tidy()

    def _tidy(self) -> None:
        """Remove the unfinished archives of a killed console."""
        with contextlib.suppress(OSError):
            for part in self._folder.glob(f".*{SUFFIX}"):
                part.unlink()
            for note in self._folder.glob(f"*{SUFFIX}.*"):
                if not note.with_suffix("").exists():
                    note.unlink()

    def list(self) -> list[Archive]:
        """Return all archives, newest first. Failed ones are listed until the console restarts."""
        found = {}
        for file in self._folder.glob(f"*{SUFFIX}.json"):
            with contextlib.suppress(OSError, ValueError, state_files.Unreadable):
                one = state_files.load(file, Archive)
                if (self._folder / one.file).exists():
                    found[one.file] = one
        for one in self._jobs.values():
            if one.state == "packing":
                found[one.file] = self._so_far(one)
            elif one.state == "failed":
                found[one.file] = one
        return sorted(found.values(), key=lambda one: one.at, reverse=True)

    def _so_far(self, one: Archive) -> Archive:
        with contextlib.suppress(OSError):
            size = (self._folder / f".{one.file}").stat().st_size
            return msgspec.structs.replace(one, size=size)
        return one

    def path(self, file: str) -> Path:
        """Return the path of a finished archive. Raises NotFound."""
        if not any(one.file == file and one.state == "done" for one in self.list()):
            raise NotFound(_("there is no archive {file}").format(file=file))
        return self._folder / file

    def remove(self, file: str) -> None:
        """Delete a finished archive and its checksum. Raises NotFound or TFClusterError."""
        path = self.path(file)
        try:
            path.unlink()
            for more in (".json", ".sha256"):
                path.with_name(path.name + more).unlink(missing_ok=True)
        except OSError as error:
            raise TFClusterError(str(error)) from None
        self._jobs.pop(file, None)

    def begin(
        self,
        user: str,
        before: Callable[[], Awaitable[None]],
        after: Callable[[str], Awaitable[None]],
    ) -> Archive:
        """Begin an archive of a user's data. Raises Conflict if one is already being made.

        `before` stops the user's servers and clusters. `after` is called at the end with the
        problem, or with an empty text if there was no problem.
        """
        if any(one.user == user and one.state == "packing" for one in self._jobs.values()):
            raise Conflict(_("the data of {user} is already being packed").format(user=user))
        now = time.time()
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        made = Archive(file=f"{quote(user, safe='')}-{stamp}{SUFFIX}", user=user, at=now, state="")
        made = self._note(made, state="packing", step="stop")
        task = asyncio.ensure_future(self._work(made, before, after))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return made

    def _note(self, one: Archive, **words: object) -> Archive:
        found = msgspec.structs.replace(one, **words)
        self._jobs[one.file] = found
        return found

    async def _work(
        self,
        one: Archive,
        before: Callable[[], Awaitable[None]],
        after: Callable[[str], Awaitable[None]],
    ) -> None:
        detail, state = "", "failed"
        try:
            await before()
            one = self._note(one, step="pack")
            one, state = await self._make(one), "done"
        except OSError as error:
            detail = _told(error)
        except TFClusterError as error:
            detail = str(error)
        except Exception as error:  # noqa: BLE001 - a waiting page must get a result
            detail = repr(error)
        try:
            await after(detail)
        except TFClusterError as error:
            detail = detail or str(error)
        one = msgspec.structs.replace(one, state=state, detail=detail, step="")
        if state == "done" and detail:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self._describe, one)
        self._note(one)

    async def _make(self, one: Archive) -> Archive:
        folder = private(self._folder)
        part, whole = folder / f".{one.file}", folder / one.file
        fd = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)

        def tell(what: str) -> None:
            if what != self._jobs[one.file].detail:
                self._note(one, detail=what)

        try:
            try:
                await self._pack(one.user, fd, tell)
                await asyncio.to_thread(os.fsync, fd)
            finally:
                os.close(fd)
            self._note(one, step="verify")
            found = await asyncio.to_thread(verified, part, one)
            found = msgspec.structs.replace(found, state="done", step="")
            text = f"{found.sha256}  {one.file}\n".encode()
            sums = folder / f"{one.file}.sha256"
            await asyncio.to_thread(state_files.write, sums, text, durable=True)
            await asyncio.to_thread(self._describe, found)
            part.rename(whole)  # from now on, `list` reports it as finished
        except BaseException:
            for left in (part, *(folder / f"{one.file}{more}" for more in (".json", ".sha256"))):
                left.unlink(missing_ok=True)
            raise
        return found

    def _describe(self, one: Archive) -> None:
        text = msgspec.json.format(msgspec.json.encode(one))
        state_files.write(self._folder / f"{one.file}.json", text, durable=True)


def verified(path: Path, one: Archive) -> Archive:
    """Read the file of an archive back; return `one` with its size, counts and checksum. Raises
    BackendUnavailable if the file is damaged or does not match its manifest.
    """
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for block in _blocks(file):
                digest.update(block)
        seen: dict[str, str] = {}
        told = None
        with tarfile.open(path, "r|gz") as tar:
            for entry in tar:
                content = tar.extractfile(entry) if entry.isreg() else None
                if content is None:
                    continue
                if entry.name == MANIFEST:
                    told = json.loads(content.read())
                    continue
                sha256 = hashlib.sha256()
                for block in _blocks(cast(BinaryIO, content)):
                    sha256.update(block)
                seen[entry.name] = sha256.hexdigest()
        if told is None or {each["path"]: each["sha256"] for each in told["files"]} != seen:
            raise ValueError(_("its files do not match its manifest"))
    except (tarfile.TarError, OSError, EOFError, ValueError, LookupError, TypeError) as error:
        text = _("the archive of {name} could not be verified and was discarded: {why}")
        raise BackendUnavailable(text.format(name=one.user, why=error)) from None
    return msgspec.structs.replace(
        one,
        size=path.stat().st_size,
        files=len(seen),
        missed=len(told["missed"]),
        sha256=digest.hexdigest(),
    )


def _told(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _(
            "there is no space for the archive: delete other archives, or enlarge their volume"
        )
    return str(error)


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block
