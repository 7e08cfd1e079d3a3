"""The ledger of this machine: `<state>/hours.json`, and what is left of the user's budget.

Promises that a run is written down before its record goes, and counts from its record until then,
so that nothing is counted twice or lost between the two. Nothing is written while runs run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import msgspec

from ... import state_files
from ...errors import TFClusterError
from ...quota import budgets, ledger, usage
from ...quota.preflight import Preflight
from ...spec import Spec, TFCluster, to_json
from . import allowance

FILE = "hours.json"


class Book:
    """The ledger of one state folder; to be written under the launch lock."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / FILE

    def record(self, cluster: TFCluster, there: Callable[[], Collection[str]]) -> bool:
        """Write down a run whose record goes; `there` tells the uids of those that have one.

        Return False if they cannot be written: a full disk must not keep anybody from deleting
        files. A damaged ledger is put aside, not overwritten.
        """
        group = ""
        with contextlib.suppress(TFClusterError):
            group = _allowed()[0]
        run = ledger.run_of(cluster, group)
        if run is None:
            return True
        now = time.time()
        kept = self._read()
        if any(now > at + ledger.REMEMBERED for at in kept.counted.values()):
            kept = ledger.forget(kept, there(), now)
        told = ledger.end(kept, cluster.metadata.uid, run, now)
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

    def account(self, clusters: Iterable[TFCluster], now: float) -> ledger.Account:
        """What was held until `now`: by runs that are written down, and by those on record."""
        (group, most), kept = _allowed(), self._read()
        runs = (
            run
            for cluster in clusters
            if cluster.metadata.uid not in kept.counted
            and (run := ledger.run_of(cluster, group)) is not None
        )
        days = ledger.with_runs(kept.days, runs, now)
        return ledger.Account(days=days, group=group, budget=most)

    def _read(self) -> ledger.Ledger:
        return state_files.read(self._file, ledger.Ledger) or ledger.Ledger()


def _allowed() -> tuple[str, budgets.Budget | None]:
    """The group and the budget of this process's user, as the hub told them.

    Raises:
        TFClusterError: that cannot be read.
    """
    said = allowance.limits()
    if said is None:
        return "", None
    with contextlib.suppress(msgspec.ValidationError):  # of another release
        return said.group, budgets.real(msgspec.convert(said.budget, budgets.Budget))
    return said.group, None


def has_budget() -> bool:
    """Whether the hub bounds the hours of this process's user."""
    return _allowed()[1] is not None


def judged(spec: Spec, verdict: Preflight, account: ledger.Account, now: float) -> Preflight:
    """A verdict with what the budget says."""
    spent, most = ledger.spent(account.days), account.budget
    cores = budgets.cores(spec, usage.USUAL_CORES)
    found = budgets.problems(spec, cores, most, spent, now)
    warned = budgets.warnings(most, spent, now) if not found else []
    told = budgets.told(most, spent, now)
    return Preflight(
        (*found, *verdict.problems),
        (*warned, *verdict.warnings),
        (*((told,) if told else ()), *verdict.told),
    )
