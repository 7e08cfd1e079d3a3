"""The overrides as they count: the ConfigMap that the admin console writes, followed.

Promises that a change and an end at its time wake the user's tenant at once, and that a ConfigMap
which cannot be read changes nothing but what the log says. It writes nothing; `change` is for the
console, which does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ...kube.api.client import Api, ApiError, Object, path
from ...kube.api.gone import find
from ...kube.api.informer import Informer, Update
from .overrides import Override, read, written

NAME = "tfcluster-hub-overrides"
KEY = "overrides.json"

log = logging.getLogger(__name__)


class Overriding:
    """The overrides of one hub.

    Args:
        api: the connection.
        home: the hub's namespace.
        changed: told each user who may have something else now.
    """

    def __init__(self, api: Api, home: str, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._overrides: dict[str, Override] = {}
        self._looked_at = 0.0
        self._lock = threading.Lock()
        self.informer = Informer(
            api, path("configmaps", home), fields=f"metadata.name={NAME}", changed=self._written
        )

    def of(self, user: str) -> Override | None:
        """A user's override, one that has ended among them."""
        return self._overrides.get(user)

    def look(self, now: float) -> None:
        """Tell of those that have ended since the look before."""
        with self._lock:
            since, self._looked_at = self._looked_at, now
            ended = [u for u, each in self._overrides.items() if since < each.until <= now]
        for user in ended:
            self._changed(user)

    def _written(self, update: Update) -> None:
        if update.object["metadata"]["name"] != NAME:
            return
        try:
            found = _said(update.new)
        except ValueError as error:
            log.warning("%s cannot be read, and what counted before counts: %s", NAME, error)
            return
        with self._lock:
            before, self._overrides = self._overrides, found
        for user in before.keys() | found.keys():
            if before.get(user) != found.get(user):
                self._changed(user)


def every(api: Api, home: str) -> dict[str, Override]:
    """All overrides as they are now. Raises ApiError; ValueError."""
    return _said(find(api, path("configmaps", home, NAME)))


def change(api: Api, home: str, user: str, override: Override | None, now: float) -> bool:
    """Set a user's override or take it away; whether there was one. Others that ended go.

    Raises:
        ApiError: it was refused, or somebody else changed it at the same time.
        ValueError: what is there cannot be read.
    """
    where = path("configmaps", home)
    there = find(api, f"{where}/{NAME}")
    found = {name: each for name, each in _said(there).items() if each.until > now}
    had = found.pop(user, None) is not None
    if override is not None:
        found[user] = override
    body: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME},
        "data": {KEY: written(found).decode()},
    }
    if there is None:
        api.create(where, body)
        return had
    body["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
    try:
        api.merge(f"{where}/{NAME}", body)
    except ApiError as error:
        if error.gone:
            api.create(where, body)
        else:
            raise
    return had


def _said(found: Object | None) -> dict[str, Override]:
    return read(str(((found or {}).get("data") or {}).get(KEY, "")))
