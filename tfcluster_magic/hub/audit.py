"""The audit log: who changed what, who read which user's log, and the results.

Each change has two lines with the same `id`: `asked` is written before the change, and its result
after it. If the first line cannot be written, nothing is changed or shown. The console appends to
the file. If the hub runs on one machine, shell commands also append to it. Each append is a single
write. If a full disk cut off the last line, the next write begins on a new line. The console
renames a large file to `audit-1.jsonl`, `audit-2.jsonl` and so on, and begins a new one. `page` and
`export` read all of these files. This module never rewrites or removes a file; you may move the
oldest ones away.
"""

from __future__ import annotations

import os
import re
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import msgspec

from .. import state_files
from ..backends.log_files import lines_backwards
from ..errors import BackendUnavailable
from ..i18n import _
from ..spec import Model, conversion

ASKED = "asked"
FILE = "audit.jsonl"
LARGEST = 16 * 1024 * 1024
"""Size in bytes at which the current file is renamed. About 40,000 changes fit in it."""
_BLOCK = 64 * 1024
_LOOKAHEAD = 1000
"""Maximum number of entries by which a page may be longer than its limit. A page continues until it
has read the `asked` lines of all its results. Otherwise the next page would begin with such a line
and show it as an unfinished change.
"""


class AuditEntry(Model, frozen=True, omit_defaults=False):
    """One line of the log. `source` is the address of the request, or `shell` for a command of the
    hub's owner on this machine.
    """

    at: float
    id: str
    who: str
    what: str
    owner: str
    target: str
    reason: str
    source: str
    result: str


class Entries(Model, frozen=True):
    """A page of entries, newest first. `next` is the argument `before` that returns the next page;
    None if this page is the last.
    """

    items: tuple[AuditEntry, ...]
    next: int | None = None


_DECODER = conversion.decoder(AuditEntry)


class AuditLog:
    """The audit log: its current file and the numbered older files. Several threads of one process
    may use it at once.
    """

    def __init__(self, path: Path, largest: int = LARGEST) -> None:
        self.path, self._largest = path, largest
        self._lock = threading.Lock()

    def asked(self, entries: Sequence[AuditEntry]) -> None:
        """Log requests before they are carried out; raise BackendUnavailable if that fails."""
        try:
            self._write(entries)
        except OSError as error:
            text = _("nothing was done, because the audit log {path} cannot be written: {why}")
            raise BackendUnavailable(text.format(why=error.strerror, path=self.path)) from None

    def ended(self, entries: Sequence[AuditEntry], results: Sequence[str]) -> None:
        """Log the results of requests; raise BackendUnavailable if that fails."""
        pairs = zip(entries, results, strict=True)
        now = time.time()
        told = [msgspec.structs.replace(entry, at=now, result=text) for entry, text in pairs]
        try:
            self._write(told)
        except OSError as error:
            text = _(
                "the action was done, but its result is not in the audit log, because {path} "
                "cannot be written: {why}"
            )
            raise BackendUnavailable(text.format(why=error.strerror, path=self.path)) from None

    def _write(self, entries: Sequence[AuditEntry]) -> None:
        lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        with self._lock:
            self._begin_anew()
            self._append(lines)

    def _append(self, lines: bytes) -> None:
        how = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(self.path, how, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                lines = b"\n" + lines
            written = os.write(fd, lines)
            if written < len(lines):  # on a full disk, the second write raises the error
                os.write(fd, lines[written:])
            os.fsync(fd)
        finally:
            os.close(fd)

    def _begin_anew(self) -> None:
        """Rename the current file to the next number if it is large. Raises OSError."""
        try:
            if self.path.stat().st_size < self._largest:
                return
        except FileNotFoundError:
            return
        number = 1 + max(self._numbered(), default=0)
        self.path.rename(self._file(number))
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _numbered(self) -> list[int]:
        """Return the numbers of the older files, oldest first."""
        form = re.compile(rf"{re.escape(self.path.stem)}-(\d+){re.escape(self.path.suffix)}")
        found = (form.fullmatch(name) for name in os.listdir(self.path.parent))
        return sorted(int(each[1]) for each in found if each)

    def _file(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.stem}-{number}{self.path.suffix}")

    def _opened(self, stack: ExitStack) -> list[BinaryIO]:
        """Open all files of the log, oldest first; `stack` closes them."""
        with self._lock:  # no file may be renamed until all files are open
            paths = [self._file(number) for number in self._numbered()]
            paths += [] if state_files.is_gone(self.path) else [self.path]
            return [stack.enter_context(_opened(path)) for path in paths]

    def page(self, limit: int = 100, before: int | None = None) -> Entries:
        """Return the newest entries before the offset `before`, one for each change.

        The offset counts the bytes of all files, so it stays valid when the current file is
        renamed. If `before` is None, the page begins with the newest entry.
        """
        items: list[AuditEntry] = []
        ended: set[str] = set()
        for at, line in self._backwards(before):
            try:
                entry = _DECODER.decode(line)
            except (ValueError, RecursionError):  # invalid JSON, or not UTF-8
                continue
            if entry.result == ASKED and entry.id in ended:
                ended.discard(entry.id)
                continue
            if len(items) >= limit and (not ended or len(items) >= limit + _LOOKAHEAD):
                return Entries(items=tuple(items), next=at + len(line) + 1)
            items.append(entry)
            if entry.result != ASKED:
                ended.add(entry.id)
        return Entries(items=tuple(items))

    def _backwards(self, before: int | None) -> Iterator[tuple[int, bytes]]:
        """Yield the offset and the text of each complete line before `before`, newest first."""
        with ExitStack() as stack:
            every = self._opened(stack)
            sizes = [file.seek(0, os.SEEK_END) for file in every]
            begin = sum(sizes)
            for file, size in zip(reversed(every), reversed(sizes), strict=True):
                begin -= size
                end = size if before is None else min(size, before - begin)
                for at, line in _lines(file, end):
                    yield begin + at, line

    def export(self) -> Iterator[bytes]:
        """Yield the content of all files, oldest first, in blocks."""
        with ExitStack() as stack:
            last = b"\n"
            for file in self._opened(stack):
                if not last.endswith(b"\n"):  # a full disk cut the last line off
                    yield b"\n"
                while block := file.read(_BLOCK):
                    yield block
                    last = block


def _opened(path: Path) -> BinaryIO:
    try:
        return os.fdopen(state_files.open_regular(path), "rb")
    except state_files.Unreadable as why:
        text = _("the audit log {file} cannot be read: {why}. Move it away and check its content.")
        raise BackendUnavailable(text.format(file=path, why=why)) from None


def new_entry(who: str, what: str, owner: str, target: str, reason: str, source: str) -> AuditEntry:
    """Return an entry for a change that is about to be made."""
    return AuditEntry(
        at=time.time(),
        id=uuid.uuid4().hex,
        who=who,
        what=what,
        owner=owner,
        target=target,
        reason=reason,
        source=source,
        result=ASKED,
    )


def _lines(file: BinaryIO, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the text of each complete line before `end`, the last line first."""
    yield from ((at, line) for at, line in lines_backwards(file, end) if line)
    file.seek(0)
    if end > 0 and (first := file.readline().rstrip(b"\n")):
        yield 0, first
