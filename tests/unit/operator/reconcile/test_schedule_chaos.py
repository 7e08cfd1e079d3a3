"""Schedules whose operators are killed at any of their writes while the API server fails."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Any

import pytest
from support.kube_server import Object, Refusal
from support.operator_world import RUNS, Jobs
from support.polling import wait_until
from support.scheduled_operator import SCHEDULES, START, ScheduledWorld

from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.operator.reconcile.controller import Controller
from tfcluster_magic.schedules import OccurrenceState
from tfcluster_magic.spec import Phase, ScheduledRun
from tfcluster_magic.spec.resource_form import format_time

FAULTS = (
    *("killed before a write", "killed after a write", "both killed"),
    *("the answer is lost", "refused", "the owner writes first", "caches are stale", "none"),
)
"""The possible faults. For each due time, one is chosen, which occurs at one of the first
FIRST_WRITES writes after the due time.
"""
FIRST_WRITES = 7
"""The number of writes after a due time among which the write with the fault is chosen; a write
changes the status of a schedule, launches a run or stops a run.
"""
RULES: dict[str, dict[str, Any]] = {
    "allows": {"overlap": "Allow", "retries": 2, "retryDelaySeconds": [10]},
    "forbids": {"overlap": "Forbid"},
    "replaces": {"overlap": "Replace"},
}


class WatchedServer(Jobs):
    """A server that checks each launch, and each write of a schedule's status."""

    def __init__(self) -> None:
        super().__init__()
        self.launched: Counter[tuple[str, float, int]] = Counter()
        """Runs that were created, by schedule, due time and attempt."""
        self.fates: dict[tuple[str, float], str] = {}
        """The final state of each due time, by schedule."""
        self.wrong: list[str] = []

    def put(self, path: str, found: Object) -> Object:
        """See `KubeServer.put`."""
        with self.changed:
            if path.startswith(f"{RUNS}/") and path not in self.objects:
                self._check_launch(path, found)
            if path.startswith(f"{SCHEDULES}/"):
                self._check_status(found)
            return super().put(path, found)

    def _check_launch(self, path: str, found: Object) -> None:
        scheduled = custom_resource.read_scheduled(found["metadata"])
        assert scheduled is not None
        self.launched[scheduled.schedule, scheduled.due, scheduled.attempt] += 1
        going = [run for run, of in self.active() if of.schedule == scheduled.schedule]
        if going and RULES[scheduled.schedule]["overlap"] != "Allow":
            self.wrong.append(f"{path} overlaps {going}")

    def _check_status(self, found: Object) -> None:
        for each in (found.get("status") or {}).get("occurrences") or ():
            if OccurrenceState(each["state"]).is_settled:
                key = found["metadata"]["name"], each["dueTime"]
                if self.fates.setdefault(key, each["state"]) != each["state"]:
                    self.wrong.append(f"{key} was {self.fates[key]}, and is {each['state']}")

    def active(self) -> list[tuple[str, ScheduledRun]]:
        """Return the active runs."""
        found = []
        for path, run in self.objects.items():
            phase = (run.get("status") or {}).get("phase", "Queued")
            scheduled = path.startswith(f"{RUNS}/") and custom_resource.read_scheduled(
                run["metadata"]
            )
            if scheduled and not Phase(phase).is_final:
                found.append((path.rpartition("/")[2], scheduled))
        return found


class ChaosWorld(ScheduledWorld):
    """A world with two operators that both lead, and with random faults."""

    server: WatchedServer

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.ports: dict[int, Controller] = {}
        self.fault, self.writes_left = "none", 0
        self.befell: Counter[str] = Counter()
        self._losing: set[int] = set()
        """Threads of the server whose answers are lost."""
        self.server.refuses, self.server.loses = self._refuse, self._lose
        for _ in range(2):
            self.start_one()

    def make_server(self) -> WatchedServer:
        """See `World.make_server`."""
        return WatchedServer()

    def start_one(self) -> None:
        """Start an operator with a connection of its own."""
        api, port = self.server.open()
        self.ports[port] = self.another(api)
        self.others = list(self.ports.values())

    def replace_killed(self) -> None:
        """End the threads of killed operators, and start new ones in their place."""
        for port in self.server.cut & self.ports.keys():
            with self.server.changed:
                # wakes the watches of this operator, so that they end
                self.server.changed.notify_all()
            self.ports.pop(port).end(seconds=0.5)
            self.start_one()

    def _refuse(self, method: str, where: str) -> Refusal | None:
        """Cause the planned fault if this request is the write for which it is planned."""
        port = getattr(self.server.asked, "port", 0)
        about_schedules = where.startswith(SCHEDULES) or (method, where) == ("POST", RUNS)
        stops = method == "PATCH" and where.startswith(RUNS) and not where.endswith("/status")
        if method == "GET" or port not in self.ports or not (about_schedules or stops):
            return None
        if self.fault in ("none", "caches are stale"):
            return None
        self.writes_left -= 1
        if self.writes_left >= 0:
            return None
        fault, self.fault = self.fault, "none"
        self.befell[fault] += 1
        if fault == "killed before a write":
            self.server.cut.add(port)
            return Refusal(500, "InternalError")
        if fault == "both killed":
            self.server.cut.update(self.ports)
        elif fault == "killed after a write":
            self.server.cut.add(port)
        elif fault == "the answer is lost":
            self._losing.add(threading.get_ident())
        elif fault == "refused":
            return Refusal(self.random.choice([409, 429, 500, 503]), "InternalError")
        elif fault == "the owner writes first":
            for name in RULES:
                self.change(name, launchWords=str(self.befell))
        return None

    def _lose(self, _method: str, _where: str) -> bool:
        thread = threading.get_ident()
        is_lost = thread in self._losing
        self._losing.discard(thread)
        return is_lost

    def arm(self) -> None:
        """Choose the next fault at random."""
        with self.server.changed:
            self.fault = self.random.choice(FAULTS)
            self.writes_left = self.random.randrange(FIRST_WRITES)
            stalled = self.random.choice(("tfclusters", "tfclusterschedules"))
            is_stale = self.fault == "caches are stale"
            self.befell[self.fault] += is_stale
            self.server.stalls = lambda path: is_stale and path.endswith(stalled)
            self.server.changed.notify_all()

    def calm(self) -> None:
        """Stop all faults."""
        with self.server.changed:
            self.fault = "none"
            self.server.stalls = lambda _path: False
            self.server.changed.notify_all()
        self.replace_killed()

    def work(self, share: float = 1.0) -> None:
        """End all stopped runs, and some of the other runs; about a seventh of these fail."""
        with self.server.changed:
            for name, of in self.server.active():
                if self.run(name)["spec"].get("stop"):
                    self.end(name, "Stopped")
                elif self.random.random() < share * (0.3 if of.schedule == "replaces" else 0.6):
                    self.end(name, "Failed" if self.random.random() < 0.15 else "Succeeded")

    def is_taken(self, due: float) -> bool:
        """Return whether every schedule has handled the due time `due` and is not about to launch
        its run.
        """
        for name in RULES:
            found = (self.schedule(name).get("status") or {}).get("occurrences") or ()
            states = [o["state"] for o in found if o["dueTime"] == _time(due)]
            if not states or states == ["Launching"]:
                return False
        return True


def _time(at: float) -> str:
    return format_time(at)


@pytest.mark.parametrize("minutes", [15, pytest.param(300, marks=pytest.mark.long)])
def test_each_due_time_runs_once_whatever_is_killed(minutes: int) -> None:
    """While operators are killed before and after writes, responses are lost, writes are refused or
    conflict, and caches are stale, each due time is launched once, the overlap rules hold at each
    launch, and final states never change. At the end, no run is active and no thread of an operator
    is left.
    """
    before = _threads_of_operators()
    world = ChaosWorld(seed=minutes)
    try:
        for name, rules in RULES.items():
            world.create(name, catchUp="All", **rules)
        for minute in range(1, minutes + 1):
            due = START + 60 * minute
            world.arm()
            world.pass_to(due)
            wait_until(lambda due=due: world.server.cut & world.ports.keys() or world.is_taken(due))
            world.work()
            world.replace_killed()
            if world.random.random() < 0.5:
                world.calm()
                wait_until(lambda due=due: world.is_taken(due), f"minute {minute} is taken")
        world.calm()
        last, wanted = START + 60 * minutes, len(RULES) * minutes

        def is_over() -> bool:
            world.work(share=2.0)
            world.pass_to(min(world.clock.at + 1, last + 59))
            return len(world.server.fates) == wanted and not world.server.active()

        wait_until(is_over, lambda: str(world.server.active()), 60)
        assert world.server.wrong == []
        _check(world, minutes)
        print(f"{wanted} due times, {sum(world.server.launched.values())} runs, {world.befell}")
    finally:
        world.calm()
        for each in world.others:
            each.end()
        world.server.close()
    wait_until(lambda: _threads_of_operators() <= before, "no thread is left")


def _threads_of_operators() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name.startswith(("turns ", "informer "))}


def _check(world: ChaosWorld, minutes: int) -> None:
    """Check that each due time has one state and the launches that match this state."""
    server = world.server
    assert set(server.launched.values()) == {1}, "a due time ran twice"
    states = Counter(server.fates.values())
    assert set(states) <= {"Succeeded", "Failed", "Stopped", "Skipped"}, states
    attempts: dict[tuple[str, str], list[int]] = {}
    for name, due, attempt in server.launched:
        attempts.setdefault((name, _time(due)), []).append(attempt)
    for name in RULES:
        for minute in range(1, minutes + 1):
            key = name, _time(START + 60 * minute)
            ran = sorted(attempts.get(key, []))
            assert ran == list(range(1, len(ran) + 1)), key
            assert bool(ran) == (server.fates[key] != "Skipped"), (key, server.fates[key])
            assert name != "allows" or ran, "a due time is lost"
