"""Delay of `status -f`: from a pod's change until the backend's watch of the run reports it.
Watches in this process report both changes, so the delay consists of the operator's decision and
its write of the run's status.
"""

from __future__ import annotations

import threading
import time

from kubenode.errors import NodeError

from benchmarks.rows import Row, bounded
from tfcluster_magic.backends.kubernetes.backend import KubernetesBackend
from tfcluster_magic.kube.api.client import path

from .api_watch import PATIENCE, counting, phases
from .site import Site
from .variants import PS, RUN, TASKS, WORKERS, record

EXIT = "kwok.tfcluster/exit-code"
ENDED = "status.phase=Succeeded"


class Follower:
    """The numbers of succeeded workers that `status -f` receives for a run, with the time at which
    each number was first reported.
    """

    def __init__(self, namespace: str) -> None:
        """Follow the run in a thread that ends with this process."""
        self.at: dict[int, float] = {}
        self._namespace = namespace
        self._told = threading.Condition()
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        for run in KubernetesBackend(namespace=self._namespace).watch(RUN):
            counts = run.status.counts.get("worker") if run else None
            if counts is not None:
                with self._told:
                    self.at.setdefault(counts.succeeded, time.monotonic())
                    self._told.notify_all()

    def wait(self, count: int) -> float:
        """Wait until `count` succeeded workers are reported; return the time of the report."""
        with self._told:
            if not self._told.wait_for(lambda: count in self.at, PATIENCE):
                raise NodeError(f"{count} ended workers were not told: {self.at}")
            return self.at[count]


def following(site: Site, rounds: int) -> list[Row]:
    """End workers of a run of 600 tasks one by one, and measure the delay of each report."""
    changes = 20 if rounds == 1 else 100
    with site.namespace("follow") as namespace, phases(site.api, namespace) as told:
        site.api.create(path("tfclusters", namespace), record(RUN, WORKERS, PS))
        told.wait((namespace, RUN), "Running")
        follower, late = Follower(namespace), []
        follower.wait(0)
        with counting(site.api, namespace, fields=ENDED) as pods:
            for number, name in enumerate(workers(site, namespace)[:changes], 1):
                site.api.merge(name, {"metadata": {"annotations": {EXIT: "0"}}})
                ended = pods.wait(number, "a worker has ended")
                late.append(max(0.0, follower.wait(number) - ended))
    late.sort()
    p95 = late[min(len(late) - 1, int(len(late) * 0.95))]
    note = f"{TASKS} tasks, {changes} changes: median {late[len(late) // 2]:.3f}"
    return [bounded("scale_change_told", "s", [p95], at_most=0.5, note=f"p95; {note}")]


def workers(site: Site, namespace: str) -> list[str]:
    """Return the paths of the workers' pods."""
    where = path("pods", namespace)
    found = site.api.every(where, labelSelector="tfcluster.dev/task-type=worker").items
    return [f"{where}/{each['metadata']['name']}" for each in found]
