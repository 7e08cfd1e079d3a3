"""What the clock process does about notifications: sees what happened, and sends messages.

What is to be said is written first, in the run's folder, then each attempt, then its result. So a
process that is killed at any time loses no message, and says one twice only if it dies between the
receiver's answer and the next write; both then have the same id. Messages are sent in forked
children, one for each rule: a receiver that does not answer holds up nobody else.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ... import state_files
from ...errors import TFClusterError
from ...i18n import _
from ...notifications import Deliveries, Delivery, NotificationRule, Occasion, occasions
from ...quota.budgets import used_hours
from ...quota.ledger import daily_sums
from ...schedules import Schedule
from ...spec import Phase, TFCluster, names
from . import lost_supervisor, quota
from .notification_store import (
    DeliveryFile,
    LocalNotifications,
    deliveries_of,
    other_deliveries,
    rules_file,
)
from .store import RunFolder, Store

LOOK_INTERVAL = 1.0
"""Seconds between two looks at runs that go on, and between two children of one rule."""
_PATIENCE = 5.0
"""Seconds after which an active run is read although none of its files changed."""
_BUDGET_INTERVAL = 60.0
"""Seconds between two looks at the used hours, for which every record is read."""
_MOST_OF_LOG = 16 * 1024
Now = Callable[[], float]


@dataclass
class _SeenRun:
    """A run as it was read last: the stamps of its files, when it was, and what is pending."""

    stamps: tuple[state_files.Stamp | None, ...]
    read_at: float
    active: bool
    pending: list[Delivery]


class NotificationWatch:
    """Sees what happened to runs, schedules and budgets, and what is to be sent.

    Args:
        state_dir: the folder of records.
        now: the time; a test has one that is faster.
    """

    def __init__(self, state_dir: Path, now: Now = time.time) -> None:
        self._state_dir, self._now = state_dir, now
        self._store = Store(state_dir)
        self._notifications = LocalNotifications(state_dir)
        self._rules: list[NotificationRule] = []
        self._rules_stamp: state_files.Stamp | None = None
        self._seen: dict[Path, _SeenRun] = {}
        self._budget_at = float("-inf")
        self._used: dict[str, tuple[float, float]] = {}
        self._began: dict[str, float] = {}

    def look(self, schedules: Iterable[Schedule]) -> tuple[list[str], float | None]:
        """Note what happened; return the rules with messages to send now, and when to look again,
        None without rules.
        """
        changed = self._read_rules()
        if not self._rules and not changed:  # what a removed rule has not sent is dropped once
            return [], None
        found, wakes = [], [float("inf")]
        with contextlib.suppress(TFClusterError):  # a folder that cannot be read for now
            for seen in self._look_at_runs():
                found += seen.pending
                if seen.active:
                    wakes.append(self._now() + LOOK_INTERVAL)
        found += self._look_at_others(schedules)
        return self._due(found, wakes) if self._rules else ([], None)

    def begins(self, rule: str) -> None:
        """Note that a child of this rule begins."""
        self._began[rule] = time.monotonic()

    def _due(self, found: Sequence[Delivery], wakes: list[float]) -> tuple[list[str], float]:
        now, due = self._now(), set[str]()
        for each in found:
            if each.next_at > now:
                wakes.append(each.next_at)
            elif time.monotonic() - self._began.get(each.rule, float("-inf")) < LOOK_INTERVAL:
                wakes.append(now + LOOK_INTERVAL)
            else:
                due.add(each.rule)
        return sorted(due), min(wakes)

    def _read_rules(self) -> bool:
        """Read the rules if they have changed; return whether they have."""
        stamp = state_files.stamp(rules_file(self._state_dir))
        if stamp == self._rules_stamp:
            return False
        try:
            self._rules = self._notifications.rules()
        except TFClusterError:  # it is read again at the next look
            return False
        self._rules_stamp = stamp
        self._seen.clear()
        self._budget_at = float("-inf")
        return True

    def _look_at_runs(self) -> Iterator[_SeenRun]:
        there = set()
        for folder in self._store.folders():
            there.add(folder.path)
            seen = self._seen.get(folder.path)
            stamps = _stamps(folder)
            age = float("inf") if seen is None else time.monotonic() - seen.read_at
            if seen is None or seen.stamps != stamps or (seen.active and age > _PATIENCE):
                seen = self._read(folder)
                self._seen[folder.path] = seen
            yield seen
        self._seen = {path: seen for path, seen in self._seen.items() if path in there}

    def _read(self, folder: RunFolder) -> _SeenRun:
        stamps, read_at = _stamps(folder), time.monotonic()
        cluster = lost_supervisor.load_run(folder)
        file = deliveries_of(folder)
        if cluster is None:
            return _SeenRun(stamps, read_at, False, [])
        now = self._now()
        events = occasions.run_events(cluster, self._rules, now)
        kept = self._noted(file, lambda before: occasions.note(before, self._rules, events, now))
        # The stamps are of before: what another process wrote meanwhile is read at the next look.
        return _SeenRun(stamps, read_at, cluster.active, occasions.pending(kept))

    def _look_at_others(self, schedules: Iterable[Schedule]) -> list[Delivery]:
        events = [event for each in schedules for event in occasions.schedule_events(each)]
        now, used = self._now(), self._used_hours()

        def change(before: Deliveries) -> Deliveries:
            after, more = occasions.budget_events(before, used, now)
            return occasions.note(after, self._rules, [*events, *more], now)

        return occasions.pending(self._noted(other_deliveries(self._state_dir), change))

    def _noted(self, file: DeliveryFile, change: Callable[[Deliveries], Deliveries]) -> Deliveries:
        """Return the deliveries after a change, and write them if something changes."""
        uids = {rule.uid for rule in self._rules}

        def whole(before: Deliveries) -> Deliveries:
            return change(occasions.drop(before, uids, self._now()))

        try:
            before = file.load()
        except OSError:  # it cannot be read for now: nothing is sent that may have been sent
            return Deliveries()
        if whole(before) == before:
            return before
        try:
            return file.change(whole)
        except OSError:  # the disk is full, or the run was removed: it is noted at the next look
            return before

    def _used_hours(self) -> Mapping[str, tuple[float, float]]:
        if not any(Occasion.BUDGET in rule.on for rule in self._rules):
            return {}
        at = time.monotonic()
        if at - self._budget_at >= _BUDGET_INTERVAL:
            self._budget_at = at
            with contextlib.suppress(TFClusterError):
                self._used = self._read_hours()
        return self._used

    def _read_hours(self) -> dict[str, tuple[float, float]]:
        limits, now = quota.hub_limits(), self._now()
        if not quota.has_budget(limits):
            return {}
        runs = (folder.load() for folder in self._store.folders())
        account = self._store.hours.account((run for run in runs if run), now, limits)
        return used_hours(account.budget, daily_sums(account.days), now)


def _stamps(folder: RunFolder) -> tuple[state_files.Stamp | None, ...]:
    every = (folder.record_file, folder.status_file, deliveries_of(folder).path)
    return tuple(map(state_files.stamp, every))


# -- sending ---------------------------------------------------------------------------------------


def send_due(state_dir: Path, name: str, now: Now) -> None:
    """Send what is due of one rule. At most one process does this for a rule at a time."""
    from ...notifications.delivery import TIMEOUT

    notifications, store = LocalNotifications(state_dir), Store(state_dir)
    rule = notifications.get(name)
    fd = state_files.lock_file(state_dir / "notifications" / f"{rule.uid}.lock")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # a child of a clock process that was killed sends on
        os.close(fd)
        return
    # The name of a host may be looked up for long, and nothing else ends that.
    signal.signal(signal.SIGALRM, _give_up_waiting)
    for file, delivery in _due_of(rule, state_dir, store, now()):
        if all(each.uid != rule.uid for each in notifications.rules()):  # it was removed
            break
        signal.alarm(int(TIMEOUT * 2))
        try:
            _send(file, delivery, rule, notifications, now)
        except (OSError, _TooLong):  # the run was removed, the disk is full, or the alarm was late
            continue
        finally:
            signal.alarm(0)
    os.close(fd)


class _TooLong(Exception):
    """The alarm: an attempt takes too long."""


def _give_up_waiting(_signal: int, _frame: object) -> None:
    raise _TooLong


def _send(
    file: DeliveryFile,
    delivery: Delivery,
    rule: NotificationRule,
    notifications: LocalNotifications,
    now: Now,
) -> None:
    """Send one message. The attempt is written before, its result afterwards. Raises OSError."""
    from ...notifications.delivery import deliver
    from ...notifications.wording import compose

    key, store, problem = delivery.key, Store(notifications.state_dir), ""
    begun = file.change(lambda before: occasions.begin(before, key, now()))
    if key not in {each.key for each in occasions.pending(begun)}:  # dropped with its rule
        return
    cluster = _run_of(delivery, store)
    try:
        message = compose(delivery, rule, cluster, *_last_lines(cluster, store))
        deliver(message, rule, notifications.policy(), time.time())
    except TFClusterError as error:  # not delivered, or the policy cannot be read
        problem = str(error)
    except _TooLong:
        problem = _("it did not answer in time")
    signal.alarm(0)
    file.change(
        lambda before: (
            occasions.failed(before, key, problem, now())
            if problem
            else occasions.sent(before, key, now())
        )
    )


def _due_of(
    rule: NotificationRule, state_dir: Path, store: Store, now: float
) -> list[tuple[DeliveryFile, Delivery]]:
    files = [other_deliveries(state_dir), *map(deliveries_of, store.folders())]
    found = [
        (file, each)
        for file in files
        for each in occasions.pending(file.peek())
        if each.rule_uid == rule.uid and each.next_at <= now
    ]
    return sorted(found, key=lambda pair: pair[1].at)


def _run_of(delivery: Delivery, store: Store) -> TFCluster | None:
    if delivery.occasion in (Occasion.BUDGET, Occasion.SCHEDULE_PAUSED):
        return None
    cluster, number = names.parse_ref(delivery.about)
    return store.folder(cluster, number or 0).load()


def _last_lines(cluster: TFCluster | None, store: Store) -> tuple[Sequence[str], str]:
    """Return what was printed last by the task that failed, else by the chief or first worker."""
    if cluster is None:
        return (), ""
    status = cluster.status
    failures = sorted(status.failures, key=lambda failure: failure.task != status.culprit)
    if failures and status.phase is Phase.FAILED:
        return failures[0].exit.last_lines, failures[0].task
    tasks = store.folder(cluster.metadata.cluster, cluster.metadata.run).tasks
    for task in ("chief-0", "worker-0"):
        text = state_files.read_tail(tasks / f"{task}.log", _MOST_OF_LOG)
        if text:
            return text.decode("utf-8", "replace").split("\n"), task
    return (), ""
