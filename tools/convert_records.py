"""Convert TFClusters of v1alpha1: `kubectl get tfc -A -o json | python tools/convert_records.py`.

A run that has ended keeps its status, as a record; any other run starts again.
docs/how-to/install-kubernetes.md describes the whole upgrade.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from tfcluster_magic.errors import InvalidRequest
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.spec import API_VERSION, KIND, Spec, resource_form

_KUBECTL = "kubectl.kubernetes.io/last-applied-configuration"


def converted(listing: Mapping[str, Any]) -> dict[str, Any]:
    """Return the list of objects for `kubectl create`."""
    items = [_converted(found) for found in listing["items"]]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def refused(listing: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each object that the API server would refuse."""
    return [told for found in listing["items"] if (told := _refusal(found))]


def _refusal(found: Mapping[str, Any]) -> str:
    try:
        custom_resource.read(found)
    except InvalidRequest as error:
        return f"{found['metadata']['namespace']}/{found['metadata']['name']}: {error}"
    return ""


def _converted(found: Mapping[str, Any]) -> dict[str, Any]:
    head, status = found["metadata"], custom_resource.read_status(found)
    notes = {k: v for k, v in (head.get("annotations") or {}).items() if k != _KUBECTL}
    kept = {"name": head["name"], "namespace": head["namespace"]}
    made = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": kept | ({"annotations": notes} if notes else {}),
        "spec": resource_form.write(Spec, found["spec"]),
    }
    if status.phase.is_final and status.released_at is not None:
        # The quota ledger has already counted this usage, under the uid of the old object. Remove
        # it here, so that it is not counted again under the new uid.
        made["status"] = custom_resource.write_status(replace(status, usage=None))
    return made


if __name__ == "__main__":
    made = converted(json.load(sys.stdin))
    print(*(f"refused: {each}" for each in refused(made)), sep="\n", end="", file=sys.stderr)
    json.dump(made, sys.stdout, indent=1)
