"""The console's view of Kubernetes: a server that stores objects, tenants, and their runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from support.kube_server import KubeServer, Object
from tfcluster_magic.hub.console.sites.kubernetes import KubernetesSite
from tfcluster_magic.hub.tenancy import namespace_objects
from tfcluster_magic.kube.api import labels
from tfcluster_magic.kube.api.client import path
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.spec import (
    Mode,
    Replicas,
    ReplicaSet,
    Resources,
    Spec,
    Status,
    resource_form,
)

HOME = "tfcluster-hub"


ADA, BOB = (namespace_objects.namespace_of_user(name) for name in ("ada", "bob"))


WORKERS = ReplicaSet(worker=Replicas(count=2, resources=Resources(cpu=0.5, memory="1Gi")))


@pytest.fixture
def server() -> Iterator[KubeServer]:
    """A server with two tenants of the hub, and a namespace without a tenant."""
    running = KubeServer()
    for user, name in (("ada", ADA), ("bob", BOB), ("eve", "tfcluster-u-not-eves")):
        tenant(running, user, name)
    yield running
    running.close()


def tenant(server: KubeServer, user: str, name: str, **marks: str) -> None:
    """Create a namespace as the hub does."""
    head: Object = {
        "labels": {labels.TENANT: "true", "tfcluster.dev/hub": HOME},
        "annotations": {"tfcluster.dev/user": user}
        | {f"tfcluster.dev/{key}": text for key, text in marks.items()},
    }
    server.put(path("namespaces", "", name), {"metadata": head})


def launched(server: KubeServer, namespace: str, name: str, **status: Any) -> Object:
    """Create a run of two workers."""
    cluster, _dash, number = name.rpartition("-")
    made = custom_resource.write(cluster, int(number), Spec(mode=Mode.IN_GRAPH, replicas=WORKERS))
    told = resource_form.write(Status, status)
    return server.put(path("tfclusters", namespace, name), {**made, "status": told})


def within(
    server: KubeServer, do: Callable[[KubernetesSite], Awaitable[None]], users: tuple[str, ...] = ()
) -> None:
    """Call a function with the console's view of this server."""

    async def names_() -> tuple[str, ...]:
        return ("ada", "bob", *users)

    async def whole() -> None:
        world = KubernetesSite(server.api(), HOME, namespace_objects.DEFAULT_PREFIX, names_)
        world.start()
        try:
            await do(world)
        finally:
            world.close()

    asyncio.run(whole())
