"""What the backend is told: one JSON line per event, and the termination message.

Both stay below 4096 bytes: so much goes into a pipe in one piece, and Kubernetes keeps no more of a
termination message. Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import json
import os
import select

from task_config import attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMIT = 4000
KUBERNETES_FILE = "/dev/termination-log"
# Fewer lines than this are shortened rather than dropped.
FEW_LINES = 8
MIN_CHARS = 40


class Report:
    """Writes to the report descriptor and the termination file that the environment names."""

    def __init__(self, env: dict[str, str], task: str) -> None:
        number = attempt(env)
        self._head = {"task": task, "attempt": int(number) if number.isdigit() else 1}
        self.fd = _open_fd(env.get("TFCLUSTER_REPORT_FD", ""))
        self._file = env.get("TFCLUSTER_TERMINATION_LOG", "")
        if not self._file and os.path.exists(KUBERNETES_FILE):
            self._file = KUBERNETES_FILE
        self._waiting: list[bytes] = []

    def event(self, event: str, **fields: object) -> None:
        """Tell one event. Never blocks: what does not fit now goes with the next one."""
        self._waiting.append(_encode({**self._head, "event": event, **fields}) + b"\n")
        self._flush(0)

    def exit(self, taken: dict[str, Any]) -> None:
        """Leave how the task ended: the termination message first, then the event."""
        taken = fit(taken, LIMIT - len(_encode({**self._head, "event": "exit"})))
        if self._file:
            _replace(self._file, _encode(taken))
        self.event("exit", **taken)
        self._flush(2.0)

    def _flush(self, seconds: float) -> None:
        poll = select.poll()
        if self.fd >= 0:
            poll.register(self.fd, select.POLLOUT)
        while self._waiting and self.fd >= 0 and poll.poll(int(seconds * 1000)):
            try:
                os.write(self.fd, self._waiting[0])
            except OSError:
                # The reader is gone, which the task learns by itself.
                self._waiting.clear()
                return
            self._waiting.pop(0)


def fit(taken: dict[str, Any], limit: int) -> dict[str, Any]:
    """Shorten `lastLines` until all is `limit` bytes: the oldest go, then the longest shrink."""
    lines = list(taken["lastLines"])
    taken = {**taken, "lastLines": lines, "detail": taken["detail"][:500]}
    while len(_encode(taken)) > limit and lines:
        longest = max(range(len(lines)), key=lambda number: len(lines[number]))
        if len(lines) > FEW_LINES or len(lines[longest]) < MIN_CHARS:
            lines.pop(0)
        else:
            lines[longest] = lines[longest][: len(lines[longest]) * 3 // 4] + "…"
    return taken


def _encode(value: dict[str, Any]) -> bytes:
    # Undecodable names carry lone surrogates, which UTF-8 cannot write; they become "?".
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _replace(path: str, data: bytes) -> None:
    """Write a file in one step; nowhere to leave it is no reason to fail."""
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        # A file mounted by itself, as in a container, cannot be replaced: one write has to do.
        try:
            with open(path, "wb", buffering=0) as file:
                file.write(data)
            os.unlink(temporary)
        except OSError:
            # The report pipe and the exit status remain.
            pass


def _open_fd(text: str) -> int:
    """The number of an open descriptor, or -1."""
    try:
        os.fstat(int(text))
        return int(text)
    except (OSError, ValueError):
        return -1
