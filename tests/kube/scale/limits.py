"""Measure the operator with records of the largest number and size that a hub's default policy
allows.

The figures are the operator's memory, the time of its start, and the delay of one user's launch
while another user launches and deletes all the time. Each is compared with the same work without
the operator: a plain client that reads the same records, and a bare Job that is launched while the
same user is active.
"""

from __future__ import annotations

import base64
import math
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from kubenode.commands import say

from benchmarks.rows import Row, bounded
from tfcluster_magic.hub.tenancy.entitlements import ETCD_BUDGET, TaskQuota
from tfcluster_magic.kube.api.client import ApiError, path
from tfcluster_magic.spec.quantities import parse_memory
from tfcluster_magic.spec.record_size import RECORD_BYTES, TEXT_BYTES
from tfcluster_magic.spec.spec import PAYLOAD_BYTES

from .api_watch import counting, phases
from .records import over_status
from .site import Site
from .variants import bare, record

MEMORY_LIMIT = 512.0
"""Memory limit of the operator's Deployment, in MiB."""
LAUNCHES, CHURNERS = 10, 4
STAY = 10
"""Number of runs that each thread of `Churn` lets exist at the same time."""
LEFT = 1024
"""Bytes by which a program's file stays below the limit for programs, because the limit also counts
names and arguments.
"""


def limits(site: Site, rounds: int) -> list[Row]:
    """Create as many records as etcd's budget allows, then measure; the operator's start is
    measured `rounds` times, at least three.
    """
    each = TaskQuota().records
    assert each is not None
    users = parse_memory(ETCD_BUDGET) // (each * RECORD_BYTES)
    names = [site.new_name("limits") for _ in range(users)]
    for name in names:
        site.make_namespace(name)
    try:
        site.wait_furnished(names[-1])
        site.operator.stop()  # it would start the new runs before their status is written
        _fill(site, names, each)
        starts, reads = list[float](), list[float]()
        for _ in range(max(3, rounds)):
            site.operator.stop()
            reads.append(_read(site))
            starts.append(site.operator.start())
            say(f"read in {reads[-1]:.2f} s, ready in {starts[-1]:.2f} s")
        memory = site.memory()
        alone = _launches(site)
        churn = Churn(site)
        with churn.going():
            beside = _launches(site)
        starting, running, job = (
            max(slow - quick for slow, quick in zip(sorted(b), sorted(a), strict=True))
            for a, b in zip(alone, beside, strict=True)
        )
        memory = max(memory, site.memory())
    finally:
        for name in names:
            with suppress(ApiError):
                site.api.delete(path("namespaces", "", name))
    words = f"{users * each} records of {users} users, {PAYLOAD_BYTES // 1024} KiB each"
    other = f"beside {churn.count} launches and deletions of another"
    return [
        bounded("limits_memory", "MiB", [memory], at_most=MEMORY_LIMIT, note=words),
        bounded(
            "limits_ready",
            "s",
            starts,
            at_most=5.0,
            baseline=reads,
            note="from its start until it leads; beside kubectl, which reads the same records",
        ),
        bounded(
            "limits_neighbour",
            "s",
            [starting],
            at_most=2.0,
            note=f"how much later at most the operator begins a launch {other}",
        ),
        bounded(
            "limits_neighbour_tasks",
            "s",
            [running],
            at_most=2.0,
            baseline=[job],
            note="the same until its task runs; beside that of a bare Job, with no operator",
        ),
    ]


def _fill(site: Site, names: list[str], each: int) -> None:
    """Create records of ended runs, each of the largest size."""
    content = base64.b64encode(os.urandom(PAYLOAD_BYTES - LEFT)).decode()
    note = {"example.com/note": "x" * (TEXT_BYTES - len(content) - 2 * LEFT)}

    def one(number: int) -> None:
        namespace, name = names[number % len(names)], f"over-{number // len(names) + 1}"
        body = record(name, 4, 2)
        body["spec"]["program"] |= {"files": {"main.py": content}, "entrypoint": "main.py"}
        body["metadata"].setdefault("annotations", {}).update(note)
        made = site.api.create(path("tfclusters", namespace), body)
        head = {"name": name, "resourceVersion": made["metadata"]["resourceVersion"]}
        status = {"metadata": head, "status": over_status()}
        site.api.merge(f"{path('tfclusters', namespace, name)}/status", status)

    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(one, number) for number in range(len(names) * each)]:
            done.result()
    say(f"{len(names) * each} records in {time.monotonic() - began:.0f} s")


def _read(site: Site) -> float:
    """Return the seconds in which a plain client reads all records once."""
    began = time.monotonic()
    words = site.kubectl.words("get", "--raw", path("tfclusters"))
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def _launches(site: Site) -> tuple[list[float], list[float], list[float]]:
    """Return the seconds from each POST until the run is admitted, until its task is running, and
    until a bare Job's pod is running.
    """
    starting, running, jobs = list[float](), list[float](), list[float]()
    with (
        site.namespace("neighbour") as namespace,
        site.namespace("bare") as other,
        phases(site.api, namespace) as told,
        counting(site.api, other) as pods,
    ):
        for number in range(1, LAUNCHES + 1):
            job = bare(1)
            job["metadata"]["name"] = f"bare-{number}"
            began = time.monotonic()
            site.api.create(path("jobs", other), job)
            jobs.append(pods.wait(number, "the bare Job") - began)
            began = time.monotonic()
            site.api.create(path("tfclusters", namespace), record(f"run-{number}", 1, 0))
            run = (namespace, f"run-{number}")
            running.append(told.wait(run, "Running") - began)
            starting.append(min(told.at[run].get("Starting", math.inf) - began, running[-1]))
    for name, each in (("starting", starting), ("running", running), ("bare Job", jobs)):
        say(f"{name}: {' '.join(f'{seconds:.2f}' for seconds in sorted(each))}")
    return starting, running, jobs


class Churn:
    """A user who launches and deletes runs continuously, in several threads."""

    def __init__(self, site: Site) -> None:
        self._site, self._enough = site, threading.Event()
        self._counts = [0] * CHURNERS

    @property
    def count(self) -> int:
        """Number of launched runs."""
        return sum(self._counts)

    @contextmanager
    def going(self) -> Iterator[None]:
        """Launch and delete runs during the block, in a separate namespace."""
        namespace = self._site.new_name("churn")
        self._site.make_namespace(namespace)
        self._site.wait_furnished(namespace)
        threads = [
            threading.Thread(target=self._run, args=(namespace, mine)) for mine in range(CHURNERS)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._enough.set()
            for thread in threads:
                thread.join()
            self._site.api.delete(path("namespaces", "", namespace))

    def _run(self, namespace: str, mine: int) -> None:
        where = path("tfclusters", namespace)
        while not self._enough.is_set():
            number = self._counts[mine] = self._counts[mine] + 1
            with suppress(ApiError):
                self._site.api.create(where, record(f"churn{mine}-{number}", 1, 0))
                if number > STAY:
                    self._site.api.delete(f"{where}/churn{mine}-{number - STAY}")
