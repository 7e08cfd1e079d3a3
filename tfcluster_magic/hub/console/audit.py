"""The audit log: who changed what, who looked into whose log, and what became of it.

Promises that a change is on the disk before it is made: a line `asked`, and with the same `id` a
line with what came of it. Where no line can be written, nothing is changed and nothing is shown.
The file is only ever appended to, by one process, each line whole: an end that was cut off by a
full disk gets a line of its own. It owns the file and never rewrites or removes it.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from ...backends.log_files import backwards
from ...errors import BackendUnavailable
from ...i18n import _
from ...models import Model

ASKED = "asked"
FILE = "audit.jsonl"
_BLOCK = 64 * 1024
_LOOKAHEAD = 1000
"""A page is longer by so many at most, for not to begin the next with what this one has done."""


class Entry(Model, frozen=True, omit_defaults=False):
    """One line. `source` is the address that the request came from."""

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
    """Some entries, newest first, and where the next page begins; None at the end."""

    items: tuple[Entry, ...]
    next: int | None = None


_DECODER = msgspec.json.Decoder(Entry)


class AuditLog:
    """The file; safe from several threads of one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def asked(self, entries: Sequence[Entry]) -> None:
        """Note what is going to be done; raises BackendUnavailable when that cannot be noted."""
        lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        try:
            with self._lock:
                self._append(lines)
        except OSError as error:
            text = _("the audit log cannot be written ({why}), so nothing was done: see {path}")
            raise BackendUnavailable(text.format(why=error.strerror, path=self.path)) from None

    def ended(self, entries: Sequence[Entry], results: Sequence[str]) -> None:
        """Note what came of it; raises BackendUnavailable when that cannot be noted."""
        pairs = zip(entries, results, strict=True)
        now = time.time()
        told = [msgspec.structs.replace(entry, at=now, result=text) for entry, text in pairs]
        try:
            self.asked(told)
        except BackendUnavailable as error:
            text = _("it was done, and that it was asked for is in the audit log; but {why}")
            raise BackendUnavailable(text.format(why=error)) from None

    def _append(self, lines: bytes) -> None:
        fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                lines = b"\n" + lines
            written = os.write(fd, lines)
            if written < len(lines):  # the disk is full; asking again says so
                os.write(fd, lines[written:])
            os.fsync(fd)
        finally:
            os.close(fd)

    def page(self, limit: int = 100, before: int | None = None) -> Entries:
        """The newest entries that begin before this place in the file, each change once."""
        items: list[Entry] = []
        ended: set[str] = set()
        try:
            with open(self.path, "rb") as file:
                end = file.seek(0, os.SEEK_END) if before is None else before
                for at, line in _lines(file, end):
                    try:
                        entry = _DECODER.decode(line)
                    except msgspec.DecodeError:
                        continue
                    if entry.result == ASKED and entry.id in ended:
                        ended.discard(entry.id)
                        continue
                    if len(items) >= limit and (not ended or len(items) >= limit + _LOOKAHEAD):
                        return Entries(items=tuple(items), next=at + len(line) + 1)
                    items.append(entry)
                    if entry.result != ASKED:
                        ended.add(entry.id)
        except FileNotFoundError:
            pass
        return Entries(items=tuple(items))

    def export(self) -> Iterator[bytes]:
        """The file as it is now, in pieces."""
        try:
            with open(self.path, "rb") as file:
                while block := file.read(_BLOCK):
                    yield block
        except FileNotFoundError:
            return


def entry(who: str, what: str, owner: str, target: str, reason: str, source: str) -> Entry:
    """A new entry, not done yet."""
    return Entry(
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
    """Whole lines before `end`, the last one first, with where each begins."""
    yield from ((at, line) for at, line in backwards(file, end) if line)
    file.seek(0)
    if end > 0 and (first := file.readline().rstrip(b"\n")):
        yield 0, first
