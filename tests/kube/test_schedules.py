"""Schedules on Kubernetes, written by kubectl and by the manager: each due time is launched once
and on time. The schedules of `minutely` become due while earlier tests run. The last test stops the
operator that all others need.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubenode.errors import NodeError
from support.kube.fast_operators import (
    FastOperators,
    check_once_each,
    occurrences,
    runs_of,
    scheduled,
    status_of,
    until,
)
from support.kube.kubectl import Kubectl
from support.kube.operator import Tenant, policy
from support.kube.under_test import UnderTest

NIGHTLY = """
apiVersion: tfcluster.dev/v1beta1
kind: TFClusterSchedule
metadata:
  name: %(name)s
spec:
  cron: "%(cron)s"
  overlap: %(overlap)s
  template:
    spec:
      replicas: {worker: {count: 1, resources: {memory: 1Gi}}}
      lifecycle: {graceSeconds: 1}
      program:
        inline: |
          import os, sys, time
          print(os.environ["TFCLUSTER_SCHEDULED_FOR"], sys.argv[1:], flush=True)
          time.sleep(float(sys.argv[1]))
        arguments: ["%(seconds)s", "{scheduled_for:%%H:%%M}"]
"""
PAUSED = """  suspend: true
  suspension: {by: ida, reason: repairs}
"""
SPEED = 12.0
"""Factor of the fast clock: a schedule for every minute is due every five real seconds."""


@pytest.fixture(scope="module")
def home(new_tenant: Callable[[], Tenant]) -> Tenant:
    """Make a user's namespace."""
    return new_tenant()


@pytest.fixture(scope="module", autouse=True)
def minutely(home: Tenant, request: pytest.FixtureRequest) -> list[str]:
    """Apply schedules that are due every minute, the second one paused; return their names."""
    count = 22 if request.config.getoption("--long") else 5
    names = [f"nightly-n{n}" for n in range(count)]
    for name in names:
        apply(home.kubectl, name, more=PAUSED if name == names[1] else "")
    return names


def apply(home: Kubectl, name: str, *, more: str = "", **words: Any) -> None:
    said = {"cron": "* * * * *", "overlap": "Forbid", "seconds": 0, **words}
    home.apply(NIGHTLY % {"name": name, **said} + more)


def test_what_is_wrong_is_refused_or_said(home: Tenant) -> None:
    """The API server refuses the mistakes that its rules can detect; the condition Ready reports
    the others.
    """
    kubectl = home.kubectl
    good = NIGHTLY % {"name": "wrong", "cron": "* * * * *", "overlap": "Forbid", "seconds": 0}
    for old, new, words in (
        ("name: wrong", "name: wrong-7", "not in '-<number>'"),
        ("overlap: Forbid", "overlap: Sometimes", "Unsupported value"),
        ("lifecycle: {", "stop: {reason: x}\n      lifecycle: {", "remove it"),
        ("lifecycle: {", "after: [{run: a-1}]\n      lifecycle: {", "remove it"),
        ("lifecycle: {", "mode: InGraph\n      lifecycle: {", "a notebook is its client"),
        ("worker: {count: 1", "worker: {count: 0", "worker"),
        ("metadata:", "metadata:\n  finalizers: [example.com/keep]", "may have no finalizers"),
    ):
        said = kubectl.refused(good.replace(old, new, 1))
        assert words in said, said
    big = good.replace("arguments:", f'arguments: ["{"x" * 3900}", ' + f'"{"é" * 3000}"] # ')
    kubectl.apply(big)
    kubectl("delete", "tfcs", "wrong")
    apply(kubectl, "nonsense", cron="99 * * * *")
    kubectl("wait", "tfcs/nonsense", "--for=condition=Ready=False", "--timeout=20s")
    (ready,) = (
        each
        for each in kubectl.get("tfclusterschedule", "nonsense")["status"]["conditions"]
        if each["type"] == "Ready"
    )
    assert "spec.cron" in ready["message"] and "minute" in ready["message"]
    kubectl("delete", "tfcs", "nonsense")


def test_who_may_not_launch_may_not_schedule(home: Tenant) -> None:
    """An account with a right to schedules but not to runs cannot create runs through a
    schedule.
    """
    kubectl, user = home.kubectl, "scheduler-only"
    group = "rbac.authorization.k8s.io"
    rule = {
        "apiGroups": ["tfcluster.dev"],
        "resources": ["tfclusterschedules"],
        "verbs": ["get", "create", "patch"],
    }
    kubectl.apply(
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": user}, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": user},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": user},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        },
    )
    text = NIGHTLY % {"name": "sneaky", "cron": "* * * * *", "overlap": "Allow", "seconds": 0}
    with pytest.raises(NodeError, match="where you may create and patch TFClusters"):
        kubectl("create", "-f", "-", f"--as={user}", stdin=text)


def test_only_an_administrator_resumes_what_one_has_locked(home: Tenant) -> None:
    """An owner can change and delete a schedule with a locked suspension, but cannot make, change
    or lift the lock. An account with the right `lock` can.
    """
    kubectl, user = home.kubectl, "owner-of-schedules"
    group = "rbac.authorization.k8s.io"
    rule = {
        "apiGroups": ["tfcluster.dev"],
        "resources": ["tfclusters", "tfclusterschedules"],
        "verbs": ["get", "create", "patch", "delete"],
    }
    kubectl.apply(
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": user}, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": user},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": user},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        },
    )
    apply(kubectl, "locked", cron="0 0 1 1 *")

    def patch(spec: dict[str, object], *words: str) -> str:
        merge = ("--type=merge", "-p", json.dumps({"spec": spec}))
        return kubectl("patch", "tfcs", "locked", *merge, *words)

    by_owner = f"--as={user}"
    lock = {"by": "admin eve", "reason": "an exam", "locked": True}
    with pytest.raises(NodeError, match="only an administrator can resume it"):
        patch({"suspend": True, "suspension": lock}, by_owner)
    patch({"suspend": True, "suspension": {"by": "", "reason": "mine"}}, by_owner)
    patch({"suspend": True, "suspension": lock})
    kubectl("wait", "tfcs/locked", "--for=condition=Paused", "--timeout=20s")
    for lifted in (
        {"suspend": False, "suspension": None},
        {"suspend": None, "suspension": None},
        {"suspension": {"locked": False}},
        {"suspension": {"reason": "another"}},
        {"suspension": None},
    ):
        with pytest.raises(NodeError, match="only an administrator can resume it"):
            patch(lifted, by_owner)
    with pytest.raises(NodeError, match="leave it out of a schedule that is not suspended"):
        patch({"suspend": False})
    patch({"cron": "0 0 2 1 *"}, by_owner)
    assert kubectl.get("tfclusterschedule", "locked")["status"]["state"] == "Paused"
    patch({"suspend": None, "suspension": None})
    kubectl("wait", "tfcs/locked", "--for=condition=Paused=False", "--timeout=20s")
    kubectl("delete", "tfcs", "locked", by_owner)


def test_a_manifest_by_hand_is_launched_every_minute_until_it_is_deleted(
    home: Tenant, minutely: list[str]
) -> None:
    """Schedules that are due at the same second launch one run each, which knows its due time.
    kubectl lists, pauses and deletes them; their runs stay.
    """
    kubectl = home.kubectl
    wide = kubectl("get", "tfcs", "-o", "wide")
    assert wide.split()[:6] == ["NAME", "CRON", "ZONE", "NEXT", "LAST", "RUN"], wide
    first, paused = minutely[:2]
    kubectl("wait", f"tfcs/{paused}", "--for=condition=Paused", "--timeout=20s")
    launching = [name for name in minutely if name != paused]
    until(lambda: all(occurrences(kubectl, name) for name in launching), "all were due")
    until(
        lambda: all(occurrences(kubectl, n)[0]["state"] != "Launching" for n in launching),
        "all are launched",
    )
    late = sorted(_late(home, each) for each in launching)
    told = {"median": 0.5, "p95": 0.95, "last": 1.0}
    shown = (f"{word} {late[math.ceil(part * len(late)) - 1]:.2f} s" for word, part in told.items())
    print(f"{len(late)} launched after due: {', '.join(shown)}")
    assert not occurrences(kubectl, paused)
    kubectl("delete", "tfcs", *launching[1:], paused)
    home.phase(f"{first}-1", "Succeeded")
    until(lambda: occurrences(kubectl, first)[0]["state"] == "Succeeded", "the first is over")
    run = runs_of(kubectl, first)[0]
    assert run["metadata"]["name"] == f"{first}-1"
    due = time.gmtime(scheduled(run)["due"])
    assert run["spec"]["program"]["arguments"][1] == time.strftime("%H:%M", due)
    kubectl("delete", "tfcs", first)
    assert kubectl.get("tfcluster", f"{first}-1")


def _late(home: Tenant, name: str) -> float:
    """Return the seconds from the due time until the operator recorded the created run."""
    (line,) = (each for each in home.operator.log().splitlines() if f"/{name}-1: launched" in each)
    return float(line.partition("launched ")[2].split()[0])


def test_the_next_run_gets_what_the_task_of_the_last_one_reported(home: Tenant) -> None:
    """If the first run of a schedule uses only a small part of the memory that it requested, the
    second run requests half as much; its pod, its record and the schedule's history say so.
    """
    kubectl = home.kubectl
    apply(kubectl, "sized", cron="0 0 1 1 *", seconds=5, more="  advised: true\n")

    def run_now() -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        merge = json.dumps({"spec": {"runTimes": [now]}})
        kubectl("patch", "tfcs", "sized", "--type=merge", "-p", merge)

    run_now()
    home.phase("sized-1", "Succeeded")
    until(lambda: status_of(kubectl, "sized").get("judged") == "sized-1", "it was looked at")
    (advised,) = status_of(kubectl, "sized")["advised"]
    assert (advised["option"], advised["own"], advised["value"]) == (
        "worker_memory",
        "1Gi",
        "512Mi",
    )
    assert advised["why"]["code"] == "AdviceMemoryTooHigh"
    run_now()
    home.phase("sized-2", "Succeeded")
    run = kubectl.get("tfcluster", "sized-2")
    assert run["spec"]["replicas"]["worker"]["resources"]["memory"] == "512Mi"
    assert scheduled(run)["advised"][0]["run"] == "sized-1"
    (pod,) = kubectl.every("pods", "tfcluster.dev/name=sized-2")
    assert pod["spec"]["containers"][0]["resources"]["limits"]["memory"] == "512Mi"
    until(lambda: occurrences(kubectl, "sized")[-1].get("advice"), "the history says it")
    kubectl("delete", "tfcs", "sized")


def test_two_operators_that_are_killed_launch_each_due_time_once(
    cluster: UnderTest, home: Tenant, tmp_path: Path
) -> None:
    """Two operators that both lead on a fast clock are killed in turn around due times. Each due
    time runs once, and none is lost. `test_schedule_chaos.py` does this for longer.
    """
    home.operator.stop()
    (tmp_path / "policy.yaml").write_text(policy(cluster, requireNetworkPolicy=False))
    operators, kubectl, minutes = FastOperators(home.kubectl, tmp_path, SPEED), home.kubectl, 5
    try:
        for number in (0, 1):
            operators.start(number)
        apply(kubectl, "chaos", overlap="Allow")
        kubectl("patch", "tfcs", "chaos", "--type=merge", "-p", '{"spec":{"catchUp":"All"}}')
        until(lambda: occurrences(kubectl, "chaos"), "it was due", 60)
        operators.shake(minutes, minutes)
        kubectl("patch", "tfcs", "chaos", "--type=merge", "-p", '{"spec":{"suspend":true}}')
        until(lambda: status_of(kubectl, "chaos").get("paused"), "it is paused", 60)
        until(
            lambda: {each["state"] for each in occurrences(kubectl, "chaos")} == {"Succeeded"},
            "all have succeeded",
            300,
        )
    finally:
        operators.end()
        home.operator.start()
    runs = runs_of(kubectl, "chaos")
    assert len(runs) >= minutes
    check_once_each(runs)
    kubectl("delete", "tfcs", "chaos")
