"""Pods on the node: their user, and how their failures appear."""

from __future__ import annotations

import pytest
from support.kube.kubectl import Kubectl, Object
from support.kube.under_test import UnderTest
from support.kube.workloads import USER, pod


def test_a_restricted_pod_runs_as_its_user(cluster: UnderTest, kube: Kubectl) -> None:
    """Under Pod Security "restricted" a pod runs as its user, without capabilities."""
    kube.apply(pod("plain", cluster.busybox))
    kube.running("plain")
    assert kube.exec("plain", "id", "-u").strip() == str(USER)
    status = kube.exec("plain", "cat", "/proc/self/status").split()
    assert status[status.index("CapEff:") + 1].strip("0") == ""


def test_a_pod_that_asks_for_root_is_refused(cluster: UnderTest, kube: Kubectl) -> None:
    """A pod that asks for root is refused, with the rule and the fields that break it."""
    asking = pod("root", cluster.busybox)
    asking["spec"]["securityContext"].update(runAsNonRoot=False, runAsUser=0)
    said = kube.refused(asking)
    assert 'violates PodSecurity "restricted' in said
    assert "runAsNonRoot != true" in said
    assert "runAsUser=0" in said


def test_a_pod_beyond_its_memory_is_killed(cluster: UnderTest, kube: Kubectl) -> None:
    """A container that exceeds its memory limit ends as OOMKilled."""
    limits = {"limits": {"memory": "32Mi"}}
    kube.apply(pod("hungry", cluster.busybox, "tail", "/dev/zero", resources=limits))
    ended = kube.wait("pod", "hungry", _terminated, "its container has ended")
    assert _terminated(ended)["reason"] == "OOMKilled"
    assert _terminated(ended)["exitCode"] == 137


@pytest.mark.long  # test_explain.py covers the run's message about this
def test_a_missing_image_shows(cluster: UnderTest, kube: Kubectl) -> None:
    """A pod whose image is not in the registry waits in ImagePullBackOff, and the message names the
    image.
    """
    missing = f"{cluster.busybox.rpartition(':')[0]}:no-such-tag"
    kube.apply(pod("lost", missing))
    waiting = kube.wait("pod", "lost", _backs_off, "it backs off from pulling")
    assert missing in _state(waiting)["waiting"]["message"]
    assert "not found" in kube.events("lost")


def _state(found: Object) -> Object:
    statuses = found["status"].get("containerStatuses") or [{}]
    state: Object = statuses[0].get("state", {})
    return state


def _terminated(found: Object) -> Object:
    ended: Object = _state(found).get("terminated", {})
    return ended


def _backs_off(found: Object) -> bool:
    return bool(_state(found).get("waiting", {}).get("reason") == "ImagePullBackOff")
