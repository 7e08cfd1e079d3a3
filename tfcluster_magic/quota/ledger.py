"""Accounting of CPU- and GPU-hours: of one run, and the ledger of one user. Pure.

Time is counted from a task's own start to its own end, not from the times at which they were
observed, so that an absent operator or supervisor changes nothing. A run's usage has the seconds
for each day (UTC) and task type until its last update, and the number of tasks that used resources
at that time. So readers can compute the sum for any later moment.

In the ledger, a run counts once, by its uid, even if it is recorded several times. The hours of a
deleted run stay in the ledger. The size of the ledger is bounded. The ledger is stored in a file on
this machine, or in an object of the operator on Kubernetes; the caller reads and writes it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Literal, get_args

from msgspec.structs import replace

from ..spec import Model, Spec, TaskType, TFCluster, Usage, conversion
from . import budgets
from .budgets import Budget, DailyHours

DAY = 86400.0
DEFAULT_CORES = 0.5
"""The number of cores that counts for a task without a CPU request on this machine; the default of
the operator's policy is the same.
"""
MOST_USAGE_DAYS = 60
"""Number of days that are kept; the hours of older days are added to the oldest of them."""

SecondsByDay = dict[str, dict[str, float]]
TaskSpan = tuple[str, float | None, float | None]
"""A task's type, the time at which the task began to use resources, and the time at which it ended;
a time is None if it is not known or not reached yet.
"""


def update_usage(
    before: Usage | None,
    spans: Iterable[TaskSpan],
    now: float,
    cores: Mapping[str, float],
    used: float | None = None,
) -> Usage | None:
    """Return `before` updated to `now`; the same object if no task began or ended since then.

    Each span is one task. A task without a start counts no time. The exception is an ended task
    whose start is no longer known although `before` counts it as running: its time is counted from
    the time of `before`. This is done for at most as many tasks as `before` counts as running.
    `cores` are the cores that a task of each type requests. `used` are the CPU seconds of ended
    processes; they are stored only when no task is left, because then they cover all counted time.
    """
    every, until = list(spans), before.at if before else 0.0
    known = [(kind, since, ended) for kind, since, ended in every if since is not None]
    holding = Counter(kind for kind, _since, ended in known if ended is None)
    left = Counter(before.holding if before else {})
    left.subtract(kind for kind, since, ended in known if since <= until < (ended or now))
    for kind, since, ended in every:
        if since is None and ended is not None and ended > until and left[kind] > 0:
            left[kind] -= 1
            known.append((kind, until, ended))
    news = any(since > until or (ended is not None and ended > until) for _k, since, ended in known)
    used = None if holding else used
    if before is None and not known:
        return None
    if before is not None and not news and holding == Counter(before.holding):
        return before if used is None or used == before.used else replace(before, used=used)
    days: SecondsByDay = {
        day: dict(types) for day, types in (before.days if before else {}).items()
    }
    for kind, since, ended in known:
        _add_seconds(days, kind, max(since, until), now if ended is None else min(ended, now))
    return Usage(
        at=max(now, until),
        holding=dict(holding),
        days=_fold_days(days),
        cores=dict(cores),
        used=used,
    )


def seconds_by_day(usage: Usage, now: float) -> SecondsByDay:
    """Return the task seconds until `now`, by day (`2026-11-22`, UTC) and task type."""
    found = {day: dict(types) for day, types in usage.days.items()}
    for task_type, tasks in usage.holding.items():
        _add_seconds(found, task_type, usage.at, now, tasks)
    return found


def seconds_by_type(usage: Usage | None, now: float) -> dict[str, float]:
    """Return the task seconds of all days until `now`, by task type."""
    found: defaultdict[str, float] = defaultdict(float)
    for types in seconds_by_day(usage, now).values() if usage else ():
        for task_type, seconds in types.items():
            found[task_type] += seconds
    return dict(found)


def run_hours(usage: Usage | None, spec: Spec, now: float) -> tuple[float, float]:
    """Return the CPU-hours and GPU-hours of a run until `now`, computed from the requests of its
    tasks.
    """
    cpu = gpu = 0.0
    for task_type, seconds in seconds_by_type(usage, now).items():
        cpu += (usage.cores.get(task_type, 0.0) if usage else 0.0) * seconds / 3600
        gpu += spec.replicas.of(TaskType(task_type)).resources.gpu * seconds / 3600
    return cpu, gpu


def _add_seconds(
    found: SecondsByDay, task_type: str, start: float, end: float, tasks: int = 1
) -> None:
    for day, seconds in _split_by_day(start, end):
        of_day = found.setdefault(day, {})
        of_day[task_type] = of_day.get(task_type, 0.0) + seconds * tasks


def _split_by_day(start: float, end: float) -> Iterator[tuple[str, float]]:
    while start < end:
        midnight = (start // DAY + 1) * DAY
        day = datetime.fromtimestamp(start, timezone.utc).date().isoformat()
        yield day, min(end, midnight) - start
        start = midnight


def _fold_days(found: SecondsByDay) -> SecondsByDay:
    kept = sorted(found)[-MOST_USAGE_DAYS:]
    folded = {day: found[day] for day in kept}
    for day in found.keys() - folded.keys():
        for task_type, seconds in found[day].items():
            of_day = folded[kept[0]]
            of_day[task_type] = of_day.get(task_type, 0.0) + seconds
    return folded


# The ledger of one user: hours by day, group and cluster, including the hours of runs whose records
# were deleted.

FULL_DAYS = 92
"""Number of newest days with hours for each cluster; older days have one entry for all clusters."""
MOST_LEDGER_DAYS = 732
"""Number of days that a ledger keeps; the hours of older days are added to the oldest of them."""
MOST_CLUSTERS = 20
"""Maximum number of clusters that are listed for a day. The clusters with the fewest hours are
summed in one entry with an empty name.
"""
MOST_NAMES = 5000
"""Maximum number of names whose highest run number is kept. Above this limit, the name with the
lowest number is dropped.
"""
UID_RETENTION = DAY
"""Seconds for which the uid of a counted run is remembered if the run has no record."""

Grouping = Literal["user", "group", "cluster", "day"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)


class Hours(Model, frozen=True):
    """CPU- and GPU-hours. `measured` is the part of `cpu` for which usage was measured, and `used`
    is that usage.
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


HoursByDay = dict[str, dict[str, dict[str, Hours]]]
"""Hours by day (`2026-11-22`, UTC), group (empty: none) and cluster."""


class AccountedRun(Model, frozen=True):
    """The data of a run from which the ledger counts its hours. `gpus` is the number of GPUs of one
    task, by type. `until` is when the run released all resources. `metered` is a pair for the time
    in which usage was measured: the CPU seconds that were used, and those that were requested.
    """

    cluster: str
    usage: Usage
    run: int = 0
    until: float | None = None
    gpus: dict[str, int] = {}
    group: str = ""
    metered: tuple[float, float] | None = None


class Ledger(Model, frozen=True):
    """The ledger of one user.

    `days` has the hours of ended runs. `counted` has, by the uids of these runs, the times at which
    their hours were recorded. `begun` has, by uid, the runs whose start is recorded but not their
    end, in their state at the start. `numbers` has the highest run number of each name, so that no
    number is used again.
    """

    days: HoursByDay = {}
    counted: dict[str, float] = {}
    begun: dict[str, AccountedRun] = {}
    numbers: dict[str, int] = {}


class HoursAccount(Model, frozen=True):
    """The hours of a user's ended runs, the user's budget, and the highest run number of each name.
    `numbers` is None if these numbers are not recorded.
    """

    days: HoursByDay = {}
    group: str = ""
    budget: Budget | None = None
    numbers: dict[str, int] | None = None


Order = Literal["reserved", "unused"]
ORDERS: tuple[Order, ...] = get_args(Order)


class HoursRow(Model, frozen=True, omit_defaults=False):
    """The hours of one row of a usage table (see `hours_rows`). `unused` is `measured` less `used`;
    all three are None if usage was not measured.
    """

    key: str
    cpu: float
    gpu: float
    used: float | None = None
    measured: float | None = None
    unused: float | None = None


ACCOUNT_DECODER = conversion.decoder(HoursAccount)
LEDGER_DECODER = conversion.decoder(Ledger)


def accounted_run(cluster: TFCluster, group: str = "") -> AccountedRun | None:
    """Return the data of a run that the ledger needs; None if the run never used any resources."""
    spec, held = cluster.spec, cluster.status.usage
    if held is None:
        return None
    each = {t.value: spec.replicas.of(t).resources.gpu for t in spec.replicas.counts}
    gpus = {task_type: count for task_type, count in each.items() if count}
    return AccountedRun(
        cluster=cluster.metadata.cluster,
        run=cluster.metadata.run,
        usage=held,
        until=cluster.status.released_at,
        gpus=gpus,
        group=group,
    )


def hours_by_day(run: AccountedRun, now: float) -> dict[str, Hours]:
    """Return the hours of a run until `now`, by day; measured usage is spread over the days."""
    now = now if run.until is None else min(now, run.until)
    held = {day: _day_hours(run, types) for day, types in seconds_by_day(run.usage, now).items()}
    if run.usage.used is None and run.metered is None:
        return held
    at = now if run.metered else run.usage.at
    until = {
        day: _day_hours(run, types).cpu for day, types in seconds_by_day(run.usage, at).items()
    }
    whole = sum(until.values())
    used, measured = run.metered or (run.usage.used or 0.0, whole * 3600)
    for day, part in until.items():
        share = part / whole / 3600 if whole else 0.0
        held[day] = replace(held[day], used=used * share, measured=min(measured * share, part))
    return held


def begin_run(ledger: Ledger, uid: str, run: AccountedRun) -> Ledger:
    """Return the ledger with a run added to `begun`, in case the run's record is deleted before its
    end is observed.
    """
    if uid in ledger.counted or uid in ledger.begun:
        return ledger
    noted = remember_number(ledger, run.cluster, run.run)
    return replace(noted, begun={**ledger.begun, uid: run})


def end_run(ledger: Ledger, uid: str, run: AccountedRun | None, now: float) -> Ledger:
    """Return the ledger with the hours until `now` of a run that is over or whose record was
    deleted. Return the same ledger if the end of the run was recorded before. If `run` is None, use
    the state of the run when it began.
    """
    if uid in ledger.counted:
        return ledger
    run = run or ledger.begun.get(uid)
    if run is not None:
        ledger = remember_number(ledger, run.cluster, run.run)
    begun = {key: value for key, value in ledger.begun.items() if key != uid}
    days = {} if run is None else add_run(ledger.days, run, now)
    return replace(
        ledger,
        days=_bound_days(days or ledger.days, now),
        counted={**ledger.counted, uid: now},
        begun=begun,
    )


def remember_number(ledger: Ledger, cluster: str, run: int) -> Ledger:
    """Return the ledger with `run` recorded as the highest run number of the name `cluster`. Return
    the same ledger if it has this number or a higher one.
    """
    if run <= ledger.numbers.get(cluster, 0):
        return ledger
    numbers = {**ledger.numbers, cluster: run}
    if len(numbers) > MOST_NAMES:
        del numbers[min(numbers.keys() - {cluster}, key=lambda name: (numbers[name], name))]
    return replace(ledger, numbers=numbers)


def forget_runs(ledger: Ledger, there: Collection[str], now: float) -> Ledger:
    """Return the ledger without the uids in `counted` whose runs have no record any more and were
    counted more than `UID_RETENTION` ago. `there` has the uids of all runs that have a record.
    """
    kept = {u: at for u, at in ledger.counted.items() if u in there or now < at + UID_RETENTION}
    return ledger if len(kept) == len(ledger.counted) else replace(ledger, counted=kept)


def add_run(days: HoursByDay, run: AccountedRun, now: float) -> HoursByDay:
    """Return `days` with a run's hours until `now`, without changing the argument."""
    each = hours_by_day(run, now).items()
    return merge_days(days, {day: {run.group: {run.cluster: held}} for day, held in each})


def merge_days(one: HoursByDay, other: HoursByDay) -> HoursByDay:
    """Return the sums of the hours in `one` and `other`, without changing the arguments."""
    found = dict(one)
    for day, more in other.items():
        groups = {group: dict(clusters) for group, clusters in found.get(day, {}).items()}
        for group, clusters in more.items():
            into = groups.setdefault(group, {})
            for cluster, held in clusters.items():
                into[cluster] = into.get(cluster, Hours()) + held
        found[day] = groups
    return found


def add_runs(days: HoursByDay, runs: Iterable[AccountedRun], now: float) -> HoursByDay:
    """Return `days` with the hours until `now` of several runs, without changing the argument."""
    for run in runs:
        days = add_run(days, run, now)
    return days


def daily_sums(days: HoursByDay) -> DailyHours:
    """Return the CPU- and GPU-hours of each day, summed over groups and clusters, because a budget
    counts only the sums.
    """
    found = {}
    for day, groups in days.items():
        every = [held for clusters in groups.values() for held in clusters.values()]
        found[day] = (sum(each.cpu for each in every), sum(each.gpu for each in every))
    return found


def remaining_budget(account: HoursAccount, now: float) -> tuple[str, ...]:
    """Return sentences for users: the remaining hours of the budget, and warnings if it is nearly
    used up; none without a budget.
    """
    held = daily_sums(account.days)
    told = budgets.remaining_text(account.budget, held, now)
    return ((told,) if told else ()) + tuple(budgets.warnings(account.budget, held, now))


def hours_rows(
    users: Mapping[str, HoursByDay],
    first: str,
    last: str,
    by: Grouping,
    order: Order = "reserved",
) -> list[HoursRow]:
    """Return the hours from the day `first` to the day `last`, summed by user, group, cluster or
    day (`by`). Days are in chronological order. Other rows are sorted by reserved hours, or with
    the `order` "unused" by the reserved hours that measurements show as unused, the most first.

    The key of a cluster includes its user, because two users may use the same name. If there is
    only one user, whose name is empty, the key has only the cluster.
    """
    sums: dict[str, Hours] = {}
    for user, day, group, cluster, held in _every_entry(users):
        if first <= day <= last:
            named = f"{user}/{cluster}" if user else cluster
            key = {"user": user, "group": group, "cluster": named, "day": day}[by]
            sums[key] = sums.get(key, Hours()) + held
    found = [hours_row(key, held) for key, held in sums.items()]
    if by == "day":
        return sorted(found, key=lambda row: row.key)
    if order == "unused":
        return sorted(found, key=lambda r: (r.unused is None, -(r.unused or 0), r.key))
    return sorted(found, key=lambda row: (-row.cpu, -row.gpu, row.key))


def hours_row(key: str, held: Hours) -> HoursRow:
    """Return hours as a row; if usage was not measured, its values are None, not 0."""
    if not held.measured:
        return HoursRow(key=key, cpu=held.cpu, gpu=held.gpu)
    return HoursRow(
        key=key,
        cpu=held.cpu,
        gpu=held.gpu,
        used=held.used,
        measured=held.measured,
        unused=max(0.0, held.measured - held.used),
    )


def _every_entry(users: Mapping[str, HoursByDay]) -> Iterator[tuple[str, str, str, str, Hours]]:
    for user, days in users.items():
        for day, groups in days.items():
            for group, clusters in groups.items():
                for cluster, held in clusters.items():
                    yield user, day, group, cluster, held


def _day_hours(run: AccountedRun, types: Mapping[str, float]) -> Hours:
    cpu = sum(run.usage.cores.get(t, 0.0) * seconds for t, seconds in types.items())
    gpu = sum(run.gpus.get(t, 0) * seconds for t, seconds in types.items())
    return Hours(cpu=cpu / 3600, gpu=gpu / 3600)


def _bound_days(days: HoursByDay, now: float) -> HoursByDay:
    """Return the hours with sums in place of the details of old days and small clusters, so that
    the size is bounded.
    """
    today = datetime.fromtimestamp(now, timezone.utc).date()
    full, oldest = (
        (today - timedelta(days=back)).isoformat() for back in (FULL_DAYS, MOST_LEDGER_DAYS)
    )
    found: HoursByDay = {}
    for day, groups in sorted(days.items()):
        fewer = _largest_clusters(groups, MOST_CLUSTERS if day >= full else 0)
        if day < oldest:
            found = merge_days(found, {oldest: fewer})
        else:
            found[day] = fewer if day not in found else merge_days(found, {day: fewer})[day]
    return found


def _largest_clusters(
    groups: dict[str, dict[str, Hours]], most: int
) -> dict[str, dict[str, Hours]]:
    """Return the hours in a shorter form: only the `most` largest clusters keep their names, and
    the hours of the others are summed for each group under an empty name.
    """
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
