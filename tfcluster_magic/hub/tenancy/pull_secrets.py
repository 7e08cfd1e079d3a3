"""Secrets that open registries: copied from the hub's namespace into tenants', and kept up to date.

Promises that only secrets which the policy names are read, by name, and that a copy is a copy:
labelled as ours, and for tasks. Nothing of them is logged or kept beyond this process. They are
never listed or watched: a right to list secrets is one to read them all.
"""

from __future__ import annotations

import hashlib
import threading
import time

from ...i18n import _
from ...kube.api import labels
from ...kube.api.client import Api, ApiError, Object, path
from .objects import HUB, MANAGED_BY, MANAGER

EVERY = 10.0
"""Seconds for which what was read is believed."""
AGAIN = 600.0
"""Seconds after which a copy is written again, for nobody watches whether it was altered."""
TYPE = "kubernetes.io/dockerconfigjson"
CONTENT = ".dockerconfigjson"


class Pulling:
    """Copies of the secrets that the policy names."""

    def __init__(self, api: Api, home: str) -> None:
        self._api, self._home = api, home
        self._sources: dict[str, tuple[float, str, str]] = {}
        self._copies: dict[tuple[str, str], tuple[str, float]] = {}
        self._lock = threading.Lock()

    def digest(self, name: str) -> str:
        """What changes with a secret's content; empty for one that cannot be read."""
        return hashlib.sha256(self._source(name)[0].encode()).hexdigest()

    def give(
        self, namespace: str, uid: str, names: tuple[str, ...], before: frozenset[str]
    ) -> list[str]:
        """Make the copies of a tenant right, and take away those of `before` that no policy names
        any more; what is wrong, as sentences. Raises ApiError.
        """
        problems = []
        for name in names:
            content, problem = self._source(name)
            if problem:
                problems.append(problem)
                continue
            digest = hashlib.sha256(content.encode()).hexdigest()
            now = time.monotonic()
            written, at = self._copies.get((uid, name), ("", now))
            if written != digest or now > at + AGAIN:
                self._write(namespace, name, content)
                self._copies[uid, name] = (digest, now)
        for name in before.difference(names):
            self._take(namespace, name)
            self._copies.pop((uid, name), None)
        return problems

    def _source(self, name: str) -> tuple[str, str]:
        with self._lock:
            at, content, problem = self._sources.get(name, (float("-inf"), "", ""))
            if time.monotonic() >= at + EVERY:
                content, problem = self._read(name)
                self._sources[name] = (time.monotonic(), content, problem)
            return content, problem

    def _read(self, name: str) -> tuple[str, str]:
        try:
            found = self._api.get(path("secrets", self._home, name))
        except ApiError as error:
            if error.unanswered:
                raise
            text = _("the pull secret {name} of {home} cannot be read: {why}")
            return "", text.format(name=name, home=self._home, why=error.message)
        content = (found.get("data") or {}).get(CONTENT)
        if found.get("type") != TYPE or content is None:
            text = _("the pull secret {name} of {home} is not of type {type}")
            return "", text.format(name=name, home=self._home, type=TYPE)
        return content, ""

    def _write(self, namespace: str, name: str, content: str) -> None:
        marks = {MANAGED_BY: MANAGER, HUB: self._home, labels.FOR_TASKS: "true"}
        body: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": TYPE,
            "metadata": {"name": name, "labels": marks},
            "data": {CONTENT: content},
        }
        where = path("secrets", namespace)
        try:
            self._api.create(where, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            change = {"metadata": {"labels": marks}, "data": body["data"]}
            self._api.merge(f"{where}/{name}", change)

    def _take(self, namespace: str, name: str) -> None:
        try:
            self._api.delete(path("secrets", namespace, name))
        except ApiError as error:
            if not error.gone:
                raise
