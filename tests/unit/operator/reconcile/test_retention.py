"""Deletion of finished runs by the operator after their retention time; the operator deletes only
objects of the run itself.
"""

from __future__ import annotations

import copy
import time

import pytest
from support.kube_server import Object, Refusal
from support.operator_world import JOBS, PODS, RUNS, SERVICE, World, up
from support.polling import wait_until

from tfcluster_magic.kube.api.labels import UID
from tfcluster_magic.operator.reconcile import retention
from tfcluster_magic.spec.resource_form import format_time


def test_a_job_of_somebody_else_is_not_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Job that has the name of a run's Job, but does not belong to the run, is not deleted with
    the run or its record.
    """
    monkeypatch.setattr(retention, "OBJECTS_STAY", 0.5)
    world.server.put(f"{JOBS}/digits-1-ps", {"metadata": {}, "spec": {"completions": 1}})
    world.launch("digits-1", ps=1, keep_for=2.0)
    wait_until(lambda: "digits-1-worker" in world.server.names("jobs"))
    world.server.answer("PATCH", f"{RUNS}/digits-1", {"spec": {"stop": {"reason": "lunch"}}})
    wait_until(lambda: world.server.names("jobs") == ["digits-1-ps"])
    wait_until(lambda: world.server.names("tfclusters") == [])
    assert world.server.names("jobs") == ["digits-1-ps"]


def test_a_stop_after_the_end_is_said_to_be_seen(world: World) -> None:
    """If the spec of an ended run is changed, as by a stop, the change has no effect. Still, the
    status gets the generation of the changed spec. Otherwise, `kubectl wait` would accept none of
    the status's conditions. Nothing else in the status changes.
    """
    up(world)
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    before = world.wait("digits-1", lambda s: s.get("releasedAt"))
    assert before["observedGeneration"] == world.run("digits-1")["metadata"]["generation"]
    world.server.answer("PATCH", f"{RUNS}/digits-1", {"spec": {"stop": {"reason": "lunch"}}})
    now = before["observedGeneration"] + 1
    after = world.wait("digits-1", lambda s: s["observedGeneration"] == now)

    assert {each.pop("observedGeneration") for each in after["conditions"]} == {now}
    for each in before["conditions"]:
        del each["observedGeneration"]
    assert {**after, "observedGeneration": now - 1} == before


def test_objects_of_the_next_run_of_a_name_are_not_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator that has not yet seen that a run was deleted and created again deletes nothing of
    the new run.
    """
    up(world)
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    world.wait("digits-1", lambda s: s.get("releasedAt"))
    assert world.controller is not None
    late = world.controller.context
    old = copy.deepcopy(world.run("digits-1"))
    world.rest()  # ends the operator; the caches in `late` no longer change
    for path in (f"{RUNS}/digits-1", SERVICE):
        again = copy.deepcopy(world.server.objects[path])
        again["metadata"] |= {"uid": f"next {path}", "labels": {UID: f"next {RUNS}/digits-1"}}
        world.server.put(path, again)
    monkeypatch.setattr(retention, "OBJECTS_STAY", 0.0)
    retention.apply_retention(late, ("a", "digits-1"), old)
    assert SERVICE in world.server.objects
    assert f"{JOBS}/digits-1-worker" in world.server.objects


def test_a_run_ends_where_the_operator_was_shut_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a namespace without the operator's role binding, a stop ends the tasks, and Jobs and
    record are deleted later as usual. Objects that the operator may not read are left to their
    owner.
    """
    monkeypatch.setattr(retention, "OBJECTS_STAY", 0.5)
    up(world)
    reads = ("/services", "/configmaps", "/networkpolicies")
    forbidden = Refusal(403, "Forbidden", "no")
    world.server.refuses = lambda _method, path: (
        forbidden if any(each in path for each in reads) else None
    )
    limits = {"lifecycle": {"keepForSeconds": 2}, "stop": {"reason": "lunch"}}
    world.server.answer("PATCH", f"{RUNS}/digits-1", {"spec": limits})
    wait_until(lambda: world.job("digits-1-worker")["spec"]["suspend"])
    for pod in list(world.server.objects):
        if pod.startswith(f"{PODS}/"):
            world.server.remove(pod)
    wait_until(lambda: world.server.names("jobs") == [])
    wait_until(lambda: world.server.names("tfclusters") == [])


def test_what_a_run_without_jobs_leaves_goes_as_well(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects of a run whose Jobs the API never accepted are deleted later as usual; its record
    stays.
    """
    monkeypatch.setattr(retention, "OBJECTS_STAY", 0.5)
    monkeypatch.setattr(retention, "SPREAD", 0.5)
    never = Refusal(422, "Invalid", "no such thing")
    world.server.refuses = lambda method, path: never if method == "POST" and path == JOBS else None
    world.launch("digits-1")
    world.phase("digits-1", "Failed")
    wait_until(lambda: world.server.names("services") == world.server.names("configmaps") == [])
    assert world.server.names("networkpolicies") == []
    assert world.server.names("tfclusters") == ["digits-1"]


def test_the_oldest_ended_runs_make_room_for_new_ones(world: World) -> None:
    """If a quota counts TFClusters, the runs that ended first are deleted before the quota is used
    up. Active runs stay; without such a quota, ended runs stay, too.
    """
    now = time.time() - 100
    for number in range(1, 13):
        world.server.put(f"{RUNS}/old-{number}", _over(f"old-{number}", now + number))
    up(world, "digits-1")
    assert len(world.server.names("tfclusters")) == 13
    quota = {"spec": {"hard": {"count/tfclusters.tfcluster.dev": "10", "pods": "5"}}}
    world.server.put("/api/v1/namespaces/a/resourcequotas/records", quota)
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    left = sorted(["digits-1", *(f"old-{number}" for number in range(5, 13))])
    wait_until(lambda: world.server.names("tfclusters") == left)
    for number in range(1, 30):
        world.launch(f"more-{number}")
    wait_until(lambda: not {"digits-1", "old-12"} & set(world.server.names("tfclusters")))
    assert len([name for name in world.server.names("tfclusters") if "more" in name]) == 29


def _over(name: str, at: float) -> Object:
    ended = format_time(at)
    status = {"phase": "Succeeded", "completionTime": ended, "releasedTime": ended}
    return {"metadata": {"name": name}, "spec": {}, "status": status}
