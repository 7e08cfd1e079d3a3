"""Configuration file of the idle culler on Kubernetes, which stops notebooks by the site's policy.

jupyterhub-idle-culler reads this file and asks `arbiter` about each notebook (see `idle_culler`). A
changed policy applies from the next check, and a group's times apply to its members. If policy or
groups cannot be read, no notebook is stopped.
"""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote, unquote

from tornado.httpclient import AsyncHTTPClient, HTTPRequest

from tfcluster_magic.hub.idle_culler import API
from tfcluster_magic.hub.tenancy.entitlements import Idle, entitlement_for_groups
from tfcluster_magic.hub.tenancy.policy import HubPolicy, parse_policy

ACCEPTED = "tfcluster-hub-accepted"
SECONDS = 20.0
"""Timeout of a request to the hub or API server, in seconds."""


async def arbiter(*, inactive: timedelta, server: dict[str, Any], **_more: Any) -> bool:
    """Return whether to stop a notebook because it is idle or too old."""
    name = user_of(server["url"], os.environ["JUPYTERHUB_BASE_URL"])
    idle = entitlement_for_groups(await accepted(), await groups_of(name)).grant.idle
    began = datetime.fromisoformat(server["started"].replace("Z", "+00:00"))
    return over(idle, inactive, datetime.now(timezone.utc) - began)


def over(idle: Idle, inactive: timedelta, age: timedelta) -> bool:
    """Return whether a notebook exceeds the limits of a group."""
    unused = idle.cull is not None and inactive.total_seconds() >= idle.cull
    return unused or (idle.max_age is not None and age.total_seconds() >= idle.max_age)


def user_of(url: str, base_url: str) -> str:
    """Return the user whose notebook has this path: `/tf/user/ada/` or `/tf/user/ada/second/`."""
    inner = url.removeprefix(f"{base_url.rstrip('/')}/user/")
    return unquote(inner.split("/", 1)[0])


async def groups_of(name: str) -> list[str]:
    """Return the groups of a user, from the hub's API."""
    request = HTTPRequest(
        f"{os.environ[API]}/users/{quote(name, safe='')}",
        headers={"Authorization": f"token {os.environ['JUPYTERHUB_API_TOKEN']}"},
        request_timeout=SECONDS,
    )
    answer = await AsyncHTTPClient().fetch(request)
    return list(json.loads(answer.body)["groups"])


async def accepted() -> HubPolicy:
    """Return the policy that tenancy accepted last; the defaults if it has accepted none."""
    from kubernetes_asyncio import client, config

    config.load_incluster_config()  # type: ignore[no-untyped-call]
    async with client.ApiClient() as api:
        try:
            found = await client.CoreV1Api(api).read_namespaced_config_map(
                ACCEPTED, os.environ["TFCLUSTER_HUB_NAMESPACE"], _request_timeout=SECONDS
            )
        except client.ApiException as error:
            if error.status != 404:
                raise
            return HubPolicy()
    return parse_policy((found.data or {}).get("policy.yaml", ""))


if "get_config" in globals():  # true only when the culler executes this file as its configuration
    c = get_config()  # type: ignore[name-defined]  # noqa: F821
    c.IdleCuller.cull_arbiter_hook = arbiter
