"""Keeps the ledgers of hours: one object for each user's namespace, in the operator's own.

Promises that a run is written down soon after it began to hold something and when it is over or
its record is gone, each once whatever is restarted in between; that its turns cost nothing, for
this is one look at the caches every two seconds; and that budgets count what is not written yet,
too. A run that was deleted while no operator was there counts until the last one acted, if it was
SOON old by then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from ..errors import Problem
from ..kube.api import labels
from ..kube.api.client import Api, ApiError, Object, path
from ..kube.capacity import ledgers
from ..kube.controller.background import Background
from ..quota import budgets, ledger
from ..quota.ledger import Account, Ledger, Run
from ..spec import TFCluster
from .caches import Caches
from .cluster_state import Ground
from .metering import Meter

PERIOD = 2.0
"""Seconds between two looks."""
WRITES_A_SECOND = 50.0
SOON = 10.0
"""Seconds after which a run is written down that still goes on: who launches with many others does
not wait for their ledgers, and a short run costs one write instead of two.
"""

log = logging.getLogger(__name__)


@dataclass
class Book:
    """The ledger of one namespace as the API has it; `open` are the runs that it does not have."""

    user: str = ""
    kept: Ledger = field(default_factory=Ledger)
    version: str = ""
    open: dict[str, Run] = field(default_factory=dict)
    text: tuple[Ledger, Account, str] | None = None
    """What was told last, and of what."""


class Accountant(Background):
    """All ledgers.

    Args:
        api: the connection.
        namespace: that of the runs; empty for all.
        home: the operator's own.
        caches: of the runs.
        cluster_state: of the namespaces, which say whose they are and what is allowed there.
        leads: whether this process may write.
        unwatched: seconds for which no operator acted before this one did.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        home: str,
        caches: Caches,
        cluster_state: Ground,
        leads: Callable[[], bool],
        unwatched: Callable[[], float],
    ) -> None:
        self._api, self._namespace, self._home = api, namespace, home
        self._caches, self._cluster_state = caches, cluster_state
        self._leads, self._unwatched = leads, unwatched
        super().__init__("hours")
        self.sampler = Meter(api, namespace, caches, leads)
        self._books: dict[str, Book] = {}
        self._gone: dict[str, tuple[str, Run, float]] = {}
        self._runs: dict[str, tuple[str, Run | None, float]] = {}
        """By uid: the version that was read, what it says, and when that was first something."""
        self._last_seen = 0.0
        self.loaded = False
        """Whether the ledgers were read."""
        self.writes = 0
        caches.gone = self._record_gone

    # -- what is asked -----------------------------------------------------------------------------

    def budget_problems(
        self, cluster: TFCluster, cores: Callable[[TFCluster], float]
    ) -> Sequence[Problem] | None:
        """Why the budget of its user lets a run not begin; None while the ledgers are not read."""
        namespace, now = cluster.metadata.owner, time.time()
        most = ledgers.budget_of(self._cluster_state.tenant_annotations(namespace))
        if most is None:
            return ()
        if not self.loaded:
            return None
        book = self._books.get(namespace, Book())
        days = ledger.with_runs(book.kept.days, list(book.open.values()), now)
        return budgets.problems(cluster.spec, cores(cluster), most, ledger.spent(days), now)

    def published_text(self, namespace: str) -> str:
        """What a namespace's user is told of the runs that are over, and of what is allowed."""
        marks = self._cluster_state.tenant_annotations(namespace)
        book = self._books.get(namespace) or Book()
        told = Account(group=marks.get(labels.OF_GROUP, ""), budget=ledgers.budget_of(marks))
        if book.text is None or book.text[0] is not book.kept or book.text[1] != told:
            first, _last = budgets.window(ledger.FULL_DAYS, time.time())
            days = {day: groups for day, groups in book.kept.days.items() if day >= first}
            said = msgspec.structs.replace(told, days=days)
            text = msgspec.json.encode(said, order="deterministic").decode()
            book.text = book.kept, told, text
        return book.text[2]

    # -- what is done ------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._enough.wait(PERIOD if self.loaded else 0.1):
            if not self._leads() or not self._caches.synced:
                continue
            try:
                if not self.loaded:
                    self._load()
                self.update()
            except ApiError as error:
                log.warning("hours: %s", error.message or error.reason)
                self._enough.wait(PERIOD)
            except Exception:  # the next look may do better, and nobody else would look
                log.exception("hours cannot be written down")
                self._enough.wait(PERIOD)

    def _load(self) -> None:
        """What is written down. Raises ApiError."""
        try:
            found = self._api.every(path("configmaps", self._home), labelSelector=ledgers.SELECTOR)
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
            namespace, user, kept = ledgers.read(found)
        except (msgspec.MsgspecError, KeyError) as error:
            log.error("%s cannot be read: %s", found["metadata"]["name"], error)
            return
        if self._namespace not in ("", namespace):
            return  # of another operator, which knows its runs
        book = self._books.setdefault(namespace, Book())
        book.user, book.kept = user, kept
        book.version = str(found["metadata"]["resourceVersion"])

    def update(self) -> None:
        """Write down what began and what is over since the last look."""
        now, there, found = time.time(), {}, self._caches.runs.every()
        fresh: dict[str, dict[str, Run]] = {}
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
        for namespace in fresh.keys() | self._books.keys():
            book = self._books.setdefault(namespace, Book())
            runs = fresh.get(namespace, {})
            after = self._after(book.kept, runs, there, now)
            book.open = {u: run for u, run in runs.items() if u not in book.kept.counted}
            if after is not book.kept and not self._enough.is_set():
                self._write(namespace, book, after)
                self._enough.wait(1 / WRITES_A_SECOND)

    def _after(
        self, kept: Ledger, runs: dict[str, Run], there: dict[str, str], now: float
    ) -> Ledger:
        for uid, run in runs.items():
            if run.until is not None:
                metered = msgspec.structs.replace(run, metered=self.sampler.usage_of(uid))
                kept = ledger.end(kept, uid, metered, run.until)
            elif now >= self._runs[uid][2] + SOON:
                kept = ledger.begin(kept, uid, run)
        for uid, run in list(kept.begun.items()):
            if uid not in there and uid not in runs:  # it went while nobody looked
                kept = ledger.end(kept, uid, None, max(run.usage.at, self._last_seen))
        old = any(now > at + ledger.REMEMBERED for at in kept.counted.values())
        return ledger.forget(kept, there, now) if old else kept

    def _write(self, namespace: str, book: Book, after: Ledger) -> None:
        user = (
            self._cluster_state.tenant_annotations(namespace).get(labels.USER)
            or book.user
            or namespace
        )
        body, where = ledgers.write(namespace, user, after), path("configmaps", self._home)
        try:
            if book.version:
                body["metadata"]["resourceVersion"] = book.version
                made = self._api.replace(f"{where}/{ledgers.name(namespace)}", body)
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

    def _read_again(self, namespace: str, book: Book) -> None:
        """Somebody else wrote it, or took it away: the next look does it upon what is there."""
        where = path("configmaps", self._home, ledgers.name(namespace))
        try:
            self._take(self._api.get(where))
        except ApiError as error:
            if not error.gone:
                raise
            book.version = ""  # what we know of it is written anew

    def _record_gone(self, found: Object) -> None:
        """The record of a run is gone; called on the informer's thread."""
        run = ledgers.run_of(found, self._group(found))
        if run is not None:
            head = found["metadata"]
            self._gone[head["uid"]] = head["namespace"], run, time.time()

    def _run_of(self, found: Object) -> Run | None:
        """A run as the ledger needs it; read again only when it has changed."""
        head = found["metadata"]
        known = self._runs.get(head["uid"])
        if known is None or known[0] != head["resourceVersion"]:
            run = ledgers.run_of(found, self._group(found))
            since = known[2] if known and known[1] else time.time()
            known = self._runs[head["uid"]] = head["resourceVersion"], run, since
        return known[1]

    def _group(self, found: Object) -> str:
        return self._cluster_state.tenant_annotations(found["metadata"]["namespace"]).get(
            labels.OF_GROUP, ""
        )
