"""The state of a RunWatcher if a change of a run is reported twice, in any order: as the result of
the action that made the change, such as a stop, and by the backend's watch.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from tfcluster_magic import ClusterManager
from tfcluster_magic.backends.base import Removed
from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.runs.watcher import RunWatcher, WatchedRun
from tfcluster_magic.spec import Metadata, Phase, Reason, Spec, Status, Stop, TFCluster


class Told(LocalBackend):
    """A backend whose watch reports what the test gives it."""

    def __init__(self) -> None:
        super().__init__()
        self._said: queue.Queue[Any] = queue.Queue()
        self._taken = threading.Semaphore(0)

    def say(self, *changes: TFCluster | Removed | None) -> None:
        """Report `changes`, and wait until the watcher has handled the last change."""
        for change in (*changes, None):
            self._said.put(change)
        for _ in (*changes, None):
            assert self._taken.acquire(timeout=120)

    def end(self) -> None:
        """Let the watch notice that it has no listeners."""
        self._said.put(None)

    def watch(self, ref: str | None = None) -> Iterator[Any]:
        yield None
        while True:
            yield self._said.get()
            self._taken.release()  # the watcher asks for the next item, so it has handled this one


@pytest.fixture
def backend() -> Told:
    return Told()


@pytest.fixture
def heard() -> list[tuple[str, WatchedRun | None]]:
    """Return the list in which the listener of `watcher` records the reports that it gets."""
    return []


@pytest.fixture
def watcher(backend: Told, heard: list[tuple[str, WatchedRun | None]]) -> Iterator[RunWatcher]:
    made = RunWatcher(ClusterManager(backend=backend))
    end = made.listen(lambda name, known: heard.append((name, known)))
    backend.say(None)
    heard.clear()
    yield made
    end()
    backend.end()


def run(uid: str = "first", phase: Phase = Phase.RUNNING) -> TFCluster:
    return TFCluster(
        metadata=Metadata(name="digits-1", cluster="digits", run=1, uid=uid, created_at=1.0),
        spec=Spec(),
        status=Status(phase=phase, reason=Reason.RUNNING),
    )


def asked_to_end(before: TFCluster) -> TFCluster:
    return replace(before, spec=replace(before.spec, stop=Stop(reason="enough", at=2.0)))


def phases(heard: list[tuple[str, WatchedRun | None]]) -> list[str]:
    return [k.cluster.status.phase.value if k else "removed" for _, k in heard]


def test_what_a_verb_answers_is_known_at_once(
    watcher: RunWatcher, backend: Told, heard: list[tuple[str, WatchedRun | None]]
) -> None:
    """A listener gets the result of an action, such as a stop, before the watch reports it. If the
    watch then reports the same record, the listener does not get it again.
    """
    watcher.learn(run())
    assert watcher.known()["digits-1"].cluster == run()
    backend.say(run())
    assert phases(heard) == ["Running"]


def test_an_end_is_not_taken_back(
    watcher: RunWatcher, backend: Told, heard: list[tuple[str, WatchedRun | None]]
) -> None:
    """If the watch reports a record that it read before a stop, or before the run's end, the
    watcher ignores it.
    """
    stopping = asked_to_end(run())
    over = asked_to_end(run(phase=Phase.STOPPED))
    backend.say(run())
    watcher.learn(stopping)
    backend.say(run())
    assert watcher.known()["digits-1"].cluster == stopping
    backend.say(over)
    watcher.learn(stopping)
    assert watcher.known()["digits-1"].cluster == over
    assert phases(heard) == ["Running", "Running", "Stopped"]


def test_a_removed_run_does_not_come_back(
    watcher: RunWatcher, backend: Told, heard: list[tuple[str, WatchedRun | None]]
) -> None:
    """A run that an action has deleted stays deleted, even if the watch then reports a record that
    it read before.
    """
    backend.say(run())
    watcher.removed("digits-1", "first")
    backend.say(run(phase=Phase.STOPPED), Removed("digits-1"))
    assert watcher.known() == {}
    assert phases(heard) == ["Running", "removed"]


def test_a_name_that_is_used_again_is_another_run(
    watcher: RunWatcher, backend: Told, heard: list[tuple[str, WatchedRun | None]]
) -> None:
    """A late report that the first run of a name is gone does not affect the second run of this
    name.
    """
    backend.say(run())
    watcher.removed("digits-1", "first")
    watcher.learn(run("second"))
    backend.say(Removed("digits-1"), run("second"))
    watcher.removed("digits-1", "first")
    assert watcher.known()["digits-1"].cluster.metadata.uid == "second"
    assert phases(heard) == ["Running", "removed", "Running"]
    backend.say(Removed("digits-1"))
    assert phases(heard)[-1] == "removed"
