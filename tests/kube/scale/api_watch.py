"""Watches of an API server during a measurement: the number of pods, and the phases of runs.

Times are those at which the watch reported a change, without polling. A reported pod costs this
process a fraction of a millisecond, the same for every way to create pods that is compared.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kubenode.commands import wait_until
from kubenode.errors import NodeError

from tfcluster_magic.kube.api.client import Api, Object, path
from tfcluster_magic.kube.api.informer import CacheUpdate, Informer

PATIENCE = 300.0
RUNNING = "status.phase=Running"


class Pods:
    """The number of pods, in each namespace and in total, with the times of changes."""

    def __init__(
        self, api: Api, namespace: str = "", *, fields: str = RUNNING, selector: str = ""
    ) -> None:
        """Count pods of one namespace, or of all; `fields` and `selector` choose the pods."""
        self.changed_at: dict[str, float] = {}
        """Time of the last change of the number in each namespace."""
        self._counts: Counter[str] = Counter()
        self._told = threading.Condition()
        self._informer = Informer(
            api,
            path("pods", namespace),
            fields=fields,
            selector=selector,
            trim=_head,
            changed=self._count,
        )

    def _count(self, update: CacheUpdate) -> None:
        if update.old is not None and update.new is not None:
            return
        with self._told:
            namespace = update.object["metadata"]["namespace"]
            self._counts[namespace] += 1 if update.old is None else -1
            self.changed_at[namespace] = time.monotonic()
            self._told.notify_all()

    def wait(self, count: int, what: str, seconds: float = PATIENCE) -> float:
        """Wait until the total is `count`; return the time at which the watch reported that."""
        with self._told:
            if not self._told.wait_for(lambda: self._counts.total() == count, seconds):
                there = self._counts.total()
                raise NodeError(f"{what}: {there} of {count} pods after {seconds:g} s")
            return max(self.changed_at.values(), default=time.monotonic())

    def start(self) -> None:
        """Start counting; return when existing pods are counted."""
        self._informer.start()
        _synced(self._informer)

    def stop(self) -> None:
        """Stop counting."""
        self._informer.stop()


class Phases:
    """The times at which each run was first reported in a phase, and the number of changes of its
    record.
    """

    def __init__(self, api: Api, namespace: str = "") -> None:
        """Follow the runs of one namespace, or of all."""
        self.at: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        """By namespace and name, then by phase."""
        self.changes: Counter[tuple[str, str]] = Counter()
        """Reported changes of a record after the first."""
        self._there: set[tuple[str, str]] = set()
        self._told = threading.Condition()
        self._informer = Informer(api, path("tfclusters", namespace), changed=self._take)

    def _take(self, update: CacheUpdate) -> None:
        head, status = update.object["metadata"], update.object.get("status") or {}
        key = (head["namespace"], head["name"])
        with self._told:
            if update.new is None:
                self._there.discard(key)
            else:
                self._there.add(key)
                self.changes[key] += update.old is not None
                self.at[key].setdefault(status.get("phase", ""), time.monotonic())
                if status.get("releasedTime") is not None:
                    self.at[key].setdefault("released", time.monotonic())
            self._told.notify_all()

    def wait(self, name: tuple[str, str], phase: str, seconds: float = PATIENCE) -> float:
        """Wait until a run was reported in `phase`, or as released (`phase="released"`); return the
        time of that report.
        """
        with self._told:
            if not self._told.wait_for(lambda: phase in self.at[name], seconds):
                raise NodeError(f"{name}: not {phase} after {seconds:g} s: {self.at[name]}")
            return self.at[name][phase]

    def wait_gone(self, seconds: float = PATIENCE) -> float:
        """Wait until no record is left; return the time."""
        with self._told:
            if not self._told.wait_for(lambda: not self._there, seconds):
                raise NodeError(f"{len(self._there)} records are still there after {seconds:g} s")
            return time.monotonic()

    def start(self) -> None:
        """Start following; return when existing records are reported."""
        self._informer.start()
        _synced(self._informer)

    def stop(self) -> None:
        """Stop following."""
        self._informer.stop()


@contextmanager
def counting(
    api: Api, namespace: str = "", *, fields: str = RUNNING, selector: str = ""
) -> Iterator[Pods]:
    """Count pods in the block."""
    pods = Pods(api, namespace, fields=fields, selector=selector)
    pods.start()
    try:
        yield pods
    finally:
        pods.stop()


@contextmanager
def phases(api: Api, namespace: str = "") -> Iterator[Phases]:
    """Follow phases of runs in the block."""
    found = Phases(api, namespace)
    found.start()
    try:
        yield found
    finally:
        found.stop()


def until(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> float:
    """Poll for a condition that no watch reports; return the time."""
    wait_until(condition, what, seconds=seconds, every=0.05)
    return time.monotonic()


def _synced(informer: Informer) -> None:
    if not informer.synced.wait(60):
        raise NodeError(f"{informer.where} cannot be followed: {informer.problem}")


def _head(found: Object) -> Object:
    return {"metadata": {k: found["metadata"][k] for k in ("namespace", "name")}}
