"""Operators on this machine whose schedules follow a faster clock, and checks of schedules."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kubenode import paths
from kubenode.commands import wait_until

from tfcluster_magic.schedules import ScheduleStatus
from tfcluster_magic.spec import resource_form

if TYPE_CHECKING:
    from support.kube.kubectl import Kubectl, Object

_PROGRAM = """
import sys, time
from tfcluster_magic.operator.__main__ import main
from tfcluster_magic.operator.reconcile.schedules import ScheduleClock

base, speed = float(sys.argv[1]), float(sys.argv[2])

class Fast(ScheduleClock):
    def now(self):
        return base + (time.time() - base) * speed

    def seconds_until(self, at):
        return (at - self.now()) / speed

sys.exit(main(sys.argv[3:], Fast()))
"""
AROUND = 0.4
"""Seconds before and after a due second in which something is killed."""


class FastOperators:
    """Two operators that both lead, each by a Lease of its own.

    Args:
        kubectl: a kubectl in the namespace that the operators serve.
        folder: the folder of the policy, `policy.yaml`, and of the operators' logs.
        speed: seconds that pass for schedules in one real second.
    """

    def __init__(self, kubectl: Kubectl, folder: Path, speed: float) -> None:
        self._kubectl, self._folder, self._speed, self._base = kubectl, folder, speed, time.time()
        self._processes: list[subprocess.Popen[bytes] | None] = [None, None]

    def start(self, number: int) -> None:
        """Start one of the operators."""
        words = [sys.executable, "-c", _PROGRAM, str(self._base), str(self._speed)]
        words += [f"--namespace={self._kubectl.namespace}", f"--policy={self._folder}/policy.yaml"]
        words += ["--health-port=0", "--identity=fast"]
        words += [f"--lease-namespace={('default', self._kubectl.namespace)[number]}"]
        environment = {**os.environ, "KUBECONFIG": self._kubectl.kubeconfig}
        with (self._folder / f"operator-{number}.log").open("ab") as to:
            self._processes[number] = subprocess.Popen(
                words, stderr=to, env=environment, cwd=paths.ROOT
            )

    def kill(self, number: int) -> None:
        """Kill one of the operators if it runs."""
        process = self._processes[number]
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait(30)
        self._processes[number] = None

    def end(self) -> None:
        """Kill both operators."""
        for number in (0, 1):
            self.kill(number)

    def now(self) -> float:
        """Return the operators' time."""
        return self._base + (time.time() - self._base) * self._speed

    def shake(self, minutes: int, seed: int, others: Callable[[], None] | None = None) -> None:
        """Kill one operator around each due second of these minutes, and start it again; every
        fifth time, call `others` instead, which kills something else.
        """
        chance, until = random.Random(seed), self.now() + minutes * 60
        for turn in range(10 * minutes):
            left = (60 - self.now() % 60) / self._speed + chance.uniform(-AROUND, AROUND)
            time.sleep(max(0.0, left))  # until shortly before or after the next due second
            if others is not None and turn % 5 == 4:
                others()
            else:
                self.kill(turn % 2)
                self.start(turn % 2)
            time.sleep(AROUND)  # otherwise one due second may count twice
            if self.now() >= until:
                return


def status_of(kubectl: Kubectl, name: str) -> Object:
    """Return the status of a schedule, with keys in snake_case."""
    found = kubectl.get("tfclusterschedule", name)
    return resource_form.read(ScheduleStatus, found.get("status") or {})


def occurrences(kubectl: Kubectl, name: str) -> list[Object]:
    """Return the newest due times of a schedule with their states."""
    return list(status_of(kubectl, name).get("occurrences") or [])


def until(condition: Callable[[], object], what: str, seconds: float = 150) -> None:
    """Wait for a condition of a cluster."""
    wait_until(condition, what, seconds=seconds, every=0.3)


def scheduled(run: Object) -> Object:
    """Return the schedule, due time and attempt of a run."""
    found: Object = json.loads(run["metadata"]["annotations"]["tfcluster.dev/scheduled"])
    return found


def runs_of(kubectl: Kubectl, name: str) -> list[Object]:
    """Return the runs of a schedule by due time."""
    found = kubectl.every("tfcluster", f"tfcluster.dev/schedule={name}")
    return sorted(found, key=lambda run: float(scheduled(run)["due"]))


def check_once_each(runs: list[Object], *, skips: bool = False) -> None:
    """Check the runs of a schedule that is due every minute: no due time ran twice, and none is
    missing unless `skips` is true.
    """
    dues = [scheduled(run)["due"] for run in runs]
    assert len(set(dues)) == len(dues), "a due time ran twice"
    if not skips:
        assert dues == [dues[0] + 60 * n for n in range(len(dues))], "a due time is lost"


def check_no_overlap(runs: list[Object]) -> None:
    """Check that each run was created after the end of the one before."""
    for before, after in itertools.pairwise(runs):
        ended = (before.get("status") or {}).get("completionTime")
        assert ended, f"{before['metadata']['name']} has not ended"
        # A creationTimestamp has no fractions of its second.
        assert _seconds(ended) < _seconds(after["metadata"]["creationTimestamp"]) + 1


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp()
