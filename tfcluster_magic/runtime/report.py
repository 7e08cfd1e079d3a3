"""What the backend is told: one JSON line per event on the report pipe, and the termination message.

A line is shorter than 4096 bytes, so that a write to the pipe is atomic and Kubernetes keeps the whole
message. Standard library only, Python 3.8.
"""

from __future__ import annotations

import json
import os
import select

# Kubernetes cuts a termination message at 4096 bytes; a pipe write is atomic up to as many.
LIMIT = 4000


class Report:
    """Writes to the report descriptor of the environment, if there is one."""

    def __init__(self, env: dict, task: str) -> None:
        self.task = task
        self.attempt = int(env.get("TFCLUSTER_ATTEMPT") or 1)
        text = env.get("TFCLUSTER_REPORT_FD", "")
        self.fd = int(text) if text.isdigit() and _is_open(int(text)) else -1
        default = "/dev/termination-log"
        self._file = env.get("TFCLUSTER_TERMINATION_LOG") or (default if os.path.exists(default) else "")
        self._waiting = []  # type: list

    def event(self, event: str, **fields: object) -> None:
        """Tell one event. Never blocks: what does not fit now goes with the next, or with flush()."""
        head = {"task": self.task, "attempt": self.attempt, "event": event}
        self._waiting.append(_encode(dict(head, **fields)) + b"\n")
        self.flush(0)

    def flush(self, seconds: float) -> None:
        """Write what is waiting, at most so long."""
        poll = select.poll()
        if self.fd >= 0:
            poll.register(self.fd, select.POLLOUT)
        while self._waiting and self.fd >= 0 and poll.poll(int(seconds * 1000)):
            try:
                os.write(self.fd, self._waiting[0])
            except OSError:
                # The reader is gone; the task learns it from the parent's death.
                self.fd = -1
                return
            self._waiting.pop(0)

    def exit(self, taken: dict) -> None:
        """Leave how the task ended: the termination message first, then the event."""
        head = {"task": self.task, "attempt": self.attempt, "event": "exit"}
        taken = fit(taken, LIMIT - len(_encode(head)))
        if self._file:
            _replace(self._file, _encode(taken))
        self.event("exit", **taken)
        self.flush(2.0)


def fit(taken: dict, limit: int) -> dict:
    """Shorten `lastLines` (the oldest go first, then long ones are cut) until it is at most `limit` bytes."""
    taken = dict(taken, lastLines=list(taken["lastLines"]), detail=taken["detail"][:500])
    lines = taken["lastLines"]
    while len(_encode(taken)) > limit and lines:
        if len(lines) > 8:
            lines.pop(0)
            continue
        longest = max(range(len(lines)), key=lambda i: len(lines[i].encode("utf-8")))
        if len(lines[longest]) < 40:
            lines.pop(0)
        else:
            lines[longest] = lines[longest][: len(lines[longest]) * 3 // 4] + "\u2026"
    return taken


def _encode(value: dict) -> bytes:
    # Lone surrogates (undecodable file names) cannot be written as UTF-8; they become "?".
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _replace(path: str, data: bytes) -> None:
    temporary = "%s.%d" % (path, os.getpid())
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        # A termination log that is mounted as a single file cannot be replaced: one write has to do.
        try:
            if os.path.exists(temporary):
                os.unlink(temporary)
            with open(path, "wb", buffering=0) as file:
                file.write(data)
        except OSError:
            # Nowhere to leave it; the report pipe and the exit status remain.
            pass


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
        return True
    except OSError:
        return False
