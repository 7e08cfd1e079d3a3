"""Ledgers of the hours that runs use.

Each user's namespace has one ledger object in the operator's own namespace. A run is recorded soon
after it takes resources, and again when it ends or its record is deleted. Each of these events is
recorded once, even if the operator restarts in between. The ledger also keeps the highest run
number of each name, so that no later run gets the number of a deleted run. A pass over the caches
every two seconds records the runs, independently of the turns of runs. Budgets also count hours
that are not written yet. If a run is deleted while no operator is running, its hours count until
the last action of an operator. They do not count at all if the run was younger than LEDGER_DELAY at
that time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from ..errors import Problem
from ..kube import hour_ledgers
from ..kube.api import labels
from ..kube.api.client import Api, ApiError, Object, path
from ..kube.controller.work_queue import BackgroundThread
from ..kube.objects import custom_resource
from ..quota import budgets, ledger
from ..quota.ledger import AccountedRun, HoursAccount, Ledger
from ..spec import TFCluster
from .cluster_state import ClusterCaches, ClusterState
from .usage_sampler import UsageSampler

LEDGER_PERIOD = 2.0
"""Seconds between two passes that record runs."""
WRITES_A_SECOND = 50.0
LEDGER_DELAY = 30.0
"""Seconds between the first time that a pass sees a run use resources and the recording of its
start. The delay distributes the writes of many simultaneous launches over time. A run that ends
within the delay costs one write instead of two.
"""

log = logging.getLogger(__name__)


@dataclass
class NamespaceLedger:
    """The stored ledger of one namespace, as last read or written (`kept`). `open` has the runs
    whose hours are not in the ledger yet.
    """

    user: str = ""
    kept: Ledger = field(default_factory=Ledger)
    version: str = ""
    open: dict[str, AccountedRun] = field(default_factory=dict)
    text: tuple[Ledger, HoursAccount, str] | None = None
    """The cached result of `published_text`: the ledger and the account from which the text was
    made, and the text.
    """


class Accountant(BackgroundThread):
    """A thread that records the hours of runs in the ledgers, and reads the ledgers for budgets.

    Args:
        api: the connection to the API server.
        namespace: the namespace of the runs; empty for all.
        home: the operator's own namespace.
        caches: the operator's caches, of which the runs are used.
        cluster_state: the cached namespaces, with their user and budget.
        leads: returns whether this process is the leader, which alone may write.
        unwatched: returns for how many seconds no operator acted before this one.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        home: str,
        caches: ClusterCaches,
        cluster_state: ClusterState,
        leads: Callable[[], bool],
        unwatched: Callable[[], float],
    ) -> None:
        self._api, self._namespace, self._home = api, namespace, home
        self._caches, self._cluster_state = caches, cluster_state
        self._leads, self._unwatched = leads, unwatched
        super().__init__("hours")
        self.sampler = UsageSampler(api, namespace, caches, leads)
        self._books: dict[str, NamespaceLedger] = {}
        self._gone: dict[str, tuple[str, AccountedRun, float]] = {}
        self._numbers: dict[str, dict[str, int]] = {}
        """The highest number of a deleted run of each name, by namespace."""
        self._runs: dict[str, tuple[str, AccountedRun | None, float]] = {}
        """For each uid: the resource version that was read, the run, and the time at which the run
        took resources first.
        """
        self._last_seen = 0.0
        self.loaded = False
        """Whether the ledgers have been read."""
        self.writes = 0
        caches.gone = self._record_gone

    # -- reading -----------------------------------------------------------------------------------

    def budget_problems(
        self, cluster: TFCluster, cores: Callable[[TFCluster], float]
    ) -> Sequence[Problem] | None:
        """Return the reasons why the user's budget does not allow the run; None before the ledgers
        are read.
        """
        namespace, now = cluster.metadata.owner, time.time()
        most = hour_ledgers.budget_of(self._cluster_state.tenant_annotations(namespace))
        if most is None:
            return ()
        if not self.loaded:
            return None
        book = self._books.get(namespace, NamespaceLedger())
        days = ledger.add_runs(book.kept.days, list(book.open.values()), now)
        return budgets.problems(cluster.spec, cores(cluster), most, ledger.daily_sums(days), now)

    def last_number(self, namespace: str, cluster: str) -> int:
        """Return the highest known number of a deleted run of this name; 0 if none is known."""
        kept = self._books[namespace].kept.numbers if namespace in self._books else {}
        told = self._numbers.get(namespace, {})
        return max(kept.get(cluster, 0), told.get(cluster, 0))

    def published_text(self, namespace: str) -> str:
        """Return, as JSON, the hours of finished runs and the budget of a namespace."""
        marks = self._cluster_state.tenant_annotations(namespace)
        book = self._books.get(namespace) or NamespaceLedger()
        told = HoursAccount(
            group=marks.get(labels.USER_GROUP, ""),
            budget=hour_ledgers.budget_of(marks),
            numbers=book.kept.numbers if self.loaded else None,
        )
        if book.text is None or book.text[0] is not book.kept or book.text[1] != told:
            first, _last = budgets.window(ledger.FULL_DAYS, time.time())
            days = {day: groups for day, groups in book.kept.days.items() if day >= first}
            said = msgspec.structs.replace(told, days=days)
            text = msgspec.json.encode(said, order="deterministic").decode()
            book.text = book.kept, told, text
        return book.text[2]

    # -- writing -----------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._enough.wait(LEDGER_PERIOD if self.loaded else 0.1):
            if not self._leads() or not self._caches.synced:
                continue
            try:
                if not self.loaded:
                    self._load()
                self.update()
            except ApiError as error:
                log.warning("hours: %s", error.message or error.reason)
                self._enough.wait(LEDGER_PERIOD)
            except Exception:  # this thread must survive: the next pass may succeed
                log.exception("hours cannot be written down")
                self._enough.wait(LEDGER_PERIOD)

    def _load(self) -> None:
        """Read all ledgers from the API server. Raises ApiError."""
        try:
            found = self._api.every(
                path("configmaps", self._home), labelSelector=hour_ledgers.LEDGER_SELECTOR
            )
        except ApiError as error:
            if error.status != 403:
                raise
            log.warning("hours are lost with each record: %s", error.message)
        else:
            for each in found.items:
                self._take(each)
        self._last_seen = time.time() - self._unwatched()
        self.loaded = True

    def _take(self, found: Object) -> None:
        try:
            namespace, user, kept = hour_ledgers.read_ledger(found)
        except (msgspec.MsgspecError, KeyError) as error:
            log.error("%s cannot be read: %s", found["metadata"]["name"], error)
            return
        if self._namespace not in ("", namespace):
            return  # this operator serves another namespace
        book = self._books.setdefault(namespace, NamespaceLedger())
        book.user, book.kept = user, kept
        book.version = str(found["metadata"]["resourceVersion"])

    def update(self) -> None:
        """Record the runs that began or ended since the last pass."""
        now, there, found = time.time(), {}, self._caches.runs.every()
        fresh: dict[str, dict[str, AccountedRun]] = {}
        for each in found:
            head = each["metadata"]
            there[head["uid"]] = head["namespace"]
            if (run := self._run_of(each)) is not None:
                fresh.setdefault(head["namespace"], {})[head["uid"]] = run
        for uid, (namespace, run, at) in list(self._gone.items()):
            if uid not in there:
                ended = msgspec.structs.replace(run, until=run.until or at)
                fresh.setdefault(namespace, {})[uid] = ended
        self._runs = {uid: kept for uid, kept in self._runs.items() if uid in there}
        for namespace in fresh.keys() | self._books.keys() | self._numbers.keys():
            book = self._books.setdefault(namespace, NamespaceLedger())
            runs = fresh.get(namespace, {})
            after = self._after(book.kept, runs, there, now)
            told = list(self._numbers.get(namespace, {}).items())
            for cluster, number in told:
                after = ledger.remember_number(after, cluster, number)
            book.open = {u: run for u, run in runs.items() if u not in book.kept.counted}
            if after is not book.kept and not self._enough.is_set():
                self._write(namespace, book, after)
                self._enough.wait(1 / WRITES_A_SECOND)
            if book.kept is after:
                self._forget_numbers(namespace, told)

    def _forget_numbers(self, namespace: str, noted: Sequence[tuple[str, int]]) -> None:
        """Forget the run numbers of deleted runs that are now in the ledger. Otherwise the memory
        grows without limit, because a tenant may delete runs of many names.
        """
        known = self._numbers.get(namespace, {})
        for cluster, number in noted:
            if known.get(cluster) == number:
                known.pop(cluster, None)

    def _after(
        self, kept: Ledger, runs: dict[str, AccountedRun], there: dict[str, str], now: float
    ) -> Ledger:
        for uid, run in runs.items():
            if run.until is not None:
                metered = msgspec.structs.replace(run, metered=self.sampler.usage_of(uid))
                kept = ledger.end_run(kept, uid, metered, run.until)
            elif now >= self._runs[uid][2] + LEDGER_DELAY:
                kept = ledger.begin_run(kept, uid, run)
        for uid, run in list(kept.begun.items()):
            if uid not in there and uid not in runs:  # its record was deleted while no operator ran
                kept = ledger.end_run(kept, uid, None, max(run.usage.at, self._last_seen))
        old = any(now > at + ledger.UID_RETENTION for at in kept.counted.values())
        return ledger.forget_runs(kept, there, now) if old else kept

    def _write(self, namespace: str, book: NamespaceLedger, after: Ledger) -> None:
        user = (
            self._cluster_state.tenant_annotations(namespace).get(labels.USER)
            or book.user
            or namespace
        )
        body, where = (
            hour_ledgers.write_ledger(namespace, user, after),
            path("configmaps", self._home),
        )
        try:
            if book.version:
                body["metadata"]["resourceVersion"] = book.version
                made = self._api.replace(f"{where}/{hour_ledgers.ledger_name(namespace)}", body)
            else:
                made = self._api.create(where, body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            self._read_again(namespace, book)
            return
        self.writes += 1
        book.user, book.kept = user, after
        book.version = str(made["metadata"]["resourceVersion"])
        book.open = {u: run for u, run in book.open.items() if u not in after.counted}
        for uid in after.counted:
            self._gone.pop(uid, None)
            self.sampler.forget(uid)

    def _read_again(self, namespace: str, book: NamespaceLedger) -> None:
        """Read again a ledger that another client changed or deleted."""
        where = path("configmaps", self._home, hour_ledgers.ledger_name(namespace))
        try:
            self._take(self._api.get(where))
        except ApiError as error:
            if not error.gone:
                raise
            book.version = ""  # the next pass creates the ledger

    def _record_gone(self, found: Object) -> None:
        """Note a deleted run for the next pass; called on the informer's thread."""
        run, head = hour_ledgers.accounted_run_of(found, self._group(found)), found["metadata"]
        if run is not None:
            self._gone[head["uid"]] = head["namespace"], run, time.time()
        cluster, number = custom_resource.split_name(head["name"])
        if cluster:
            last = self._numbers.setdefault(head["namespace"], {})
            last[cluster] = max(number, last.get(cluster, 0))

    def _run_of(self, found: Object) -> AccountedRun | None:
        """Return a run in the form that the ledger needs. The record is read again only when it has
        changed.
        """
        head = found["metadata"]
        known = self._runs.get(head["uid"])
        if known is None or known[0] != head["resourceVersion"]:
            run = hour_ledgers.accounted_run_of(found, self._group(found))
            since = known[2] if known and known[1] else time.time()
            known = self._runs[head["uid"]] = head["resourceVersion"], run, since
        return known[1]

    def _group(self, found: Object) -> str:
        return self._cluster_state.tenant_annotations(found["metadata"]["namespace"]).get(
            labels.USER_GROUP, ""
        )
