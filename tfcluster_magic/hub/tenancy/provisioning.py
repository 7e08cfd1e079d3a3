"""Provisions a tenant's namespace, and clears the namespace of a removed user.

This module creates, changes and removes objects, copies pull secrets by name, makes the Secret for
notifications, and explains pending claims. A namespace is deleted only if its annotation or the
policy says to delete the data, and only after its runs have been deleted.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...i18n import _
from ...kube.api import labels
from ...kube.api.client import (
    COLLECTOR_FINALIZERS,
    Api,
    ApiError,
    Object,
    discard_object,
    find_object,
    foreign_finalizers,
    is_deleted,
    path,
)
from ...kube.api.decoding import condition, epoch_seconds
from ...kube.api.informer import Informer
from . import caches
from .caches import RESOURCES
from .namespace_objects import HUB, MANAGED_BY, MANAGER

There = Mapping[tuple[str, str], Object]

CLAIM, QUOTA = "PersistentVolumeClaim", "ResourceQuota"
MERGED = ("ServiceAccount", CLAIM)
"""Kinds of objects that other programs also write to; only our own fields are changed."""
OF_A_GROUP = ("ServiceAccount", "LimitRange", "ResourceQuota", CLAIM)
"""Kinds of objects that may differ between groups."""
NETWORKS = ("NetworkPolicy", "notebook-to-networks")


def provision(
    api: Api,
    namespace: str,
    wanted: Sequence[Object],
    there: There,
    classes: Collection[str],
    *,
    certain: bool,
) -> list[str]:
    """Bring a namespace into the wanted state. Return a sentence for each change that the API
    server refused.

    Args:
        api: the connection to the API server.
        namespace: the tenant's namespace.
        wanted: the objects as they should be.
        there: our objects that exist in the namespace now.
        classes: the storage classes of the cluster.
        certain: whether the user's groups are known. If not, existing objects that depend on the
            group are not changed.

    Raises:
        ApiError: the API server does not answer.
    """
    problems = []
    for each in wanted:
        key = (each["kind"], each["metadata"]["name"])
        found = there.get(key)
        keeps = found is not None and not certain and _of_a_group(key)
        astray = (
            found is not None
            and key[0] == CLAIM
            and caches.is_wrongly_pending(each, found, classes)
        )
        idle = found is not None and key[0] == QUOTA and caches.never_counts(found, time.time())
        anew = astray or (idle and not keeps)
        if keeps or (found is not None and not anew and _is_right(each, found)):
            continue
        if anew:
            problems += _tried(
                lambda key=key, found=found: _discard(api, namespace, key, found), key
            )
            continue  # a later call creates it again, after it is gone
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
        elif caches.mounted_at(found):
            problems += _tried(lambda key=key: _unmount(api, namespace, key), key)
    return problems


def is_complete(wanted: Sequence[Object], there: There) -> bool:
    """Return whether all objects exist and Kubernetes has computed the usage of all quotas; until
    then, a new quota refuses every pod.
    """
    found = [there.get((each["kind"], each["metadata"]["name"])) for each in wanted]
    return all(each is not None and each["counts"] for each in found)


def _of_a_group(key: tuple[str, str]) -> bool:
    return key[0] in OF_A_GROUP or key == NETWORKS


def _is_right(wanted: Object, found: Object) -> bool:
    if wanted["kind"] == CLAIM and caches.must_grow(wanted, found):
        return False
    return caches.is_as_wanted(wanted, found)


def _discard(api: Api, namespace: str, key: tuple[str, str], found: Object) -> None:
    discard_object(api, path(RESOURCES[key[0]], namespace, key[1]), found["metadata"]["uid"])


def _unmount(api: Api, namespace: str, key: tuple[str, str]) -> None:
    """Keep a claim that the policy no longer names, but do not mount it in new tasks."""
    marks = {"annotations": {labels.MOUNTED_AT: None}}
    api.merge(path(RESOURCES[key[0]], namespace, key[1]), {"metadata": marks})


def _tried(act: Any, key: tuple[str, str]) -> list[str]:
    try:
        act()
    except ApiError as error:
        if error.unanswered:
            raise
        text = _("{kind} {name} cannot be updated: {why}")
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
            # The object lacks our label, or is newer than the cache.
            found = find_object(api, f"{where}/{name}")
        else:
            return
    if found is None or _is_right(wanted, found):
        return
    if kind == "RoleBinding" and found.get("roleRef") != wanted["roleRef"]:
        discard_object(api, f"{where}/{name}", found["metadata"]["uid"])  # a roleRef is immutable
        api.create(where, wanted)
    elif kind in MERGED:
        api.merge(f"{where}/{name}", _change(wanted, found))
    else:
        api.replace(f"{where}/{name}", wanted)


def _change(wanted: Object, found: Object) -> Object:
    """Return the patch that sets our own fields of `found`, to which other programs also write."""
    change: Object = {"metadata": {"labels": wanted["metadata"]["labels"]}}
    if wanted["kind"] != CLAIM:
        return {**change, "imagePullSecrets": wanted["imagePullSecrets"]}
    change["metadata"]["annotations"] = {labels.MOUNTED_AT: caches.mounted_at(wanted) or None}
    if caches.must_grow(wanted, found):
        change["spec"] = {"resources": wanted["spec"]["resources"]}
    return change


# -- pending claims
# Nothing is reported while a claim waits for its first pod as intended, or is new.

CLAIM_SECONDS = 15.0
"""Seconds after which a pending claim is reported."""


def claim_problems(
    api: Api, namespace: str, there: There, classes: Informer
) -> tuple[list[str], bool]:
    """Return a sentence for each pending claim that says why it is pending, and whether to check
    again later. Raises ApiError.
    """
    found, waits = [], False
    for (kind, name), claim in sorted(there.items()):
        if kind != CLAIM or claim.get("phase") not in (None, "", "Pending"):
            continue
        said = _claim_problem(api, namespace, name, claim, _by_name(classes))
        waits = waits or said is not None
        if said:
            found.append(said)
    return found, waits


def _by_name(classes: Informer) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in classes.every()}


def _claim_problem(
    api: Api, namespace: str, name: str, claim: Object, classes: Mapping[str, Object]
) -> str | None:
    """Return a sentence that says why a claim is pending; empty if the claim is new; None if it
    waits for its first pod, as intended.
    """
    spec = claim["spec"]
    wanted = spec.get("storageClassName")
    if spec.get("volumeName") or wanted == "":
        text = _("claim {name} waits for the volume {volume}, which does not exist or is in use")
        why = text.format(name=name, volume=spec.get("volumeName") or "-")
    elif wanted is None:
        text = _(
            "claim {name} names no StorageClass, and the cluster has no default "
            "one: an administrator has to set storage.class in the hub's policy"
        )
        why = text.format(name=name)
    elif wanted not in classes:
        text = _(
            "claim {name} waits for the StorageClass {class_}, which does not "
            "exist: an administrator has to create it, or to set another one in the"
            " hub's policy (storage.class)"
        )
        return text.format(name=name, class_=wanted)
    elif classes[wanted]["waits"]:
        return None
    else:
        why = ""
    since = epoch_seconds(claim["metadata"].get("creationTimestamp"))
    age = time.time() - since if since is not None else CLAIM_SECONDS
    if age < CLAIM_SECONDS:
        return ""
    return why or _pending_message(api, namespace, name, age)


def _pending_message(api: Api, namespace: str, name: str, age: float) -> str:
    chosen = f"involvedObject.kind={CLAIM},involvedObject.name={name}"
    events = api.every(path("events", namespace), fieldSelector=chosen).items
    own = [each for each in events if (each.get("involvedObject") or {}).get("name") == name]
    newest = max(own, key=lambda each: str(each.get("lastTimestamp") or ""), default={})
    text = _("claim {name} has been pending for {seconds} s: {why}")
    why = str(newest.get("message") or _("Kubernetes gives no reason"))
    return text.format(name=name, seconds=round(age), why=why)


# -- pull secrets, copied from the hub's namespace into tenants'. They are read by name, and never
# listed or watched, because the right to list secrets is the right to read them all. Their content
# is never logged or kept outside this process.

SECRET_READ_SECONDS = 10.0
"""Seconds for which a secret that was read is cached."""
SECRET_WRITE_SECONDS = 600.0
"""Seconds after which a copy is written again, because nothing watches it for changes."""
REGISTRY_TYPE = "kubernetes.io/dockerconfigjson"
REGISTRY_CONTENT = ".dockerconfigjson"


class PullSecrets:
    """Copies the pull secrets that the policy names into the namespaces of tenants."""

    def __init__(self, api: Api, home: str) -> None:
        self._api, self._home = api, home
        self._sources: dict[str, tuple[float, str, str]] = {}
        self._copies: dict[tuple[str, str], tuple[str, float]] = {}
        self._lock = threading.Lock()

    def digest(self, name: str) -> str:
        """Return a digest of a secret's content; all unreadable secrets have the same digest."""
        return hashlib.sha256(self._source(name)[0].encode()).hexdigest()

    def give(
        self, namespace: str, uid: str, names: tuple[str, ...], before: frozenset[str]
    ) -> list[str]:
        """Update the copies of the pull secrets `names` in a tenant's namespace, and delete copies
        in `before` that are no longer wanted. Return a sentence for each problem. Raises ApiError.
        """
        problems = []
        for name in names:
            content, problem = self._source(name)
            if problem:
                problems.append(problem)
                continue
            digest = hashlib.sha256(content.encode()).hexdigest()
            now = time.monotonic()
            written, at = self._copies.get((uid, name), ("", now))
            if written != digest or now > at + SECRET_WRITE_SECONDS:
                self._write(namespace, name, content)
                self._copies[uid, name] = (digest, now)
        for name in before.difference(names):
            self._take(namespace, name)
            self._copies.pop((uid, name), None)
        return problems

    def _source(self, name: str) -> tuple[str, str]:
        with self._lock:
            at, content, problem = self._sources.get(name, (float("-inf"), "", ""))
            if time.monotonic() >= at + SECRET_READ_SECONDS:
                content, problem = self._read(name)
                self._sources[name] = (time.monotonic(), content, problem)
            return content, problem

    def _read(self, name: str) -> tuple[str, str]:
        try:
            found = self._api.get(path("secrets", self._home, name))
        except ApiError as error:
            if error.unanswered:
                raise
            text = _("the pull secret {name} of {home} cannot be read: {why}")
            return "", text.format(name=name, home=self._home, why=error.message)
        content = (found.get("data") or {}).get(REGISTRY_CONTENT)
        if found.get("type") != REGISTRY_TYPE or content is None:
            text = _("the pull secret {name} of {home} is not of type {type}")
            return "", text.format(name=name, home=self._home, type=REGISTRY_TYPE)
        return content, ""

    def _write(self, namespace: str, name: str, content: str) -> None:
        marks = {MANAGED_BY: MANAGER, HUB: self._home, labels.FOR_TASKS: "true"}
        body: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": REGISTRY_TYPE,
            "metadata": {"name": name, "labels": marks},
            "data": {REGISTRY_CONTENT: content},
        }
        where = path("secrets", namespace)
        try:
            self._api.create(where, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            change = {"metadata": {"labels": marks}, "data": body["data"]}
            self._api.merge(f"{where}/{name}", change)

    def _take(self, namespace: str, name: str) -> None:
        try:
            self._api.delete(path("secrets", namespace, name))
        except ApiError as error:
            if not error.gone:
                raise


def make_secret(api: Api, namespace: str, body: Object) -> list[str]:
    """Create a Secret for the user to fill, unless it exists. Tenancy has no right to read
    it. If the API server refuses to create it, return a sentence that says so. Raises ApiError.
    """

    def create() -> None:
        try:
            api.create(path("secrets", namespace), body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    return _tried(create, ("Secret", body["metadata"]["name"]))


# -- removed users: rights are removed, runs are stopped, data stays. A namespace that is deleted
# before its runs can stay Terminating. Foreign finalizers of TFClusters are removed, because no
# other controller manages our kind; anything else that delays a deletion stays.

REMOVED, REMOVED_DATA = f"{labels.GROUP}/removed", f"{labels.GROUP}/removed-data"
REMOVAL_SECONDS = 1.0
"""Poll interval while runs and their pods end, in seconds."""
FINAL = ("Succeeded", "Failed", "Stopped")

log = logging.getLogger(__name__)


def is_removed(namespace: Object) -> bool:
    """Return whether the user of a namespace was removed from the hub."""
    return REMOVED in (namespace["metadata"].get("annotations") or {})


def loses_data(namespace: Object, by_default: bool) -> bool:
    """Return whether to delete a removed user's data: as requested, else as the policy says."""
    said = (namespace["metadata"].get("annotations") or {}).get(REMOVED_DATA)
    return by_default if said is None else said == "true"


def deletion_message(namespace: Object) -> str:
    """Return the message for a namespace that is being deleted, with the cause of a delay if
    known.
    """
    told = condition(namespace, "NamespaceFinalizersRemaining")
    if told.get("status") != "True":
        return _("the namespace is being deleted")
    text = _("the namespace is being deleted, but finalizers delay it. Kubernetes says: {why}")
    return text.format(why=told.get("message", ""))


def stop_runs(api: Api, namespace: str, reason: str) -> None:
    """Stop active runs; their records keep the reason. Raises ApiError."""
    where = path("tfclusters", namespace)
    for run in api.every(where).items:
        over = (run.get("status") or {}).get("phase") in FINAL
        if not over and not (run.get("spec") or {}).get("stop"):
            stop = {"reason": reason, "by": "tfcluster-tenancy", "at": time.time()}
            api.merge(f"{where}/{run['metadata']['name']}", {"spec": {"stop": stop}})


def suspend_schedules(api: Api, namespace: str, reason: str) -> None:
    """Suspend the schedules of a namespace, so that they launch nothing. Raises ApiError."""
    where = path("tfclusterschedules", namespace)
    try:
        found = api.every(where).items
    except ApiError as error:
        if error.gone:  # the cluster's resource definitions are older than this hub
            return
        raise
    for each in found:
        if not (each.get("spec") or {}).get("suspend"):
            said = {"reason": reason, "by": "tfcluster-tenancy"}
            change = {"spec": {"suspend": True, "suspension": said}}
            api.merge(f"{where}/{each['metadata']['name']}", change)


def discard_runs(api: Api, namespace: str) -> bool:
    """Delete the runs of a namespace; return whether there were any. Raises ApiError.

    If the namespace were deleted first, its Jobs could not create new pods and would keep their
    failed pods. Foreign finalizers are removed, because they could keep a run for ever.

    Ref: https://kubernetes.io/docs/concepts/workloads/controllers/job/#backoff-limit-per-index
    """
    where = path("tfclusters", namespace)
    runs = api.every(where).items
    for run in runs:
        name = run["metadata"]["name"]
        if not is_deleted(run):
            discard_object(api, f"{where}/{name}", run["metadata"]["uid"])
        elif foreign_finalizers(run):
            _release(api, f"{where}/{name}", run)
    return bool(runs)


def _release(api: Api, where: str, run: Object) -> None:
    """Remove foreign finalizers of a deleted run; skip a run that has just been changed. Raises
    ApiError.
    """
    head = run["metadata"]
    left = [each for each in head["finalizers"] if each in COLLECTOR_FINALIZERS]
    log.info(
        "%s/%s: removed the finalizers %s",
        head["namespace"],
        head["name"],
        ", ".join(foreign_finalizers(run)),
    )
    change = {"resourceVersion": head["resourceVersion"], "finalizers": left or None}
    try:
        api.merge(where, {"metadata": change})
    except ApiError as error:
        if not error.gone and error.status != 409:
            raise


def delete_tenant(api: Api, found: Object) -> float | None:
    """Delete the runs of a namespace, then the namespace. Return the seconds until the next call;
    None when done. Raises ApiError.
    """
    namespace = found["metadata"]["name"]
    runs = discard_runs(api, namespace)
    tasks = "app.kubernetes.io/managed-by=tfcluster-operator"
    if runs or api.every(path("pods", namespace), labelSelector=tasks).items:
        return REMOVAL_SECONDS
    discard_object(api, path("namespaces", "", namespace), found["metadata"]["uid"])
    return None
