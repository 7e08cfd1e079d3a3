"""TensorFlow's event files: the record format, and the training progress in a file's scalars.

The reader returns a record only if both of its checksums are right. It waits for the rest of an
unfinished last record, and continues at the next whole record after damaged bytes. For each file,
it remembers the offset up to which it has read, and a bounded history of steps, epochs and losses.
It does not import TensorFlow, raises no error for the content of a file, and keeps no file open.

Ref: TFRecord framing and `Event`, `Summary`, `TensorProto` in TensorFlow's
core/lib/io/record_writer.h, core/util/event.proto, core/framework/{summary,tensor}.proto.
"""

from __future__ import annotations

import math
import os
import re
import stat
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

CHUNK = 256 << 10
"""Maximum bytes that one `read` reads. If more bytes are new, only the last ones are read."""
CHECKED_BYTES = 64 << 10
"""Maximum bytes that one `read` checksums (about 3 ms); a longer record is still checksummed as a
whole.
"""
RECORDS = 400
"""Maximum records that one `read` decodes; if there are more, it decodes the newest."""
CANDIDATES = 4096
"""Maximum positions that one `read` tries when it searches for the start of a record."""

_HEADER = struct.Struct("<QI")
_FRAME = _HEADER.size + 4
# Finds the header of a record. The length of a record is less than 2**24 and has 8 bytes, so its
# highest non-zero byte is followed by at least five zero bytes.
_LENGTH_TOP_BYTE = re.compile(rb"[^\0]\0{5}")


class LoggedEvent(NamedTuple):
    """The scalars of one event: `wall` in seconds since 1970, `step` as the program gave it.
    `checkpoint` is true for the event by which TensorFlow 1 records that it saved a checkpoint.
    """

    wall: float
    step: int
    values: dict[str, float]
    checkpoint: bool = False


class EventFile:
    """One event file and the offset up to which it has been read. Not thread-safe."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._identity: tuple[int, int] | None = None
        self._offset = 0
        self._aligned = True

    def read(self) -> list[LoggedEvent]:
        """Return the events with scalars or a checkpoint that are new since the last call, oldest
        first.

        The first read of a large file returns the events in its last 64 KiB, or if there are none,
        in its last `CHUNK` bytes. At most the newest `RECORDS` records are decoded. The list is
        empty for a missing or unreadable file. A file that became shorter, or was replaced, is read
        from its start.
        """
        try:
            # A program may have put anything at that path, even a pipe without a writer.
            how = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(self.path, how), "rb", buffering=0) as file:
                seen = os.fstat(file.fileno())
                if not stat.S_ISREG(seen.st_mode):
                    return []
                identity = (seen.st_dev, seen.st_ino)
                if identity != self._identity or seen.st_size < self._offset:
                    self._identity, self._offset, self._aligned = identity, 0, True
                # a short tail is faster to parse and usually enough
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
        """Return the start and length of each whole record's content; move the offset to the end of
        the last one.
        """
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
    """Return the position of the next record's header in `data`, and True. If none is found, return
    the position at which the search has to continue, and False.
    """
    tried = 0
    for match in _LENGTH_TOP_BYTE.finditer(data, start):
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


def _decode_newest(data: bytes, records: list[tuple[int, int]]) -> list[LoggedEvent]:
    found: list[LoggedEvent] = []
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
    """Return the masked CRC-32C of TFRecord; it takes about 50 ns for each byte."""
    crc, table = 0xFFFFFFFF, _CRC
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(maxsize=1024)
def _length_checksum(length: int) -> int:
    return masked_crc32c(length.to_bytes(8, "little"))


# ---- protocol buffers ----

_CHECKPOINT_SAVED = 3  # SessionLog.status


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each field: varints as int, everything else as bytes."""
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


def _event(data: bytes) -> LoggedEvent:
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
            checkpoint = (1, _CHECKPOINT_SAVED) in _fields(value)
    return LoggedEvent(wall, step, values, checkpoint)


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


# For each dtype of a TensorProto: the struct format of a value, and the number of the field that
# has the values if the field `tensor_content` (4) is empty.
_DTYPES: dict[int | bytes | None, tuple[str, int]] = {1: ("<f", 5), 2: ("<d", 6)}


def _tensor_scalar(data: bytes) -> float | None:
    """Return the number in a float or double tensor with one element; None for any other tensor."""
    fields: dict[int, int | bytes] = dict(_fields(data))
    layout, field = _DTYPES.get(fields.get(1), ("", 0))
    content = fields.get(4) or fields.get(field)
    if not layout or not isinstance(content, bytes) or len(content) != struct.calcsize(layout):
        return None
    number: float = struct.unpack(layout, content)[0]
    return number


# ---- training progress from scalars ----
# If a tag goes back to an earlier step, because a checkpoint was restored, the points from that
# step on are deleted. Validation metrics are never taken for training metrics.

STEP, EPOCH = "step", "epoch"
LOSS_POINTS = 60
"""Maximum points of a loss curve in a `Progress`."""

_MAX_TAGS = 256
_RATE_WINDOW = 30.0  # seconds; long enough for programs that write every 100 steps

# Validation metrics are recognised by two patterns: one for their folder or scope (`validation`,
# `eval_holdout`, `evaluator-0`), and one for their name.
_VALIDATION_FOLDER = re.compile(
    r"(val|valid|validation|eval|evaluation|evaluator|test|testing|dev|holdout)([-_. \d].*)?$"
)
_VALIDATION_NAME = re.compile(r"(epoch_|batch_)?(val|valid|validation|eval|evaluation|test|dev)_")

# Patterns of the last part of a loss's tag, best first. The last pattern matches any name with
# "loss" in it.
_LOSSES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(batch_)?loss(_\d+)?$",
        r"(total|train|training|mean|average|avg)_loss(_\d+)?$|loss_(total|train)$",
        r"epoch_loss$",
        r"(softmax_|sparse_|categorical_|binary_)*cross_?entropy(_loss)?(_\d+)?$|nll$|mse$",
        r".*loss",
    )
)


class TagMeaning(NamedTuple):
    """The meaning of a scalar's tag. `unit` is what the scalar's step counts: steps or epochs.
    `loss` is the tag's rank among the names of losses (0 is best); None if it is no loss. `is_rate`
    marks a rate in steps per second.
    """

    unit: str
    loss: int | None
    is_rate: bool


@lru_cache(maxsize=1024)
def tag_meaning(tag: str) -> TagMeaning | None:
    """Return the meaning of a tag; None for a validation metric."""
    tag = tag.lower()
    if tag == "global_step/sec":
        return TagMeaning(STEP, None, True)
    *scopes, name = tag.split("/")
    if (
        is_validation_folder(scopes)
        or _VALIDATION_NAME.match(name)
        or _VALIDATION_FOLDER.match(name)
    ):
        return None
    rank = next((rank for rank, rule in enumerate(_LOSSES) if rule.match(name)), None)
    return TagMeaning(EPOCH if name.startswith("epoch_") else STEP, rank, False)


def is_validation_folder(folders: Iterable[str]) -> bool:
    """Return whether event files below these folder names contain validation metrics."""
    return any(_VALIDATION_FOLDER.match(folder.lower()) for folder in folders)


class StepTrack:
    """The count of one unit (steps or epochs) in a file. The rate is computed from `points`, which
    are pairs (wall, count).
    """

    def __init__(self, wall: float, count: int) -> None:
        self.count = count
        self.points: deque[tuple[float, int]] = deque([(wall, count)], maxlen=512)
        self._by_tag: dict[str, int] = {}

    def add(self, tag: str, wall: float, count: int) -> bool:
        """Record `count` for `tag`; return True if it is lower than the tag's last count."""
        known = self._by_tag.get(tag)
        back = known is not None and count < known
        if back:
            self._by_tag = {t: c for t, c in self._by_tag.items() if c < count}
            self.points.clear()
        if known is not None or len(self._by_tag) < _MAX_TAGS:
            self._by_tag[tag] = count
        top = count if back else max(self.count, count)
        if top != self.count:
            self.points.append((wall, top))
        self.count = top
        return back

    @property
    def per_second(self) -> float | None:
        """Units per second over the last 30 s of events, or between the last two points."""
        if len(self.points) < 2:
            return None
        last_wall, last = self.points[-1]
        recent = [p for p in self.points if p[0] >= last_wall - _RATE_WINDOW]
        wall, count = recent[0] if len(recent) > 1 else self.points[-2]
        return (last - count) / (last_wall - wall) if last_wall > wall and last > count else None


class LossCurve:
    """The points of a loss curve. Their number is limited; they are evenly spread, and include the
    newest point.
    """

    def __init__(self) -> None:
        self.points: list[tuple[int, float]] = []
        self._gap = 0.0

    def add(self, count: int, value: float) -> None:
        """Append a point; `count` must not be lower than that of the last point."""
        points = self.points
        close = len(points) > 1 and points[-1][0] - points[-2][0] < self._gap
        if close or (points and points[-1][0] == count):
            points.pop()
        points.append((count, value))
        if len(points) > 4 * LOSS_POINTS:
            self._gap = (count - points[0][0]) / (2 * LOSS_POINTS)
            kept = points[:1]
            for point in points[1:-1]:
                if point[0] - kept[-1][0] >= self._gap:
                    kept.append(point)
            self.points = [*kept, points[-1]]

    def cut(self, count: int) -> None:
        """Delete the points at `count` and later."""
        self.points = [point for point in self.points if point[0] < count]


class TrainingScalars:
    """The scalars read so far from one event file; `first` and `last` are the times of the first
    and the last event (seconds since 1970).
    """

    def __init__(self, first: float | None = None) -> None:
        self.first = math.inf if first is None else first
        self.last = 0.0
        self.tracks: dict[str, StepTrack] = {}
        self.losses: dict[str, LossCurve] = {}
        self.newest_loss: dict[str, float] = {}
        self.written_rate: float | None = None

    def add(self, event: LoggedEvent) -> None:
        """Add the scalars of one event."""
        if not math.isfinite(event.wall):
            return
        if event.checkpoint:
            self._count(STEP, "checkpoint", event.wall, event.step)
        for tag, value in event.values.items():
            what = tag_meaning(tag)
            if what is None:
                continue
            # Keras writes the epoch that has just ended, counted from 0
            count = event.step + 1 if what.unit == EPOCH else event.step
            self._count(what.unit, tag, event.wall, count)
            if what.is_rate:
                self.written_rate = value if math.isfinite(value) and value > 0 else None
            elif what.loss is not None and (tag in self.losses or len(self.losses) < _MAX_TAGS):
                self._add_loss(tag, count, value)

    def _count(self, unit: str, tag: str, wall: float, count: int) -> None:
        self.first = min(self.first, wall)
        self.last = max(self.last, wall)
        track = self.tracks.setdefault(unit, StepTrack(wall, count))
        if track.add(tag, wall, count):
            self.written_rate = None
            for loss_tag, curve in self.losses.items():
                what = tag_meaning(loss_tag)
                if what is not None and what.unit == unit:
                    curve.cut(count)

    def _add_loss(self, tag: str, count: int, value: float) -> None:
        self.newest_loss[tag] = value
        if math.isfinite(value):
            self.losses.setdefault(tag, LossCurve()).add(count, value)
        else:
            self.losses.setdefault(tag, LossCurve())

    @property
    def loss_tag(self) -> str | None:
        """The tag of the loss that is shown: the one whose name has the best rank (`TagMeaning`) in
        this file; if several tags have this rank, the one found first.
        """
        ranks = [(what.loss, tag) for tag in self.losses if (what := tag_meaning(tag)) is not None]
        ranked = [(rank, tag) for rank, tag in ranks if rank is not None]
        return min(ranked, key=lambda entry: entry[0])[1] if ranked else None
