"""The time until a new user of the hub on Kubernetes has JupyterLab, in parts: the hub's own work,
the creation of the user's objects (tenancy), and the binding of their claims.

`python -m pytest tests/kube/bench_hub.py -s` measures on the cluster of the tests, and writes rows
to build/bench/hub-on-kubernetes.json. The seconds in which a pod starts are counted separately,
because they depend only on Kubernetes. A missed goal is marked in its row, and is not a failure.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kubenode.commands import wait_until
from kubenode.paths import ROOT
from support.kube.hub import Hub
from support.kube.tenant_namespaces import move_in

from benchmarks.rows import Row, bounded, collected

pytestmark = [
    pytest.mark.alone,
    pytest.mark.needs("ingress", "rwx", "network-policy", "registry"),
]
ROUNDS = 5
OUTPUT = ROOT / "build" / "bench" / "hub-on-kubernetes.json"


@pytest.fixture(scope="module")
def rows() -> Iterator[list[Row]]:
    """The measured rows, printed and written at the end."""
    yield from collected(OUTPUT)


def test_furnished(hub: Hub, rows: list[Row]) -> None:
    """Measure the time from the creation of a new user's namespace until it has all its objects,
    and until its claims are bound.
    """
    furnished, bound = [], []
    for _round in range(ROUNDS):
        began = time.monotonic()
        found = move_in(hub, f"bench-{secrets.token_hex(4)}")
        bound.append(time.monotonic() - began)
        furnished.append(found.seconds)
        hub.kubectl("delete", "namespace", found.name, "--wait=false")
    note = f"three claims bound, load {os.getloadavg()[0]:.1f}"
    rows.append(bounded("tenancy_new_user", "s", bound, at_most=10.0, note=note))
    rows.append(bounded("tenancy_furnished", "s", furnished, at_most=10.0, note="without claims"))


def test_spawned(hub: Hub, rows: list[Row]) -> None:
    """Measure the time from the request for a server to a created pod and to JupyterLab's first
    answer, without the pod's own start.
    """
    user, made, answers, starts = hub.new_user("bench"), [], [], []
    for _round in range(ROUNDS + 1):  # the first round, with a new user, is not counted
        began = hub.spawn(user)
        created, running = _seen(hub, user)
        answers.append(hub.ready(user) - began - (running - created))
        starts.append(running - created)
        made.append(created - began)
        hub.stop(user)
    load = f"load {os.getloadavg()[0]:.1f}"
    rows.append(bounded("tenancy_known_user", "s", made[1:], at_most=1.0, note="to a pod made"))
    rows.append(
        bounded(
            "notebook_on_kubernetes",
            "s",
            answers[1:],
            at_most=10.0,
            note=f"less the pod's own start ({sorted(starts)[ROUNDS // 2]:.1f} s), {load}",
        )
    )


def _seen(hub: Hub, user: str) -> tuple[float, float]:
    """Return when a user's notebook pod was created, and when its container ran."""
    inside, seen = hub.namespace(user), {}

    def states() -> list[dict[str, Any]]:
        pods = inside.every("pod", "tfcluster.dev/notebook=true")
        if pods:
            seen.setdefault("created", time.monotonic())
        every = [each["status"].get("containerStatuses") or [] for each in pods]
        return [status["state"] for statuses in every for status in statuses]

    def runs() -> bool:
        return any("running" in each for each in states())

    wait_until(runs, f"the notebook of {user} runs", seconds=120, every=0.05)
    return seen["created"], time.monotonic()
