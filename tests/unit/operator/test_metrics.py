"""The Prometheus metrics of an operator that ran launches."""

from __future__ import annotations

import copy
import re
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.operator_world import PODS, RUNS, World, up
from support.polling import wait_until
from support.project import ROOT

from tfcluster_magic.operator.__main__ import controller_metrics

POD = f"{PODS}/digits-1-ps-0-first"
Samples = dict[tuple[str, ...], float]


def samples(world: World) -> Samples:
    """Return the value of each sample by its name and label values; for a histogram, only count and
    sum.
    """
    assert world.controller is not None
    lease: Any = SimpleNamespace(leads=lambda: world.leads)
    text = controller_metrics(world.controller, lease)
    return {
        (each.name.removeprefix("tfcluster_"), *each.labels.values()): each.value
        for family in text_string_to_metric_families(text + "\n")
        for each in family.samples
        if "le" not in each.labels
    }


def test_a_run_is_measured_from_its_post_to_its_release(world: World) -> None:
    """The times until admission, until the first task, until all tasks and until the release are
    observed once; the end is counted with its reason.
    """
    up(world, workers=2, reclaim_after=0.0)
    wait_until(lambda: samples(world)["all_tasks_seconds_count",] == 1)
    now = samples(world)
    for name in ("queue_wait", "first_task", "all_tasks"):
        assert now[f"{name}_seconds_count",] == 1
        assert now[f"{name}_seconds_sum",] >= 0
    assert now["runs", "Running"] == 1
    assert (now["task_pods", "worker"], now["overdue_task_pods", "worker"]) == (2, 0)
    for index in range(2):
        name = f"digits-1-worker-{index}-first"
        world.pod("digits-1-worker", "succeeded", index, name)
    wait_until(lambda: samples(world)["reclaim_delay_seconds_count",] == 1)
    now = samples(world)
    assert now["runs_ended_total", "Succeeded", "Completed"] == 1
    assert (now["first_task_seconds_count",], now["all_tasks_seconds_count",]) == (1, 1)
    assert now["turn_seconds_count",] == now["turns_total",] > 0
    assert now["status_writes_total",] > 0
    assert now["watch_age_seconds", "pods"] >= 0


@pytest.mark.parametrize("record", ["gone", "ended", "active"])
def test_what_outlives_its_run_is_overdue(world: World, record: str) -> None:
    """Pods count as overdue a minute after their run should have released them or was deleted."""
    up(world, ps=1)
    world.leads = False  # no operator acts
    if record == "gone":
        pod = copy.deepcopy(world.server.objects[POD])
        world.server.remove(f"{RUNS}/digits-1")
        world.server.put(POD, pod)  # the pod stays, as after `kubectl delete --cascade=orphan`
    elif record == "ended":
        world.say("digits-1", phase="Failed", finishedAt=1.0)
    overdue = 0 if record == "active" else 1
    assert world.controller is not None
    wait_until(
        lambda: (
            samples(world)["overdue_task_pods", "ps"] == overdue
            and samples(world)["runs", "Running"] == (record == "active")
        )
    )
    assert world.controller.turns.failed == 0
    assert POD in world.server.objects


def test_labels_do_not_grow_with_runs(world: World) -> None:
    """Twenty runs have as many series as one run, because no label names a user or a run."""
    world.launch("digits-1")
    world.phase("digits-1", "Starting")
    before = samples(world)
    for number in range(2, 22):
        world.launch(f"digits-{number}")
    wait_until(lambda: samples(world)["records",] == 21)
    assert samples(world).keys() == before.keys()


def test_dashboard_and_alerts_ask_for_what_there_is(world: World) -> None:
    """Every metric in a panel or an alert exists."""
    world.launch("digits-1")
    world.phase("digits-1", "Starting")
    told = {name for name, *_labels in samples(world)}
    told |= {f"{name.removesuffix('_count')}_bucket" for name in told if name.endswith("_count")}
    told |= {"runs_ended_total"}  # exists only after a run has ended
    monitoring = ROOT / "k8s" / "monitoring"
    for name in ("dashboard.json", "rules.yaml"):
        asked = set(re.findall(r"\btfcluster_([a-z_]+)", (monitoring / name).read_text()))
        assert asked and asked <= told
