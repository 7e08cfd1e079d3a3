"""A cache of all objects of one kind, kept up to date by one list and one watch.

Objects deleted while the watch was interrupted are reported like any other deletion. A silent watch
is restarted (`api.watch` ends it), and errors are retried with growing pauses. Callbacks run one
after the other in one thread. Cached objects are shared and must not be changed.

Ref: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from .client import Api, ApiError, Object, StreamCloser, WatchEvent
from .decoding import WHOLE_SHAPE, Shape

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
"""A pair of times in seconds: the maximum pause before the first retry, which doubles with each
further retry, and the limit up to which it doubles. A pause is half of the maximum or more, at
random.
"""
SHORT_LIVED = 1.0
"""A watch shorter than this many seconds counts as an error: API servers close watches under load,
and the next watch would start at once.
"""
FORGOTTEN = 410
TOO_LARGE = "ResourceVersionTooLarge"
"""A cause in the details of an API error. It means that the API server was restored to a state
before the last version that we read.
"""

log = logging.getLogger(__name__)
Key = tuple[str, str]
"""Namespace (empty for cluster-wide objects) and name."""


@dataclass(frozen=True)
class CacheUpdate:
    """A change of an object in the cache: `old` is None for a new object, `new` is None for a
    deleted one. If the watch did not see a deletion (`observed` is false), the object may have
    changed after `old`.
    """

    old: Object | None
    new: Object | None
    observed: bool = True

    @property
    def object(self) -> Object:
        """The newest known state of the object."""
        found = self.old if self.new is None else self.new
        assert found is not None
        return found


class InformerGroup:
    """Several informers that start and stop together."""

    all: tuple[Informer, ...]

    def start(self) -> None:
        """Start all informers."""
        for each in self.all:
            each.start()

    def stop(self) -> None:
        """Stop all informers."""
        for each in self.all:
            each.stop()

    @property
    def alive(self) -> bool:
        """Whether all threads are alive."""
        return all(each.alive for each in self.all)


class Informer:
    """A cache of the objects at `where`.

    Args:
        api: the connection to the API server.
        where: path of a collection, such as `client.path("pods")`.
        shape: the fields to decode; all others are skipped.
        selector: label selector; empty for all objects.
        fields: field selector such as `metadata.name=digits-2`; empty for all objects.
        trim: returns what to keep of an object; called once for each version of an object.
        group: returns the key under which `of` finds an object, such as its run.
        optional: whether the cluster may lack this kind; then its absence causes no warning.
        changed: called on the informer's thread with each change; its errors are logged.
    """

    def __init__(
        self,
        api: Api,
        where: str,
        *,
        shape: Shape = WHOLE_SHAPE,
        selector: str = "",
        fields: str = "",
        optional: bool = False,
        trim: Callable[[Object], Object] = lambda found: found,
        group: Callable[[Object], Hashable] = lambda _found: None,
        changed: Callable[[CacheUpdate], None] = lambda _update: None,
    ) -> None:
        self._api, self.where = api, where
        selectors = {"labelSelector": selector, "fieldSelector": fields}
        self._query: dict[str, Any] = {key: text for key, text in selectors.items() if text}
        self._optional = optional
        self._trim, self._group, self._changed = trim, group, changed
        self._objects: dict[Key, Object] = {}
        self._groups: dict[Hashable, dict[Key, Object]] = {}
        self._lock = threading.Lock()
        self._stopped, self._cut = threading.Event(), StreamCloser()
        self._version, self._shape = "", shape
        self._failures = 0
        self.synced = threading.Event()
        """Set once the cache holds a whole list."""
        self.problem: ApiError | None = None
        """The error that keeps the cache from being up to date; None while it is up to date."""
        self.heard = time.monotonic()
        """The monotonic time at which the server last sent something."""
        self._thread = threading.Thread(target=self._run, name=f"informer {where}", daemon=True)

    # -- for readers -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reporting changes; the thread ends."""
        self._stopped.set()
        self._cut()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def get(self, namespace: str, name: str) -> Object | None:
        """Return one object; None if it is not in the cache."""
        with self._lock:
            return self._objects.get((namespace, name))

    def every(self) -> list[Object]:
        """Return all objects."""
        with self._lock:
            return list(self._objects.values())

    def of(self, group: Hashable) -> list[Object]:
        """Return the objects for which the constructor's `group` function returned this value."""
        with self._lock:
            return list(self._groups.get(group, {}).values())

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                if not self._version:
                    self._list()
                for change in self._watch():
                    self._take(change)
                    if self._stopped.is_set():
                        return
                if time.monotonic() - began >= SHORT_LIVED:
                    self._failures = 0
                    continue
            except ApiError as error:
                if self._stopped.is_set():
                    return
                self._note(error, lived=time.monotonic() - began)
            except Exception:  # without this thread the cache would never be updated again
                log.exception("%s: cannot be followed; listing again", self.where)
                self._version = ""
            self._failures += 1
            self._stopped.wait(backoff_seconds(self._failures))

    def _note(self, error: ApiError, lived: float) -> None:
        causes = error.details.get("causes") or []
        behind = any(cause.get("reason") == TOO_LARGE for cause in causes)
        if error.status == FORGOTTEN or behind or not error.unanswered:
            self._version = ""
        if lived >= LONGEST_PAUSE:
            self._failures = 0
        if error.status == FORGOTTEN:
            log.info("%s: the version is forgotten, listing again", self.where)
            return
        self.problem = error
        said = error.message or error.reason or str(error.status)
        level = logging.DEBUG if self._optional and error.gone else logging.WARNING
        log.log(level, "%s: %s", self.where, said.strip())

    def _list(self) -> None:
        listing = self._api.every(self.where, keep=self._trim, shape=self._shape, **self._query)
        self._alright()
        found = {_key(each): each for each in listing.items}
        with self._lock:
            known = dict(self._objects)
        for key in known.keys() - found.keys():
            self._put(key, None, observed=False)
        for key, new in found.items():
            self._put(key, new)
        self._version = listing.version
        self.synced.set()

    def _watch(self) -> Iterator[WatchEvent]:
        found = self._api.watch(
            self.where, self._version, cut=self._cut, shape=self._shape, **self._query
        )
        for change in found:
            self._alright()
            yield change

    def _alright(self) -> None:
        self.problem, self.heard = None, time.monotonic()

    def _take(self, change: WatchEvent) -> None:
        if change.kind != "BOOKMARK":
            key = _key(change.object)
            self._put(key, None if change.kind == "DELETED" else self._trim(change.object))
        self._version = str(change.object["metadata"]["resourceVersion"])

    def _put(self, key: Key, new: Object | None, *, observed: bool = True) -> None:
        old = self._objects.get(key)
        if old and new and _uid(old) != _uid(new):
            self._put(key, None, observed=False)  # the object was deleted and created again
        with self._lock:
            old = self._objects.pop(key, None)
            if old is not None:
                self._leave(self._group(old), key)
            if new is not None:
                self._objects[key] = new
                self._groups.setdefault(self._group(new), {})[key] = new
        if (old is None and new is None) or (old and new and _version(old) == _version(new)):
            return
        try:
            self._changed(CacheUpdate(old, new, observed))
        except Exception:  # the other changes must still be reported
            log.exception("%s: a reader failed on %s", self.where, key)

    def _leave(self, group: Hashable, key: Key) -> None:
        members = self._groups[group]
        del members[key]
        if not members:
            del self._groups[group]


def backoff_seconds(failures: int) -> float:
    """Return the seconds to wait after this number of successive failures."""
    longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 10))
    return longest * random.uniform(0.5, 1.0)


def _key(found: Object) -> Key:
    head = found["metadata"]
    return head.get("namespace", ""), head["name"]


def _uid(found: Object) -> object:
    return found["metadata"].get("uid")


def _version(found: Object) -> object:
    return found["metadata"].get("resourceVersion")
