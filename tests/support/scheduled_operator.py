"""Operators with schedules, on a server that stores objects and a clock that the test sets."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

from support.kube_server import Object
from support.operator_world import World
from support.polling import wait_until
from tfcluster_magic.kube.api.client import Api, path
from tfcluster_magic.kube.objects.schedule_resource import KIND
from tfcluster_magic.operator.reconcile.controller import Controller
from tfcluster_magic.operator.reconcile.schedules import ScheduleClock

SCHEDULES = path("tfclusterschedules", "a")
START = 1_780_000_000.0 - 1_780_000_000.0 % 60
"""The first time of the clock: second 0 of a minute, because cron expressions name whole minutes.
"""


class StoppedClock(ScheduleClock):
    """A clock that the test sets; setting it wakes threads that wait for a time."""

    def __init__(self) -> None:
        self.at = START

    def now(self) -> float:
        return self.at

    def seconds_until(self, at: float) -> float:
        return 0.02 if at <= self.at else 3600.0


class ScheduledWorld(World):
    """A server, its operators, and a kubelet that ends runs when the test asks for it."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = StoppedClock()
        self.others: list[Controller] = []

    def operate(self) -> None:
        """Replace the newest operator by a new one."""
        self.rest()
        self.controller = self.another()

    def another(self, api: Api | None = None) -> Controller:
        """Start one more operator."""
        api = api or self.server.api()
        made = Controller(api, "", "a", lambda: self.leads, self.policy, lambda: 0.0, self.clock)
        made.context.admission = self.admission
        made.scheduler.begin = lambda: None  # type: ignore[method-assign]
        made.follow()
        wait_until(lambda: made.caches.synced and made.schedules.cache.synced.is_set())
        made.begin()
        return made

    def create(self, name: str = "nightly", **spec: Any) -> None:
        """POST a schedule, as `kubectl create` does."""
        program = {"inline": "print('hello')", "arguments": ["--day", "{scheduled_for:%H:%M}"]}
        template = {"spec": {"program": program, "env": {"AT": "{previous_success:%H:%M}"}}}
        content = {"cron": "* * * * *", "template": template, **spec}
        body = {"apiVersion": "tfcluster.dev/v1beta1", "kind": KIND, "spec": content}
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.clock.now()))
        self.server.put(f"{SCHEDULES}/{name}", {**body, "metadata": {"creationTimestamp": at}})
        self.wait_for(name, lambda status: status.get("conditions"))

    def schedule(self, name: str = "nightly") -> Object:
        """Return the current schedule."""
        return self.server.objects[f"{SCHEDULES}/{name}"]

    def change(self, name: str = "nightly", **spec: Any) -> None:
        """Change a schedule's spec, as its owner does."""
        with self.server.changed:
            found = copy.deepcopy(self.schedule(name))
            found["spec"] |= spec
            self.server.put(f"{SCHEDULES}/{name}", found)

    def wait_for(self, name: str, condition: Callable[[Object], object]) -> Object:
        """Wait until a condition holds for a schedule's status."""
        wait_until(lambda: condition(self.schedule(name).get("status") or {}))
        return copy.deepcopy(self.schedule(name)["status"])

    def pass_to(self, at: float) -> None:
        """Set the clock, and wake the threads that wait for it."""
        self.clock.at = at
        for each in (self.controller, *self.others):
            if each is not None:
                for found in each.schedules.cache.every():
                    head = found["metadata"]
                    each.schedules.turns.work.add((head["namespace"], head["name"]))

    def runs(self) -> list[str]:
        """Return the names of all runs."""
        return self.server.names("tfclusters")

    def end(self, name: str, phase: str = "Succeeded") -> None:
        """End a run."""
        times = dict.fromkeys(("startedAt", "finishedAt", "releasedAt"), time.time())
        words = {"reason": "Completed", "message": "it ended", "messages": []}
        self.say(name, phase=phase, **words, **times)

    def states(self, name: str = "nightly") -> list[str]:
        """Return the states of the due times."""
        status = self.schedule(name).get("status") or {}
        return [each["state"] for each in status.get("occurrences") or ()]
