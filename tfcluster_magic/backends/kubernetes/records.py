"""The record of a run, from the object that keeps it."""

from __future__ import annotations

from msgspec.structs import replace

from ...errors import InvalidRequest
from ...kube.api.client import Object
from ...kube.objects import custom_resource
from ...spec import TFCluster


def read(found: Object) -> TFCluster | None:
    """The record of an object; of one that kubectl made wrong, what is wrong as its message.

    None for one whose very name no run can have.
    """
    try:
        return custom_resource.read(found)
    except InvalidRequest as error:
        if not custom_resource.split(str(found["metadata"]["name"]))[0]:
            return None
        cluster = custom_resource.read({**found, "spec": {"mode": "in-graph"}})
        return replace(cluster, status=replace(cluster.status, message=str(error)))
