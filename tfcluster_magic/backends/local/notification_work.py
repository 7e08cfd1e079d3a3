"""The clock process's work on notifications: it finds events and sends messages.

A message is stored before the first attempt to send it, and each attempt and its result are stored,
too. A process that is killed therefore loses no message. A message is repeated only if the
receiver's answer does not arrive, or if the process dies between this answer and the next write.
Both copies have the same id. Forked children send the messages, one child for each rule, so that a
silent receiver delays no other receiver.
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
from ...notifications import Deliveries, Delivery, NotificationRule, Occasion, attempts, occasions
from ...notifications.occasions import NotableEvent, Printed
from ...quota import ledger
from ...quota.budgets import used_hours
from ...schedules import Schedule
from ...spec import names
from . import lost_supervisor, quota
from .notification_store import DeliveryFile, LocalNotifications, rules_file
from .run_store import RunFolder, Store

LOOK_INTERVAL = 1.0
"""Minimum seconds between two checks of active runs. It is also the minimum time between the starts
of two processes that send the messages of the same rule.
"""
_PATIENCE = 5.0
"""Maximum seconds between two readings of an active run's files, even if none has changed."""
_BUDGET_INTERVAL = 60.0
"""Seconds between two checks of the used hours."""
_MOST_OF_LOG = 16 * 1024
Now = Callable[[], float]


@dataclass
class _SeenRun:
    """The last reading of a run: the time of the reading, the stamps of the run's files, the run's
    uid, and the run's usage as the ledger counts it.
    """

    stamps: tuple[state_files.Stamp | None, ...]
    read_at: float
    active: bool = False
    uid: str = ""
    usage: ledger.AccountedRun | None = None


class NotificationWatch:
    """Finds the events of runs, schedules and budgets, and the messages that are due.

    Args:
        state_dir: the folder of records.
        now: returns the time; tests use a faster clock.
    """

    def __init__(self, state_dir: Path, now: Now = time.time) -> None:
        self._state_dir, self._now = state_dir, now
        self._store, self._file = Store(state_dir), DeliveryFile(state_dir)
        self._notifications = LocalNotifications(state_dir)
        self._rules: list[NotificationRule] = []
        self._rules_stamp: state_files.Stamp | None = None
        self._seen: dict[Path, _SeenRun] = {}
        self._budget_at = float("-inf")
        self._used: dict[str, tuple[float, float]] = {}
        self._began: dict[str, float] = {}

    def look(self, schedules: Iterable[Schedule]) -> tuple[list[str], float | None]:
        """Store a delivery for each new event. Return the rules with due messages, and the time of
        the next check (None if there are no rules).
        """
        changed = self._read_rules()
        # If the last rule was removed just now, continue: its pending messages must be dropped.
        if not self._rules and not changed:
            return [], None
        wakes = [float("inf")]
        events = [event for each in schedules for event in occasions.schedule_events(each)]
        with contextlib.suppress(TFClusterError):  # the folder cannot be read for the moment
            events += self._run_events()
        if any(seen.active for seen in self._seen.values()):
            wakes.append(self._now() + LOOK_INTERVAL)
        kept = self._noted(events)
        return self._due(attempts.pending(kept), wakes) if self._rules else ([], None)

    def begins(self, rule: str) -> None:
        """Record that a process which sends the messages of this rule starts now."""
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
        """Read the rules if they have changed; return whether they have changed."""
        stamp = state_files.stamp(rules_file(self._state_dir))
        if stamp == self._rules_stamp:
            return False
        try:
            self._rules = self._notifications.rules()
        except TFClusterError:  # the file is read again at the next check
            return False
        self._rules_stamp = stamp
        self._seen.clear()
        self._budget_at = float("-inf")
        return True

    def _run_events(self) -> list[NotableEvent]:
        """Return the events of runs whose files have changed and, at longer intervals, the events
        of all active runs.
        """
        found, there = list[NotableEvent](), set()
        for folder in self._store.folders():
            there.add(folder.path)
            seen = self._seen.get(folder.path)
            stamps = state_files.stamp(folder.record_file), state_files.stamp(folder.status_file)
            age = float("inf") if seen is None else time.monotonic() - seen.read_at
            if seen is None or seen.stamps != stamps or (seen.active and age > _PATIENCE):
                found += self._read(folder, stamps)
        self._seen = {path: seen for path, seen in self._seen.items() if path in there}
        return found

    def _read(
        self, folder: RunFolder, stamps: tuple[state_files.Stamp | None, ...]
    ) -> list[NotableEvent]:
        # The stamps are read before the files, so a change during the reading is found at the next
        # check.
        seen = self._seen[folder.path] = _SeenRun(stamps, time.monotonic())
        cluster = lost_supervisor.load_run(folder)
        if cluster is None:
            return []
        seen.active, seen.uid = cluster.active, cluster.metadata.uid
        seen.usage = ledger.accounted_run(cluster)
        return occasions.run_events(cluster, self._rules, self._now())

    def _noted(self, events: Sequence[NotableEvent]) -> Deliveries:
        """Add the deliveries for these events, store all deliveries if any of them changed, and
        return them.
        """
        uids, now = {rule.uid for rule in self._rules}, self._now()
        used = self._used_hours()

        def whole(before: Deliveries) -> Deliveries:
            kept = attempts.drop(before, uids, now)
            kept, of_budgets = occasions.budget_events(kept, used, now)
            return attempts.note(kept, self._rules, [*events, *of_budgets], now, self._printed)

        try:
            before = self._file.load()
            return before if whole(before) == before else self._file.change(whole)
        # the messages sent so far are unknown, or the disk is full: send nothing now
        except OSError:
            self._seen.clear()
            return Deliveries()

    def _printed(self, event: NotableEvent) -> Printed:
        """Return the name of a task and the last lines that it printed, for the run of the event.
        The lines come from the event if it has any, else from the log of the chief or of worker-0.
        """
        if event.lines or not event.uid:
            return event.task, event.lines
        cluster, number = names.parse_ref(event.about)
        tasks = self._store.folder(cluster, number or 0).tasks
        for task in ("chief-0", "worker-0"):
            text = state_files.read_tail(tasks / f"{task}.log", _MOST_OF_LOG)
            if text:
                return task, text.decode("utf-8", "replace").split("\n")
        return "", ()

    def _used_hours(self) -> Mapping[str, tuple[float, float]]:
        if not any(Occasion.BUDGET in rule.on for rule in self._rules):
            return {}
        at = time.monotonic()
        if at - self._budget_at >= _BUDGET_INTERVAL:
            self._budget_at = at
            with contextlib.suppress(TFClusterError):
                self._used = self._count_hours()
        return self._used

    def _count_hours(self) -> dict[str, tuple[float, float]]:
        """Return, by unit (CPU-hours or GPU-hours), the hours that the user's runs have used and
        the hours that the budget allows. They are computed from the last readings of the runs.
        """
        limits, now = quota.hub_limits(), self._now()
        if not quota.has_budget(limits):
            return {}
        seen = self._seen.values()
        runs = ((each.uid, each.usage) for each in seen if each.usage is not None)
        account = self._store.hours.account_of(runs, now, limits)
        return used_hours(account.budget, ledger.daily_sums(account.days), now)


# -- sending ---------------------------------------------------------------------------------------


def send_due(state_dir: Path, name: str, now: Now) -> None:
    """Send the due messages of one rule. Only one process does this for a rule at a time."""
    from ...notifications.sending import TIMEOUT

    notifications, file = LocalNotifications(state_dir), DeliveryFile(state_dir)
    rule = notifications.get(name)
    fd = state_files.lock_file(state_dir / "notifications" / f"{rule.uid}.lock")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # the child of a killed clock process may still be sending
        os.close(fd)
        return
    # The alarm limits the time to resolve a host name, which has no other limit.
    signal.signal(signal.SIGALRM, _give_up_waiting)
    for delivery in _due_of(rule, file, now()):
        if all(each.uid != rule.uid for each in notifications.rules()):  # the rule was removed
            break
        signal.alarm(int(TIMEOUT * 2))
        try:
            _send(file, delivery, rule, notifications, now)
        # the disk is full, or the alarm came only after the attempt to send
        except (OSError, _TooLong):
            continue
        finally:
            signal.alarm(0)
    os.close(fd)


class _TooLong(Exception):
    """The error that the alarm raises if an attempt takes too long."""


def _give_up_waiting(_signal: int, _frame: object) -> None:
    raise _TooLong


def _send(
    file: DeliveryFile,
    delivery: Delivery,
    rule: NotificationRule,
    notifications: LocalNotifications,
    now: Now,
) -> None:
    """Send one message. Store the attempt before the message is sent, and the result afterwards.
    Raises OSError.
    """
    key, problem = delivery.key, ""
    begun = file.change(lambda before: attempts.begin(before, key, now()))
    # the rule of the message was removed
    if key not in {each.key for each in attempts.pending(begun)}:
        return
    try:
        notifications.send(delivery, rule)
    except TFClusterError as error:  # not delivered, or the policy cannot be read
        problem = str(error)
    except _TooLong:
        problem = _("it did not answer in time")
    signal.alarm(0)
    file.change(
        lambda before: (
            attempts.failed(before, key, problem, now())
            if problem
            else attempts.sent(before, key, now())
        )
    )


def _due_of(rule: NotificationRule, file: DeliveryFile, now: float) -> Iterator[Delivery]:
    for each in attempts.pending(file.load()):
        if each.rule_uid == rule.uid and each.next_at <= now:
            yield each
