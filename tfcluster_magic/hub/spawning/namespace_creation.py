"""Creates a user's namespace, checks its owner, and waits until tenancy has provisioned it.

Nothing is created in a namespace unless the namespace belongs to this hub and this user. The user
sees what the start waits for. Tenancy makes the objects inside (`hub/tenancy`).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.scopes import needs_scope
from kubernetes_asyncio.client import ApiException
from tornado import web

from ...i18n import _
from ...kube.api.labels import GROUP, TENANT, USER

Object = dict[str, Any]
API_SECONDS = 5.0
"""Timeout of a request to the API server, in seconds."""
GONE = 404


class HubApi:
    """The requests that the hub makes to the API server."""

    def __init__(self, api: Any) -> None:
        self._api = api

    async def namespace(self, name: str) -> Object | None:
        """Return a namespace; None if it does not exist."""
        return await self._one(self._api.read_namespace, name)

    async def config_map(self, namespace: str, name: str) -> Object | None:
        """Return a ConfigMap; None if it does not exist."""
        return await self._one(self._api.read_namespaced_config_map, name, namespace)

    async def pod(self, namespace: str, name: str) -> Object | None:
        """Return a pod; None if it does not exist."""
        return await self._one(self._api.read_namespaced_pod, name, namespace)

    async def claim(self, namespace: str, name: str) -> Object | None:
        """Return a volume claim; None if it does not exist."""
        return await self._one(self._api.read_namespaced_persistent_volume_claim, name, namespace)

    async def events(self, namespace: str, kind: str, name: str) -> Sequence[Object]:
        """Return the recent events of an object; the API server keeps them for about an hour."""
        about = f"involvedObject.kind={kind},involvedObject.name={name}"
        found = await self._one(
            self._api.list_namespaced_event, namespace, field_selector=about, limit=100
        )
        return [] if found is None else list(found["items"])

    async def make_namespace(
        self, name: str, labels: Mapping[str, str], annotations: Mapping[str, str]
    ) -> None:
        """Create a namespace; leave an existing one as it is."""
        head = {"name": name, "labels": dict(labels), "annotations": dict(annotations)}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": head}
        try:
            await self._api.create_namespace(body, _request_timeout=API_SECONDS)
        except ApiException as error:
            if error.status != 409:
                raise

    async def annotate(self, name: str, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of a namespace; remove those that are None."""
        body = {"metadata": {"annotations": dict(annotations)}}
        await self._api.patch_namespace(
            name, body, _content_type="application/merge-patch+json", _request_timeout=API_SECONDS
        )

    async def _one(
        self, ask: Callable[..., Awaitable[Any]], *arguments: str, **more: Any
    ) -> Object | None:
        answer = await ask(*arguments, _preload_content=False, _request_timeout=API_SECONDS, **more)
        said = await answer.read()
        if answer.status == GONE:
            return None
        if answer.status != 200:
            raise ApiException(status=answer.status, reason=said.decode(errors="replace")[:500])
        found: Object = json.loads(said)
        return found


def refusal_message(error: ApiException) -> str:
    """Return the API server's reason for a refusal."""
    try:
        return str(json.loads(error.body or "")["message"])
    except (KeyError, TypeError, ValueError):
        return str(error.reason or error)


# -- the namespace of a user

NamespaceObject = Mapping[str, Any]
HUB = f"{GROUP}/hub"
PROVISIONED = f"{GROUP}/furnished"
TROUBLE = f"{GROUP}/trouble"
REMOVED = f"{GROUP}/removed"
REMOVED_DATA = f"{GROUP}/removed-data"
ENFORCE = "pod-security.kubernetes.io/enforce"
EVERY = 0.2
TERMINATING_SECONDS = 180.0
"""Maximum seconds to wait for a namespace that is being deleted."""


class NotProvisioned(Exception):
    """A namespace cannot be used; the message tells the user why and what to do."""


@dataclass(frozen=True)
class Tenant:
    """One user's namespace: its name, labels and annotations."""

    name: str
    user: str
    hub: str
    """The namespace of the hub."""

    @property
    def labels(self) -> dict[str, str]:
        """The labels, which are set at creation and never changed."""
        return {TENANT: "true", HUB: self.hub, ENFORCE: "restricted"}

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations, with the user's name in the hub; it may be invalid as a label."""
        return {USER: self.user}

    def whose(self, found: NamespaceObject) -> str:
        """Return why a namespace does not belong to this tenant; empty if it does."""
        head = found["metadata"]
        labels, annotations = head.get("labels") or {}, head.get("annotations") or {}
        if labels.get(TENANT) != "true" or HUB not in labels:
            return _("it was not created by this hub")
        if labels[HUB] != self.hub:
            return _("it belongs to the hub in the namespace {hub}").format(hub=labels[HUB])
        if annotations.get(USER) != self.user:
            return _("it belongs to another user")
        return ""


async def ensure_namespace(
    reader: HubApi, tenant: Tenant, tell: Callable[[str], None], seconds: float
) -> None:
    """Create the user's namespace if it is missing, and wait until it is provisioned.

    `tell` is called with each message about what the start waits for. `seconds` limits the time to
    wait for tenancy.

    Raises:
        NotProvisioned: the namespace belongs to somebody else, or was not ready in time.
    """
    until, made = time.monotonic() + seconds, False
    gone_by = time.monotonic() + TERMINATING_SECONDS
    while True:
        found = await reader.namespace(tenant.name)
        now = time.monotonic()
        if found is None:
            tell(_("Creating your namespace {name}.").format(name=tenant.name))
            await reader.make_namespace(tenant.name, tenant.labels, tenant.annotations)
            until, made = now + seconds, True
            continue
        if why := tenant.whose(found):
            text = _(
                "The namespace {name} exists, but is not yours: {why}. Nothing was "
                "changed in it. Ask the administrator to rename or delete it, or to"
                " give you another user name."
            )
            raise NotProvisioned(text.format(name=tenant.name, why=why))
        said = found["metadata"].get("annotations") or {}
        if _is_going(found, said):
            if now > gone_by:
                text = _(
                    "The namespace {name} is still being deleted after "
                    "{seconds:.0f} seconds. Ask the administrator what delays it, "
                    "or try again later."
                )
                raise NotProvisioned(text.format(name=tenant.name, seconds=TERMINATING_SECONDS))
            text = _(
                "Your namespace {name} is being deleted. A new one is created when it is gone."
            )
            tell(text.format(name=tenant.name))
        elif REMOVED in said:  # an earlier user of this name was deleted, but the data was kept
            await reader.annotate(tenant.name, {REMOVED: None})
        elif PROVISIONED in said:
            return
        else:
            if now > until:
                raise NotProvisioned(_too_late(tenant, said, seconds))
            tell(_preparing(said, made))
        await asyncio.sleep(EVERY)


async def prepare_namespace(reader: HubApi, tenant: Tenant) -> None:
    """Create the namespace if it does not exist, without waiting for tenancy.

    Raises:
        NotProvisioned: the namespace belongs to somebody else.
    """
    found = await reader.namespace(tenant.name)
    if found is None:
        await reader.make_namespace(tenant.name, tenant.labels, tenant.annotations)
    elif why := tenant.whose(found):
        text = _("the namespace {name} exists, but does not belong to {user}: {why}")
        raise NotProvisioned(text.format(name=tenant.name, user=tenant.user, why=why))


async def mark_removed(reader: HubApi, tenant: Tenant, *, with_data: bool) -> bool:
    """Mark the namespace of a deleted user, so that tenancy removes the user's rights; return False
    if the user has no namespace. `with_data` also marks the data for deletion.
    """
    found = await reader.namespace(tenant.name)
    if found is None or tenant.whose(found):
        return False
    now = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    marks = {REMOVED: now, **({REMOVED_DATA: "true"} if with_data else {})}
    await reader.annotate(tenant.name, marks)
    return True


def _is_going(found: NamespaceObject, said: Mapping[str, str]) -> bool:
    deleted = found["metadata"].get("deletionTimestamp") is not None
    return deleted or (REMOVED in said and said.get(REMOVED_DATA) == "true")


def _preparing(said: Mapping[str, str], made: bool) -> str:
    if trouble := said.get(TROUBLE):
        return _("Your namespace is not ready: {why}").format(why=trouble)
    if made:
        return _("Your namespace is being prepared: rights, quotas and volumes.")
    return _("Your namespace is being updated.")


def _too_late(tenant: Tenant, said: Mapping[str, str], seconds: float) -> str:
    if trouble := said.get(TROUBLE):
        text = _("Your namespace {name} is not ready: {why} Ask the administrator.")
        return text.format(name=tenant.name, why=trouble)
    text = _(
        "Your namespace {name} was not prepared within {seconds:.0f} seconds. Ask "
        "the administrator whether the hub's tenancy service is running, or try "
        "again later."
    )
    return text.format(name=tenant.name, seconds=seconds)


# -- `POST /hub/api/prepare/USER`: create the namespace before the first notebook. A caller must be
# allowed to create users. The admin console uses this route when it imports a class.


class PrepareAPI(APIHandler):
    """Creates the namespace of one user."""

    @needs_scope("admin:users")
    async def post(self, name: str) -> None:
        """Create the namespace if it does not exist, then answer with {"name"}."""
        user = self.find_user(name)
        if user is None:
            raise web.HTTPError(404)
        try:
            await user.spawners[""].prepare()
        except NotProvisioned as why:
            raise web.HTTPError(409, "%s", why) from None
        self.write({"name": user.name})


PREPARE_HANDLERS = [(r"/api/prepare/([^/]+)", PrepareAPI)]
