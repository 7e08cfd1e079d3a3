"""Schedules while operators and the API server are killed around due times of a fast clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kubenode import control_plane
from support.kube.fast_operators import (
    FastOperators,
    check_no_overlap,
    check_once_each,
    occurrences,
    runs_of,
    status_of,
    until,
)
from support.kube.kubectl import Kubectl
from support.kube.operator import Tenant, policy
from support.kube.under_test import UnderTest

pytestmark = [pytest.mark.alone, pytest.mark.long, pytest.mark.needs("node-inside")]
SPEED = 12.0
"""Factor of the fast clock: a schedule for every minute is due every five real seconds."""
OVERLAPS = {"allows": "Allow", "forbids": "Forbid", "replaces": "Replace"}
PROGRAM = "import os, sys, time\ntime.sleep(float(sys.argv[1]))\n"


@pytest.mark.parametrize(
    "minutes", [60, pytest.param(300, marks=pytest.mark.timeout(2700, func_only=True))]
)
def test_each_due_time_runs_once_while_everything_is_killed(
    cluster: UnderTest, new_tenant: Callable[[], Tenant], tmp_path: Path, minutes: int
) -> None:
    """Two operators that both lead, and the API server, are killed in turn around due times. Each
    due time is launched once, the overlap rules hold, and nothing is left behind.
    """
    assert cluster.own is not None
    node, home = cluster.own.first, new_tenant()
    kubectl = home.kubectl

    def kill_api_server() -> None:
        node.stop("kube-apiserver", "KILL")
        node.start_again("kube-apiserver")
        control_plane.ready(node)

    home.operator.stop()
    (tmp_path / "policy.yaml").write_text(policy(cluster, requireNetworkPolicy=False))
    operators = FastOperators(kubectl, tmp_path, SPEED)
    try:
        for number in (0, 1):
            operators.start(number)
        for name, overlap in OVERLAPS.items():
            kubectl.apply(_manifest(name, overlap))
        until(lambda: all(occurrences(kubectl, name) for name in OVERLAPS), "all were due", 60)
        operators.shake(minutes, minutes, kill_api_server)
        for name in OVERLAPS:
            patch = '{"spec":{"suspend":true}}'
            kubectl("patch", "tfcs", name, "--type=merge", "-p", patch)
        until(lambda: all(status_of(kubectl, n).get("paused") for n in OVERLAPS), "paused", 60)
        for name in OVERLAPS:
            until(lambda name=name: _is_over(kubectl, name), f"{name} has ended", 600)
        runs = {name: runs_of(kubectl, name) for name in OVERLAPS}
        print({name: len(each) for name, each in runs.items()}, f"{minutes} due times")
        assert len(runs["allows"]) >= minutes
        for name, found in runs.items():
            check_once_each(found, skips=name != "allows")
        check_no_overlap(runs["forbids"])
        check_no_overlap(runs["replaces"])
        kubectl("delete", "tfcs", *OVERLAPS)
        kubectl("delete", "tfclusters", "--all", "--wait=false")
        left = ("jobs", "pods", "services", "networkpolicies")
        until(
            lambda: (
                not any(
                    kubectl.every(each, "app.kubernetes.io/managed-by=tfcluster-operator")
                    for each in left
                )
            ),
            "nothing is left of its runs",
        )
    finally:
        operators.end()
        home.operator.start()


def _is_over(kubectl: Kubectl, name: str) -> bool:
    final = {"Succeeded", "Failed", "Stopped", "Skipped", "Waiting"}
    return {each["state"] for each in occurrences(kubectl, name)} <= final


def _manifest(name: str, overlap: str) -> dict[str, object]:
    """Return a schedule for every minute. Its name decides whether its runs end at once or last
    longer than a minute of the fast clock, which is five seconds.
    """
    seconds = {"allows": "0", "forbids": "7", "replaces": "20"}[name]
    return {
        "apiVersion": "tfcluster.dev/v1beta1",
        "kind": "TFClusterSchedule",
        "metadata": {"name": name},
        "spec": {
            "cron": "* * * * *",
            "overlap": overlap,
            "catchUp": "All",
            "template": {
                "spec": {
                    "replicas": {"worker": {"count": 1, "resources": {"memory": "1Gi"}}},
                    "lifecycle": {"graceSeconds": 1},
                    "program": {"inline": PROGRAM, "arguments": [seconds]},
                }
            },
        },
    }
