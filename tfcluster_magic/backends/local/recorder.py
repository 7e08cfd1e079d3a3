"""Writes down what a supervisor saw and decided, for `tests/replay/`, when TFCLUSTER_RECORD=1 asks
for it.

Promises a file that `lifecycle.recording.replay` reads, with a step for each decision that changed
something, and that a full disk ends the recording and nothing else.
"""

from __future__ import annotations

import os

from ...lifecycle import Decision, Observation
from ...spec import Spec, Status, Stop
from .publisher import log
from .recording import Header, Step, encode
from .store import RunFolder

VARIABLE = "TFCLUSTER_RECORD"


class Recorder:
    """The `decisions.jsonl` of one run; does nothing unless the environment asks for it."""

    def __init__(self, folder: RunFolder, name: str, spec: Spec, status: Status) -> None:
        self._path = folder.decisions_file if os.environ.get(VARIABLE) == "1" else None
        self._last: tuple[object, ...] = (status, (), (), False)
        self._write(Header(name=name, spec=spec, status=status))

    def note(self, now: float, seen: Observation, stop: Stop | None, decision: Decision) -> None:
        """Write a decision that is not the one before again."""
        made = (decision.status, decision.start, decision.stop, decision.done)
        if self._path is not None and made != self._last:
            self._last = made
            self._write(Step(now=now, seen=seen, decision=decision, stop=stop))

    def _write(self, entry: Header | Step) -> None:
        if self._path is None:
            return
        try:
            how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
            with os.fdopen(os.open(self._path, how | os.O_CLOEXEC, 0o600), "ab") as file:
                file.write(encode(entry))
        except OSError as error:
            self._path = None
            log(f"the recording ends here: {error}")
