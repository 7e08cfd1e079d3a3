"""The ledger of hours on this machine, `<state>/hours.json`.

As long as a run has a record, its hours are computed from the record; they are written to the
ledger before the record is deleted. So no hours are counted twice or lost. The ledger contains no
active runs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import msgspec

from ... import state_files
from ...errors import TFClusterError
from ...quota import ledger
from ...quota.limits import Limits
from ...spec import TFCluster, to_json
from .quota import group_and_budget, hub_limits

HOURS_FILE = "hours.json"


class HoursFile:
    """The ledger of one state folder; write it only under the launch lock."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / HOURS_FILE

    def record(self, cluster: TFCluster, there: Callable[[], Collection[str]]) -> bool:
        """Record the hours and the number of a run whose record is being deleted.

        `there` returns the uids of all runs that have a record. If writing fails, the method
        returns False instead of raising an error, because a full disk must not keep users from
        deleting files. A damaged ledger is renamed, not overwritten.
        """
        group = ""
        with contextlib.suppress(TFClusterError):
            group = group_and_budget(hub_limits())[0]
        run, head = ledger.accounted_run(cluster, group), cluster.metadata
        now = time.time()
        before = kept = self._read()
        if any(now > at + ledger.UID_RETENTION for at in kept.counted.values()):
            kept = ledger.forget_runs(kept, there(), now)
        told = ledger.remember_number(kept, head.cluster, head.run)
        if run is not None:
            told = ledger.end_run(told, head.uid, run, now)
        if told is before:
            return True
        try:
            try:
                state_files.load(self._file, ledger.Ledger)
            except state_files.Unreadable:
                state_files.put_aside(self._file)
            except FileNotFoundError:
                pass
            state_files.write(self._file, to_json(told), durable=True, alone=True)
        except OSError:
            return False
        return True

    def last_number(self, cluster: str) -> int:
        """Return the highest recorded run number of this name; 0 if there is none."""
        return self._read().numbers.get(cluster, 0)

    def account(
        self, clusters: Iterable[TFCluster], now: float, said: Limits | None
    ) -> ledger.HoursAccount:
        """Return the hours until `now`: the hours in the ledger and the hours of `clusters`, the
        runs that still have a record. `said` are the limits that the hub has set.
        """
        runs = ((each.metadata.uid, ledger.accounted_run(each)) for each in clusters)
        return self.account_of(((uid, run) for uid, run in runs if run is not None), now, said)

    def account_of(
        self, runs: Iterable[tuple[str, ledger.AccountedRun]], now: float, said: Limits | None
    ) -> ledger.HoursAccount:
        """Return the same as `account`, but compute it from `runs` instead of from records. Each
        item of `runs` is a pair: the uid of a run, and the run's usage.
        """
        (group, most), kept = group_and_budget(said), self._read()
        open_runs = (
            msgspec.structs.replace(run, group=group)
            for uid, run in runs
            if uid not in kept.counted
        )
        days = ledger.add_runs(kept.days, open_runs, now)
        return ledger.HoursAccount(days=days, group=group, budget=most)

    def _read(self) -> ledger.Ledger:
        return state_files.read(self._file, ledger.Ledger) or ledger.Ledger()
