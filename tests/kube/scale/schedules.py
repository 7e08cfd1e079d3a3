"""1000 schedules compared with 1000 CronJobs: idle, and when all are due at the same second.
Neither side creates pods: CronJobs create suspended Jobs, and runs stay queued because no node has
enough cores. The usage of the controllers and the operator without schedules and CronJobs is
measured first and subtracted.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from kubenode.cluster import Cluster
from kubenode.commands import say

from benchmarks.rows import Row, compared
from tfcluster_magic.kube.api.client import Object, path

from .api_watch import until
from .site import Site, cpu_of, memory_of

COUNT = 1000
WINDOW = 60.0
LEAD = 120.0
"""Seconds in which schedules and CronJobs can be created before they are due."""
NEVER = "0 0 29 2 *"
CRONJOBS = "/apis/batch/v1/namespaces/{}/cronjobs"


def schedules(site: Site, rounds: int) -> list[Row]:
    """Measure on the tests' Kubernetes node."""
    return measure(site, Cluster().first.pid_of("kube-controller-manager"), rounds)


@dataclass(frozen=True)
class _Use:
    """The usage of a process and the API server in a time window."""

    cpu: float
    requests: float
    memory: float


@dataclass(frozen=True)
class _Side:
    """One side of the comparison: its process, its objects, and what they create."""

    pid: Callable[[], int]
    where: str
    made: str
    body: Callable[[str, str], Object]


def measure(site: Site, controller_manager: int, rounds: int) -> list[Row]:
    """Measure one side after the other; the objects of a side are deleted before the next
    measurement.
    """
    name = site.new_name("schedules")
    site.make_namespace(name)
    site.wait_furnished(name)
    ours = _Side(
        lambda: site.pid,
        path("tfclusterschedules", name),
        path("tfclusters", name),
        _schedule,
    )
    theirs = _Side(
        lambda: controller_manager,
        CRONJOBS.format(name),
        path("jobs", name),
        _cron_job,
    )
    values: dict[str, list[list[float]]] = {}
    try:
        for number in range(1, rounds + 1):
            for at, side in enumerate((ours, theirs)):
                for what, value in _round(site, side).items():
                    values.setdefault(what, [[], []])[at].append(value)
            say(f"round {number}: {values}")
    finally:
        site.remove(name)
    notes = {
        "idle_cpu": ("ms/min", "CPU in a minute in which none is due"),
        "idle_requests": ("1/min", "requests to the API server in that minute"),
        "memory": ("MiB", f"memory that {COUNT} of them add"),
        "due_cpu": ("s", f"CPU of the minute in which all {COUNT} are due"),
        "due_requests": ("1", "requests of that minute"),
        "due_last": ("s", "from the due second until the last is launched"),
        "due_median": ("s", "until half of them are launched"),
    }
    return [
        compared(f"schedules_{what}", unit, *values[what], note=note)
        for what, (unit, note) in notes.items()
    ]


def _round(site: Site, side: _Side) -> dict[str, float]:
    before = _use(site, side)
    _create(site, side, NEVER)
    _use(site, side, 5.0)  # not measured: work that the creation still causes
    idle = _use(site, side)
    _delete(site, side.where, side.made)
    due = (time.time() + LEAD) // 60 * 60 + 60.0
    at = time.gmtime(due)
    _create(site, side, f"{at.tm_min} {at.tm_hour} * * *")
    left = due - time.time()
    assert left > 2, "creating them took too long"
    time.sleep(left - 2)  # until two seconds before the due time
    used = _use(site, side)
    launched = sorted(_created_at(each) - due for each in _every(site, side.made))
    assert len(launched) == COUNT, f"{len(launched)} of {COUNT} were launched in a minute"
    _delete(site, side.where, side.made)
    return {
        "idle_cpu": max(0.0, idle.cpu - before.cpu) * 1000,
        "idle_requests": idle.requests - before.requests,
        "memory": idle.memory - before.memory,
        "due_cpu": used.cpu - before.cpu,
        "due_requests": used.requests - before.requests,
        "due_last": launched[-1],
        "due_median": launched[COUNT // 2],
    }


def _use(site: Site, side: _Side, seconds: float = WINDOW) -> _Use:
    """Wait for a window of time, and return what a side has used in it."""
    cpu, requests = cpu_of(side.pid()), _requests(site)
    time.sleep(seconds)
    return _Use(cpu_of(side.pid()) - cpu, _requests(site) - requests, memory_of(side.pid()))


def _requests(site: Site) -> float:
    """Return how many requests the API server has answered; watches are counted at their end."""
    text = site.kubectl("get", "--raw", "/metrics")
    found = re.findall(r"^apiserver_request_total\{.*\} (\S+)$", text, re.MULTILINE)
    return sum(map(float, found))


def _create(site: Site, side: _Side, cron: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        bodies = [side.body(f"each-{_letters(number)}", cron) for number in range(COUNT)]
        for _done in pool.map(lambda body: site.api.create(side.where, body), bodies):
            pass


def _delete(site: Site, *collections: str) -> None:
    for where in collections:
        site.api.delete(where)
        until(lambda where=where: not _every(site, where), f"{where} is empty")


def _every(site: Site, where: str) -> list[Object]:
    return site.api.every(where, keep=lambda found: {"metadata": found["metadata"]}).items


def _created_at(found: Object) -> float:
    """Return the second in which an object was created."""
    said = found["metadata"]["creationTimestamp"]
    return datetime.fromisoformat(said.replace("Z", "+00:00")).timestamp()


def _letters(number: int) -> str:
    return "".join(chr(97 + number // 26**power % 26) for power in (2, 1, 0))


def _schedule(name: str, cron: str) -> Object:
    task = {"count": 1, "resources": {"cpu": "1000", "memory": "1Gi"}}
    spec = {
        "replicas": {"worker": task},
        "program": {"inline": "print()"},
    }
    return {
        "apiVersion": "tfcluster.dev/v1beta1",
        "kind": "TFClusterSchedule",
        "metadata": {"name": name},
        "spec": {"cron": cron, "template": {"spec": spec}},
    }


def _cron_job(name: str, cron: str) -> Object:
    container = {"name": "task", "image": "registry:5000/nothing:1", "command": ["true"]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {"suspend": True, "template": {"spec": pod}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {
            "schedule": cron,
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": job},
        },
    }
