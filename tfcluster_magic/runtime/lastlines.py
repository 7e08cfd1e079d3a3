"""What a task said last: its cause rather than TensorFlow's noise, and whether it lost a peer.

Owns the tail of the output in memory and the patterns that read it. Standard library only.
"""

from __future__ import annotations

import re

KEEP = 64 * 1024
MAX_LINES = 20
MAX_CHARS = 500
ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# What a progress bar overwrites: everything before the last \r or run of backspaces.
OVERWRITTEN = re.compile(r"\r|\x08+")
# The start of a log line and its level:
#   2024-05-01 10:00:00.123456: I tensorflow/...     TensorFlow
#   I0000 00:00:1714550400.123456   42 file.cc:1]    absl
#   WARNING:tensorflow:...                           Python's logging
LOG = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: ([IWEF]) |([IWEF])\d{4} \d\d:\d\d:"
    r"|(I)NFO:|(W)ARNING:|(E)RROR:"
)
NOISE = re.compile(
    r"WARNING: All log messages before absl|To enable the following instructions:"
    r"|Additional GRPC error information from remote target|:UNKNOWN:Error received from peer"
)
TRACEBACK = "Traceback (most recent call last)"
LOST_PEER = re.compile(
    r"\bUNAVAILABLE\b|\bABORTED\b|UnavailableError|AbortedError|[Hh]eartbeat|[Ss]ocket closed"
    r"|[Cc]onnection (?:reset|refused)|Connection(?:Reset|Refused|Aborted)Error|BrokenPipeError"
    r"|[Cc]oordination ?[Ss]ervice|failed to connect to all addresses|GOAWAY|recvmsg:"
)


class LastLines:
    """Collects output as it comes, byte for byte; reads it only when asked."""

    def __init__(self) -> None:
        self._tail = bytearray()
        self._cut = False

    def put(self, data: bytes) -> None:
        """Take the next piece of output."""
        self._tail += data
        if len(self._tail) > 2 * KEEP:
            del self._tail[:-KEEP]
            self._cut = True

    def _lines(self) -> list[str]:
        lines = bytes(self._tail).decode("utf-8", "replace").split("\n")
        if self._cut and len(lines) > 1:
            del lines[0]
        return [shown for shown in map(_shown, lines) if shown]

    def lines(self, raised: bool) -> list[str]:
        """At most 20 lines without noise: the last ones, with `raised` up to the traceback's end.

        Of a message too long for that the first line is kept, which names the exception.
        """
        lines = self._lines()
        start, end = _message(lines) if raised else (0, 0)
        head = [line for line in lines[: end or None] if not _is_noise(line)] or lines
        chosen = head[-MAX_LINES:]
        if end - start > MAX_LINES:
            chosen[:2] = [lines[start], "…"]
        return [_short(line) for line in chosen]

    def follows(self, raised: bool) -> bool:
        """Whether the end of the output says that a peer was lost.

        With `raised` (the program ended by an exception) the traceback's message is believed alone:
        what is logged around it while the process goes down often speaks of peers although the
        program itself failed.
        """
        lines = self._lines()
        start, end = _message(lines) if raised else (0, 0)
        return any(LOST_PEER.search(line) for line in (lines[start:end] or lines[-MAX_LINES:]))


def _shown(line: str) -> str:
    parts = [part for part in OVERWRITTEN.split(ANSI.sub("", line)) if part.strip()]
    return "".join(c for c in parts[-1].rstrip() if c == "\t" or c.isprintable()) if parts else ""


def _short(line: str) -> str:
    return line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "…"


def _level(line: str) -> str:
    match = LOG.match(line)
    return next(filter(None, match.groups())) if match else ""


def _is_noise(line: str) -> bool:
    return _level(line) in ("I", "W") or NOISE.match(line) is not None


def _message(lines: list[str]) -> tuple[int, int]:
    """Where the last traceback's exception and its message stand; (0, 0) without a traceback."""
    starts = [number for number, line in enumerate(lines) if TRACEBACK in line]
    if not starts:
        return 0, 0
    start = starts[-1] + 1
    while start < len(lines) and (lines[start][0] in " \t" or _level(lines[start])):
        start += 1
    end = start
    while end < len(lines) and not _level(lines[end]):
        end += 1
    return (start, end) if end > start else (0, 0)
