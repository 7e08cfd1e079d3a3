"""An index that says which run waits for which other runs (`after`).

The index wakes a waiting run, so that it takes a turn, when a run that it waits for appears, ends,
is released or is deleted. It uses the cache and sends no requests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ...kube.api.informer import Informer
from ...kube.objects import custom_resource
from ...lifecycle import SeenRun
from ...lifecycle.dependencies import circle_of
from ...spec import Phase
from ..cluster_state import Key
from ..scheduling.launch_queue import awaited_names, phase_of

_FINAL = [phase for phase in Phase if phase.is_final]
Sight = SeenRun | None
"""The state in which an awaited run was last seen; None if the run does not exist."""


class AwaitedRuns:
    """The index of waiting and awaited runs, which can be looked up by either.

    Args:
        runs: the cache of all runs.
        wake: called with each waiting run when an awaited run changes.
    """

    def __init__(self, runs: Informer, wake: Callable[[Key], None]) -> None:
        self._runs, self._wake = runs, wake
        self._lock = threading.Lock()
        self._waiting: dict[Key, dict[Key, Sight]] = {}
        """By awaited run: the runs that wait for it, each with the state of the awaited run that it
        has seen.
        """
        self._awaited: dict[Key, Sequence[Key]] = {}
        """By waiting run: the runs that it waits for."""

    def __len__(self) -> int:
        """Return the number of waiting runs."""
        return len(self._awaited)

    def observe(self, key: Key, names: Sequence[str]) -> dict[str, SeenRun]:
        """Return the state of each named run that exists. From now on, the run `key` waits for the
        named runs, and takes a turn when one of them changes.
        """
        keys = [(key[0], name) for name in names]
        while True:
            sights = {each: self._sight(each) for each in keys}
            with self._lock:
                self._unregister(key)
                self._awaited[key] = keys
                for each, sight in sights.items():
                    self._waiting.setdefault(each, {})[key] = sight
            # If a state changed before this run was registered, the change has woken nobody, so
            # compare the states again.
            if sights == {each: self._sight(each) for each in keys}:
                return {each[1]: sight for each, sight in sights.items() if sight is not None}

    def circle(self, key: Key) -> tuple[str, ...]:
        """Return the runs that wait for each other in a circle with the run `key`; empty if there
        is no circle.
        """

        def waits_for(name: str) -> Sequence[str]:
            found = self._runs.get(key[0], name)
            return [] if found is None else awaited_names(found)

        return circle_of(key[1], waits_for)

    def changed(self, key: Key) -> None:
        """Wake the runs that wait for the run `key` and have not seen its present state."""
        if key not in self._waiting:
            return
        now = self._sight(key)
        with self._lock:
            woken = [each for each, seen in self._waiting.get(key, {}).items() if seen != now]
        for each in woken:
            self._wake(each)

    def forget(self, key: Key) -> None:
        """Record that the run `key` waits for no other run any more."""
        if key in self._awaited:
            with self._lock:
                self._unregister(key)

    def _unregister(self, key: Key) -> None:
        for each in self._awaited.pop(key, ()):
            waiting = self._waiting.get(each, {})
            waiting.pop(key, None)
            if not waiting:
                self._waiting.pop(each, None)

    def _sight(self, key: Key) -> Sight:
        found = self._runs.get(*key)
        if found is None:
            return None
        # All phases before the end count as Queued, so a change between them causes no turn.
        ended = next((each for each in _FINAL if each.value == phase_of(found)), None)
        released = ended is not None and custom_resource.is_released(found)
        return SeenRun(found["metadata"]["uid"], ended or Phase.QUEUED, released)
