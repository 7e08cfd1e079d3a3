"""Whether the operator answers, and the sentence that says that it does not.

Asks at most once in `EVERY` seconds, however many callers ask. No question holds up a view for
longer than `heartbeat.SOON`, and nothing is said against an operator whose state is unknown.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ...i18n import _
from ...kube.api import heartbeat
from ...kube.api.client import Api, ApiError

EVERY = 4.0
"""Seconds between two questions."""
SELDOM = 60.0
"""The same if the Lease may not be read, or is not where it is only supposed to be."""
DAY = 86400.0


class Attendance:
    """The operator as a client sees it.

    Args:
        api: the connection.
        place: where the operator's Lease is, `namespace/name`, and whether the operator says so;
            called until it is known. Raises ApiError.
    """

    def __init__(self, api: Api, place: Callable[[], tuple[str, bool]]) -> None:
        self._api, self._find_place = api, place
        self._place, self._certain = "", False
        self._lock = threading.Lock()
        self._not_before = 0.0
        self._away: tuple[float, str] | None = None
        """Since when the operator has not answered, by this machine's clock, and where its Lease
        is.
        """

    def notice(self) -> str:
        """Return the notice for an operator that does not answer; empty while it answers."""
        if self._lock.acquire(blocking=False):  # otherwise somebody is asking already
            try:
                if time.monotonic() >= self._not_before:
                    self._check()
            finally:
                self._lock.release()
        away = self._away
        return "" if away is None else _said(*away)

    def _check(self) -> None:
        rest = EVERY
        try:
            if not self._place:
                self._place, self._certain = self._find_place()
            silent = heartbeat.silent_for(self._api, self._place)
        except ApiError as error:
            if error.gone and self._certain:  # an operator makes its Lease before all else
                self._away = self._away or (time.time(), self._place)
            elif not error.unanswered:
                self._away, rest = None, SELDOM if self._place else EVERY
        else:
            if not silent:
                self._away = None
            elif self._away is None:  # keep one moment: answers come in whole seconds
                self._away = time.time() - silent, self._place
        self._not_before = time.monotonic() + rest


def _said(since: float, place: str) -> str:
    when = time.localtime(since)
    at = time.strftime("%H:%M:%S" if time.time() - since < DAY / 2 else "%Y-%m-%d %H:%M", when)
    return _(
        "The operator of TFCluster has not answered since {since}: tasks that run go on, launches "
        "and stops wait for it. Tell your administrator: "
        "`kubectl -n {namespace} get deployment,pod,lease`"
    ).format(since=at, namespace=place.partition("/")[0])
