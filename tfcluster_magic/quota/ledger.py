"""The ledger of one user: CPU- and GPU-hours by day, group and cluster, when records are gone, too.

Promises that a run counts once, by its uid, however often it is written down; that the hours of a
run which was deleted stay; and a size that does not grow without end. Pure: who keeps it (a file
here, an object of the operator on Kubernetes) reads, calls and writes. `usage` counts one run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from ..spec import Model, TFCluster, Usage
from . import budgets, usage
from .budgets import Budget, Spent

FULL_DAYS = 92
"""Of older days the clusters are one."""
MOST_DAYS = 732
"""What is older is counted to the oldest day that is kept."""
MOST_CLUSTERS = 20
"""Of one day; the smallest of more are one, whose name is empty."""
REMEMBERED = usage.DAY
"""Seconds for which a run that has no record any more is known to be counted."""

By = Literal["user", "group", "cluster", "day"]
WAYS: tuple[By, ...] = get_args(By)


class Hours(Model, frozen=True):
    """CPU- and GPU-hours that were held; `used` CPU-hours were really used where somebody could
    tell, beside `measured` of `cpu`.
    """

    cpu: float = 0.0
    gpu: float = 0.0
    used: float = 0.0
    measured: float = 0.0

    def __add__(self, other: Hours) -> Hours:
        return Hours(
            cpu=round(self.cpu + other.cpu, 9),
            gpu=round(self.gpu + other.gpu, 9),
            used=round(self.used + other.used, 9),
            measured=round(self.measured + other.measured, 9),
        )


Days = dict[str, dict[str, dict[str, Hours]]]
"""By day (`2026-11-22`, UTC), group (empty: none) and cluster."""


class Run(Model, frozen=True):
    """What the ledger needs of a run; `gpus` are those of one task by type, `until` is when it gave
    everything back, `metered` the CPU seconds that were used in so many that were held.
    """

    cluster: str
    usage: Usage
    until: float | None = None
    gpus: dict[str, int] = {}
    group: str = ""
    metered: tuple[float, float] | None = None


class Ledger(Model, frozen=True):
    """`days` has the runs that are over, `counted` their uids and when they were written down;
    `begun` those of which the end is not written yet, as they were when they began.
    """

    days: Days = {}
    counted: dict[str, float] = {}
    begun: dict[str, Run] = {}


class Account(Model, frozen=True):
    """What a user is told of themselves: what is over, and what they may have."""

    days: Days = {}
    group: str = ""
    budget: Budget | None = None


class Row(Model, frozen=True, omit_defaults=False):
    """Hours of a window; `used` and `measured` are none where nobody could tell."""

    key: str
    cpu: float
    gpu: float
    used: float | None = None
    measured: float | None = None


ACCOUNT = msgspec.json.Decoder(Account)
LEDGER = msgspec.json.Decoder(Ledger)


def run_of(cluster: TFCluster, group: str = "") -> Run | None:
    """A run as the ledger needs it; None when it never held anything."""
    spec, held = cluster.spec, cluster.status.usage
    if held is None:
        return None
    each = {t.value: spec.replicas.of(t).resources.gpu for t in spec.replicas.counts}
    gpus = {task_type: count for task_type, count in each.items() if count}
    return Run(
        cluster=cluster.metadata.cluster,
        usage=held,
        until=cluster.status.released_at,
        gpus=gpus,
        group=group,
    )


def hours(run: Run, now: float) -> dict[str, Hours]:
    """What a run has held until `now`, by day; what was really used by what was held."""
    now = now if run.until is None else min(now, run.until)
    held = {day: _of_day(run, types) for day, types in usage.days(run.usage, now).items()}
    if run.usage.used is None and run.metered is None:
        return held
    at = now if run.metered else run.usage.at
    until = {day: _of_day(run, types).cpu for day, types in usage.days(run.usage, at).items()}
    whole = sum(until.values())
    used, measured = run.metered or (run.usage.used or 0.0, whole * 3600)
    for day, part in until.items():
        share = part / whole / 3600 if whole else 0.0
        held[day] = replace(held[day], used=used * share, measured=min(measured * share, part))
    return held


def begin(ledger: Ledger, uid: str, run: Run) -> Ledger:
    """Note that a run holds something: if its record goes unseen, so much is known of it."""
    if uid in ledger.counted or uid in ledger.begun:
        return ledger
    return replace(ledger, begun={**ledger.begun, uid: run})


def end(ledger: Ledger, uid: str, run: Run | None, now: float) -> Ledger:
    """Write down a run that is over, or whose record is gone, with what it held until `now`.

    The same ledger when it was written down before. None: as it was when it began.
    """
    if uid in ledger.counted:
        return ledger
    run = run or ledger.begun.get(uid)
    begun = {key: value for key, value in ledger.begun.items() if key != uid}
    days = {} if run is None else added(ledger.days, run, now)
    return replace(
        ledger,
        days=_bounded(days or ledger.days, now),
        counted={**ledger.counted, uid: now},
        begun=begun,
    )


def forget(ledger: Ledger, there: Collection[str], now: float) -> Ledger:
    """Without the uids of runs that have had no record for long; `there` are those that have."""
    kept = {u: at for u, at in ledger.counted.items() if u in there or now < at + REMEMBERED}
    return ledger if len(kept) == len(ledger.counted) else replace(ledger, counted=kept)


def added(days: Days, run: Run, now: float) -> Days:
    """`days` with what a run has held until `now`; those that are given stay as they are."""
    each = hours(run, now).items()
    return together(days, {day: {run.group: {run.cluster: held}} for day, held in each})


def together(one: Days, other: Days) -> Days:
    """The hours of both; those that are given stay as they are."""
    found = dict(one)
    for day, more in other.items():
        groups = {group: dict(clusters) for group, clusters in found.get(day, {}).items()}
        for group, clusters in more.items():
            into = groups.setdefault(group, {})
            for cluster, held in clusters.items():
                into[cluster] = into.get(cluster, Hours()) + held
        found[day] = groups
    return found


def with_runs(days: Days, runs: Iterable[Run], now: float) -> Days:
    """`days` with runs that are not written down yet, until `now`."""
    for run in runs:
        days = added(days, run, now)
    return days


def spent(days: Days) -> Spent:
    """CPU- and GPU-hours by day, as budgets count them."""
    found = {}
    for day, groups in days.items():
        every = [held for clusters in groups.values() for held in clusters.values()]
        found[day] = (sum(each.cpu for each in every), sum(each.gpu for each in every))
    return found


def left(account: Account, now: float) -> tuple[str, ...]:
    """What is left of a budget, and that it is little; nothing without one."""
    held = spent(account.days)
    told = budgets.told(account.budget, held, now)
    return ((told,) if told else ()) + tuple(budgets.warnings(account.budget, held, now))


def rows(users: Mapping[str, Days], first: str, last: str, by: By) -> list[Row]:
    """The hours from the day `first` to the day `last`, most first. A cluster's key has its user:
    two people may call theirs the same; of one user alone (whose name is empty) it has none.
    """
    sums: dict[str, Hours] = {}
    for user, day, group, cluster, held in _every(users):
        if first <= day <= last:
            named = f"{user}/{cluster}" if user else cluster
            key = {"user": user, "group": group, "cluster": named, "day": day}[by]
            sums[key] = sums.get(key, Hours()) + held
    found = [row(key, held) for key, held in sums.items()]
    return sorted(found, key=lambda r: r.key if by == "day" else (-r.cpu, -r.gpu, r.key))


def row(key: str, held: Hours) -> Row:
    """A row, in which what nobody measured is not 0."""
    if not held.measured:
        return Row(key=key, cpu=held.cpu, gpu=held.gpu)
    return Row(key=key, cpu=held.cpu, gpu=held.gpu, used=held.used, measured=held.measured)


def _every(users: Mapping[str, Days]) -> Iterator[tuple[str, str, str, str, Hours]]:
    for user, days in users.items():
        for day, groups in days.items():
            for group, clusters in groups.items():
                for cluster, held in clusters.items():
                    yield user, day, group, cluster, held


def _of_day(run: Run, types: Mapping[str, float]) -> Hours:
    cpu = sum(run.usage.cores.get(t, 0.0) * seconds for t, seconds in types.items())
    gpu = sum(run.gpus.get(t, 0) * seconds for t, seconds in types.items())
    return Hours(cpu=cpu / 3600, gpu=gpu / 3600)


def _bounded(days: Days, now: float) -> Days:
    """The same sums in bounded room."""
    today = datetime.fromtimestamp(now, timezone.utc).date()
    full, oldest = ((today - timedelta(days=back)).isoformat() for back in (FULL_DAYS, MOST_DAYS))
    found: Days = {}
    for day, groups in sorted(days.items()):
        fewer = _fewer(groups, MOST_CLUSTERS if day >= full else 0)
        if day < oldest:
            found = together(found, {oldest: fewer})
        else:
            found[day] = fewer if day not in found else together(found, {day: fewer})[day]
    return found


def _fewer(groups: dict[str, dict[str, Hours]], most: int) -> dict[str, dict[str, Hours]]:
    """The same with at most so many clusters by name; the largest."""
    named = [(held.cpu + held.gpu, g, c) for g, cs in groups.items() for c, held in cs.items() if c]
    if len(named) <= most:
        return groups
    kept = {(g, c) for _hours, g, c in sorted(named, reverse=True)[:most]}
    found: dict[str, dict[str, Hours]] = {}
    for group, clusters in groups.items():
        into = found.setdefault(group, {})
        for cluster, held in clusters.items():
            key = cluster if (group, cluster) in kept else ""
            into[key] = into.get(key, Hours()) + held
    return found
