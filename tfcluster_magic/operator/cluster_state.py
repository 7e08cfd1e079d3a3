"""The operator's caches of a Kubernetes cluster, and the rule that decides which objects belong to
a run.

There is one informer for each kind of object. `ClusterCaches` holds runs, their pods and Jobs, and
nodes. `ClusterState` holds all other objects that launches depend on: other pods, quotas, limits,
claims and tenants. Objects that the operator may not read count as unknown; the operator works
without these objects.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import MOST_PROBLEMS, InvalidRequest, with_few_problems
from ..i18n import _
from ..kube.api import decoding, labels
from ..kube.api.client import Api, ApiError, Object, may_create, path
from ..kube.api.informer import CacheUpdate, Informer, InformerGroup
from ..kube.api.resource_amounts import parse_amounts, parse_quantity
from ..kube.objects import custom_resource
from ..kube.objects.policy import SharedClaim
from ..launch_checks.capacity_check import room_taken_by_pod
from ..launch_checks.policy_check import ClaimFacts, NamespaceObjects
from ..launch_checks.quota_objects import ContainerBounds, container_bounds
from ..program.snapshots import checksum_problems
from ..spec import Clause, Message, TaskType, TFCluster

log = logging.getLogger(__name__)
Key = tuple[str, str]
"""The namespace and name of a run."""

OWN_OBJECTS = "app.kubernetes.io/managed-by=tfcluster-operator"


class ClusterCaches(InformerGroup):
    """Runs, pods, Jobs and nodes as they are now.

    Args:
        api: the connection to the API server.
        namespace: the namespace to watch; empty for all.
        wake: called, after each change of an object, with the run to which the object belongs.
    """

    def __init__(self, api: Api, namespace: str, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._lost_nodes: frozenset[str] = frozenset()
        self.gone: Callable[[Object], None] = lambda _found: None
        """Called with the last state of each run whose record was deleted."""
        self.run_changed: Callable[[CacheUpdate], None] = lambda _update: None
        """Called with each change of a run."""
        self.pod_changed: Callable[[CacheUpdate], None] = lambda _update: None
        """Called with each change of a task's pod."""

        def of_runs(update: CacheUpdate) -> None:
            wake(run_key(update.object))

        def of_pods(update: CacheUpdate) -> None:
            self.pod_changed(update)
            of_runs(update)

        self.runs = Informer(
            api,
            path("tfclusters", namespace),
            shape=decoding.NAMED_SHAPE,
            trim=self._trim_run,
            group=lambda found: found["metadata"].get("namespace", ""),
            changed=self._run_changed,
        )
        self.pods = Informer(
            api,
            path("pods", namespace),
            selector=OWN_OBJECTS,
            shape=decoding.POD_SHAPE,
            trim=decoding.trim_pod,
            group=run_key,
            changed=of_pods,
        )
        self.jobs = Informer(
            api,
            path("jobs", namespace),
            selector=OWN_OBJECTS,
            shape=decoding.JOB_SHAPE,
            trim=decoding.trim_job,
            group=run_key,
            changed=of_runs,
        )
        self.nodes = Informer(
            api,
            path("nodes"),
            shape=decoding.NAMED_SHAPE,
            trim=decoding.trim_node,
            changed=self._node_changed,
        )
        self.needed = (self.runs, self.pods, self.jobs)
        self.all = (*self.needed, self.nodes)

    @property
    def synced(self) -> bool:
        """Whether each needed cache has listed its objects at least once."""
        return all(each.synced.is_set() for each in self.needed)

    def lost_nodes(self) -> frozenset[str]:
        """Return the nodes that are not ready."""
        return self._lost_nodes

    def _trim_run(self, found: Object) -> Object:
        head = found["metadata"]
        return trim_run(found, self.runs.get(head.get("namespace", ""), head["name"]))

    def _run_changed(self, update: CacheUpdate) -> None:
        head, old = update.object["metadata"], update.old
        if old is not None and (update.new is None or old["metadata"]["uid"] != head["uid"]):
            self.gone(old)
        self.run_changed(update)
        self._wake((head["namespace"], head["name"]))

    def _node_changed(self, update: CacheUpdate) -> None:
        old, new = update.old, update.new
        if old is not None and new is not None and is_node_ready(old) == is_node_ready(new):
            return  # the node only renewed its heartbeat
        name = update.object["metadata"]["name"]
        there = new is None or is_node_ready(new)
        self._lost_nodes = self._lost_nodes - {name} if there else self._lost_nodes | {name}
        for key in {run_key(p) for p in self.pods.every() if p["spec"].get("nodeName") == name}:
            self._wake(key)


REFUSED = "refused"
"""The key that the cache adds to an invalid record. Its value is the message that says why the
record is refused.
"""
_LONGEST_REFUSAL = 4000
"""Maximum characters of the message that says why a record is refused. Only the first problems of a
longer message are kept, because a record can have thousands of problems.
"""


def trim_run(found: Object, known: Object | None = None) -> Object:
    """Return a record for the cache, without the fields that the operator's turns do not read, such
    as the program, arguments and environment. A new record is validated before these fields are
    removed. `known` is the record's previous state in the cache.
    """
    kept = decoding.trim_tfcluster(found)
    is_new, by_hand = not found.get("status"), _is_program_text(kept["spec"], found)
    if by_hand and not is_new and known is not None and _has_same_spec(found, known):
        kept["spec"]["program"] = known["spec"]["program"]
    elif is_new or by_hand:
        try:
            spec = custom_resource.read(found).spec
            if is_new and (wrong := checksum_problems(spec.program)):
                raise InvalidRequest(wrong)
        except InvalidRequest as error:
            if is_new:
                kept[REFUSED] = _short_refusal(error)
        except Exception as error:
            # A broken record of one tenant must not prevent reading all others.
            head = found["metadata"]
            log.exception("%s/%s cannot be read", head.get("namespace", ""), head["name"])
            kept[REFUSED] = Message("RecordUnreadable", {"why": type(error).__name__})
        else:
            if by_hand:
                kept["spec"]["program"] = custom_resource.program_without_texts(spec)
    return kept


def _short_refusal(error: InvalidRequest) -> Clause:
    for most in (len(error.problems), *MOST_PROBLEMS):
        told = with_few_problems(error.message, most)
        if len(str(told)) <= _LONGEST_REFUSAL:
            return told
    return str(error)[:_LONGEST_REFUSAL]  # a single problem can be longer than the limit


def _has_same_spec(found: Object, known: Object) -> bool:
    """Return whether the spec of the cached record `known` can be used for `found`. The two must
    have the same uid and generation, and `known` must be valid and contain a program.
    """
    head, other = found["metadata"], known["metadata"]
    same = all(head.get(key) == other.get(key) for key in ("uid", "generation"))
    return same and REFUSED not in known and "program" in known["spec"]


def _is_program_text(kept: Object, found: Object) -> bool:
    """Return whether the program is defined only by texts in the record, not by files with a
    checksum.
    """
    program = (found.get("spec") or {}).get("program")
    return (
        isinstance(program, dict)
        and "program" in kept
        and not (program.get("files") and program.get("sha256"))
        and any(program.get(each) for each in ("inline", "command", "files"))
    )


def run_key(found: Object) -> Key:
    """Return the namespace and name of the run to which a pod or a Job of ours belongs."""
    head = found["metadata"]
    return head.get("namespace", ""), (head.get("labels") or {}).get(labels.NAME, "")


def is_node_ready(node: Object) -> bool:
    """Return whether a node has the condition Ready."""
    conditions = node["status"].get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


# Other objects that launches depend on. Secrets are not cached: the names and types of a
# namespace's secrets are read when a run names secrets.

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
ASK_AGAIN = {True: 600.0, False: 2.0}
"""Seconds after which the API server is asked again whether the operator may create Jobs in a
namespace: after the answer "yes" (True) and after the answer "no" (False).
"""


class ClusterState(InformerGroup):
    """Informers for objects that do not belong to runs, such as quotas, claims and pods of other
    applications.

    Args:
        api: the connection to the API server.
        namespace: the namespace to watch; empty for all.
    """

    def __init__(self, api: Api, namespace: str = "") -> None:
        def of_namespace(found: Object) -> str:
            return str(found["metadata"].get("namespace", ""))

        def follow(resource: str, **more: Any) -> Informer:
            return Informer(api, path(resource, namespace), group=of_namespace, **more)

        self._api, self._namespace = api, namespace
        self._may_make: dict[str, tuple[bool, float]] = {}
        """For each namespace: whether Jobs may be created, and the monotonic time until which this
        answer is reused.
        """
        self.others = Informer(
            api,
            path("pods"),
            selector=OWN_OBJECTS.replace("=", "!="),
            shape=decoding.POD_SHAPE,
            trim=_trim_pod,
        )
        self.quotas = follow("resourcequotas")
        self.ranges = follow("limitranges", trim=_trim_plain)
        self.claims = follow("persistentvolumeclaims", trim=_trim_claim)
        self.classes = Informer(api, path("storageclasses"), trim=_trim_plain)
        self.tenants = Informer(
            api, path("namespaces"), trim=_trim_plain, selector=f"{labels.TENANT}=true"
        )
        self.all = (
            *(self.others, self.quotas, self.ranges, self.claims, self.classes, self.tenants),
        )

    @property
    def settled(self) -> bool:
        """Whether each kind of object has been listed once or is known to be forbidden."""
        return all(each.synced.is_set() or is_forbidden(each) for each in self.all)

    def names(self, namespace: str, nodes: int | None, limits: ContainerBounds) -> NamespaceObjects:
        """Return the objects of a namespace that a run may name."""
        classes = None if is_forbidden(self.classes) else self.classes.every()
        return NamespaceObjects(
            claims=None if is_forbidden(self.claims) else self._claims(namespace),
            classes=None if classes is None else tuple(c["metadata"]["name"] for c in classes),
            default_class=next(
                (c["metadata"]["name"] for c in classes or () if _is_default_class(c)), ""
            ),
            nodes=nodes,
            claim_most=limits.claim_most,
        )

    def _claims(self, namespace: str) -> dict[str, ClaimFacts]:
        return {each["metadata"]["name"]: read_claim(each) for each in self.claims.of(namespace)}

    def shared(self, namespace: str) -> tuple[SharedClaim, ...]:
        """Return the claims that all tasks of a namespace mount, sorted by name."""
        marked = {
            each["metadata"]["name"]: (each["metadata"].get("annotations") or {}).get(
                labels.MOUNTED_AT, ""
            )
            for each in self.claims.of(namespace)
            if not each["metadata"].get("deletionTimestamp")
        }
        return tuple(
            SharedClaim(name, where)
            for name, where in sorted(marked.items())
            if where.startswith("/") and ":" not in where
        )

    def tenant_annotations(self, namespace: str) -> Mapping[str, str]:
        """Return the annotations of a tenant's namespace; empty if it has no tenant label."""
        found = self.tenants.get("", namespace)
        return {} if found is None else found["metadata"].get("annotations") or {}

    def opt_in_command(self, namespace: str) -> str:
        """Return the command that an administrator must run before the operator may use a
        namespace.

        The result is empty if the operator may already use the namespace. Whether it may create
        Jobs there is asked once for each namespace, and again from time to time. Raises ApiError.
        """
        named = self._namespace or is_forbidden(self.tenants)
        label = not named and self.tenants.get("", namespace) is None
        bind = not self._may_make_jobs(namespace)
        return labels.opt_in_command(namespace, label=label, bind=bind)

    def _may_make_jobs(self, namespace: str) -> bool:
        """Return whether the operator may create Jobs in a namespace, that is, whether the
        ClusterRole tfcluster-operator-tenant is bound there.
        """
        known, now = self._may_make.get(namespace), time.monotonic()
        if known is not None and now < known[1]:
            return known[0]
        allowed = bool(may_create(self._api, namespace, "batch", "jobs"))
        self._may_make[namespace] = allowed, now + ASK_AGAIN[allowed]
        return allowed

    def note_write(self, namespace: str, *, forbidden: bool) -> None:
        """Update the answer of `_may_make_jobs` after a write in a namespace. A write may be
        forbidden for other reasons than a missing role, so after a forbidden write the API server
        is asked again before the next launch.
        """
        if forbidden:
            self._may_make.pop(namespace, None)
        else:
            self._may_make[namespace] = True, time.monotonic() + ASK_AGAIN[True]

    def secrets(self, namespace: str) -> dict[str, str] | None:
        """Return the types, by name, of the secrets labelled for tasks; None if reading is
        forbidden. The secrets are read when a run names one, and never cached. Raises ApiError.
        """
        try:
            found = self._api.every(
                path("secrets", namespace), labelSelector=f"{labels.FOR_TASKS}=true"
            )
        except ApiError as error:
            if error.status == 403:
                return None
            raise
        return {each["metadata"]["name"]: str(each.get("type", "")) for each in found.items}

    def bounds(self, namespace: str) -> ContainerBounds:
        """Return the limits that the LimitRanges of a namespace set."""
        return container_bounds(self.ranges.of(namespace))

    def record_limit(self, namespace: str) -> float | None:
        """Return the number of TFClusters that the ResourceQuotas allow; None means any number."""
        said = (each["spec"].get("hard") or {} for each in self.quotas.of(namespace))
        counts = (hard.get(labels.COUNTED_RECORDS) for hard in said)
        return min((parse_quantity(each) for each in counts if each is not None), default=None)

    def quotas_now(self, namespace: str) -> list[Object]:
        """Read the ResourceQuotas of a namespace from the API server instead of the cache; if the
        cache has none, return none. Raises ApiError.
        """
        if is_forbidden(self.quotas) or not self.quotas.of(namespace):
            return []
        return self._api.every(path("resourcequotas", namespace)).items


def is_forbidden(cache: Informer) -> bool:
    """Return whether the operator may not read the objects of this cache."""
    problem = cache.problem
    return not cache.synced.is_set() and problem is not None and problem.status in (401, 403, 404)


def read_claim(found: Mapping[str, Any]) -> ClaimFacts:
    """Return the facts about a PersistentVolumeClaim that matter to runs."""
    obstacle = ""
    if found["metadata"].get("deletionTimestamp"):
        obstacle = _("it is being deleted")
    elif (found.get("status") or {}).get("phase") == "Lost":
        obstacle = _("its volume is lost")
    elif found["spec"].get("volumeMode") == "Block":
        obstacle = _("it is a block device, not a file system")
    size = parse_amounts((found.get("status") or {}).get("capacity")).get("storage", 0.0)
    modes = tuple(found["spec"].get("accessModes") or ())
    return ClaimFacts(modes=modes, obstacle=obstacle, size=size)


def _is_default_class(found: Object) -> bool:
    return (found["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"


def _trim_plain(found: Object) -> Object:
    kept = {key: value for key, value in found.items() if key in ("spec", "status")}
    return {**kept, "metadata": _trim_metadata(found)}


def _trim_claim(found: Object) -> Object:
    spec = {k: v for k, v in found["spec"].items() if k in ("accessModes", "volumeMode")}
    told = found.get("status") or {}
    status = {key: told.get(key) for key in ("phase", "capacity")}
    return {"metadata": _trim_metadata(found), "spec": spec, "status": status}


def _trim_pod(found: Object) -> Object:
    """Return the parts of a pod of another application that show which resources of its node the
    pod uses.
    """
    return {"metadata": _trim_metadata(found), "bound": room_taken_by_pod(found)}


def _trim_metadata(found: Object) -> Object:
    keep = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "annotations")
    return {key: value for key, value in found["metadata"].items() if key in keep}


# Ownership. Labels alone prove nothing, because anybody who may create a Job may label it. Objects
# that the operator did not create are neither counted nor changed.


@dataclass(frozen=True)
class OwnedObjects:
    """The task pods of a run, its Jobs by task type, and the names of Jobs that carry the run's
    labels but do not belong to it (`strangers`).
    """

    pods: tuple[Object, ...]
    jobs: Mapping[TaskType, Object]
    strangers: tuple[str, ...]


@dataclass(frozen=True)
class ObservedRun:
    """A run in one turn: the record, and the run's pods, Jobs by task type, and PodGroup."""

    cluster: TFCluster
    pods: Sequence[Object]
    jobs: Mapping[TaskType, Object]
    group: Object | None = None


def owned_objects(caches: ClusterCaches, key: Key, uid: str) -> OwnedObjects:
    """Return the objects in the caches that belong to the run with this uid."""
    every = [job for job in caches.jobs.of(key) if owner_uid(job) == uid]
    jobs = {task_type: job for job in every if (task_type := job_task_type(job)) is not None}
    pods = [pod for pod in caches.pods.of(key) if owner_uid(pod) == uid]
    return OwnedObjects(
        pods=tuple(pod for pod in pods if labels.task_of(pod) is not None),
        jobs=jobs,
        strangers=tuple(sorted(j["metadata"]["name"] for j in every if job_task_type(j) is None)),
    )


def objects_of_other_runs(
    caches: ClusterCaches, key: Key, uid: str
) -> Iterator[tuple[str, Object]]:
    """Yield the kind and the object, for each pod and Job with the run's name but another uid."""
    for pod in caches.pods.of(key):
        if owner_uid(pod) != uid and labels.task_of(pod) is not None:
            yield "Pod", pod
    for job in caches.jobs.of(key):
        if owner_uid(job) != uid and job_task_type(job) is not None:
            yield "Job", job


def job_task_type(job: Object) -> TaskType | None:
    """Return the task type of a Job; None if the operator did not create the Job."""
    head = job["metadata"]
    marks = head.get("labels") or {}
    told = marks.get(labels.TASK_TYPE)
    if told not in set(TaskType) or "completions" not in job["spec"]:
        return None
    task_type = TaskType(told)
    name = labels.job_name(marks.get(labels.NAME, ""), task_type)
    return task_type if head["name"] == name else None


def owner_uid(found: Object) -> str:
    """Return the uid of an object's run, from the object's labels."""
    return str((found["metadata"].get("labels") or {}).get(labels.UID, ""))


def foreign_job_warning(stranger: str) -> str:
    """Return the warning about a Job that carries a run's labels but does not belong to it."""
    return _("Job {name} has this run's labels but is not one of its Jobs: it is ignored").format(
        name=stranger
    )
