"""ResourceQuota: its refusals, and where they appear if a Job creates the pods."""

from __future__ import annotations

import pytest
from support.kube.kubectl import Kubectl, Object
from support.kube.under_test import UnderTest
from support.kube.workloads import job, pod, spec

pytestmark = pytest.mark.needs("quota")
ONE_CPU = {"requests": {"cpu": "1"}}


@pytest.fixture
def limited(kube: Kubectl) -> Kubectl:
    """A namespace whose pods may request half a CPU in total."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"requests.cpu": "500m"}},
    }
    kube.apply(quota)
    kube.wait("resourcequota", "small", _is_counted, "its use is counted")
    return kube


def _is_counted(quota: Object) -> bool:
    return "hard" in quota.get("status", {})


def test_a_pod_beyond_the_quota_is_refused(cluster: UnderTest, limited: Kubectl) -> None:
    """A pod that requests more than the quota leaves is refused; the message has the requested and
    the allowed amount.
    """
    said = limited.refused(pod("large", cluster.busybox, resources=ONE_CPU))
    assert "exceeded quota: small" in said
    assert "requested: requests.cpu=1" in said
    assert "limited: requests.cpu=500m" in said


def test_a_job_beyond_the_quota_shows_why_it_has_no_pods(
    cluster: UnderTest, limited: Kubectl
) -> None:
    """A Job is accepted even if a quota forbids its pods; an event then names the quota."""
    limited.apply(job("large", spec(cluster.busybox, resources=ONE_CPU)))
    limited("wait", "job/large", "--for=jsonpath={.status.startTime}", "--timeout=30s")

    def told(_: Object) -> bool:
        said = limited.events("large")
        return "FailedCreate" in said and "exceeded quota: small" in said

    limited.wait("job", "large", told, "an event says why it has no pods")
    assert limited.every("pod", "app=large") == []
