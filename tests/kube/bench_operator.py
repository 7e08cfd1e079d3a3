"""Times of the operator: until it is ready, until it explains a waiting task, and until it reclaims
parameter servers.

`python -m pytest tests/kube/bench_operator.py -s` measures on the cluster of the tests, and writes
rows to build/bench/operator.json. A missed goal is marked in its row, and is not a failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from kubenode import images
from kubenode.commands import wait_until
from kubenode.paths import ROOT
from support.kube.explain_cases import Seen, admit, cases, follow
from support.kube.kubectl import Kubectl, Object, is_ready
from support.kube.operator import Tenant, spec_of
from support.kube.operator_modes import Installed
from support.kube.under_test import UnderTest

from benchmarks.rows import Row, bounded, collected
from tfcluster_magic.kube.api import access
from tfcluster_magic.spec import Lifecycle

pytestmark = [pytest.mark.alone, pytest.mark.needs("rwx", "network-policy")]

ROUNDS = 3
OUTPUT = ROOT / "build" / "bench" / "operator.json"
POD = "app=tfcluster-operator"
RECLAIM_AFTER = 2.0
TASK = """
import os, signal, sys, time


def end(*_):
    print("asked", time.time(), flush=True)
    time.sleep(20)  # until somebody has read that
    sys.exit(143)


if os.environ["TFCLUSTER_TASK"] == "worker-0":
    time.sleep(5)  # while the others come up
    print("ended", time.time(), flush=True)
else:
    signal.signal(signal.SIGTERM, end)
    time.sleep(600)
"""
WAITING = ("no-memory-1", "no-image-1", "no-claim-1", "no-secret-1", "no-python-1")


@pytest.fixture(scope="module")
def rows() -> Iterator[list[Row]]:
    """The measured rows, printed and written at the end."""
    yield from collected(OUTPUT)


def test_ready(installed: Installed | None, rows: list[Row]) -> None:
    """Measure the time until the operator is ready: from the start of its process until it reports
    this, and from the creation of its pod until the pod is Ready.
    """
    assert installed
    turns, pods = [], []
    for _ in range(ROUNDS):
        installed.stop()
        installed.start()
        wait_until(lambda: "ready after" in installed.log(), "it is ready", seconds=60)
        turns += [float(each) for each in re.findall(r"ready after ([\d.]+) s", installed.log())]
        (pod,) = [each for each in installed.kubectl.every("pod", POD) if is_ready(each)]
        pods.append(_ready_at(pod) - _at(pod["metadata"]["creationTimestamp"]))
    rows.append(bounded("operator_acts", "s", turns, at_most=3.0, note="from its process' start"))
    rows.append(bounded("operator_ready", "s", pods, at_most=15.0, note="from its pod's creation"))


def test_explained(
    cluster: UnderTest,
    tenant: Tenant,
    rows: list[Row],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Measure the delay of the operator's explanations: from the time at which Kubernetes reports
    why a task waits until the run's message says it.
    """
    every = cases(tmp_path, images.build("operator").reference, cluster.busybox)
    chosen = {name: every[name] for name in WAITING}
    monkeypatch.setenv("KUBECONFIG", cluster.kubectl.kubeconfig)
    api, _namespace = access.connect()
    seen = Seen()
    for name, case in chosen.items():
        admit(api, tenant, name, case.spec)
    wait_until(
        lambda: follow(api, tenant.name, chosen, seen), "all are told", seconds=120, every=0.1
    )
    api.close()
    late = [max(0.0, seen.not_told.get(name, 0.0) - seen.known[name]) for name in chosen]
    words = ", ".join(f"{name[:-2]} {each:.1f}" for name, each in zip(chosen, late, strict=True))
    rows.append(bounded("explanation_delay", "s", late, at_most=5.0, note=words))
    tenant.kubectl("delete", "tfclusters", "--all", "--wait=false")


def test_reclaimed(tenant: Tenant, rows: list[Row], tmp_path: Path) -> None:
    """Measure the time from a worker's exit to its parameter server's SIGTERM; subtract the delay
    `reclaimAfter`.
    """
    program = tmp_path / "task.py"
    program.write_text(TASK)
    late = []
    for number in range(1, ROUNDS + 1):
        name = f"reclaim-{number}"
        ends = Lifecycle(reclaim_after=RECLAIM_AFTER, grace=30.0)
        tenant.launch(name, spec_of(program, ps=1, lifecycle=ends))
        tenant.phase(name, "Succeeded")
        ended = _said(tenant.kubectl, tenant.pods(name, "worker")[0], "ended")
        asked = _said(tenant.kubectl, tenant.pods(name, "ps")[0], "asked")
        late.append(asked - ended - RECLAIM_AFTER)
        tenant.kubectl("delete", "tfcluster", name, "--wait=false")
    rows.append(bounded("ps_reclaim_in_pods", "s", late, at_most=5.0))


def _said(kube: Kubectl, pod: Object, word: str) -> float:
    """Wait until a task prints `word` and a time, such as `ended 1769851000.5`; return the time."""

    def found() -> str | None:
        text = kube.logs(pod["metadata"]["name"])
        line = re.search(rf"^{word} ([\d.]+)$", text, re.MULTILINE)
        return line[1] if line else None

    wait_until(found, f"it says {word}", seconds=60)
    return float(found() or 0)


def _at(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _ready_at(pod: Object) -> float:
    (found,) = [each for each in pod["status"]["conditions"] if each["type"] == "Ready"]
    return _at(found["lastTransitionTime"])
