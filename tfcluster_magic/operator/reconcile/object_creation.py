"""Creates the objects of a run, and removes them an hour after its end.

Creating twice is harmless. An object of an earlier run of the same name is never taken for this
run's, and a Job which somebody deleted is never created a second time: only one that was retired
here. What is created, and what owns it, is said by `kube.objects`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace

from ...kube.api import labels
from ...kube.api.client import Api, ApiError, Object, discard_object, find_object, path
from ...kube.objects import custom_resource, run_objects
from ...kube.objects.policy import Policy
from ...kube.status.task_pods import may_have_unseen_pods
from ...lifecycle.messages import english_clause
from ...spec import Message, Status, TaskType, TFCluster
from ..cluster_state import Key, owner_uid

_RESOURCE = {
    "ConfigMap": "configmaps",
    "Service": "services",
    "NetworkPolicy": "networkpolicies",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "PodGroup": "podgroups",
    "Job": "jobs",
}


def earlier_object_message(kind: str, name: str) -> Message:
    """What is in the way of a run, or makes it wait."""
    return Message("EarlierObject", {"kind": kind, "name": name})


class EarlierObjectExists(Exception):
    """An object of an earlier run of this name has not gone yet; `message` says which."""

    def __init__(self, message: Message) -> None:
        super().__init__(english_clause(message))
        self.message = message


class ObjectCreator:
    """The objects of one run."""

    def __init__(
        self,
        api: Api,
        policy_of: Callable[[str], Policy],
        made: bool = False,
        had_pods: Collection[TaskType] = (),
    ) -> None:
        """`policy_of` a namespace is asked when something is made; `made` are all objects, or at
        least the Jobs of the types that `had_pods`.
        """
        self._api, self._policy_of = api, policy_of
        self._made, self._had_pods = made, frozenset(had_pods)
        self._tried = made or bool(had_pods)
        self._retired: set[str] = set()
        self._anew: set[TaskType] = set()

    def create(self, cluster: TFCluster, jobs: Mapping[TaskType, Object]) -> None:
        """Make what is missing; `jobs` are those that are known to be there.

        Raises:
            ApiError: the API does not take one of them.
            EarlierObjectExists: one of an earlier run is in the way.
            InvalidRequest: its program does not fit, or what caches leave out of it is wrong.
        """
        if self._made and not self._anew:
            return
        if not set(cluster.spec.replicas.counts) <= jobs.keys():
            cluster = self._with_payload(cluster)
            policy, self._tried = self._policy_of(cluster.metadata.owner), True
            run, mains = cluster.metadata.name, run_objects.types_served_by_ps(cluster)
            owning, owners = {labels.job_name(run, each) for each in mains}, []
            for wanted in run_objects.objects_of_run(
                cluster, policy, namespace=cluster.metadata.owner
            ):
                if wanted["kind"] == "Service":  # made when there are addresses: `ServiceCreation`
                    self._find(cluster, wanted)
                    continue
                made = self._create(cluster, wanted)
                if wanted["kind"] == "Job" and made["metadata"]["name"] in owning:
                    owners.append(made)
            last = run_objects.ps_job(
                cluster, policy, namespace=cluster.metadata.owner, owners=owners
            )
            if last is not None:
                self._create(cluster, last)
        self._made = True
        self._anew.clear()

    def create_service(self, cluster: TFCluster) -> None:
        """Make the Service, if it is not there. Raises as `create`."""
        self._create(
            cluster, run_objects.headless_service(cluster, namespace=cluster.metadata.owner)
        )

    def delete_service(self, cluster: TFCluster) -> None:
        """Delete the Service, if it is there and the run's. Raises ApiError."""
        delete_owned(
            self._api, _key(cluster), "Service", cluster.metadata.name, cluster.metadata.uid
        )

    def retire(self, task_type: TaskType, job: Object) -> None:
        """Delete a Job that cannot do any more what it is for; `create` makes it anew.

        Raises ApiError.
        """
        head = job["metadata"]
        discard_object(self._api, path("jobs", head["namespace"], head["name"]), head["uid"])
        self._retired.add(head["uid"])
        self._anew.add(task_type)

    def has_retired(self, job: Object) -> bool:
        """Whether this Job was deleted here; caches may still have it."""
        return job["metadata"]["uid"] in self._retired

    def missing_types(self, cluster: TFCluster, jobs: Mapping[TaskType, Object]) -> list[TaskType]:
        """The types whose Jobs were made and are not there any more.

        `jobs` are those in the cache, which may lag. Raises ApiError.
        """
        known = cluster.spec.replicas.counts.keys() if self._made else self._had_pods
        missing = known - jobs.keys() - self._anew
        run, namespace = cluster.metadata.name, cluster.metadata.owner
        names = {each: labels.job_name(run, each) for each in sorted(missing)}
        return [
            each
            for each, name in names.items()
            if find_object(self._api, path("jobs", namespace, name)) is None
        ]

    def may_come(
        self,
        cluster: TFCluster,
        seen: Collection[str],
        jobs: Mapping[TaskType, Object],
        *,
        asks: bool,
    ) -> bool:
        """Whether tasks may be on their way that are not among those `seen`; `asks` for Jobs that
        are not among `jobs`. Raises ApiError.
        """

        def find_job(task_type: TaskType) -> Object | None:
            if not (asks and self._tried):
                return None
            name = labels.job_name(cluster.metadata.name, task_type)
            found = find_object(self._api, path("jobs", cluster.metadata.owner, name))
            if found is None or not _is_of(cluster.metadata.uid, found) or self.has_retired(found):
                return None
            return found

        return may_have_unseen_pods(cluster.spec, seen, jobs, find_job)

    def remove(self, cluster: TFCluster) -> None:
        """Delete what is left of the run but its record and its own data; ConfigMap and Jobs last.

        Nothing but what carries its uid: a name may have gone to somebody else's object.

        Raises:
            ApiError: the API does not let us.
        """
        namespace = cluster.metadata.owner
        found = run_objects.objects_of_run(cluster, self._policy_of(namespace), namespace=namespace)
        kept, uid = ("PersistentVolumeClaim", "Job"), cluster.metadata.uid
        for each in reversed(found):
            if each["kind"] not in kept:
                delete_owned(self._api, _key(cluster), each["kind"], each["metadata"]["name"], uid)
        for task_type in cluster.spec.replicas.counts:
            name = labels.job_name(cluster.metadata.name, task_type)
            delete_owned(self._api, _key(cluster), "Job", name, uid)

    def _with_payload(self, cluster: TFCluster) -> TFCluster:
        """The run with environment, arguments and program, of which caches keep nothing.

        Raises:
            ApiError: it is not there any more.
            InvalidRequest: they are wrong.
        """
        head, asked = cluster.metadata, cluster.spec
        found = self._api.get(path("tfclusters", head.owner, head.name))
        if found["metadata"]["uid"] != head.uid:
            # The name has gone to another run.
            raise ApiError(404, "NotFound", "", {"kind": "tfclusters", "name": head.name})
        whole = custom_resource.read(found).spec
        kept = replace(whole, lifecycle=asked.lifecycle, stop=asked.stop)  # as it was capped
        return replace(cluster, spec=kept)

    def _create(self, cluster: TFCluster, wanted: Object) -> Object:
        where = path(_RESOURCE[wanted["kind"]], cluster.metadata.owner)
        try:
            return self._api.create(where, wanted)
        except ApiError as error:
            # Quotas are asked before it is looked whether there is one.
            if error.reason != "AlreadyExists" and error.status != 403:
                raise
            found = self._find(cluster, wanted)
            if found is None:  # it has gone just now, or never was
                raise
            return found

    def _find(self, cluster: TFCluster, wanted: Object) -> Object | None:
        """Return what has the name of `wanted`, or None.

        Raises:
            EarlierObjectExists: it is not ours.
        """
        name = wanted["metadata"]["name"]
        found = find_object(
            self._api, path(_RESOURCE[wanted["kind"]], cluster.metadata.owner, name)
        )
        if found is not None and (
            not _is_of(cluster.metadata.uid, found) or self.has_retired(found)
        ):
            raise EarlierObjectExists(earlier_object_message(wanted["kind"], name))
        return found


def delete_owned(api: Api, key: Key, kind: str, name: str, uid: str) -> None:
    """Delete an object if it is of the run of this uid. Raises ApiError."""
    found = find_owned(api, key, kind, name, uid)
    if found is not None:
        discard_object(api, path(_RESOURCE[kind], key[0], name), found["metadata"]["uid"])


def find_owned(api: Api, key: Key, kind: str, name: str, uid: str) -> Object | None:
    """Return an object if it is of the run of this uid; None as well where the operator may not
    look any more, because the namespace goes or was closed to it: there ownership sees to the rest.

    Raises ApiError.
    """
    try:
        found = find_object(api, path(_RESOURCE[kind], key[0], name))
    except ApiError as error:
        if error.status != 403:
            raise
        return None
    return found if found is not None and _is_of(uid, found) else None


def _is_of(uid: str, found: Object) -> bool:
    return bool(uid) and owner_uid(found) == uid


def _key(cluster: TFCluster) -> Key:
    return cluster.metadata.owner, cluster.metadata.name


# The Service, which gives the tasks of a run their names.
# It is made once every task has an address, or as many as come within a moment, and it goes when
# the run is asked to stop. Kubernetes writes all addresses of a Service anew each time a pod gets
# or loses one: for 600 tasks that come and go together this was a third of all that their launch
# costs the control plane, for 50 users with ten tasks each an eighth. Nobody misses the names
# before: a task's program begins when the tasks that it needs have theirs, and it asks for them so
# that no name server keeps that they are not there yet (`runtime/name_resolution.py`).
# Ref: https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/

ADDRESS_PAUSE = 1.0
"""Seconds without another address after which no more are waited for: a task has no room, say."""
ADDRESS_WAIT = 10.0
"""Seconds after the first address for which others are waited for while they still come."""


class ServiceCreation:
    """The Service of one run; `clock` counts seconds that only grow."""

    def __init__(self, creator: ObjectCreator, clock: Callable[[], float] = time.monotonic) -> None:
        self._creator, self._clock = creator, clock
        self._there: bool | None = None
        """Whether the Service is; None when only the API knows."""
        self.lacking = False
        """Whether it was tried in vain: tasks that run have no names, and wait for them."""
        self._count = 0
        self._first = self._last = 0.0

    def update(self, cluster: TFCluster, status: Status, pods: Sequence[Object]) -> float | None:
        """Make or delete it when it is time; seconds until that may be, None without need.

        Raises:
            ApiError: the API does not let us.
            EarlierObjectExists: one of an earlier run is in the way.
            InvalidRequest: its program does not fit.
        """
        if status.stop_at is not None:
            if self._there is not False:
                self._creator.delete_service(cluster)
                self._there = False
            return None
        if self._there or status.phase.is_final:
            return None
        left = self._left(cluster, pods)
        if left is None or left > 0.0:
            return left
        self.lacking = True
        self._creator.create_service(cluster)
        self._there, self.lacking = True, False
        return None

    def _left(self, cluster: TFCluster, pods: Sequence[Object]) -> float | None:
        """Seconds until it is made; None while no task has an address."""
        count, now = sum(bool(pod["status"].get("podIP")) for pod in pods), self._clock()
        if not count:
            return None
        if count != self._count:
            self._first = self._first or now
            self._last, self._count = now, count
        if count >= cluster.spec.replicas.total:
            return 0.0
        return max(0.0, min(self._last + ADDRESS_PAUSE, self._first + ADDRESS_WAIT) - now)
