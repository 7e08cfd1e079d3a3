"""The objects of a run in Kubernetes: at most nine, whatever its size. Pure.

The same run and policy give the same objects, in the order of their creation. Each is rendered from
a template in `templates/kubernetes`. This module does not check whether a run is allowed, or
whether it fits into the cluster.

    ConfigMap       our runtime, task.json, the program up to 64 KiB; immutable
    Service         headless; gives tasks their addresses
    NetworkPolicy   allows connections among the tasks, with the owner's notebook, and to DNS
    claim           the run's own /data, if requested
    PodGroup        starts all tasks or none, if the policy says so
    Jobs            chief, worker, evaluator; ps last
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...spec import API_VERSION, KIND, Mode, TaskType, TFCluster
from ..api import labels, resource_amounts
from . import network_policy, pod_template, templates
from .pod_template import TaskFiles, task_files
from .policy import Policy, uses_gangs

Object = dict[str, Any]

TTL_SECONDS = 3600
"""Seconds for which succeeded Jobs of workers and chief stay if no operator reclaims them. The
parameter servers stay for the same time.
"""
RETRIES = 1_000_000
"""Number of failures of an index after which a Job would give up. The lifecycle ends the run long
before this number is reached.
"""


def objects_of_run(cluster: TFCluster, policy: Policy, *, namespace: str) -> list[Object]:
    """Return all objects except the parameter servers' Job, whose owners must exist first
    (`ps_job`).

    Raises:
        InvalidRequest: the run's files are too large, or the program is so large that it needs a
            workspace, and the run has none.
        TFClusterError: the program in the record was altered.
    """
    content = task_files(cluster, policy)
    first, *others = shared_objects(cluster, policy, content, namespace=namespace)
    found = [first, headless_service(cluster, namespace=namespace), *others]
    owned = (TaskType.CHIEF, TaskType.WORKER, TaskType.EVALUATOR)
    for task_type in owned:
        if task_type in cluster.spec.replicas.counts:
            pods = pod_template.build_pod_template(cluster, policy, task_type, content.items)
            found.append(_job(cluster, task_type, namespace, pods, _owners(cluster)))
    return found


def shared_objects(
    cluster: TFCluster, policy: Policy, content: TaskFiles, *, namespace: str
) -> list[Object]:
    """Return a run's objects except the Jobs of its tasks and the Service of their addresses. The
    ConfigMap comes first.
    """
    found = [
        _config_map(cluster, content, namespace),
        network_policy.task_network_policy(
            _own(cluster, namespace),
            _selector(cluster),
            in_graph=cluster.spec.mode is Mode.IN_GRAPH,
            dns=policy.dns,
            egress=policy.egress,
        ),
    ]
    if cluster.spec.pods is not None and cluster.spec.pods.data_claim is not None:
        found.append(_data_claim(cluster, policy, namespace))
    if uses_gangs(policy):
        found.append(pod_group(cluster, policy, namespace))
    return found


def ps_job(
    cluster: TFCluster, policy: Policy, *, namespace: str, owners: Sequence[Object]
) -> Object | None:
    """Return the parameter servers' Job; None if the run has no parameter servers.

    `owners` must be the Jobs of workers and chief as the API server returned them, with their uids.
    When the TTL of the last owner ends, Kubernetes also deletes the parameter servers, even without
    an operator.
    """
    if not cluster.spec.replicas.ps.count:
        return None
    references = [
        {**_reference("batch/v1", "Job", each["metadata"]), "controller": each is owners[0]}
        for each in owners
    ]
    pods = pod_template.build_pod_template(
        cluster, policy, TaskType.PS, task_files(cluster, policy).items
    )
    return _job(cluster, TaskType.PS, namespace, pods, references)


def types_served_by_ps(cluster: TFCluster) -> tuple[TaskType, ...]:
    """Return the task types (at least one) that parameter servers serve. The Jobs of these types
    own the parameter servers' Job.
    """
    counts = cluster.spec.replicas.counts
    return tuple(each for each in (TaskType.WORKER, TaskType.CHIEF) if each in counts)


def owner(cluster: TFCluster) -> Object | None:
    """Return the owner reference to the TFCluster; None if the run has no uid, as in a printed
    manifest.
    """
    if not cluster.metadata.uid:
        return None
    head = {"name": cluster.metadata.name, "uid": cluster.metadata.uid}
    return _reference(API_VERSION, KIND, head)


def _owners(cluster: TFCluster) -> list[Object]:
    found = owner(cluster)
    return [] if found is None else [found]


def _reference(api_version: str, kind: str, head: Object) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": head["name"],
        "uid": head["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }


def object_metadata(
    cluster: TFCluster,
    namespace: str,
    name: str,
    references: Sequence[Object],
    task_type: TaskType | None = None,
) -> Object:
    """Return the metadata of an object of a run."""
    made: Object = {"name": name}
    if namespace:
        made["namespace"] = namespace
    made["labels"] = labels.run_labels(cluster.metadata.name, cluster.metadata.uid, task_type)
    if references:
        made["ownerReferences"] = list(references)
    return made


def _own(cluster: TFCluster, namespace: str, name: str = "") -> Object:
    return object_metadata(cluster, namespace, name or cluster.metadata.name, _owners(cluster))


def _selector(cluster: TFCluster) -> dict[str, str]:
    return labels.run_selector(cluster.metadata.name, cluster.metadata.uid)


def _config_map(cluster: TFCluster, content: TaskFiles, namespace: str) -> Object:
    name = labels.files_name(cluster.metadata.name, cluster.metadata.uid)
    return templates.render_object(
        "kubernetes/config-map.yaml.j2",
        metadata=_own(cluster, namespace, name),
        texts=content.texts,
        binaries=content.binaries,
    )


def headless_service(cluster: TFCluster, *, namespace: str) -> Object:
    """Return the Service that gives tasks their addresses."""
    return templates.render_object(
        "kubernetes/service.yaml.j2",
        metadata=_own(cluster, namespace),
        selector=_selector(cluster),
        port=labels.PORT,
    )


def _data_claim(cluster: TFCluster, policy: Policy, namespace: str) -> Object:
    assert cluster.spec.pods is not None
    claim = cluster.spec.pods.data_claim
    assert claim is not None
    return templates.render_object(
        "kubernetes/data-claim.yaml.j2",
        metadata=_own(cluster, namespace, pod_template.data_claim_name(cluster)),
        storage_class=claim.storage_class or policy.storage_class,
        size=claim.size,
    )


def pod_group(cluster: TFCluster, policy: Policy, namespace: str) -> Object:
    """Return the PodGroup, by which Volcano places all tasks of the run at the same time."""
    counts = cluster.spec.replicas.counts
    asked = resource_amounts.plus(
        *(
            resource_amounts.times(
                resource_amounts.parse_amounts(
                    pod_template.task_resources(cluster.spec, policy, kind)[0]
                ),
                count,
            )
            for kind, count in counts.items()
        )
    )
    return templates.render_object(
        "kubernetes/pod-group.yaml.j2",
        metadata=_own(cluster, namespace),
        count=cluster.spec.replicas.total,
        queue=policy.queue,
        # Volcano does not read the priority class from the pods
        priority_class=policy.priority_class,
        resources={
            name: pod_template.cpu_quantity(amount)
            if name == resource_amounts.CPU
            else str(round(amount))
            for name, amount in asked.items()
        },
    )


def _job(
    cluster: TFCluster,
    task_type: TaskType,
    namespace: str,
    pods: Object,
    references: Sequence[Object],
) -> Object:
    name = labels.job_name(cluster.metadata.name, task_type)
    return templates.render_object(
        "kubernetes/job.yaml.j2",
        metadata=object_metadata(cluster, namespace, name, references, task_type),
        count=cluster.spec.replicas.of(task_type).count,
        retries=RETRIES,
        counts_apart=pod_template.counts_disruptions_apart(cluster),
        ttl=TTL_SECONDS if task_type in types_served_by_ps(cluster) else None,
        pod=pods,
    )
