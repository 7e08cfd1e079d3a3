"""The sources of entitlements: the policy, overrides, and the hub's groups.

A mistake in a source is reported, and the last valid state of the source stays in force. The last
valid policy survives restarts. The namespaces that a change affects are reconciled. This module
owns the ConfigMap `tfcluster-hub-accepted`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable

import urllib3

from ...kube.api.client import Api, ApiError, Object, find_object, path
from ...kube.api.informer import CacheUpdate, Informer
from ...kube.controller.work_queue import BackgroundThread
from ...quota.policy_file import InvalidPolicy
from .entitlements import HubPolicy
from .overrides import Override, encode_overrides, read_overrides
from .policy import parse_policy

POLICY_MAP, ACCEPTED_POLICY_MAP = "tfcluster-hub-policy", "tfcluster-hub-accepted"
POLICY_KEY = "policy.yaml"

log = logging.getLogger(__name__)


class AcceptedPolicy:
    """The policy in force.

    Args:
        api: the connection to the API server.
        home: the hub's namespace.
        changed: called when another policy comes into force.
    """

    def __init__(self, api: Api, home: str, changed: Callable[[], None]) -> None:
        self._api, self._home, self._changed = api, home, changed
        self.policy = HubPolicy()
        self.warning = ""
        """The warning for this policy and the current number of users."""
        self._text = ""
        self._said: dict[str, str] | None = None
        self._lock = threading.Lock()
        self.informer = Informer(
            api,
            path("configmaps", home),
            fields=f"metadata.name={POLICY_MAP}",
            changed=self._written,
        )

    def recall(self) -> None:
        """Restore the policy that was in force before this process started. Raises ApiError."""
        found = find_object(self._api, path("configmaps", self._home, ACCEPTED_POLICY_MAP)) or {}
        self._said = found.get("data")
        text = str((self._said or {}).get(POLICY_KEY, ""))
        try:
            self.policy, self._text = parse_policy(text), text
        except InvalidPolicy as mistake:  # written by a newer or an older release
            log.warning("%s is not valid for this release: %s", ACCEPTED_POLICY_MAP, mistake)

    def publish(self) -> None:
        """Publish the policy in force, and the mistake in the newest policy if there is one. Raises
        ApiError.
        """
        with self._lock:
            written = self.informer.get(self._home, POLICY_MAP)
            data = {
                POLICY_KEY: self._text,
                "error": self._judged(written),
                "warning": self.warning,
                "digest": hashlib.sha256(self._text.encode()).hexdigest(),
            }
            if data != self._said:
                self._write(data)
                self._said = data

    def _written(self, update: CacheUpdate) -> None:
        if update.object["metadata"]["name"] == POLICY_MAP:
            with self._lock:
                self._judged(update.new)

    def _judged(self, written: Object | None) -> str:
        """Read the policy from a ConfigMap, put it into force, and return an empty text. If the
        policy has a mistake, change nothing and return the mistake.
        """
        if written is None:
            return (
                f"there is no ConfigMap {POLICY_MAP}: the last policy, or the defaults, stay in "
                "force"
            )
        text = (written.get("data") or {}).get(POLICY_KEY)
        if text is None:
            return f"the ConfigMap {POLICY_MAP} has no key {POLICY_KEY}"
        try:
            policy = parse_policy(text)
        except InvalidPolicy as mistake:
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
            "metadata": {"name": ACCEPTED_POLICY_MAP},
            "data": data,
        }
        where = path("configmaps", self._home)
        try:
            self._api.merge(f"{where}/{ACCEPTED_POLICY_MAP}", body)
        except ApiError as error:
            if not error.gone:
                raise
            self._api.create(where, body)
        if data["error"]:
            log.warning(
                "the new policy is invalid, and the last one stays in force: %s", data["error"]
            )
        else:
            log.info("the policy %s is in force", data["digest"][:12])


# -- overrides: the ConfigMap that the admin console writes.
# An unreadable ConfigMap is logged and changes nothing.

OVERRIDES_MAP = "tfcluster-hub-overrides"
OVERRIDES_KEY = "overrides.json"


class OverridesFollower:
    """The overrides of one hub.

    Args:
        api: the connection to the API server.
        home: the hub's namespace.
        changed: called with each user whose override has changed.
    """

    def __init__(self, api: Api, home: str, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._overrides: dict[str, Override] = {}
        self._looked_at = 0.0
        self._lock = threading.Lock()
        self.informer = Informer(
            api,
            path("configmaps", home),
            fields=f"metadata.name={OVERRIDES_MAP}",
            changed=self._written,
        )

    def of(self, user: str) -> Override | None:
        """Return a user's override, even an expired one; None if the user has none."""
        return self._overrides.get(user)

    def look(self, now: float) -> None:
        """Call `changed` with each user whose override has expired since the last call."""
        with self._lock:
            since, self._looked_at = self._looked_at, now
            ended = [u for u, each in self._overrides.items() if since < each.until <= now]
        for user in ended:
            self._changed(user)

    def _written(self, update: CacheUpdate) -> None:
        if update.object["metadata"]["name"] != OVERRIDES_MAP:
            return
        try:
            found = _of_config_map(update.new)
        except ValueError as error:
            log.warning(
                "%s cannot be read, and its last content stays in force: %s", OVERRIDES_MAP, error
            )
            return
        with self._lock:
            before, self._overrides = self._overrides, found
        for user in before.keys() | found.keys():
            if before.get(user) != found.get(user):
                self._changed(user)


def stored_overrides(api: Api, home: str) -> dict[str, Override]:
    """Return all overrides from the cluster. Raises ApiError or ValueError."""
    return _of_config_map(find_object(api, path("configmaps", home, OVERRIDES_MAP)))


def change_override(api: Api, home: str, user: str, override: Override | None, now: float) -> bool:
    """Set or remove a user's override, and drop expired overrides of all users. Return whether the
    user had an override that was still in force.

    Raises:
        ApiError: the write was refused, or conflicted with another write.
        ValueError: the stored overrides cannot be read.
    """
    where = path("configmaps", home)
    there = find_object(api, f"{where}/{OVERRIDES_MAP}")
    found = {name: each for name, each in _of_config_map(there).items() if each.until > now}
    had = found.pop(user, None) is not None
    if override is not None:
        found[user] = override
    body: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": OVERRIDES_MAP},
        "data": {OVERRIDES_KEY: encode_overrides(found).decode()},
    }
    if there is None:
        api.create(where, body)
        return had
    body["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
    try:
        api.merge(f"{where}/{OVERRIDES_MAP}", body)
    except ApiError as error:
        if error.gone:
            api.create(where, body)
        else:
            raise
    return had


def _of_config_map(found: Object | None) -> dict[str, Override]:
    return read_overrides(str(((found or {}).get("data") or {}).get(OVERRIDES_KEY, "")))


# -- groups, from the hub's API. The groups of all users are read, in pages, although one user's
# groups might be enough: to read only those, a service would need the right to read users. Ref:
# https://jupyterhub.readthedocs.io/en/stable/reference/rest-api.html (GET /groups)

GROUPS_SECONDS = 10.0
"""Seconds between two readings of the groups."""
NEW_USER_SECONDS = 1.0
"""Seconds between two readings of the groups while there is a new user."""
ANSWER_SECONDS = 5.0
GROUPS_PAGE = 200
PAGINATION = "application/jupyterhub-pagination+json"


class Membership(BackgroundThread):
    """The groups of each user, which a thread reads regularly from the hub.

    Args:
        url: URL of the hub's API, such as `http://hub:8081/hub/api`; empty if there are no groups.
        token: the service's token for the hub.
        changed: called with each user whose groups have changed.
    """

    def __init__(self, url: str, token: str, changed: Callable[[str], None]) -> None:
        self._url, self._changed = url.rstrip("/"), changed
        self._headers = {"Authorization": f"token {token}", "Accept": PAGINATION}
        self._pool = urllib3.PoolManager(retries=False)
        self._groups: dict[str, frozenset[str]] = {}
        self._lock = threading.Lock()
        self._began = float("-inf")
        super().__init__("groups")
        self.known = not url
        """Whether the groups have been read at least once."""
        self.problem = ""
        """Why the last reading failed; empty if it succeeded."""

    def of(self, user: str) -> frozenset[str]:
        """Return the known groups of a user."""
        return self._groups.get(user, frozenset())

    def ask(self, since: float) -> float:
        """Read the groups for a user who was first seen at `since`, in monotonic seconds.

        Return 0 if a reading that began after `since` has ended, even if it failed: the known
        groups then apply. Otherwise return the seconds to wait before the next call.
        """
        if not self._url:
            return 0.0
        with self._lock:
            # If the last reading failed, wait longer before the next one, because this user's
            # namespace has to wait until a request that hangs has ended.
            pause = GROUPS_SECONDS if self.problem else NEW_USER_SECONDS
            rest = self._began + pause - time.monotonic()
            if self._began >= since:
                return 0.0
            if rest <= 0:
                self._look()
            return max(0.0, rest)

    def _run(self) -> None:
        while not self._enough.is_set():
            with self._lock:
                if self._url and time.monotonic() >= self._began + GROUPS_SECONDS:
                    self._look()
            self._enough.wait(max(0.2, self._began + GROUPS_SECONDS - time.monotonic()))

    def _look(self) -> None:
        self._began = time.monotonic()
        try:
            found = self._read()
        except (urllib3.exceptions.HTTPError, ValueError, KeyError, TypeError) as error:
            if not self.problem:
                log.warning("the groups of the hub cannot be read: %s", error)
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
            address = f"{self._url}/groups?limit={GROUPS_PAGE}&offset={offset}"
            answer = self._pool.request(
                "GET", address, headers=self._headers, timeout=ANSWER_SECONDS
            )
            if answer.status != 200:
                raise ValueError(f"{address} answers {answer.status}")
            page = json.loads(answer.data)
            for group in page["items"]:
                for user in group["users"]:
                    found.setdefault(user, set()).add(group["name"])
            following = page["_pagination"].get("next")
            offset = following["offset"] if following else None
        return {user: frozenset(groups) for user, groups in found.items()}
