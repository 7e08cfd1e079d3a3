"""TensorFlow's event files: the record format, read from the tail with the standard library alone.

Promises the scalars that were written and nothing else: a record counts only when both of its
checksums are right, an unfinished last record waits for its rest, and after damaged bytes reading
goes on at the next whole record. It owns one file's offset; what a tag means is `progress.py`'s
matter. It never imports TensorFlow, never raises for what a file contains, and never keeps a file
open.

Source: TFRecord framing and `Event`, `Summary`, `TensorProto` in TensorFlow's
core/lib/io/record_writer.h, core/util/event.proto, core/framework/{summary,tensor}.proto.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

CHUNK = 256 << 10
"""Bytes read at most in one `read`; of more new bytes only the last so many are looked at."""
CHECKED_BYTES = 64 << 10
"""Bytes checksummed at most in one `read` (about 3 ms), or one record if that is longer."""
RECORDS = 400
"""Records decoded at most in one `read`, the newest ones."""
CANDIDATES = 4096
"""Places tried at most in one `read` when the start of a record has to be found."""

_HEADER = struct.Struct("<QI")
_FRAME = _HEADER.size + 4
# A length is below 2**24: its highest non-zero byte is followed by at least five zero bytes.
_TOP_BYTE = re.compile(rb"[^\0]\0{5}")


class Event(NamedTuple):
    """The scalars of one event: `wall` in seconds since 1970, `step` as the program gave it.

    `checkpoint` marks the event by which TensorFlow 1 notes that it saved a checkpoint.
    """

    wall: float
    step: int
    values: dict[str, float]
    checkpoint: bool = False


class EventFile:
    """One event file and how far it was read. Not safe for several threads at once."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._identity: tuple[int, int] | None = None
        self._offset = 0
        self._aligned = True

    def read(self) -> list[Event]:
        """The events with scalars or a checkpoint appended since the last call, oldest first.

        A first look at a large file gives those in its last 64 KiB, or else in its last `CHUNK`
        bytes; at most the newest `RECORDS` records are decoded. A missing or unreadable file gives
        none. A file that became shorter, or was replaced, is read from its start.
        """
        try:
            # A program may have put anything under that name, also a pipe that nobody writes to.
            how = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(self.path, how), "rb", buffering=0) as file:
                seen = os.fstat(file.fileno())
                if not stat.S_ISREG(seen.st_mode):
                    return []
                identity = (seen.st_dev, seen.st_ino)
                if identity != self._identity or seen.st_size < self._offset:
                    self._identity, self._offset, self._aligned = identity, 0, True
                # a short tail is cheaper to walk, and mostly enough
                for tail in (CHUNK // 4, CHUNK) if seen.st_size - self._offset > CHUNK else (0,):
                    if tail:
                        self._offset, self._aligned = seen.st_size - tail, False
                    file.seek(self._offset)
                    data = file.read(CHUNK)
                    found = _decode_newest(data, self._walk(data))
                    if found:
                        break
        except OSError:
            return []
        return found

    def _walk(self, data: bytes) -> list[tuple[int, int]]:
        """Start and length of each whole record's content; moves the offset behind the last."""
        records: list[tuple[int, int]] = []
        at = 0
        while True:
            if not self._aligned:
                at, self._aligned = _find_header(data, at)
            if not self._aligned or len(data) - at < _HEADER.size:
                break
            length, checksum = _HEADER.unpack_from(data, at)
            if checksum != _length_checksum(length):
                at, self._aligned = at + 1, False
            elif at + _FRAME + length > len(data):
                break
            else:
                records.append((at + _HEADER.size, length))
                at += _FRAME + length
        self._offset += at
        return records


def _find_header(data: bytes, start: int) -> tuple[int, bool]:
    """Where the next header begins at or after `start`, and True; or where to go on, and False."""
    tried = 0
    for match in _TOP_BYTE.finditer(data, start):
        for at in range(match.start(), match.start() - 3, -1):
            if at < start or at + _HEADER.size > len(data):
                continue
            length, checksum = _HEADER.unpack_from(data, at)
            if length < 1 << 24 and checksum == _length_checksum(length):
                return at, True
        tried += 1
        if tried == CANDIDATES:
            return match.end() - 5, False
    return max(start, len(data) - _HEADER.size + 1), False


def _decode_newest(data: bytes, records: list[tuple[int, int]]) -> list[Event]:
    found: list[Event] = []
    checked = 0
    for start, length in reversed(records[-RECORDS:]):
        content = data[start : start + length]
        try:
            event = _event(content)
        except (ValueError, IndexError, struct.error, OverflowError):
            continue  # not a well-formed Event: damaged, or of another format
        if not event.values and not event.checkpoint:
            continue
        checked += length
        if found and checked > CHECKED_BYTES:
            break
        (checksum,) = struct.unpack_from("<I", data, start + length)
        if checksum == masked_crc32c(content):
            found.append(event)
    found.reverse()
    return found


# ---- checksums ----


def _table() -> tuple[int, ...]:
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ (0x82F63B78 if value & 1 else 0) for value in table]
    return tuple(table)


_CRC = _table()


def masked_crc32c(data: bytes) -> int:
    """The masked CRC-32C of TFRecord, about 50 ns for each byte."""
    crc, table = 0xFFFFFFFF, _CRC
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(maxsize=1024)
def _length_checksum(length: int) -> int:
    return masked_crc32c(length.to_bytes(8, "little"))


# ---- protocol buffers ----

_CHECKPOINT = 3  # SessionLog.status


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: varints as int, everything else as bytes."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            number, at = _varint(data, at)
            yield key >> 3, number
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("unknown wire type")
        if at + size > end:
            raise ValueError("field beyond its message")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("varint too long")


def _event(data: bytes) -> Event:
    wall, step, values, checkpoint = 0.0, 0, {}, False
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            (wall,) = struct.unpack("<d", value)
        elif number == 2 and isinstance(value, int):
            step = value - (1 << 64) if value >> 63 else value
        elif number == 5 and isinstance(value, bytes):
            for inner, entry in _fields(value):
                if inner == 1 and isinstance(entry, bytes):
                    tag, scalar = _summary_value(entry)
                    if scalar is not None:
                        values[tag] = scalar
        elif number == 7 and isinstance(value, bytes):
            checkpoint = (1, _CHECKPOINT) in _fields(value)
    return Event(wall, step, values, checkpoint)


def _summary_value(data: bytes) -> tuple[str, float | None]:
    tag, scalar = "", None
    for number, value in _fields(data):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            tag = value.decode()
        elif number == 2:
            (scalar,) = struct.unpack("<f", value)
        elif number == 8:
            scalar = _tensor_scalar(value)
    return tag, scalar


# dtype -> its struct format, and the field that holds it when `tensor_content` (4) does not
_DTYPES: dict[int | bytes | None, tuple[str, int]] = {1: ("<f", 5), 2: ("<d", 6)}


def _tensor_scalar(data: bytes) -> float | None:
    """The one number of a float or double tensor; None for any other tensor."""
    fields: dict[int, int | bytes] = dict(_fields(data))
    layout, field = _DTYPES.get(fields.get(1), ("", 0))
    content = fields.get(4) or fields.get(field)
    if not layout or not isinstance(content, bytes) or len(content) != struct.calcsize(layout):
        return None
    number: float = struct.unpack(layout, content)[0]
    return number
