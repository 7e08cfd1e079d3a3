"""The classical layout of a run: a Service and a Job or Deployment for each task. Pure.

Promises objects that work by kubectl alone: no operator, no custom resource. What only the operator
does is missing: nobody heals a group, explains a failure or reclaims parameter servers.
"""

from __future__ import annotations

from typing import Any

from ...spec import Mode, TaskType, TFCluster
from ...spec.names import task_name
from ..api import labels
from . import pod, run_objects, templates
from .pod_files import files
from .policy import Policy

Object = dict[str, Any]

ADDRESSES = "{name}-{type}-{index}"
"""A task's host: its Service's name."""


def per_task(cluster: TFCluster, policy: Policy, *, namespace: str) -> list[Object]:
    """All objects, tasks in the order in which people read them. Raises as `objects.objects`."""
    content = files(cluster, policy, ADDRESSES)
    found = run_objects.around(cluster, policy, content, namespace=namespace)
    for task_type, count in cluster.spec.replicas.counts.items():
        for index in range(count):
            found += _task(cluster, policy, task_type, index, content.items, namespace)
    return found


def _task(
    cluster: TFCluster,
    policy: Policy,
    task_type: TaskType,
    index: int,
    items: Any,
    namespace: str,
) -> list[Object]:
    run, spec = cluster.metadata.name, cluster.spec
    task = task_name(task_type, index)
    serves = task_type is TaskType.PS or spec.mode is Mode.IN_GRAPH
    selector = {**labels.selector(run, cluster.metadata.uid), labels.TASK: task}
    head = run_objects.head(cluster, namespace, f"{run}-{task}", (), task_type)
    pods = pod.template(
        cluster, policy, task_type, items, index=index, restart="Always" if serves else "Never"
    )
    service = templates.value_of(
        "kubernetes/per-task/service.yaml.j2", metadata=head, selector=selector, port=labels.PORT
    )
    workload = templates.value_of(
        f"kubernetes/per-task/{'deployment' if serves else 'job'}.yaml.j2",
        metadata=head,
        selector=selector,
        retries=spec.lifecycle.restarts + spec.lifecycle.heals,
        pod=pods,
    )
    return [workload] if task_type is TaskType.EVALUATOR else [service, workload]
