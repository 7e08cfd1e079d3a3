"""Who is in which groups, as the hub's API says it.

Promises that what was known stays known while the hub is away, that one who was never known is
told from one who is in no group, and that who is new is not judged by what was read before. Reads
the whole list, in pages: the hub has no word for "of this user" that a service may ask without
reading users.

Ref: https://jupyterhub.readthedocs.io/en/stable/reference/rest-api.html (GET /groups)
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable

import urllib3

from ...kube.controller.background import Background

EVERY = 10.0
"""Seconds between two looks."""
AT_MOST_EVERY = 1.0
"""The same while somebody new is there."""
ANSWER = 5.0
PAGE = 200
PAGES = "application/jupyterhub-pagination+json"

log = logging.getLogger(__name__)


class Membership(Background):
    """Groups by user.

    Args:
        url: of the hub's API, such as `http://hub:8081/hub/api`; empty: nobody is in a group.
        token: of the service at the hub.
        changed: told each user whose groups are others now.
    """

    def __init__(self, url: str, token: str, changed: Callable[[str], None]) -> None:
        self._url, self._changed = url.rstrip("/"), changed
        self._headers = {"Authorization": f"token {token}", "Accept": PAGES}
        self._pool = urllib3.PoolManager(retries=False)
        self._groups: dict[str, frozenset[str]] = {}
        self._lock = threading.Lock()
        self._began = float("-inf")
        super().__init__("groups")
        self.known = not url
        """Whether it was ever told."""
        self.problem = ""
        """Why the last look told nothing."""

    def of(self, user: str) -> frozenset[str]:
        """The groups of a user, as far as they are known."""
        return self._groups.get(user, frozenset())

    def ask(self, since: float) -> float:
        """Look for one who is there since `since` (monotonic); seconds until that may be done.

        0: a look has begun since then and is over. In vain, too: then counts what was known.
        """
        if not self._url:
            return 0.0
        with self._lock:
            pause = EVERY if self.problem else AT_MOST_EVERY  # one that hangs holds up this turn
            rest = self._began + pause - time.monotonic()
            if self._began >= since:
                return 0.0
            if rest <= 0:
                self._look()
            return max(0.0, rest)

    def _run(self) -> None:
        while not self._enough.is_set():
            with self._lock:
                if self._url and time.monotonic() >= self._began + EVERY:
                    self._look()
            self._enough.wait(max(0.2, self._began + EVERY - time.monotonic()))

    def _look(self) -> None:
        self._began = time.monotonic()
        try:
            found = self._read()
        except (urllib3.exceptions.HTTPError, ValueError, KeyError, TypeError) as error:
            if not self.problem:
                log.warning("the hub tells no groups: %s", error)
            self.problem = str(error) or type(error).__name__
            return
        before, self._groups = self._groups, found
        first, self.known, self.problem = not self.known, True, ""
        for user in before.keys() | found.keys():
            if first or before.get(user) != found.get(user):
                self._changed(user)

    def _read(self) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        offset: int | None = 0
        while offset is not None:
            address = f"{self._url}/groups?limit={PAGE}&offset={offset}"
            answer = self._pool.request("GET", address, headers=self._headers, timeout=ANSWER)
            if answer.status != 200:
                raise ValueError(f"{address} answers {answer.status}")
            page = json.loads(answer.data)
            for group in page["items"]:
                for user in group["users"]:
                    found.setdefault(user, set()).add(group["name"])
            following = page["_pagination"].get("next")
            offset = following["offset"] if following else None
        return {user: frozenset(groups) for user, groups in found.items()}
