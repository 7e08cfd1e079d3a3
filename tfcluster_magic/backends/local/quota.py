"""Limits that the hub sets for this user on this machine: sizes, storage and hours.

The hub names a file with the limits; without it there are none, and an unreadable file is an error.
Hours are kept in `<state>/hours.json`. A run counts from its record and is written there before its
record is deleted, so that nothing is counted twice or lost in between. Nothing is written while
runs run.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from ... import state_files
from ...errors import TFClusterError
from ...i18n import _
from ...quota import budgets, ledger
from ...quota.limits import LIMITS_VARIABLE, Limits
from ...quota.storage import FolderUsage
from ...spec import TFCluster, to_json
from ...spec.quantities import parse_memory
from .. import folder_sizes


def hub_limits(environ: Mapping[str, str] | None = None) -> Limits | None:
    """Return the limits of this process's user; None if there are none. Raises TFClusterError."""
    file = (os.environ if environ is None else environ).get(LIMITS_VARIABLE)
    if not file:
        return None
    try:
        return state_files.load(Path(file), Limits, exact=True)
    except (FileNotFoundError, state_files.Unreadable) as error:
        text = _("what the hub allows cannot be read from {file}: {why}; ask its administrator")
        raise TFClusterError(text.format(file=file, why=error)) from None


def bounded_volumes(
    folders: Mapping[str, Path], state_dir: Path, said: Limits | None
) -> list[FolderUsage]:
    """Return the usage of the user's folders that the hub limits, by `storage.NAMES`."""
    if said is None:
        return []
    allowed = {}
    for name, amount in said.storage.items():
        with contextlib.suppress(ValueError, TypeError):  # written by another release
            allowed[name] = parse_memory(amount)
    bounded = [
        folder_sizes.MeasuredFolder(name, path, allowed[name], runs=name == "log")
        for name, path in folders.items()
        if name in allowed
    ]
    inside = [
        folder_sizes.MeasuredFolder(name, path)
        for name, path in folders.items()
        if name not in allowed
    ]
    return folder_sizes.measure(bounded, state_dir, but=inside) if bounded else []


# -- hours -----------------------------------------------------------------------------------------

HOURS_FILE = "hours.json"


class HoursFile:
    """The ledger of one state folder; write it only under the launch lock."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / HOURS_FILE

    def record(self, cluster: TFCluster, there: Callable[[], Collection[str]]) -> bool:
        """Record the hours and the number of a run whose record is being deleted.

        `there` returns the uids of all recorded runs. Return False if writing fails: a full disk
        must not keep anybody from deleting files. A damaged ledger is put aside, not overwritten.
        """
        group = ""
        with contextlib.suppress(TFClusterError):
            group = _group_and_budget(hub_limits())[0]
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
        """Return the hours until `now`: of recorded runs and of those that still have a record."""
        runs = ((each.metadata.uid, ledger.accounted_run(each)) for each in clusters)
        return self.account_of(((uid, run) for uid, run in runs if run is not None), now, said)

    def account_of(
        self, runs: Iterable[tuple[str, ledger.AccountedRun]], now: float, said: Limits | None
    ) -> ledger.HoursAccount:
        """Return the account of hours from `runs`, pairs of a uid and a run whose usage is already
        known.
        """
        (group, most), kept = _group_and_budget(said), self._read()
        open_runs = (
            msgspec.structs.replace(run, group=group)
            for uid, run in runs
            if uid not in kept.counted
        )
        days = ledger.add_runs(kept.days, open_runs, now)
        return ledger.HoursAccount(days=days, group=group, budget=most)

    def _read(self) -> ledger.Ledger:
        return state_files.read(self._file, ledger.Ledger) or ledger.Ledger()


def _group_and_budget(said: Limits | None) -> tuple[str, budgets.Budget | None]:
    """Return the group and the budget of this process's user, as the hub set them."""
    if said is None:
        return "", None
    with contextlib.suppress(msgspec.ValidationError):  # written by another release
        return said.group, budgets.effective_budget(msgspec.convert(said.budget, budgets.Budget))
    return said.group, None


def has_budget(said: Limits | None) -> bool:
    """Return whether the hub limits the hours of this process's user."""
    return _group_and_budget(said)[1] is not None
