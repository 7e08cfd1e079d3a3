"""The policy as it counts: the ConfigMap that admins write, checked, and published for the hub.

Promises that a mistake changes nothing but what is said: the last good policy stays, also over a
restart, and `error` names the line. Owns the ConfigMap `tfcluster-hub-accepted`.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable

from ...kube.api.client import Api, ApiError, Object, path
from ...kube.api.gone import find
from ...kube.api.informer import Informer, Update
from .grants import Policy
from .policy import PolicyMistake, parse

WRITTEN, ACCEPTED = "tfcluster-hub-policy", "tfcluster-hub-accepted"
KEY = "policy.yaml"

log = logging.getLogger(__name__)


class Accepted:
    """The policy that counts.

    Args:
        api: the connection.
        home: the hub's namespace.
        changed: called when another policy counts.
    """

    def __init__(self, api: Api, home: str, changed: Callable[[], None]) -> None:
        self._api, self._home, self._changed = api, home, changed
        self.policy = Policy()
        self._text = ""
        self._said: dict[str, str] | None = None
        self._lock = threading.Lock()
        self.informer = Informer(
            api,
            path("configmaps", home),
            fields=f"metadata.name={WRITTEN}",
            changed=self._written,
        )

    def recall(self) -> None:
        """Take up the policy that counted before this process began. Raises ApiError."""
        found = find(self._api, path("configmaps", self._home, ACCEPTED)) or {}
        self._said = found.get("data")
        text = str((self._said or {}).get(KEY, ""))
        try:
            self.policy, self._text = parse(text), text
        except PolicyMistake as mistake:  # a newer or an older release wrote it
            log.warning("%s cannot be used any more: %s", ACCEPTED, mistake)

    def publish(self) -> None:
        """Say what counts, and what is wrong with what was written last. Raises ApiError."""
        with self._lock:
            written = self.informer.get(self._home, WRITTEN)
            data = {
                KEY: self._text,
                "error": self._judged(written),
                "digest": hashlib.sha256(self._text.encode()).hexdigest(),
            }
            if data != self._said:
                self._write(data)
                self._said = data

    def _written(self, update: Update) -> None:
        if update.object["metadata"]["name"] == WRITTEN:
            with self._lock:
                self._judged(update.new)

    def _judged(self, written: Object | None) -> str:
        """Take what was written, if it has no mistake; else what the mistake is."""
        if written is None:
            return f"there is no ConfigMap {WRITTEN}: what counted before, or the defaults, counts"
        text = (written.get("data") or {}).get(KEY)
        if text is None:
            return f"the ConfigMap {WRITTEN} has no key {KEY}"
        try:
            policy = parse(text)
        except PolicyMistake as mistake:
            return str(mistake)
        self._text = text
        if policy != self.policy:
            self.policy = policy
            self._changed()
        return ""

    def _write(self, data: dict[str, str]) -> None:
        body: Object = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": ACCEPTED},
            "data": data,
        }
        where = path("configmaps", self._home)
        try:
            self._api.merge(f"{where}/{ACCEPTED}", body)
        except ApiError as error:
            if not error.gone:
                raise
            self._api.create(where, body)
        if data["error"]:
            log.warning("the policy keeps what it was: %s", data["error"])
        else:
            log.info("the policy %s counts", data["digest"][:12])
