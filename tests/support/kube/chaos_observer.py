"""Observers of runs under chaos: every state of each record, and each task's processes.

Both observe continuously from outside: one follows the API with lists and watches, the other reads
the kernel's list of processes. Each has a list `problems` of the violations that it found.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kubenode.processes import alive, namespace_of
from support.chaos.invariants import check_change, check_end, check_released

from tfcluster_magic.kube.api.client import Api, ApiError, Object, StreamCloser, path
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.spec import TFCluster

EVERY = 0.3
"""Seconds between two reads of the processes."""


@dataclass
class Seen:
    """A record, and its state at each change."""

    run: TFCluster
    there: bool = True
    story: list[str] = field(default_factory=list)


class Records:
    """Every state of the records of a namespace that the API sends."""

    def __init__(self, api: Api, namespace: str, changed: threading.Event) -> None:
        self.seen: dict[str, Seen] = {}
        self.problems: list[str] = []
        self._api, self._where = api, path("tfclusters", namespace)
        self._changed, self._cut, self._ended = changed, StreamCloser(), threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop the observation."""
        self._ended.set()
        self._cut()
        self._thread.join(60)

    def every(self) -> list[TFCluster]:
        """Return the runs with a record, as last observed."""
        with self._lock:
            return [each.run for each in self.seen.values() if each.there]

    def newest(self, cluster: str) -> TFCluster | None:
        """Return the newest run of this name."""
        found = [run for run in self.every() if run.metadata.cluster == cluster]
        return max(found, key=lambda run: run.metadata.run, default=None)

    def _follow(self) -> None:
        while not self._ended.is_set():
            with suppress(ApiError):
                version = self._list()
                while not self._ended.is_set():
                    for change in self._api.watch(self._where, version, cut=self._cut):
                        version = str(change.object["metadata"]["resourceVersion"])
                        if change.kind != "BOOKMARK":
                            self._take(change.object, there=change.kind != "DELETED")
            self._ended.wait(0.2)

    def _list(self) -> str:
        listing = self._api.every(self._where)
        for each in listing.items:
            self._take(each, there=True)
        uids = {each["metadata"]["uid"] for each in listing.items}
        with self._lock:
            for uid, seen in self.seen.items():
                seen.there = seen.there and uid in uids
        return listing.version

    def _take(self, found: Object, *, there: bool) -> None:
        run = custom_resource.read(found)
        status = run.status
        with self._lock:
            seen = self.seen.setdefault(run.metadata.uid, Seen(run))
            words = f"{time.monotonic():.2f} {status.phase.value} {status.reason.value}"
            words += " released" * (status.released_at is not None)
            if not seen.story or seen.story[-1].partition(" ")[2] != words.partition(" ")[2]:
                seen.story.append(words)
            try:
                check_change(seen.run.status, status)
                if status.phase.is_final:
                    check_end(status)
                if status.released_at is not None:
                    check_released(status)
            except AssertionError as error:
                self.problems.append(f"{run.metadata.name}: {error} after {seen.story}")
            seen.run, seen.there = run, there
        self._changed.set()


@dataclass(frozen=True)
class Member:
    """The first process of a task's container."""

    pid: int
    uid: str
    task: str
    space: str
    """Its pid namespace, which no other container shares."""


class Members:
    """Every task's processes; two processes of one task at the same time are a problem."""

    def __init__(self, is_ours: Callable[[str], bool]) -> None:
        """Watch tasks; `is_ours` returns whether the run with a uid belongs to this test."""
        self.problems: list[str] = []
        self.forced: dict[tuple[str, str], float] = {}
        """Tasks whose pod was deleted by force, by run and task, with the time. Kubernetes does not
        wait for the end of such pods.
        """
        self._is_ours, self._ended = is_ours, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop the observation."""
        self._ended.set()
        self._thread.join(60)

    def now(self) -> list[Member]:
        """Return the current processes."""
        return [each for each in _members() if self._is_ours(each.uid)]

    def _look(self) -> None:
        told = set()
        while not self._ended.wait(EVERY):
            spaces: dict[tuple[str, str], set[str]] = {}
            for each in self.now():
                spaces.setdefault((each.uid, each.task), set()).add(each.space)
            for key, found in spaces.items():
                if len(found) > 1 and key not in self.forced and key not in told:
                    told.add(key)
                    at = f"{time.monotonic():.2f}"
                    self.problems.append(f"{at} two of {key} at the same time: {sorted(found)}")


def _members() -> Iterator[Member]:
    for pid in _pids():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if any(word.endswith(b"/runtime.zip") for word in words):
                # /proc/PID/root is the root folder of that process's container.
                given = Path("/proc", str(pid), "root", "tfcluster", "task.json")
                told = json.loads(given.read_bytes())
                space = namespace_of(pid)
                if space and alive(pid):
                    yield Member(pid, told["uid"], words[-2].decode(), space)


def processes_of(uids: set[str]) -> list[int]:
    """Return every process of these runs' tasks: the first processes of their containers, and the
    processes with a run's uid in their environment.
    """
    marks = {f"TFCLUSTER_RUN_UID={uid}".encode() for uid in uids}
    found = [each.pid for each in _members() if each.uid in uids]
    for pid in _pids():
        with suppress(OSError):
            raw = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if marks.intersection(raw) and alive(pid):
                found.append(pid)
    return found


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
