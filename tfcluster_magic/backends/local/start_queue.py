"""The wait of a run before its start on this machine: for other runs (`after`), then for free
resources.

Other launches are refused if they do not fit. But when a run has waited for other runs, its launch
can no longer be refused, so its supervisor waits for resources. Runs start in the order in which
their wait for other runs ended. A waiting run reserves no resources.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from ... import state_files
from ...errors import TFClusterError
from ...launch_checks.local import lack_of_room
from ...lifecycle import SeenRun, waits_for_runs
from ...lifecycle.dependencies import awaited_since
from ...spec import Dependency, Message, Status, TFCluster, names
from . import capacity, lost_supervisor
from .run_store import RunFolder, Store


def awaited_runs(store: Store, after: Iterable[Dependency]) -> dict[str, SeenRun]:
    """Return the runs of `store` that `after` names and that exist; the keys are the names in
    `after`.
    """
    found = {}
    for each in after:
        name, number = names.parse_ref(each.run)
        run = lost_supervisor.load_run(store.folder(name, number or 0))
        if run is not None:
            released = run.status.released_at is not None
            found[each.run] = SeenRun(run.metadata.uid, run.status.phase, released)
    return found


class StartQueue:
    """The place of one run in the queue of waiting runs on this machine."""

    def __init__(self, folder: RunFolder, cluster: TFCluster) -> None:
        self._folder, self._cluster = folder, cluster
        self._store = Store(folder.path.parents[2])

    def awaited(self, after: Iterable[Dependency]) -> dict[str, SeenRun]:
        """Return the existing runs among those that `after` names; the keys are the names in
        `after`.
        """
        return awaited_runs(self._store, after)

    @contextmanager
    def room(self, status: Status) -> Iterator[Message | None]:
        """Yield None if the run can start now; its GPUs are then assigned. Otherwise yield a
        message that says what it still waits for. Within the context, no other run can reserve
        resources.
        """
        with ExitStack() as held:
            try:
                held.enter_context(self._store.launch_lock())
                lack = self._take_room(status)
            except (TFClusterError, OSError) as error:
                lack = Message("Refused", {"why": str(error)})
            yield lack

    def _take_room(self, status: Status) -> Message | None:
        spec, runs = self._cluster.spec, list(self._others())
        mine = (awaited_since(status.awaited), self._cluster.metadata.name)
        waiting = [
            (awaited_since(run.status.awaited), run.metadata.name)
            for _folder, run in runs
            if capacity.waits_to_start(run) and not waits_for_runs(run.spec, run.status)
        ]
        if ahead := [each for each in waiting if each < mine]:
            return Message("TurnAfter", {"name": max(ahead)[1]})
        facts = capacity.room_facts(spec, runs, self._store.hours, time.time())
        lack = lack_of_room(spec, facts)
        if lack is None and facts.free_gpus is not None:
            given = capacity.assign_gpus(spec, facts.free_gpus)
            state_files.write(self._folder.gpus_file, msgspec.json.encode(given))
        return lack

    def _others(self) -> Iterator[tuple[RunFolder, TFCluster]]:
        for folder in self._store.folders():
            if folder.path != self._folder.path:
                run = lost_supervisor.load_run(folder)
                if run is not None:
                    yield folder, run
