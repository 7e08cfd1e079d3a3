"""What an API server tells while something is measured: how many pods there are, and each phase.

Promises the moment at which the watch told it, not one at which somebody asked. A pod that is told
costs this process a fraction of a millisecond, the same for every way that is measured.
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
    """How many pods there are, in each namespace and in all, and since when."""

    def __init__(
        self, api: Api, namespace: str = "", *, fields: str = RUNNING, selector: str = ""
    ) -> None:
        """Of one namespace, or of all; `fields` and `selector` say which pods count."""
        self.changed_at: dict[str, float] = {}
        """When the number in a namespace changed last."""
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
        """Wait until there are so many in all; the moment at which it was told."""
        with self._told:
            if not self._told.wait_for(lambda: self._counts.total() == count, seconds):
                there = self._counts.total()
                raise NodeError(f"{what}: {there} of {count} pods after {seconds:g} s")
            return max(self.changed_at.values(), default=time.monotonic())

    def start(self) -> None:
        """Begin; return when what there is already was counted."""
        self._informer.start()
        _synced(self._informer)

    def stop(self) -> None:
        """Count no more."""
        self._informer.stop()


class Phases:
    """When each run was first told to be in a phase, and how often its record changed."""

    def __init__(self, api: Api, namespace: str = "") -> None:
        """Of one namespace, or of all."""
        self.at: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        """By namespace and name, by phase."""
        self.changes: Counter[tuple[str, str]] = Counter()
        """Changes of a record after the first that was told."""
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
        """Wait until a run was in this phase, or "released"; the moment."""
        with self._told:
            if not self._told.wait_for(lambda: phase in self.at[name], seconds):
                raise NodeError(f"{name}: not {phase} after {seconds:g} s: {self.at[name]}")
            return self.at[name][phase]

    def wait_gone(self, seconds: float = PATIENCE) -> float:
        """Wait until there is no record any more; the moment."""
        with self._told:
            if not self._told.wait_for(lambda: not self._there, seconds):
                raise NodeError(f"{len(self._there)} records are still there after {seconds:g} s")
            return time.monotonic()

    def start(self) -> None:
        """Begin; return when what there is already was told."""
        self._informer.start()
        _synced(self._informer)

    def stop(self) -> None:
        """Follow no more."""
        self._informer.stop()


@contextmanager
def counting(
    api: Api, namespace: str = "", *, fields: str = RUNNING, selector: str = ""
) -> Iterator[Pods]:
    """Pods, for a while."""
    pods = Pods(api, namespace, fields=fields, selector=selector)
    pods.start()
    try:
        yield pods
    finally:
        pods.stop()


@contextmanager
def phases(api: Api, namespace: str = "") -> Iterator[Phases]:
    """Phases of runs, for a while."""
    found = Phases(api, namespace)
    found.start()
    try:
        yield found
    finally:
        found.stop()


def until(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> float:
    """Wait for what no watch tells; the moment."""
    wait_until(condition, what, seconds=seconds, every=0.05)
    return time.monotonic()


def _synced(informer: Informer) -> None:
    if not informer.synced.wait(60):
        raise NodeError(f"{informer.where} cannot be followed: {informer.problem}")


def _head(found: Object) -> Object:
    return {"metadata": {k: found["metadata"][k] for k in ("namespace", "name")}}
