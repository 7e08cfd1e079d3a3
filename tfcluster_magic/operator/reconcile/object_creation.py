"""Creation of a run's objects, and their removal an hour after its end.

Creating the same object twice is harmless. An object of an earlier run of the same name is never
adopted. A deleted Job is created again only if this module deleted it (`retire`). `kube.objects`
defines the objects and their owners.
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
    """Return the message about an object of an earlier run that prevents the creation of this run's
    object.
    """
    return Message("EarlierObject", {"kind": kind, "name": name})


class EarlierObjectExists(Exception):
    """An object of an earlier run of this name still exists; `message` names it."""

    def __init__(self, message: Message) -> None:
        super().__init__(english_clause(message))
        self.message = message


class ObjectCreator:
    """Creates and deletes the objects of one run."""

    def __init__(
        self,
        api: Api,
        policy_of: Callable[[str], Policy],
        made: bool = False,
        had_pods: Collection[TaskType] = (),
    ) -> None:
        """Create an `ObjectCreator`. `policy_of` returns the policy of a namespace. `made` is true
        if all objects of the run were created before this process started; `had_pods` are the task
        types whose Jobs were created before.
        """
        self._api, self._policy_of = api, policy_of
        self._made, self._had_pods = made, frozenset(had_pods)
        self._tried = made or bool(had_pods)
        self._retired: set[str] = set()
        self._anew: set[TaskType] = set()

    def create(self, cluster: TFCluster, jobs: Mapping[TaskType, Object]) -> None:
        """Create the missing objects; `jobs` are the Jobs known to exist.

        Raises:
            ApiError: the API refuses an object.
            EarlierObjectExists: an object of an earlier run is in the way.
            InvalidRequest: the program is too large, or its text, which caches leave out, is
                invalid.
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
                if wanted["kind"] == "Service":  # `ServiceCreation` creates it later
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
        """Create the Service if it does not exist. Raises the errors of `create`."""
        self._create(
            cluster, run_objects.headless_service(cluster, namespace=cluster.metadata.owner)
        )

    def delete_service(self, cluster: TFCluster) -> None:
        """Delete the Service if it exists and belongs to the run. Raises ApiError."""
        delete_owned(
            self._api, _key(cluster), "Service", cluster.metadata.name, cluster.metadata.uid
        )

    def retire(self, task_type: TaskType, job: Object) -> None:
        """Delete an unusable Job, so that `create` creates a new one. Raises ApiError."""
        head = job["metadata"]
        discard_object(self._api, path("jobs", head["namespace"], head["name"]), head["uid"])
        self._retired.add(head["uid"])
        self._anew.add(task_type)

    def has_retired(self, job: Object) -> bool:
        """Return whether `retire` has deleted this Job; caches may still have it."""
        return job["metadata"]["uid"] in self._retired

    def missing_types(self, cluster: TFCluster, jobs: Mapping[TaskType, Object]) -> list[TaskType]:
        """Return the types whose Jobs were created and no longer exist. `jobs` are the Jobs in the
        cache, which may be outdated. Raises ApiError.
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
        """Return whether tasks that are not in `seen` may still appear. If `asks` is true, Jobs
        that are not in `jobs`, the cached Jobs, are read from the API. Raises ApiError.
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
        """Delete all objects of the run except its record and its data; ConfigMap and Jobs are
        deleted last.

        Only objects with the run's uid are deleted, because the name may now belong to another
        run's object.

        Raises:
            ApiError: the API server refuses to delete an object.
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
        """Return the run with its environment, arguments and program, which caches do not keep.

        Raises:
            ApiError: the record no longer exists.
            InvalidRequest: the environment, the arguments or the program is invalid.
        """
        head, asked = cluster.metadata, cluster.spec
        found = self._api.get(path("tfclusters", head.owner, head.name))
        if found["metadata"]["uid"] != head.uid:
            # The name belongs to another run now.
            raise ApiError(404, "NotFound", "", {"kind": "tfclusters", "name": head.name})
        whole = custom_resource.read(found).spec
        # keep the durations of `cluster`, which the policy has capped
        kept = replace(whole, lifecycle=asked.lifecycle, stop=asked.stop)
        return replace(cluster, spec=kept)

    def _create(self, cluster: TFCluster, wanted: Object) -> Object:
        where = path(_RESOURCE[wanted["kind"]], cluster.metadata.owner)
        try:
            return self._api.create(where, wanted)
        except ApiError as error:
            # An exceeded quota (403) may hide that the object exists, because quotas are checked
            # first.
            if error.reason != "AlreadyExists" and error.status != 403:
                raise
            found = self._find(cluster, wanted)
            if found is None:  # deleted just now, or the creation failed for another reason
                raise
            return found

    def _find(self, cluster: TFCluster, wanted: Object) -> Object | None:
        """Return the run's object with the name of `wanted`; None if there is none.

        Raises:
            EarlierObjectExists: the object belongs to another run.
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
    """Delete an object if it belongs to the run of this uid. Raises ApiError."""
    found = find_owned(api, key, kind, name, uid)
    if found is not None:
        discard_object(api, path(_RESOURCE[kind], key[0], name), found["metadata"]["uid"])


def find_owned(api: Api, key: Key, kind: str, name: str, uid: str) -> Object | None:
    """Return an object if it belongs to the run of this uid, else None.

    Also return None if the operator may no longer read in the namespace, because the namespace is
    being deleted or an administrator removed the operator's rights. Kubernetes' garbage collection
    then removes the object, which has an owner. Raises ApiError.
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


# The Service, which gives the tasks of a run their DNS names. It is created as soon as every pod
# has an IP address, or after a second in which no pod got an address. It is deleted when the run is
# asked to stop. Kubernetes rewrites all addresses of a Service each time a pod gets or loses its
# address: for 600 tasks that start and stop together, this was a third of the control plane's work
# for a launch; for 50 users with ten tasks each, an eighth. No task needs the DNS names earlier: a
# program starts when the tasks that it needs have their names, and their lookup avoids cached
# answers that a name does not exist (`runtime/name_resolution.py`). Ref:
# https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/

ADDRESS_PAUSE = 1.0
"""If no further task has got an IP address for this many seconds, the Service is created even if
some tasks have no address yet, because these tasks may be waiting for resources for a long time.
"""
ADDRESS_WAIT = 10.0
"""Maximum seconds from the first address to the creation of the Service."""


class ServiceCreation:
    """Creates and deletes the Service of one run; `clock` returns monotonic seconds."""

    def __init__(self, creator: ObjectCreator, clock: Callable[[], float] = time.monotonic) -> None:
        self._creator, self._clock = creator, clock
        self._there: bool | None = None
        """Whether the Service exists; None if this process does not know yet."""
        self.lacking = False
        """Whether the Service could not be created, so that running tasks still wait for their DNS
        names.
        """
        self._count = 0
        self._first = self._last = 0.0

    def update(self, cluster: TFCluster, status: Status, pods: Sequence[Object]) -> float | None:
        """Create or delete the Service, if that is due.

        Return the seconds until the creation may be due; None if there is nothing to do.

        Raises:
            ApiError: the API server refuses to create or delete the Service.
            EarlierObjectExists: an object of an earlier run is in the way.
            InvalidRequest: the program is too large.
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
        """Return the seconds until the Service is due; None while no task has an address."""
        count, now = sum(bool(pod["status"].get("podIP")) for pod in pods), self._clock()
        if not count:
            return None
        if count != self._count:
            self._first = self._first or now
            self._last, self._count = now, count
        if count >= cluster.spec.replicas.total:
            return 0.0
        return max(0.0, min(self._last + ADDRESS_PAUSE, self._first + ADDRESS_WAIT) - now)
