"""Schedules, applied by kubectl and by the verbs: what is due is launched once, and in time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubenode import paths
from kubenode.commands import wait_until
from kubenode.errors import NodeError
from support.kube.kubectl import Kubectl, Object
from support.kube.operator import Tenant, policy
from support.kube.under_test import UnderTest

from tfcluster_magic.schedules import ScheduleStatus
from tfcluster_magic.spec import resource_form

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
FAST = """
import sys, time
from tfcluster_magic.operator.__main__ import main
from tfcluster_magic.operator.reconcile.schedules import ScheduleClock

base, speed = float(sys.argv[1]), float(sys.argv[2])

class Fast(ScheduleClock):
    def now(self):
        return base + (time.time() - base) * speed

    def seconds_until(self, at):
        return (at - self.now()) / speed

sys.exit(main(sys.argv[3:], Fast()))
"""
SPEED = 12.0
"""Seconds of a fast operator in one: a due time of each minute comes every five seconds."""


@pytest.fixture(scope="module")
def home(new_tenant: Callable[[], Tenant]) -> Tenant:
    """Make a user's namespace."""
    return new_tenant()


def apply(home: Kubectl, name: str, **words: Any) -> None:
    said = {"cron": "* * * * *", "overlap": "Forbid", "seconds": 0, **words}
    home.apply(NIGHTLY % {"name": name, **said})


def schedule(home: Kubectl, name: str) -> Object:
    return dict(home.get("tfclusterschedule", name))


def status(home: Kubectl, name: str) -> Object:
    return resource_form.read(ScheduleStatus, schedule(home, name).get("status") or {})


def occurrences(home: Kubectl, name: str) -> list[Object]:
    return list(status(home, name).get("occurrences") or [])


def until(condition: Callable[[], object], what: str, seconds: float = 150) -> None:
    wait_until(condition, what, seconds=seconds, every=0.3)


def test_a_manifest_by_hand_is_launched_every_minute_until_it_is_deleted(home: Tenant) -> None:
    """Twenty schedules are due at the same second; each launches one run within two seconds, which
    knows its time. kubectl shows them, pauses one, and deletes them; runs stay.
    """
    kubectl = home.kubectl
    names = [f"nightly-{chr(97 + n)}" for n in range(20)]
    for name in names:
        apply(kubectl, name)
    wide = kubectl("get", "tfcs", "-o", "wide")
    assert wide.split()[:6] == ["NAME", "CRON", "ZONE", "NEXT", "LAST", "RUN"], wide
    kubectl(
        *("patch", "tfcs", names[1], "--type=merge", "-p"),
        json.dumps({"spec": {"suspend": True, "suspension": {"by": "ida", "reason": "repairs"}}}),
    )
    kubectl("wait", f"tfcs/{names[1]}", "--for=condition=Paused", "--timeout=20s")
    launching = [name for name in names if name != names[1]]
    until(lambda: all(occurrences(kubectl, name) for name in launching), "all were due")
    until(
        lambda: all(occurrences(kubectl, n)[0]["state"] != "Launching" for n in launching),
        "all are launched",
    )
    late = sorted(
        run["metadata"]["annotations"] and _late(home, each)
        for each in launching
        for run in [kubectl.get("tfcluster", f"{each}-1")]
    )
    print(f"launched after due: median {late[len(late) // 2]:.2f} s, p95 {late[-1]:.2f} s")
    for name in launching[2:]:
        kubectl("delete", "tfcs", name)
    first, second = launching[:2]
    home.phase(f"{first}-1", "Succeeded")
    assert not occurrences(kubectl, names[1])
    until(lambda: len(occurrences(kubectl, first)) > 1, "it is due again")
    until(lambda: occurrences(kubectl, first)[0]["state"] == "Succeeded", "the first is over")
    runs = kubectl.every("tfcluster", f"tfcluster.dev/schedule={first}")
    assert runs[0]["metadata"]["name"] == f"{first}-1"
    assert runs[0]["spec"]["program"]["arguments"][1] == _clock(runs[0])
    kubectl("delete", "tfcs", first, second, names[1])
    assert kubectl.get("tfcluster", f"{first}-1")


def _late(home: Tenant, name: str) -> float:
    """Return the seconds from the due time until the operator knew that the run was created."""
    (line,) = (each for each in home.operator.log().splitlines() if f"/{name}-1: launched" in each)
    return float(line.partition("launched ")[2].split()[0])


def _clock(run: Object) -> str:
    at = json.loads(run["metadata"]["annotations"]["tfcluster.dev/scheduled"])["due"]
    return time.strftime("%H:%M", time.gmtime(at))


def test_a_run_is_replaced_as_its_owner_would_stop_it(home: Tenant) -> None:
    """With `Replace` the run of the minute before is stopped, and the next begins after its end;
    runs that are asked for come at once.
    """
    kubectl = home.kubectl
    apply(kubectl, "replaces", overlap="Replace", seconds=600, cron="0 0 1 1 *")
    for number in (1, 2):
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        patch = json.dumps({"spec": {"runTimes": [at]}})
        kubectl("patch", "tfcs", "replaces", "--type=merge", "-p", patch)
        home.phase(f"replaces-{number}", "Running")
    stopped = home.phase("replaces-1", "Stopped")
    assert "schedule replaces" in stopped["message"]
    states = [each["state"] for each in occurrences(kubectl, "replaces")]
    assert states == ["Stopped", "Running"]
    kubectl("delete", "tfcs", "replaces")
    kubectl("delete", "tfcluster", "replaces-2")


def test_what_is_wrong_is_refused_or_said(home: Tenant) -> None:
    """The API server refuses what its rules can see, and the condition Ready says the rest."""
    kubectl = home.kubectl
    good = NIGHTLY % {"name": "wrong", "cron": "* * * * *", "overlap": "Forbid", "seconds": 0}
    for old, new, words in (
        ("name: wrong", "name: wrong-7", "not in '-<number>'"),
        ("overlap: Forbid", "overlap: Sometimes", "Unsupported value"),
        ("lifecycle: {", "stop: {reason: x}\n      lifecycle: {", "leave it out"),
        ("lifecycle: {", "after: [{run: a-1}]\n      lifecycle: {", "leave it out"),
        ("lifecycle: {", "mode: InGraph\n      lifecycle: {", "in-graph, a notebook is the client"),
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
        for each in schedule(kubectl, "nonsense")["status"]["conditions"]
        if each["type"] == "Ready"
    )
    assert "spec.cron" in ready["message"] and "minute" in ready["message"]
    kubectl("delete", "tfcs", "nonsense")


def test_who_may_not_launch_may_not_schedule(home: Tenant) -> None:
    """An account with a right to schedules alone gets no runs by them."""
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
    """The owner may change and delete a schedule with a locked suspension, but neither lift, change
    nor make one; who has the right `lock` may.
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

    def patch(spec: Object, *words: str) -> str:
        merge = ("--type=merge", "-p", json.dumps({"spec": spec}))
        return kubectl("patch", "tfcs", "locked", *merge, *words)

    by_owner = f"--as={user}"
    lock = {"by": "admin eve", "reason": "an exam", "locked": True}
    with pytest.raises(NodeError, match="only an administrator resumes it"):
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
        with pytest.raises(NodeError, match="only an administrator resumes it"):
            patch(lifted, by_owner)
    with pytest.raises(NodeError, match="leave it out of a schedule that is not suspended"):
        patch({"suspend": False})
    patch({"cron": "0 0 2 1 *"}, by_owner)
    assert schedule(kubectl, "locked")["status"]["state"] == "Paused"
    patch({"suspend": None, "suspension": None})
    kubectl("wait", "tfcs/locked", "--for=condition=Paused=False", "--timeout=20s")
    kubectl("delete", "tfcs", "locked", by_owner)


class FastOperators:
    """Operators with a fast clock that all lead, each by a Lease of its own."""

    def __init__(self, home: Tenant, folder: Path) -> None:
        self._home, self._folder, self._base = home, folder, time.time()
        self._processes: list[subprocess.Popen[bytes] | None] = [None, None]

    def start(self, number: int) -> None:
        """Start one of them."""
        words = [sys.executable, "-c", FAST, str(self._base), str(SPEED)]
        words += [f"--namespace={self._home.name}", f"--policy={self._folder}/policy.yaml"]
        words += ["--health-port=0", "--identity=fast"]
        words += [f"--lease-namespace={('default', self._home.name)[number]}"]
        environment = {**os.environ, "KUBECONFIG": self._home.kubectl.kubeconfig}
        with (self._folder / f"operator-{number}.log").open("ab") as to:
            self._processes[number] = subprocess.Popen(
                words, stderr=to, env=environment, cwd=paths.ROOT
            )

    def kill(self, number: int) -> None:
        """Kill one of them, unless it does not run."""
        process = self._processes[number]
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait(30)
        self._processes[number] = None

    def now(self) -> float:
        """Return their time."""
        return self._base + (time.time() - self._base) * SPEED


@pytest.mark.parametrize("minutes", [8, pytest.param(300, marks=pytest.mark.long)])
def test_two_operators_that_are_killed_launch_each_due_time_once(
    cluster: UnderTest, home: Tenant, tmp_path: Path, minutes: int
) -> None:
    """Two that both lead, on a fast clock, are killed in turn around due seconds: each due time ran
    once, and none is lost.
    """
    name = f"chaos-{'abc'[minutes % 3]}"
    home.operator.stop()
    (tmp_path / "policy.yaml").write_text(policy(cluster, requireNetworkPolicy=False))
    operators = FastOperators(home, tmp_path)
    kubectl = home.kubectl
    try:
        for number in (0, 1):
            operators.start(number)
        apply(kubectl, name, overlap="Allow", seconds=0)
        kubectl("patch", "tfcs", name, "--type=merge", "-p", '{"spec":{"catchUp":"All"}}')
        until(lambda: occurrences(kubectl, name), "it was due", 60)
        begun, number = operators.now(), 0
        while operators.now() < begun + minutes * 60:
            left = (60 - operators.now() % 60) / SPEED
            time.sleep(left)  # the due second of a clock
            operators.kill(number)
            operators.start(number)
            number = 1 - number
        kubectl("patch", "tfcs", name, "--type=merge", "-p", '{"spec":{"suspend":true}}')
        until(lambda: status(kubectl, name).get("paused"), "it is paused", 60)
        until(
            lambda: {each["state"] for each in occurrences(kubectl, name)} == {"Succeeded"},
            "all have succeeded",
            300,
        )
    finally:
        for number in (0, 1):
            operators.kill(number)
        home.operator.start()
    runs = kubectl.every("tfcluster", f"tfcluster.dev/schedule={name}")
    noted = [json.loads(r["metadata"]["annotations"]["tfcluster.dev/scheduled"]) for r in runs]
    dues = sorted(each["due"] for each in noted)
    print(f"{len(dues)} due times with {minutes} kills")
    assert len(dues) >= minutes and len(set(dues)) == len(dues), "a due time ran twice"
    assert dues == [dues[0] + 60 * n for n in range(len(dues))], "a due time is lost"
    kubectl("delete", "tfcs", name)
