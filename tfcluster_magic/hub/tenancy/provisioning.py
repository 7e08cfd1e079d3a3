"""Making one namespace what it shall be: what is missing is made, what was altered put right.

Promises that what is as it shall be costs no call, that a claim never shrinks and one that has a
volume is never deleted, and that a refusal is a sentence and does not keep the rest from being
made. Raises only what may work later: an API server that does not answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...i18n import _
from ...kube.api import labels
from ...kube.api.client import Api, ApiError, Object, path
from ...kube.api.gone import discard, find
from . import alike
from .caches import RESOURCES

There = Mapping[tuple[str, str], Object]

CLAIM = "PersistentVolumeClaim"
MERGED = ("ServiceAccount", CLAIM)
"""Kinds that others write in, too: only what we say of them is changed."""
OF_A_GROUP = ("ServiceAccount", "LimitRange", "ResourceQuota", CLAIM)
"""Kinds that may say something else for another group."""
NETWORKS = ("NetworkPolicy", "notebook-to-networks")


def furnish(
    api: Api,
    namespace: str,
    wanted: Sequence[Object],
    there: There,
    classes: Collection[str],
    *,
    certain: bool,
) -> list[str]:
    """Make a namespace right; what was refused, as sentences.

    Args:
        api: the connection.
        namespace: the tenant's.
        wanted: what there shall be.
        there: what there is of ours.
        classes: the storage classes of the cluster.
        certain: whether the user's groups are known; else what a group decides stays as it is,
            and only what is missing is made.

    Raises:
        ApiError: nobody answers.
    """
    problems = []
    for each in wanted:
        key = (each["kind"], each["metadata"]["name"])
        found = there.get(key)
        keeps = found is not None and not certain and _of_a_group(key)
        astray = found is not None and key[0] == CLAIM and alike.is_astray(each, found, classes)
        if keeps or (found is not None and not astray and _is_right(each, found)):
            continue
        if astray:
            problems += _tried(
                lambda key=key, found=found: _discard(api, namespace, key, found), key
            )
            continue  # it is made again when it is gone: somebody may hold it for a moment
        problems += _tried(
            lambda each=each, found=found: _put_right(api, namespace, each, found), key
        )
    names = {(each["kind"], each["metadata"]["name"]) for each in wanted}
    for key, found in there.items():
        if key in names or (_of_a_group(key) and not certain):
            continue
        if key[0] != CLAIM:
            problems += _tried(
                lambda key=key, found=found: _discard(api, namespace, key, found), key
            )
        elif alike.mounted_at(found):
            problems += _tried(lambda key=key: _unmount(api, namespace, key), key)
    return problems


def is_complete(wanted: Sequence[Object], there: There) -> bool:
    """Whether all was seen there, and quotas count: before, they refuse every pod."""
    found = [there.get((each["kind"], each["metadata"]["name"])) for each in wanted]
    return all(each is not None and each["counts"] for each in found)


def _of_a_group(key: tuple[str, str]) -> bool:
    return key[0] in OF_A_GROUP or key == NETWORKS


def _is_right(wanted: Object, found: Object) -> bool:
    if wanted["kind"] == CLAIM and alike.grows(wanted, found):
        return False
    return alike.is_as(wanted, found)


def _discard(api: Api, namespace: str, key: tuple[str, str], found: Object) -> None:
    discard(api, path(RESOURCES[key[0]], namespace, key[1]), found["metadata"]["uid"])


def _unmount(api: Api, namespace: str, key: tuple[str, str]) -> None:
    """Keep a claim that the policy does not name any more; new tasks do not read it."""
    marks = {"annotations": {labels.MOUNTED_AT: None}}
    api.merge(path(RESOURCES[key[0]], namespace, key[1]), {"metadata": marks})


def _tried(act: Any, key: tuple[str, str]) -> list[str]:
    try:
        act()
    except ApiError as error:
        if error.unanswered:
            raise
        text = _("{kind} {name} cannot be made right: {why}")
        return [text.format(kind=key[0], name=key[1], why=error.message or error.reason)]
    return []


def _put_right(api: Api, namespace: str, wanted: Object, found: Object | None) -> None:
    kind, name = wanted["kind"], wanted["metadata"]["name"]
    where = path(RESOURCES[kind], namespace)
    if found is None:
        try:
            api.create(where, wanted)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            found = find(api, f"{where}/{name}")  # without our label, or newer than the cache
        else:
            return
    if found is None or _is_right(wanted, found):
        return
    if kind == "RoleBinding" and found.get("roleRef") != wanted["roleRef"]:
        discard(api, f"{where}/{name}", found["metadata"]["uid"])  # a roleRef cannot be changed
        api.create(where, wanted)
    elif kind in MERGED:
        api.merge(f"{where}/{name}", _change(wanted, found))
    else:
        api.replace(f"{where}/{name}", wanted)


def _change(wanted: Object, found: Object) -> Object:
    """What is said of an object that others write in, too."""
    change: Object = {"metadata": {"labels": wanted["metadata"]["labels"]}}
    if wanted["kind"] != CLAIM:
        return {**change, "imagePullSecrets": wanted["imagePullSecrets"]}
    change["metadata"]["annotations"] = {labels.MOUNTED_AT: alike.mounted_at(wanted) or None}
    if alike.grows(wanted, found):
        change["spec"] = {"resources": wanted["spec"]["resources"]}
    return change
