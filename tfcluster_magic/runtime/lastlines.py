"""What a task said last: its cause rather than TensorFlow's noise, and whether it lost a peer.

Owns the tail of the output in memory (64 KiB) and the patterns that read it. Standard library only.
"""

from __future__ import annotations

import re

KEEP = 64 * 1024
MAX_LINES = 20
MAX_CHARS = 500
ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# What a progress bar overwrites: everything before the last \r or run of backspaces.
OVERWRITTEN = re.compile(r"\r|\x08+")
# 2024-05-01 10:00:00.123456: I tensorflow/...   |   I0000 00:00:1714550400.123 42 file.cc:1] ...   |   WARNING:tensorflow:
LOG = re.compile(
    r"^(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: ([IWEF]) |([IWEF])\d{4} \d\d:\d\d:|(I)NFO:|(W)ARNING:)"
)
NOISE = re.compile(
    r"^(WARNING: All log messages before absl|To enable the following instructions:|"
    r"Additional GRPC error information|:\{\"created\")"
)
TRACEBACK = "Traceback (most recent call last)"
LOST_PEER = re.compile(
    r"\bUNAVAILABLE\b|\bABORTED\b|UnavailableError|AbortedError|[Hh]eartbeat|Socket closed|"
    r"[Cc]onnection (?:reset|refused)|[Cc]oordination service|failed to connect to all addresses|"
    r"Connect(?:ionReset|ionRefused)Error|BrokenPipeError|task .{0,60}(?:is in error|has gone)|"
    r"Session handle is not found|GOAWAY|recvmsg:"
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

    def _lines(self) -> list:
        text = bytes(self._tail).decode("utf-8", "replace")
        lines = [_shown(line) for line in text.split("\n")]
        return [line for line in (lines[1:] if self._cut and len(lines) > 1 else lines) if line]

    def lines(self) -> list:
        """At most 20 lines: those that end with the last traceback's message, else the last that are not noise."""
        lines = self._lines()
        start, end = _traceback(lines)
        if end:
            chosen = [line for line in lines[:end] if not _is_noise(line)]
        else:
            chosen = [line for line in lines if not _is_noise(line)] or lines
        return [_short(line) for line in chosen[-MAX_LINES:]]

    def follows(self) -> bool:
        """Whether the end of the output says that a peer was lost.

        A traceback is believed alone: what is logged around it while the process goes down often speaks of
        peers although the program itself failed.
        """
        lines = self._lines()
        start, end = _traceback(lines)
        if end:
            return any(LOST_PEER.search(line) for line in lines[start:end])
        return any(LOST_PEER.search(line) for line in lines[-MAX_LINES:])


def _shown(line: str) -> str:
    parts = [part for part in OVERWRITTEN.split(ANSI.sub("", line)) if part.strip()]
    return "".join(c for c in parts[-1].rstrip() if c == "\t" or c.isprintable()) if parts else ""


def _short(line: str) -> str:
    return line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "\u2026"


def _level(line: str) -> str:
    match = LOG.match(line)
    return next(group for group in match.groups() if group) if match else ""


def _is_noise(line: str) -> bool:
    return _level(line) in ("I", "W") or NOISE.match(line) is not None


def _traceback(lines: list) -> tuple:
    """(start, end) of the last traceback's message, its exception's line first; (0, 0) when there is none."""
    for begin in range(len(lines) - 1, -1, -1):
        if TRACEBACK in lines[begin]:
            break
    else:
        return 0, 0
    start = begin + 1
    while start < len(lines) and (lines[start][:1] in " \t" or _level(lines[start])):
        start += 1
    end = start
    while end < len(lines) and not _level(lines[end]) and end - start < 12:
        end += 1
    return (start, end) if end > start else (0, 0)
