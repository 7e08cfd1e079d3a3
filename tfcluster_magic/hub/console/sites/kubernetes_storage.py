"""How full users' claims are on Kubernetes, by what kubelets say of volumes.

Promises one list of claims and one question to each node, and a row for every claim: one of which
nothing is known says why. Kubelet's summary is asked through the API server, which takes the right
`nodes/proxy`; it lets its holder run commands in any pod, so the console has it only where an
administrator gave it. Of a class whose volumes are folders of a larger disk kubelet says nothing,
or what the whole disk holds, which is not taken for the claim's.

Ref: https://kubernetes.io/docs/reference/instrumentation/node-metrics/
"""

from __future__ import annotations

from collections.abc import Mapping

from ....i18n import _
from ....kube.api.amounts import amounts
from ....kube.api.client import Api, ApiError, Object, path
from ....quota.storage import NAMES, OWN, Volume
from .base import Filled, Missed

_SECONDS = 10.0


def filled(api: Api, users: Mapping[str, str]) -> Filled:
    """The claims of everyone, `users` by namespace. Raises ApiError."""
    missed: list[Missed] = []
    told: dict[tuple[str, str], Object] = {}
    unknown = _("not measured: no pod mounts it now, or its storage class tells nothing of it")
    try:
        for node in api.every(path("nodes")).items:
            told |= _of_node(api, node["metadata"]["name"], missed)
    except ApiError as error:
        if error.status != 403:
            raise
        unknown = _(
            "not measured: the console may not ask kubelets (docs/admin.md, Storage, says how)"
        )
    found: dict[str, tuple[Volume, ...]] = {}
    for claim in api.every(path("persistentvolumeclaims")).items:
        head = claim["metadata"]
        if head["namespace"] in users and head["name"] in NAMES:
            owner = users[head["namespace"]]
            volume = _volume(claim, told.get((head["namespace"], head["name"])), unknown)
            found[owner] = (*found.get(owner, ()), volume)
    return Filled(users=found, missed=tuple(missed))


def _volume(claim: Object, told: Object | None, unknown: str) -> Volume:
    name = claim["metadata"]["name"]
    size = amounts((claim.get("status") or {}).get("capacity")).get("storage")
    allowed = None if size is None else round(size)
    if allowed is None:
        return Volume(name=name, note=_("not measured: it has no volume yet"))
    if told is None:
        return Volume(name=name, allowed=allowed, note=unknown)
    if told["capacityBytes"] > allowed * OWN:
        note = _("not measured: its volume is a folder of a larger disk")
        return Volume(name=name, allowed=allowed, note=note)
    return Volume(name=name, allowed=allowed, used=allowed - min(told["availableBytes"], allowed))


def _of_node(api: Api, node: str, missed: list[Missed]) -> dict[tuple[str, str], Object]:
    """What kubelet says of the volumes that are mounted there, by namespace and claim."""
    try:
        summary = api.get(f"{path('nodes', '', node)}/proxy/stats/summary", seconds=_SECONDS)
    except ApiError as error:
        if error.status == 403:
            raise
        text = _("the volumes of node {node}: {why}")
        missed.append(Missed(owner="", detail=text.format(node=node, why=error)))
        return {}
    found = {}
    for pod in summary.get("pods") or ():
        for volume in pod.get("volume") or ():
            claim = volume.get("pvcRef")
            if claim and {"capacityBytes", "availableBytes"} <= volume.keys():
                found[str(claim["namespace"]), str(claim["name"])] = volume
    return found
