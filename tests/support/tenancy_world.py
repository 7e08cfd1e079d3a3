"""Tenancy on a server that stores objects. The test acts as Kubernetes' controllers."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from support.http_listener import Listener
from support.kube_server import KubeServer, Object
from support.polling import wait_until
from tfcluster_magic.hub.tenancy import namespace_objects
from tfcluster_magic.hub.tenancy.caches import RESOURCES
from tfcluster_magic.hub.tenancy.controller import PROVISIONED, TROUBLE, Tenancy
from tfcluster_magic.hub.tenancy.entitlement_sources import (
    ACCEPTED_POLICY_MAP,
    POLICY_KEY,
    POLICY_MAP,
)
from tfcluster_magic.hub.tenancy.namespace_objects import TenantContext, tenant_objects
from tfcluster_magic.hub.tenancy.policy import entitlement_for_groups, parse_policy
from tfcluster_magic.kube.api.client import path
from tfcluster_magic.kube.api.labels import USER

HOME = "tfcluster-hub"
ALICE = "tfcluster-u-alice"
CLASS = path("storageclasses", "", "fast")


class Cluster(KubeServer):
    """A server that also does at once what Kubernetes' controllers do: it counts the use of quotas
    and binds claims.
    """

    binds = True
    counts = True

    def put(self, path: str, found: Object) -> Object:
        if "/resourcequotas/" in path:
            used = {"used": {}} if self.counts else {}
            found = {**found, "status": {"hard": found["spec"]["hard"], **used}}
        if "/persistentvolumeclaims/" in path and "status" not in found:
            found = {**found, "status": {"phase": "Bound" if self.binds else "Pending"}}
        return super().put(path, found)

    def writes(self) -> list[tuple[str, str]]:
        """Return all requests except reads."""
        return [call for call in self.calls if call[0] != "GET"]


class Hub:
    """The parts of the hub's API that tenancy uses: groups, in pages of two."""

    def __init__(self) -> None:
        self.groups: dict[str, list[str]] = {}
        self.away = False
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query)
                allowed = self.headers["Authorization"] == "token secret" and not hub.away
                offset = int(query["offset"][0])
                every = sorted(hub.groups.items())
                items = [{"name": name, "users": u} for name, u in every[offset : offset + 2]]
                more = offset + 2 < len(every)
                page = {"next": {"offset": offset + 2} if more else None}
                content = json.dumps({"items": items, "_pagination": page}).encode()
                self.send_response(200 if allowed else 503)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *words: object) -> None:
                pass

        self._http = Listener(Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/hub/api"

    def close(self) -> None:
        self._http.end()


class World:
    """A server, a hub, and tenancy."""

    def __init__(self) -> None:
        self.server = Cluster()
        self.hub = Hub()
        self.server.put(CLASS, {"volumeBindingMode": "Immediate"})
        self.say("default: {storage: {class: fast}}")
        self.tenancy: Tenancy | None = None

    def begin(self) -> Tenancy:
        """Start tenancy; it replaces the last one."""
        self.end()
        hub = (self.hub.url, "secret")
        made = Tenancy(self.server.api(), HOME, "tfcluster-u-", hub, lambda: True)
        made.follow()
        wait_until(lambda: made.synced)
        made.begin()
        self.tenancy = made
        return made

    def end(self) -> None:
        """End tenancy."""
        if self.tenancy is not None:
            self.tenancy.end()
            self.tenancy = None

    def close(self) -> None:
        """End everything."""
        self.end()
        self.hub.close()
        self.server.close()

    def say(self, policy: str) -> None:
        """Write the policy, as an administrator does."""
        self.server.put(path("configmaps", HOME, POLICY_MAP), {"data": {POLICY_KEY: policy}})

    @property
    def accepted(self) -> dict[str, str]:
        """Return the part of the policy that tenancy published."""
        found = self.server.objects.get(path("configmaps", HOME, ACCEPTED_POLICY_MAP)) or {}
        data: dict[str, str] = found.get("data") or {}
        return data

    def groups_told(self) -> bool:
        """Ask tenancy to read the hub's groups as soon as its rate limit allows, as it does for a
        new user. Return True, so that a condition of `wait_until` can contain this call.
        """
        assert self.tenancy is not None
        self.tenancy.membership.ask(time.monotonic())
        return True

    def user(self, name: str, **annotations: str) -> str:
        """Create a user's namespace, as the hub does; return its name."""
        namespace = namespace_objects.namespace_of_user(name)
        labels = {
            "tfcluster.dev/tenant": "true",
            "tfcluster.dev/hub": HOME,
            "pod-security.kubernetes.io/enforce": "restricted",
        }
        head = {"labels": labels, "annotations": {USER: name, **annotations}}
        self.server.put(path("namespaces", "", namespace), {"metadata": head})
        return namespace

    def furnish(self, namespace: str) -> None:
        """Create a tenant's objects directly on the server, as if an earlier tenancy process had
        created them. `writes` therefore does not contain them.
        """
        policy = parse_policy(
            self.server.objects[path("configmaps", HOME, POLICY_MAP)]["data"][POLICY_KEY]
        )
        wanted = tenant_objects(
            entitlement_for_groups(policy, ()), TenantContext(HOME), namespace=namespace
        )
        for each in wanted:
            where = path(RESOURCES[each["kind"]], namespace, each["metadata"]["name"])
            self.server.put(where, copy.deepcopy(each))

    def marks(self, namespace: str) -> dict[str, str]:
        """Return the annotations of a namespace."""
        head = self.server.objects[path("namespaces", "", namespace)]["metadata"]
        marks: dict[str, str] = head.get("annotations") or {}
        return marks

    def annotate(self, namespace: str, **marks: str | None) -> None:
        """Write annotations of a namespace; the argument `removed` sets `tfcluster.dev/removed`."""
        change = {f"tfcluster.dev/{k.replace('_', '-')}": v for k, v in marks.items()}
        where = path("namespaces", "", namespace)
        self.server.answer("PATCH", where, {"metadata": {"annotations": change}})

    def furnished(self, namespace: str) -> str:
        """Wait until a namespace is provisioned; return the digest of its objects, which tenancy
        stores in an annotation.
        """
        wait_until(lambda: PROVISIONED in self.marks(namespace))
        return self.marks(namespace)[PROVISIONED]

    def trouble(self, namespace: str) -> str:
        """Wait until a namespace has an error; return its message."""
        wait_until(lambda: TROUBLE in self.marks(namespace))
        return self.marks(namespace)[TROUBLE]

    def get(self, resource: str, namespace: str, name: str) -> Any:
        """Return the current object; None if there is none."""
        return self.server.objects.get(path(resource, namespace, name))

    def count(self, namespace: str) -> int:
        """Return how many objects a namespace has."""
        return sum(f"/namespaces/{namespace}/" in where for where in self.server.objects)


@pytest.fixture
def world() -> Iterator[World]:
    """Start a server and a hub; the test starts tenancy."""
    made = World()
    yield made
    made.close()
