"""Event files written byte by byte, without the code under test."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path


def masked_crc32c(data: bytes) -> int:
    """Return the checksum of TFRecord, computed bitwise (Castagnoli polynomial, reflected)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 * (crc & 1))
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def record(content: bytes) -> bytes:
    """Return one TFRecord."""
    length = struct.pack("<Q", len(content))
    sums = [struct.pack("<I", masked_crc32c(part)) for part in (length, content)]
    return length + sums[0] + content + sums[1]


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def simple_value(value: float) -> bytes:
    """Return a scalar as TensorFlow 1 writes it."""
    return b"\x15" + struct.pack("<f", value)


def tensor(value: float) -> bytes:
    """Return a scalar as TensorFlow 2 writes it: a float tensor without dimensions."""
    inner = b"\x08\x01" + _message(2, b"") + b"\x2d" + struct.pack("<f", value)
    return _message(8, inner)


def event(
    step: int,
    values: Mapping[str, float] | None = None,
    wall: float = 0.0,
    kind=simple_value,
    extra=b"",
) -> bytes:
    """Return one whole record; `extra` is a further value of the summary, such as an image."""
    summary = b"".join(
        _message(1, _message(1, tag.encode()) + kind(value))
        for tag, value in (values or {}).items()
    )
    if extra:
        summary += _message(1, _message(1, b"extra") + _message(4, extra))
    content = b"\x09" + struct.pack("<d", wall or 1000.0 + step) + b"\x10" + _varint(step)
    return record(content + (_message(5, summary) if summary else b""))


def version(wall: float = 1000.0) -> bytes:
    """Return the first record of every event file."""
    return record(b"\x09" + struct.pack("<d", wall) + _message(3, b"brain.Event:2"))


def graph(wall: float = 1000.0) -> bytes:
    """Return the record of an empty graph, which TensorFlow 1 writes before the first step."""
    return record(b"\x09" + struct.pack("<d", wall) + _message(4, _message(1, _message(1, b"x"))))


def event_file(folder: Path, created: int = 1000, writer: str = "host.1.0.v2") -> Path:
    """Create `folder` and return the path of an event file in it."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"events.out.tfevents.{created:010d}.{writer}"
