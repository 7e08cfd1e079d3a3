"""The control loop over the notification Secrets of all namespaces.

A turn of a namespace finds new events in the caches of runs, schedules and options, writes its
deliveries into the Secret, and then starts the attempts that are due. Threads send the messages;
each result is written by a later turn. A delivery is written before its message is sent, so a
notifier that is killed loses no message. A message is sent twice only if the receiver's answer does
not arrive, or if the notifier dies after the answer and before it writes the result. A namespace
without rules takes no turns. No log line contains a rule, a URL or a message.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

import msgspec
from msgspec.structs import replace

from ..errors import TFClusterError
from ..kube import hour_ledgers
from ..kube.api import access, labels
from ..kube.api.client import Api, ApiError, Object, find_object, is_deleted, path
from ..kube.api.informer import CacheUpdate, Informer, InformerGroup
from ..kube.controller.work_queue import KeyedWorkers
from ..kube.objects import custom_resource, notification_secret
from ..kube.objects.notification_secret import MANAGER, RECORD, UnreadableSecret
from ..notifications import (
    Deliveries,
    Delivery,
    DeliveryKey,
    DeliveryState,
    NotificationPolicy,
    NotificationRule,
    Occasion,
    attempts,
    occasions,
)
from ..notifications.sending import deliver
from ..notifications.wording import compose
from ..quota import ledger
from ..quota.budgets import Budget, DailyHours, used_hours
from ..quota.ledger import AccountedRun
from ..schedules import Occurrence, Pause
from ..spec import API_VERSION, KIND, Metadata, Spec, TFCluster, conversion, resource_form

SCHEDULES = "tfclusterschedules"
LONGEST_SLEEP = 60.0
"""Maximum seconds between two turns of a namespace with pending work. A longer sleep could end too
late if somebody changes the system clock. Each turn also counts the hours of running tasks.
"""
AGAIN = 0.05
"""Seconds until a turn is repeated if another client wrote the Secret during the turn."""
PACE = 0.5
"""Seconds between the starts of two attempts of one namespace."""
MOST_SENDING, MOST_OF_ONE = 100, 4
"""A pair: the maximum number of attempts to send that are in progress at the same time in all
namespaces together, and the maximum number in one namespace.
"""
END_SECONDS = 25.0
"""Maximum seconds for which attempts in progress may continue after the notifier is asked to end.
An attempt takes at most 20 seconds.
"""
MOST_UNLAUNCHED = 20
"""Maximum number of unlaunched due times that the cache keeps for each schedule."""
RECORDED = 20
"""The annotation of a run names at most this many of its messages: the newest."""

log = logging.getLogger(__name__)


class SecretConflict(Exception):
    """Another client wrote the Secret, so the cached copy is outdated."""


# -- caches ----------------------------------------------------------------------------------------
# The caches keep only the parts of objects that cause events: a small run takes about 2.1 KB of
# memory, a run of 600 tasks a few KiB. The memory limit in k8s/base/notifier.yaml is based on these
# sizes.

RUN, USAGE, PAUSE = "run", "usage", "pause"
UNLAUNCHED, ZONE = "unlaunched", "zone"
BUDGET, HOURS = "budget", "hours"


def trim_run(found: Object) -> Object:
    """Return only the parts of a run that the notifier needs: status, usage, and its own
    annotation.
    """
    head = found["metadata"]
    kept: Object = {
        "metadata": {name: head.get(name) for name in ("name", "namespace", "uid")}
        | {"resourceVersion": head["resourceVersion"], RECORD: _record_of(head)}
    }
    try:
        status = custom_resource.read_status(found)
        cluster, number = custom_resource.split_name(head["name"])
        if cluster:
            status = replace(status, counts={}, attention=(), addresses={}, paths={}, usage=None)
            name = Metadata(
                name=head["name"], uid=head["uid"], cluster=cluster, run=number, created_at=0.0
            )
            kept[RUN] = TFCluster(metadata=name, spec=Spec(), status=status)
            kept[USAGE] = hour_ledgers.accounted_run_of(found, "")
    except Exception as error:  # noqa: BLE001 - one record must not stop the cache of all
        _warn_unreadable(head, error)
    return kept


def _warn_unreadable(head: Object, error: Exception) -> None:
    log.warning("%s/%s cannot be read: %s", head["namespace"], head["name"], type(error).__name__)


def _record_of(head: Object) -> str:
    return str((head.get("annotations") or {}).get(RECORD, ""))


def trim_schedule(found: Object) -> Object:
    """Return only two parts of a schedule's status: its pause, and its newest due times that were
    not launched. The pause in the spec is not used, because it does not say since when the schedule
    is paused.
    """
    head = found["metadata"]
    kept: Object = {
        "metadata": {n: head.get(n) for n in ("name", "namespace", "uid", "resourceVersion")}
    }
    status = found.get("status") or {}
    try:
        if said := status.get("paused"):
            kept[PAUSE] = conversion.convert(resource_form.read(Pause, said), Pause)
        dues = [
            conversion.convert(resource_form.read(Occurrence, each), Occurrence)
            for each in status.get("occurrences") or ()
        ]
        if unlaunched := [each for each in dues if occasions.is_unlaunched(each)]:
            kept[UNLAUNCHED] = tuple(unlaunched[-MOST_UNLAUNCHED:])
            kept[ZONE] = str((found.get("spec") or {}).get("timeZone") or "UTC")
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        _warn_unreadable(head, error)
    return kept


def trim_options(found: Object) -> Object:
    """Return the budget of a namespace and the hours that ended runs have used, by day."""
    head = found["metadata"]
    kept: Object = {
        "metadata": {n: head.get(n) for n in ("name", "namespace", "uid", "resourceVersion")}
    }
    account = hour_ledgers.read_account(
        str((found.get("data") or {}).get(hour_ledgers.HOURS_KEY, "")), (), 0.0
    )
    if account.budget is not None:
        kept[BUDGET], kept[HOURS] = account.budget, ledger.daily_sums(account.days)
    return kept


class NotifierCaches(InformerGroup):
    """The notification Secrets, runs, schedules and published options of all namespaces.

    Secrets and options are watched only under their fixed names, so that the notifier's account
    needs no rights on other objects of these kinds.

    Args:
        api: the connection to the API server.
        namespace: the namespace to watch; empty for all.
        wake: called with the namespace of each change that may cause an event.
    """

    def __init__(self, api: Api, namespace: str, wake: Callable[[str], None]) -> None:
        def changed(update: CacheUpdate) -> None:
            wake(update.object["metadata"]["namespace"])

        def run_changed(update: CacheUpdate) -> None:
            old, new = update.old, update.new
            if old is None or new is None or old.get(RUN) != new.get(RUN):
                changed(update)

        def schedule_changed(update: CacheUpdate) -> None:
            if update.new is not None and update.new.keys() & {PAUSE, UNLAUNCHED}:
                changed(update)

        def options_changed(update: CacheUpdate) -> None:
            if update.new is not None and BUDGET in update.new:
                changed(update)

        def of_namespace(found: Object) -> str:
            return str(found["metadata"]["namespace"])

        self.secrets = Informer(
            api,
            path("secrets", namespace),
            fields=f"metadata.name={labels.NOTIFICATIONS}",
            trim=notification_secret.trim,
            changed=changed,
        )
        self.runs = Informer(
            api,
            path("tfclusters", namespace),
            trim=trim_run,
            group=of_namespace,
            changed=run_changed,
        )
        self.schedules = Informer(
            api,
            path(SCHEDULES, namespace),
            optional=True,
            trim=trim_schedule,
            group=of_namespace,
            changed=schedule_changed,
        )
        self.options = Informer(
            api,
            path("configmaps", namespace),
            fields=f"metadata.name={labels.OPTIONS}",
            trim=trim_options,
            changed=options_changed,
        )
        self.needed = (self.secrets, self.runs)
        self.all = (*self.needed, self.schedules, self.options)

    @property
    def synced(self) -> bool:
        """Whether each needed cache has listed its objects at least once."""
        return all(each.synced.is_set() for each in self.needed)


# -- sending ---------------------------------------------------------------------------------------


class Senders:
    """The threads that send messages, at most `MOST_SENDING` at the same time.

    Args:
        policy: the administrator's policy, which says which receivers are allowed.
        done: called with namespace, message and problem of each attempt; the problem is empty if
            the message was accepted.
    """

    def __init__(
        self,
        policy: NotificationPolicy,
        done: Callable[[str, DeliveryKey, str], None],
    ) -> None:
        self._policy, self._done = policy, done
        self._of: Counter[str] = Counter()
        self._changed = threading.Condition()
        self.sent = self.failed = 0

    @property
    def busy(self) -> int:
        """The number of attempts to send that are in progress."""
        return self._of.total()

    def has_room(self, namespace: str) -> bool:
        """Return whether another attempt of a namespace may start."""
        return self.busy < MOST_SENDING and self._of[namespace] < MOST_OF_ONE

    def start(self, namespace: str, delivery: Delivery, rule: NotificationRule) -> None:
        """Start a thread that tries to send the message of `delivery`."""
        with self._changed:
            self._of[namespace] += 1
        threading.Thread(
            target=self._send, args=(namespace, delivery, rule), name="send", daemon=True
        ).start()

    def wait(self, seconds: float) -> None:
        """Wait until no attempt is in progress, but at most `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: not self.busy, seconds)

    def _send(self, namespace: str, delivery: Delivery, rule: NotificationRule) -> None:
        problem = ""
        try:
            deliver(compose(delivery, rule), rule, self._policy, time.time())
        except TFClusterError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - the error's text may contain a secret
            problem = type(error).__name__
        try:
            self._done(namespace, delivery.key, problem)
        finally:
            with self._changed:
                self.sent += not problem
                self.failed += bool(problem)
                self._of[namespace] -= 1
                self._changed.notify_all()


# -- turns -----------------------------------------------------------------------------------------


@dataclass
class Outbox:
    """The part of a namespace's state that only the notifier's memory has, not the namespace's
    Secret.
    """

    sending: dict[DeliveryKey, str | None] = field(default_factory=dict)
    """The problem of each message's attempt, empty if it succeeded; None while the attempt is in
    progress.
    """
    began: float = float("-inf")
    """The monotonic time at which the last attempt to send began."""
    own: Object | None = None
    """The Secret in the state after our last write; None as soon as the cache has this state."""
    refused: dict[str, str] = field(default_factory=dict)
    """By the uid of a run: the text that was last sent for its annotation. The same text is not
    sent again, even if the API refused it.
    """
    problem: str = ""
    """The reason why the Secret cannot be read, which is logged once; empty if it can be read."""


class Notifier:
    """The controller of all notifications of a Kubernetes cluster, or of one namespace.

    Args:
        api: the connection to the API server.
        namespace: the namespace to serve; empty for all.
        leads: returns whether this process is the leader, which alone may act.
        policy: the administrator's policy, which says which receivers are allowed.
        now: returns the current time.
        speed: seconds of `now` in a real second; tests use a faster clock.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        leads: Callable[[], bool],
        policy: NotificationPolicy,
        now: Callable[[], float] = time.time,
        speed: float = 1.0,
    ) -> None:
        self._api, self._leads, self._now, self._speed = api, leads, now, speed
        self.turns: KeyedWorkers[str] = KeyedWorkers(
            self._take_turn, leads, self._log_failure, share=lambda namespace: namespace
        )
        self.caches = NotifierCaches(api, namespace, self._wake)
        self.senders = Senders(policy, self._sent)
        self._outboxes: dict[str, Outbox] = {}
        self._lock = threading.Lock()
        self._begun = self._ends = False

    def follow(self) -> None:
        """Start the watches that fill the caches."""
        self.caches.start()

    def begin(self) -> None:
        """Start the turns, and queue each namespace that has a notification Secret."""
        for found in self.caches.secrets.every():
            self.turns.work.add(found["metadata"]["namespace"])
        self.turns.start()
        self._begun = True

    def end(self, seconds: float = END_SECONDS) -> None:
        """Start no more attempts, let those in progress end, and write their results."""
        self._ends = True
        until = time.monotonic() + seconds
        self.senders.wait(seconds)
        while self._has_results() and time.monotonic() < until and self._leads():
            time.sleep(AGAIN)  # other threads run the turns that write the results
        self.caches.stop()
        self.turns.stop(max(1.0, until - time.monotonic()))

    @property
    def synced(self) -> bool:
        """Whether each needed cache has listed its objects at least once."""
        return self.caches.synced

    @property
    def alive(self) -> bool:
        """Whether no thread has died."""
        return self.caches.alive and (self.turns.alive or not self._begun)

    @property
    def problems(self) -> list[str]:
        """The reasons why the caches are incomplete."""
        found = [(each.where, each.problem) for each in self.caches.needed]
        return [f"{where}: {problem.message}" for where, problem in found if problem is not None]

    def _wake(self, namespace: str) -> None:
        found = self.caches.secrets.get(namespace, labels.NOTIFICATIONS) or {}
        if found.get("data") or namespace in self._outboxes:
            self.turns.work.add(namespace)

    def _has_results(self) -> bool:
        with self._lock:
            return any(box.sending for box in self._outboxes.values())

    def _sent(self, namespace: str, key: DeliveryKey, problem: str) -> None:
        with self._lock:
            self._outboxes[namespace].sending[key] = problem
        self.turns.work.add(namespace)

    def _log_failure(self, namespace: str, error: Exception) -> None:
        if isinstance(error, ApiError):
            log.warning("%s: %s", namespace, access.explain_api_error(error))
        else:  # the error's text may contain a part of a rule
            log.error("%s: the turn failed: %s", namespace, type(error).__name__)

    def _take_turn(self, namespace: str) -> float | None:
        try:
            return self._turn(namespace)
        except SecretConflict:
            found = find_object(self._api, path("secrets", namespace, labels.NOTIFICATIONS))
            self._outboxes[namespace].own = notification_secret.trim(found) if found else None
            return AGAIN

    def _turn(self, namespace: str) -> float | None:
        """Take one turn of a namespace; return the seconds until the next is due.

        Raises:
            ApiError: the API does not answer; repeat the turn.
            SecretConflict: another client wrote the Secret during the turn.
        """
        with self._lock:
            box = self._outboxes.setdefault(namespace, Outbox())
            results = {key: problem for key, problem in box.sending.items() if problem is not None}
        found = self._newest(namespace, box)
        if found is None:
            with self._lock:
                if not box.sending.keys() - results.keys():
                    del self._outboxes[namespace]
            return None
        try:
            rules = notification_secret.read_rules(found)
            before = notification_secret.read_deliveries(found)
            test = notification_secret.read_test(found)
        except UnreadableSecret as error:
            if str(error) != box.problem:
                log.warning("%s: %s", namespace, error)
            box.problem = str(error)
            self._forget(box, results)  # the results cannot be written to an unreadable Secret
            return None
        box.problem = ""
        now = self._now()
        kept = before
        if notification_secret.has_emptied_deliveries(found):
            kept = replace(kept, forgotten_until=now)
        kept = attempts.note_test(self._with_results(kept, results, now), rules, test, now)
        kept = self._noted(namespace, rules, kept, now)
        starting = [] if self._ends else self._starting(namespace, box, rules, kept, now)
        for delivery, _rule in starting:
            kept = attempts.begin(kept, delivery.key, now)
        if kept != before:
            self._write(namespace, box, found, kept)
        self._forget(box, results)
        if rules or kept.deliveries:
            self._record(namespace, box, kept)
        if starting:
            box.began = time.monotonic()
        for delivery, rule in starting:
            with self._lock:
                box.sending[delivery.key] = None
            self.senders.start(namespace, delivery, rule)
        return self._rest(namespace, box, rules, kept, now)

    def _newest(self, namespace: str, box: Outbox) -> Object | None:
        """Return the newest known state of the Secret. It may be our own last write, which the
        cache does not have yet.
        """
        cached, own = self.caches.secrets.get(namespace, labels.NOTIFICATIONS), box.own
        if cached is None or is_deleted(cached):
            return None
        if own is not None and own["metadata"]["uid"] == cached["metadata"]["uid"]:
            versions = [int(each["metadata"]["resourceVersion"]) for each in (own, cached)]
            if versions[0] > versions[1]:
                return own
        box.own = None
        return cached

    def _forget(self, box: Outbox, results: Mapping[DeliveryKey, str]) -> None:
        with self._lock:
            for key in results:
                box.sending.pop(key, None)

    def _with_results(
        self, kept: Deliveries, results: Mapping[DeliveryKey, str], now: float
    ) -> Deliveries:
        for key, problem in results.items():
            if problem:
                kept = attempts.failed(kept, key, problem, now)
            else:
                kept = attempts.sent(kept, key, now)
        return kept

    def _noted(
        self, namespace: str, rules: Sequence[NotificationRule], kept: Deliveries, now: float
    ) -> Deliveries:
        """Return the deliveries, with one added for each new event."""
        kept = attempts.drop(kept, (rule.uid for rule in rules), now)
        if not rules:
            return kept
        events = [
            event
            for run in self._runs(namespace)
            for event in occasions.run_events(run, rules, now)
        ]
        for found in self.caches.schedules.of(namespace):
            name, uid = found["metadata"]["name"], found["metadata"]["uid"]
            if PAUSE in found:
                events += occasions.pause_events(name, uid, name, found[PAUSE])
            if UNLAUNCHED in found:
                dues = found[UNLAUNCHED]
                events += occasions.due_time_events(name, uid, name, found[ZONE], dues)
        if _wants_budget(rules):
            kept, of_budgets = occasions.budget_events(kept, self._used(namespace, now), now)
            events += of_budgets
        return attempts.note(kept, rules, events, now)

    def _runs(self, namespace: str) -> Iterator[TFCluster]:
        for found in self.caches.runs.of(namespace):
            if RUN in found:
                yield found[RUN]

    def _used(self, namespace: str, now: float) -> Mapping[str, tuple[float, float]]:
        """Return, by unit, the used and the allowed hours. The used hours are the published hours
        of ended runs, and the hours of active runs until now.
        """
        options = self.caches.options.get(namespace, labels.OPTIONS)
        if options is None or BUDGET not in options:
            return {}
        budget: Budget = options[BUDGET]
        ended: DailyHours = options[HOURS]
        usages = (each.get(USAGE) for each in self.caches.runs.of(namespace))
        running: list[AccountedRun] = [each for each in usages if each and each.until is None]
        held = dict(ended)
        for day, hours in ledger.daily_sums(ledger.add_runs({}, running, now)).items():
            cpu, gpu = held.get(day, (0.0, 0.0))
            held[day] = cpu + hours[0], gpu + hours[1]
        return used_hours(budget, held, now)

    def _starting(
        self,
        namespace: str,
        box: Outbox,
        rules: Sequence[NotificationRule],
        kept: Deliveries,
        now: float,
    ) -> list[tuple[Delivery, NotificationRule]]:
        """Return the message to send now, or an empty list. A test comes first, because its user
        waits. Each rule has at most one attempt in progress.
        """
        if time.monotonic() - box.began < PACE or not self.senders.has_room(namespace):
            return []
        by_uid = {rule.uid: rule for rule in rules}
        with self._lock:
            busy = {rule_uid for rule_uid, _uid, _event in box.sending}
        for each in sorted(attempts.pending(kept), key=lambda each: not each.is_test):
            rule = by_uid.get(each.rule_uid)
            if rule is not None and rule.uid not in busy and each.next_at <= now:
                return [(each, rule)]
        return []

    def _write(self, namespace: str, box: Outbox, found: Object, kept: Deliveries) -> None:
        if not self._leads():
            raise SecretConflict
        body = notification_secret.write_deliveries(found, kept)
        try:
            where = path("secrets", namespace, labels.NOTIFICATIONS)
            box.own = notification_secret.trim(self._api.merge(where, body))
        except ApiError as error:
            if error.status == 409 or error.gone:
                raise SecretConflict from None
            raise

    def _rest(
        self,
        namespace: str,
        box: Outbox,
        rules: Sequence[NotificationRule],
        kept: Deliveries,
        now: float,
    ) -> float | None:
        """Return the seconds until the next turn. A turn is due when an attempt to send is due,
        when a rule has to report that a run is still queued, or when hours are counted again. The
        end of an attempt in progress causes a turn by itself, so it is not included.
        """
        times = [
            at
            for run in self._runs(namespace)
            if (at := occasions.next_queued_event(run, rules, now)) is not None
        ]
        if _wants_budget(rules) and any(run.active for run in self._runs(namespace)):
            times.append(now + LONGEST_SLEEP)
        rests = [max(0.0, at - now) / self._speed for at in times]
        with self._lock:
            busy = {rule_uid for rule_uid, _uid, _event in box.sending}
        rests += [
            max(PACE, (each.next_at - now) / self._speed)
            for each in attempts.pending(kept)
            if each.rule_uid not in busy
        ]
        return min([*rests, LONGEST_SLEEP]) if rests else None

    # -- the record of a run ---------------------------------------------------------------------

    def _record(self, namespace: str, box: Outbox, kept: Deliveries) -> None:
        """Write the states of the messages about a run into its annotation. A refused write does
        not stop any message.
        """
        by_run: dict[str, list[Delivery]] = {}
        for each in kept.deliveries:
            if each.uid:
                by_run.setdefault(each.uid, []).append(each)
        there = {each["metadata"]["uid"]: each for each in self.caches.runs.of(namespace)}
        box.refused = {uid: text for uid, text in box.refused.items() if uid in there}
        for uid, told in by_run.items():
            text = record_text(told)
            found = there.get(uid)
            if found is None or text in (found["metadata"][RECORD], box.refused.get(uid)):
                continue
            name = found["metadata"]["name"]
            head = {"name": name, "uid": uid, "annotations": {RECORD: text}}
            body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": head}
            try:
                self._api.apply(path("tfclusters", namespace, name), body, MANAGER)
            except ApiError as error:
                if not error.gone:
                    log.warning("%s/%s: not recorded: %s", namespace, name, error.message)
            # Remember the text after a success, too: the cache has the old annotation for a while.
            box.refused[uid] = text


def record_text(told: Sequence[Delivery]) -> str:
    """Return the text for a run's annotation: rule, event, state and time of each message about the
    run.
    """
    newest = sorted(told, key=lambda each: (each.noted_at, each.rule))[-RECORDED:]
    return msgspec.json.encode(
        [
            {"rule": each.rule, "event": each.event, "state": each.state, "at": _second(each)}
            for each in newest
        ]
    ).decode()


def _second(delivery: Delivery) -> str:
    pending = delivery.state is DeliveryState.PENDING
    at = delivery.noted_at if pending else delivery.settled_at or delivery.noted_at
    return f"{datetime.fromtimestamp(at, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def _wants_budget(rules: Sequence[NotificationRule]) -> bool:
    return any(Occasion.BUDGET in rule.on for rule in rules)
