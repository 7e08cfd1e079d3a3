"""Suspended and resumed Jobs, with which the operator stops and starts a cluster's tasks."""

from __future__ import annotations

from support.kube.kubectl import Kubectl, Object, condition
from support.kube.under_test import UnderTest
from support.kube.workloads import job, spec

COUNT = 2


def test_a_job_is_suspended_and_resumed(cluster: UnderTest, kube: Kubectl) -> None:
    """A suspended Indexed Job has no pods. After it is resumed, its pods have the same host names
    as before, and the Job counts no failure.
    """
    kube.apply(job("task", spec(cluster.busybox), COUNT))
    kube.wait("job", "task", _all_ready, "all its pods are ready")
    before = _pods(kube)
    _suspend(kube, "true")
    kube.wait("job", "task", _is_suspended, "it is suspended")
    kube("wait", "pod", "-l", "app=task", "--for=delete", "--timeout=60s")
    _suspend(kube, "false")
    found = kube.wait("job", "task", _all_ready, "all its pods are ready again")
    after = _pods(kube)
    assert sorted(before) == sorted(after) == [f"task-{index}" for index in range(COUNT)]
    assert not set(before.values()) & set(after.values())
    assert not found["status"].get("failed")


def _suspend(kube: Kubectl, value: str) -> None:
    kube("patch", "job", "task", "--type=merge", "-p", f'{{"spec":{{"suspend":{value}}}}}')


def _pods(kube: Kubectl) -> dict[str, str]:
    """Return the pods' host names with their UIDs."""
    pods = kube.every("pod", "app=task")
    return {pod["spec"]["hostname"]: pod["metadata"]["uid"] for pod in pods}


def _all_ready(found: Object) -> bool:
    return bool(found.get("status", {}).get("ready") == COUNT)


def _is_suspended(found: Object) -> bool:
    return condition(found, "Suspended") == "True" and not found["status"].get("active")
