"""Names and labels of a run's objects in Kubernetes. Pure.

No other module maps a run to its objects. A pod's host name is its task's address. Ref:
https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...spec import NAME_PATTERN, TaskType

GROUP = "tfcluster.dev"
COUNTED_RECORDS = f"count/tfclusters.{GROUP}"
"""Key of a ResourceQuota for the number of TFClusters that a namespace may have."""
COUNTED_SCHEDULES = f"count/tfclusterschedules.{GROUP}"
"""Key of a ResourceQuota for the number of TFClusterSchedules that a namespace may have."""
VERSION = "v1beta1"
NAME = f"{GROUP}/name"
"""Label of every object and pod of a run: the run's name, `digits-2`."""
UID = f"{GROUP}/uid"
"""Label of every object and pod of a run: the run's uid, which changes if the run is deleted and
created again.
"""
TASK_TYPE = f"{GROUP}/task-type"
TASK = f"{GROUP}/task"
"""Label of a pod that has no Job index: the pod's task, `worker-3`."""
TENANT = f"{GROUP}/tenant"
"""Label of a namespace; "true": the operator runs tasks in the namespace, and publishes launch
options there.
"""
OPERATOR = ("tfcluster-system", "operator")
"""Namespace and name of the operator's service account."""
OPERATOR_ROLE = "tfcluster-operator-tenant"
"""The ClusterRole that a RoleBinding of the same name grants to the operator in a namespace with
the label `TENANT`.
"""
NOTEBOOK = f"{GROUP}/notebook"
"""Label of the owner's notebook pods; "true": the pods may connect to port 2222 of the tasks."""
FOR_TASKS = f"{GROUP}/for-tasks"
"""Label of secrets; "true": tasks may use the secret."""
MOUNTED_AT = f"{GROUP}/mounted-at"
"""Annotation of a claim: the path at which every task of the namespace mounts the claim read-only.
"""
QUEUE = f"{GROUP}/queue"
"""Annotation of a namespace: Volcano's queue for its tasks, instead of the queue in the policy."""
PRIORITY_CLASS = f"{GROUP}/priority-class"
"""Annotation of a namespace: the priority class of its tasks, instead of the class in the policy.
"""
REQUIRE_DIGEST = f"{GROUP}/require-digest"
"""Annotation of a namespace; "true": images that its runs name need a digest."""
USER_GROUP = f"{GROUP}/group"
"""Annotation of a namespace: its user's group, whose grants in the hub's policy apply."""
BUDGET = f"{GROUP}/budget"
"""Annotation of a namespace: the CPU- and GPU-hours of its user, `budgets.Budget` as JSON."""
USER = f"{GROUP}/user"
"""Annotation of a namespace: the hub user to whom the namespace belongs."""
SCHEDULE = f"{GROUP}/schedule"
"""Label of a run that a schedule launched: the schedule's name."""
SCHEDULE_UID = f"{GROUP}/schedule-uid"
"""Label of a run that a schedule launched: the schedule's uid."""
DUE = f"{GROUP}/due"
"""Label of a run that a schedule launched: the due time in UTC, `20261127T020000Z`."""
INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
"""Annotation of a pod: how many earlier pods with the same index failed, as the Job counted."""
INDEX_IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"
"""Annotation of a pod: how many earlier pods with the same index were disrupted. It exists only if
the Job counts disruptions apart from failures.
"""
OPTIONS = "tfcluster-options"
"""The ConfigMap in each tenant's namespace with the launch options and the free resources."""
NOTIFICATIONS = "tfcluster-notifications"
"""The Secret in each user's namespace with the rules of notifications."""
NOTIFIED = f"{GROUP}/notifications"
"""Label of the Secret `NOTIFICATIONS`; its value is "true"."""
PORT = 2222
"""The port of TensorFlow servers in pods."""
CLIENT_PORTS = (2230, 2249)
"""First and last port at which In-Graph servers reach the notebook that drives them, if its program
uses a `tf.distribute` strategy. Each kernel of the notebook uses one port.
"""
CONTAINER = "tensorflow"

RUN_PATTERN = NAME_PATTERN[:-1] + "-[1-9][0-9]{0,5}$"
"""Names that a TFCluster may have: `<cluster>-<run>`."""
LONGEST_RUN_NAME = 47


def opt_in_command(namespace: str, *, label: bool = True, bind: bool = True) -> str:
    """Return the command by which an administrator lets the operator work in a namespace.

    Args:
        namespace: the namespace.
        label: whether the namespace lacks the label `TENANT`.
        bind: whether the namespace lacks the RoleBinding.
    """
    home, account = OPERATOR
    commands = [f"kubectl label namespace {namespace} {TENANT}=true"] if label else []
    if bind:
        commands.append(
            f"kubectl -n {namespace} create rolebinding {OPERATOR_ROLE} "
            f"--clusterrole={OPERATOR_ROLE} --serviceaccount={home}:{account}"
        )
    return " && ".join(commands)


def job_name(run: str, task_type: TaskType) -> str:
    """Return the name of a task type's Job; its pods' host names are `<run>-<type>-<index>`."""
    return f"{run}-{task_type.value}"


def files_name(run: str, uid: str) -> str:
    """Return the name of a run's ConfigMap, which no later run of that name shares.

    A kubelet caches an immutable ConfigMap while a pod uses it. If a later run used the same name,
    its pods could get the old files.
    """
    return f"{run}-{uid[:8]}" if uid else run


def host_name(run: str, task_type: TaskType, index: int) -> str:
    """Return the address at which other tasks reach a task: `digits-2-worker-3.digits-2`."""
    return f"{job_name(run, task_type)}-{index}.{run}"


def run_labels(run: str, uid: str, task_type: TaskType | None = None) -> dict[str, str]:
    """Return the labels of an object of a run. Pass an empty `uid` for an object in a manifest that
    is printed for kubectl: the run has no uid yet.
    """
    found = {
        "app.kubernetes.io/name": "tfcluster",
        "app.kubernetes.io/instance": run,
        "app.kubernetes.io/managed-by": "tfcluster-operator" if uid else "kubectl",
        **run_selector(run, uid),
    }
    if task_type is not None:
        found["app.kubernetes.io/component"] = task_type.value
        found[TASK_TYPE] = task_type.value
    return found


def pod_labels(run: str, uid: str, task_type: TaskType) -> dict[str, str]:
    """Return the labels of a task's pod, without redundant labels, because a run may have many
    pods.
    """
    doubled = {f"app.kubernetes.io/{each}" for each in ("name", "instance", "component")}
    return {k: v for k, v in run_labels(run, uid, task_type).items() if k not in doubled}


def run_selector(run: str, uid: str) -> dict[str, str]:
    """Return the labels that select the pods of this run only."""
    return {NAME: run, UID: uid} if uid else {NAME: run}


def label_query(wanted: Mapping[str, str]) -> str:
    """Return the label selector for objects that have all of these labels."""
    return ",".join(f"{key}={value}" for key, value in wanted.items())


def task_of(pod: Mapping[str, Any]) -> str | None:
    """Return the task of a pod, `worker-3`; None if the pod is not ours."""
    head = pod["metadata"]
    task_type = (head.get("labels") or {}).get(TASK_TYPE)
    index = str((head.get("annotations") or {}).get(INDEX, ""))
    if task_type not in _TYPES or not index.isdecimal():
        return None
    return f"{task_type}-{int(index)}"


_TYPES = frozenset(each.value for each in TaskType)
