"""A controller as a process: it follows, leads, acts, answers its probes, and ends in order.

Promises that nothing is done before everything was seen and the Lease is held, that what stands in
the way is told once in the log and at /readyz, and that SIGTERM ends the turns and frees the Lease.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from typing import Protocol

from ..api.client import Api, ApiError
from .health import Answer, Health
from .leader_election import Leader

log = logging.getLogger("tfcluster")


class Controller(Protocol):
    """What a process runs."""

    def follow(self) -> None:
        """Begin to follow what there is. Raises ApiError: it is asked again."""

    def begin(self) -> None:
        """Begin to act."""

    def end(self) -> None:
        """Act no more."""

    @property
    def synced(self) -> bool:
        """Whether everything was seen once."""

    @property
    def alive(self) -> bool:
        """Whether no thread has died."""

    @property
    def problems(self) -> list[str]:
        """Why it cannot see everything."""


class Service:
    """The whole process.

    Args:
        api: the connection.
        leader: its part in the election.
        controller: what it runs.
        port: where it answers; 0 takes a free one. Raises OSError when it is taken.
        metrics: what Prometheus is told.
    """

    def __init__(
        self,
        api: Api,
        leader: Leader,
        controller: Controller,
        port: int,
        metrics: Callable[[], str],
    ) -> None:
        self._api, self._leader, self._controller = api, leader, controller
        self._enough = threading.Event()
        self._follows = False
        self._began = time.monotonic()
        answers = {
            "/healthz": self._healthy,
            "/readyz": self._ready,
            "/metrics": lambda: (True, metrics()),
        }
        self._health = Health(port, answers)

    def work(self) -> int:
        """Follow, lead, act; then end in order."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._enough.set())
        self._health.start()
        log.info("following %s; health on port %d", self._api.server, self._health.port)
        threading.Thread(target=self._lead, name="lead", daemon=True).start()
        while not self._enough.wait(3600):
            pass
        log.info("ending")
        self._controller.end()
        self._leader.release()
        self._health.stop()
        return 0

    def _lead(self) -> None:
        while not self._followed():
            if self._enough.wait(1.0):
                return
        told: list[str] = []
        while not self._controller.synced:
            problems = self._controller.problems
            if problems and problems != told:
                log.error("not ready: %s", "; ".join(problems))
                told = problems
            if self._enough.wait(0.02):
                return
        if self._leader.acquire():
            self._controller.begin()
            log.info("ready after %.2f s", time.monotonic() - self._began)

    def _followed(self) -> bool:
        try:
            self._controller.follow()
        except ApiError as error:
            log.error("not ready: %s", error.message or error.reason)
            return False
        self._follows = True
        return True

    def _healthy(self) -> Answer:
        alive = (self._controller.alive or not self._follows) and self._leader.alive
        return (True, "ok") if alive else (False, "a thread has died")

    def _ready(self) -> Answer:
        if not self._controller.synced:
            return False, "; ".join(self._controller.problems) or "it has not seen everything yet"
        return (True, "ok") if self._leader.leads() else (False, "another process leads")
