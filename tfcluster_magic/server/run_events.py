"""Changes of runs, pushed to every page as Jupyter Server events.

The first change of a quiet run is sent at once. Further changes are sent a few times a second,
always with the newest state. The server's events are numbered without gaps. A backend that hangs is
reported too. This module owns the numbers of events, the rate limit and one timer. It runs on the
server's loop; the watcher's threads only hand over changes.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import TFClusterError
from ..runs.watcher import RunWatcher, WatchedRun
from ..web import problem

if TYPE_CHECKING:
    from logging import Logger

    from jupyter_events.logger import EventLogger

SCHEMA = Path(__file__).parent / "event_schemas" / "run.yaml"
SCHEMA_ID = "https://tfcluster.dev/events/run/v1"
EVERY = 0.25
"""Minimum seconds between two events of one run."""
MOST_A_SECOND = 200
"""Maximum events per second in total; the more runs change, the fewer events each gets."""
LOOK_EVERY = 1.0


def register_schema(logger: EventLogger) -> None:
    """Register the schema of our events with Jupyter Server's event logger. Pages that subscribed
    before the schema was registered receive no events.
    """
    if SCHEMA_ID not in logger.schemas:
        logger.register_event_schema(SCHEMA)


class RunEvents:
    """An object that sends the changes of runs to all pages of one server.

    Args:
        watcher: reports every change.
        logger: the server's event logger, in which our schema is registered.
        log: the logger for errors.
        view: returns a run in the form in which pages receive it.
        look: called on the loop every second, so that the service can report activity.
    """

    def __init__(
        self,
        watcher: RunWatcher,
        logger: EventLogger,
        log: Logger,
        view: Callable[[WatchedRun], dict[str, Any]],
        look: Callable[[], None],
    ) -> None:
        self.stream = secrets.token_hex(8)
        self.sequence = 0
        self._watcher, self._logger, self._log = watcher, logger, log
        self._view, self._look = view, look
        self._known: dict[str, WatchedRun] = {}
        self._told_at: dict[str, float] = {}
        self._waiting: dict[str, asyncio.TimerHandle] = {}
        self._told_problem: TFClusterError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: Callable[[], None] | None = None

    def start(self) -> None:
        """Start to watch runs and send their changes; call this in the running event loop."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._end = self._watcher.listen(self._listen)
            self._tick()

    def stop(self) -> None:
        """Stop watching; nothing more is sent."""
        if self._end is not None:
            self._end()
            self._end = None
        for handle in (*self._waiting.values(), self._timer):
            if handle is not None:
                handle.cancel()
        self._waiting.clear()

    def fail(self, name: str, told: dict[str, Any]) -> None:
        """Send a problem (`told`) to all pages: a request about this run was answered before its
        work was done, and the work has failed. Call this method only on the loop.
        """
        known = self._watcher.known().get(name)
        if known is not None and self._end is not None:
            self._emit("failed", name, self._view(known), told)

    # -- from the watcher's threads ----------------------------------------------------------------

    def _listen(self, name: str, known: WatchedRun | None) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._heard, name, known)
        except RuntimeError:
            return  # the server has ended

    # -- on the loop -------------------------------------------------------------------------------

    def _heard(self, name: str, known: WatchedRun | None) -> None:
        if self._end is None:
            return
        if not name:
            self._tell_problem()
        elif known is None:
            if handle := self._waiting.pop(name, None):
                handle.cancel()
            self._told_at.pop(name, None)
            if self._known.pop(name, None) is not None:
                self._emit("removed", name)
        else:
            self._known[name] = known
            if name not in self._waiting:
                self._plan(name)

    def _plan(self, name: str) -> None:
        """Send a run's state now, or its newest state as soon as the rate limit allows it."""
        assert self._loop is not None
        pace = max(EVERY, len(self._waiting) / MOST_A_SECOND)
        wait = self._told_at.get(name, -pace) + pace - self._loop.time()
        if wait <= 0:
            self._tell(name)
        else:
            self._waiting[name] = self._loop.call_later(wait, self._tell, name)

    def _tell(self, name: str) -> None:
        assert self._loop is not None
        self._waiting.pop(name, None)
        self._told_at[name] = self._loop.time()
        self._emit("changed", name, self._view(self._known[name]))

    def _tell_problem(self) -> None:
        now = self._watcher.problem
        if str(now) != str(self._told_problem):
            self._told_problem = now
            if now is None:
                self._emit("available")
            else:
                self._log.warning("TFCluster: %s", now)
                self._emit("unavailable", what=problem(now))

    def _tick(self) -> None:
        """Check each second whether the watch hangs, because a hanging watch reports nothing."""
        assert self._loop is not None
        self._timer = self._loop.call_later(LOOK_EVERY, self._tick)
        self._tell_problem()
        self._look()

    def _emit(
        self,
        kind: str,
        name: str = "",
        run: dict[str, Any] | None = None,
        what: dict[str, Any] | None = None,
    ) -> None:
        self.sequence += 1
        data = {
            "type": kind,
            "name": name,
            "run": None if run is None else _SharedEventData(run),
            "at": time.time(),
            "stream": self.stream,
            "sequence": self.sequence,
            "problem": None if what is None else _SharedEventData(what),
        }
        try:
            self._logger.emit(schema_id=SCHEMA_ID, data=data)
        except Exception:  # noqa: BLE001 - another extension's listener must not stop our events
            self._log.exception("TFCluster: an event could not be sent")


class _SharedEventData(dict[str, Any]):
    """Read-only event data that is not copied; copying would cost more than everything else."""

    def __deepcopy__(self, _memo: object) -> _SharedEventData:
        return self
