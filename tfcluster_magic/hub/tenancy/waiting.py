"""Why claims of a tenant are not there yet, as sentences.

Promises silence about a claim that waits for its first pod, since it shall, and about one that is
only just made.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from ...i18n import _
from ...kube.api.client import Api, Object, path
from ...kube.api.decoding import seconds
from ...kube.api.informer import Informer
from .provisioning import CLAIM, There

PATIENCE = 15.0
"""Seconds for which a claim may be Pending without a word."""


def problems(api: Api, namespace: str, there: There, classes: Informer) -> tuple[list[str], bool]:
    """What keeps claims from being there, and whether any is waited for. Raises ApiError."""
    found, waits = [], False
    for (kind, name), claim in sorted(there.items()):
        if kind != CLAIM or claim.get("phase") not in (None, "", "Pending"):
            continue
        said = _of(api, namespace, name, claim, _by_name(classes))
        waits = waits or said is not None
        if said:
            found.append(said)
    return found, waits


def _by_name(classes: Informer) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in classes.every()}


def _of(
    api: Api, namespace: str, name: str, claim: Object, classes: Mapping[str, Object]
) -> str | None:
    """Why one claim is not there: a sentence, empty for not yet, None for as it shall be."""
    spec = claim["spec"]
    wanted = spec.get("storageClassName")
    if spec.get("volumeName") or wanted == "":
        text = _("claim {name} waits for the volume {volume}, which is not there or is not free")
        why = text.format(name=name, volume=spec.get("volumeName") or "-")
    elif wanted is None:
        text = _(
            "claim {name} names no StorageClass, and the cluster has no default: "
            "an administrator says storage.class in the policy of the hub"
        )
        why = text.format(name=name)
    elif wanted not in classes:
        text = _(
            "claim {name} waits for the StorageClass {class_}, which is not there: an "
            "administrator makes it, or says another in the policy of the hub (storage.class)"
        )
        return text.format(name=name, class_=wanted)
    elif classes[wanted]["waits"]:
        return None
    else:
        why = ""
    since = seconds(claim["metadata"].get("creationTimestamp"))
    age = time.time() - since if since is not None else PATIENCE
    if age < PATIENCE:
        return ""
    return why or _told(api, namespace, name, age)


def _told(api: Api, namespace: str, name: str, age: float) -> str:
    chosen = f"involvedObject.kind={CLAIM},involvedObject.name={name}"
    events = api.every(path("events", namespace), fieldSelector=chosen).items
    own = [each for each in events if (each.get("involvedObject") or {}).get("name") == name]
    newest = max(own, key=lambda each: str(each.get("lastTimestamp") or ""), default={})
    text = _("claim {name} is Pending for {seconds} s: {why}")
    why = str(newest.get("message") or _("nobody says why"))
    return text.format(name=name, seconds=round(age), why=why)
