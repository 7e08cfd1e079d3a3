"""The operator's own check of whether the cluster enforces NetworkPolicies."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from kubenode import policy
from kubenode.commands import wait_until
from support.kube.kubectl import Kubectl
from support.kube.operator import tenancy
from support.kube.operator_modes import Installed
from support.kube.under_test import UnderTest

from tfcluster_magic.kube.api import access
from tfcluster_magic.operator.network_policy_probe import RECORD, EnforcementCheck

pytestmark = pytest.mark.alone
ENFORCED = "NetworkPolicies are enforced: True"
"""The operator logs this when its check has ended."""


@pytest.mark.needs("network-policy", "node-inside")
def test_it_sees_whether_policies_are_enforced(
    cluster: UnderTest,
    kube: Kubectl,
    installed: Installed | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check reports correctly whether the network enforces NetworkPolicies, even in a namespace
    that denies all traffic. It records its answer and leaves no pod.
    """
    assert cluster.own
    # Wait for the installed operator's check: if it were still in progress, it would record a wrong
    # answer, which would hold for minutes.
    if installed:
        wait_until(lambda: ENFORCED in installed.log(), "the operator's own check", seconds=300)
    (denies,) = (each for each in tenancy(kube.namespace, "") if each["kind"] == "NetworkPolicy")
    kube.apply(denies)
    monkeypatch.setenv("KUBECONFIG", kube.kubeconfig)
    api, _namespace = access.connect()
    image = cluster.description.images["notebook"]
    check = EnforcementCheck(api, kube.namespace, image, lambda: True)

    def answer() -> bool | None:
        check.enforced = None
        check.check()
        assert kube.get("configmap", RECORD)["data"]["enforced"] == str(check.enforced).lower()
        return check.enforced

    with ExitStack() as everywhere:
        for node in cluster.own.nodes():  # the check's pods may be on any node
            everywhere.enter_context(policy.unenforced(node, cluster.own.first))
        assert answer() is False
    assert answer() is True
    wait_until(
        lambda: RECORD not in kube("get", "pods,networkpolicies", "-o", "name"),
        "nothing of the check is left",
        seconds=90,
    )
    api.close()
