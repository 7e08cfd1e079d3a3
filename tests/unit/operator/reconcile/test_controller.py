"""The operator on a server that stores objects, with pods as the test writes them."""

from __future__ import annotations

import copy
import json
import time

import pytest
from msgspec.structs import replace
from support.kube_server import Refusal
from support.operator_world import JOBS, RUNS, World, node, spec, up
from support.polling import wait_until

from tfcluster_magic.errors import Problem
from tfcluster_magic.i18n import language
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.kube.status.exit_status import DELETED_BY_SOMEBODY, DISRUPTION
from tfcluster_magic.lifecycle.messages import shown
from tfcluster_magic.operator.scheduling.admission import Refused, Verdict, Waiting
from tfcluster_magic.spec import Message


def test_a_run_becomes_its_objects(world: World) -> None:
    """A launch becomes a few objects, all owned by the run's record except the Job of the parameter
    servers, which the workers' Job owns.
    """
    up(world, workers=2, ps=1)
    assert world.server.names("jobs") == ["digits-1-ps", "digits-1-worker"]
    run, worker = world.run("digits-1"), world.job("digits-1-worker")
    (of_worker,) = worker["metadata"]["ownerReferences"]
    (of_ps,) = world.job("digits-1-ps")["metadata"]["ownerReferences"]
    assert of_worker["uid"] == run["metadata"]["uid"]
    assert of_ps["uid"] == worker["metadata"]["uid"]
    assert world.status("digits-1")["paths"]["output"] == "/log/digits/1"


def test_a_deleted_run_is_forgotten(world: World) -> None:
    """After a run was deleted, the operator creates no object for it any more; it continues with
    other runs.
    """
    up(world, ps=1)
    world.server.remove(f"{RUNS}/digits-1")
    assert world.server.names("jobs") == world.server.names("pods") == []
    world.launch("digits-2")
    wait_until(lambda: "digits-2-worker" in world.server.names("jobs"))
    assert not any("digits-1" in name for name in world.server.names("jobs"))


def test_success_counts_from_the_end_of_the_work(world: World) -> None:
    """A run that ended while no operator was running has the real time of its end, and its ps is
    reclaimed at once.
    """
    up(world, ps=1, reclaim_after=60.0)
    world.rest()
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    at = time.time() + 1.5
    world.say("digits-1", startedAt=at - 200, runningAt=at - 200, events=[])
    pod = copy.deepcopy(world.server.objects["/api/v1/namespaces/a/pods/digits-1-worker-0-first"])
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    # The recorded end, `at - 100`, is before the creation of the run's object.
    ended["message"] = json.dumps({"cause": "Completed", "finishedAt": at - 100, "exitCode": 0})
    world.server.put("/api/v1/namespaces/a/pods/digits-1-worker-0-first", pod)
    world.operate()
    status = world.phase("digits-1", "Succeeded")
    assert status["finishedAt"] == pytest.approx(at - 100)
    wait_until(lambda: world.job("digits-1-ps")["spec"].get("suspend"))


def test_a_failure_ends_everything(world: World) -> None:
    """If a program fails, its run fails, the message quotes the program's last line, and the run's
    other Jobs are suspended.
    """
    up(world, ps=1)
    world.pod("digits-1-worker", "failed", 0, "digits-1-worker-0-first")
    status = world.phase("digits-1", "Failed")
    assert "shapes do not match" in status["message"]
    wait_until(lambda: world.job("digits-1-ps")["spec"].get("suspend"))
    world.server.remove("/api/v1/namespaces/a/pods/digits-1-ps-0-first")
    assert world.wait("digits-1", lambda s: s.get("releasedAt"))["counts"]["ps"]["stopped"] == 1


def test_a_group_restarts_by_its_lever(world: World) -> None:
    """If a group of workers without a ps loses a worker, the group's Job is suspended, and resumed
    as attempt 2 once all pods are gone.
    """
    up(world, workers=2)
    world.pod("digits-1-worker", "deleted", 0, "digits-1-worker-0-first")
    wait_until(lambda: world.job("digits-1-worker")["spec"].get("suspend") is True)
    pods = "/api/v1/namespaces/a/pods"
    world.server.remove(f"{pods}/digits-1-worker-0-first")
    # the operator gives no sign that it saw the removal, but would have resumed the Job by now
    time.sleep(0.5)
    assert world.job("digits-1-worker")["spec"]["suspend"] is True
    world.server.remove(f"{pods}/digits-1-worker-1-first")
    wait_until(lambda: world.job("digits-1-worker")["spec"].get("suspend") is False)
    notes = world.job("digits-1-worker")["metadata"]["annotations"]
    assert notes["tfcluster.dev/attempt"] == "2"
    for index in range(2):
        world.pod("digits-1-worker", "running", index)
    status = world.wait("digits-1", lambda s: s["counts"]["worker"].get("running") == 2)
    assert (status["attempt"], status["heals"]) == (2, 1)
    world.operate()  # a new operator must come to the same result
    time.sleep(1)  # the new operator gives no sign that it has handled the run
    assert world.status("digits-1")["restarts"] == status["restarts"]
    assert world.job("digits-1-worker")["spec"]["suspend"] is False


def test_a_pod_that_somebody_deletes_is_a_disruption(world: World) -> None:
    """If a pod of an active run is deleted, the operator sets the condition DisruptionTarget of the
    pod, so that the pod's Job counts the end as a disruption.
    """
    up(world, workers=2, ps=1)
    where = "/api/v1/namespaces/a/pods/digits-1-worker-0-first"
    world.pod("digits-1-worker", "deleting", 0, "digits-1-worker-0-first")

    def told() -> list[str]:
        conditions = world.server.objects[where]["status"]["conditions"]
        return [each["reason"] for each in conditions if each["type"] == DISRUPTION]

    wait_until(lambda: told() == [DELETED_BY_SOMEBODY])


def test_pods_of_a_lost_node_have_failed(world: World) -> None:
    """A pod that is deleted on a node which does not answer is marked Failed, with cause Lost."""
    up(world, workers=2, ps=1)
    world.server.put("/api/v1/nodes/node-1", node(ready=False))
    world.pod("digits-1-worker", "deleting", 0, "digits-1-worker-0-first")
    where = "/api/v1/namespaces/a/pods/digits-1-worker-0-first"
    wait_until(lambda: world.server.objects[where]["status"]["phase"] == "Failed")
    status = world.wait("digits-1", lambda s: s.get("heals") == 1)
    assert "node" in status["events"][-1]["message"]


def test_what_an_earlier_run_left_is_waited_for(world: World) -> None:
    """If objects of an earlier run with the same name are left, a run waits, reports this, and
    adopts nothing.
    """
    up(world)
    world.rest()
    job = copy.deepcopy(world.job("digits-1-worker"))
    world.server.remove(f"{RUNS}/digits-1")
    # the garbage collector has not deleted this Job yet
    world.server.put(f"{JOBS}/digits-1-worker", job)
    world.launch("digits-1")
    world.operate()
    status = world.wait("digits-1", lambda s: s.get("message"))
    assert status["phase"] == "Queued"
    assert "Job digits-1-worker of an earlier run" in status["message"]
    world.server.remove(f"{JOBS}/digits-1-worker")
    world.phase("digits-1", "Starting")


def test_an_object_in_the_way_is_never_adopted(world: World) -> None:
    """If an object of somebody else has the name of an object that a run needs, the run reports
    this and waits. It never adopts that object, and starts once that object is deleted.
    """
    service = "/api/v1/namespaces/a/services/digits-1"
    world.server.put(service, {"metadata": {"labels": {}}})
    world.launch("digits-1")
    world.wait("digits-1", lambda s: "Service digits-1 of an earlier run" in s.get("message", ""))
    assert world.server.names("jobs") == []
    world.server.remove(service)
    wait_until(lambda: world.server.names("jobs") == ["digits-1-worker"])


def test_a_job_that_somebody_deletes_is_not_made_again(world: World) -> None:
    """A run whose Job was deleted fails, and the message says so; the Job is not created again."""
    up(world, ps=1)
    world.server.remove(f"{JOBS}/digits-1-ps")
    status = world.phase("digits-1", "Failed")
    assert status["message"] == "Somebody deleted the Job digits-1-ps while the run was active."
    assert world.server.names("jobs") == ["digits-1-worker"]
    wait_until(lambda: world.job("digits-1-worker")["spec"].get("suspend"))


def test_a_resource_that_is_no_run_fails_with_its_problems(world: World) -> None:
    """A record that cannot be read as a run is Failed with every problem; no object is created."""
    wrong = {"spec": {"replicas": {"worker": {"count": 0}}, "env": {"TF_CONFIG": "x"}}}
    world.server.put(f"{RUNS}/digits", wrong)
    status = world.phase("digits", "Failed")
    assert "metadata.name" in status["message"]
    assert "TF_CONFIG" in status["message"]
    assert world.server.names("jobs") == []
    record = custom_resource.read_status(world.run("digits"))
    with language("zh_CN"):
        told = shown(record)
    assert "这个名称由 TFCluster 自己设置" in told
    assert shown(record) == status["message"]


def test_a_refusal_is_told_and_tried_again(world: World) -> None:
    """An object that the API refuses is reported in the status, and created once the API accepts
    it.
    """
    refusal = Refusal(403, "Forbidden", 'jobs.batch "x" is forbidden: exceeded quota: small')
    world.server.refuses = lambda method, path: (
        refusal if method == "POST" and path.endswith("/jobs") else None
    )
    world.launch("digits-1")
    world.wait("digits-1", lambda s: "exceeded quota: small" in s.get("message", ""))
    world.server.refuses = lambda _method, _path: None
    wait_until(lambda: world.server.names("jobs") == ["digits-1-worker"])


def test_an_api_that_is_away_changes_nothing(world: World) -> None:
    """While the API answers with errors, nothing is lost; afterwards, the run continues."""
    up(world, ps=1, reclaim_after=0.0)
    away = Refusal(503, "ServiceUnavailable", "the database is away")
    refused = []

    def refuses(method: str, path: str) -> Refusal | None:
        if method != "PATCH":
            return None
        refused.append(path)
        return away

    world.server.refuses = refuses
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    wait_until(lambda: len(refused) > 1)
    assert world.status("digits-1")["phase"] == "Running"
    world.server.refuses = lambda _method, _path: None
    world.phase("digits-1", "Succeeded")


def test_a_person_may_write_between_two_statuses(world: World) -> None:
    """A stop that is written between two status writes is no conflict: the run stops."""
    up(world)
    world.server.answer("PATCH", f"{RUNS}/digits-1", {"spec": {"stop": {"reason": "lunch"}}})
    wait_until(lambda: world.job("digits-1-worker")["spec"].get("suspend"))
    world.server.remove("/api/v1/namespaces/a/pods/digits-1-worker-0-first")
    assert "lunch" in world.phase("digits-1", "Stopped")["message"]


def test_another_writer_is_never_overwritten(world: World) -> None:
    """If another client has changed the status of a run, the operator does not overwrite the
    change: it reads the status again, and then writes its own changes.
    """
    up(world)
    run = copy.deepcopy(world.run("digits-1"))
    run["status"]["heals"] = 2
    # the lock holds the run's change back from the operator until the pod has failed
    with world.server.changed:
        world.server.put(f"{RUNS}/digits-1", run)
        world.pod("digits-1-worker", "failed", 0, "digits-1-worker-0-first")
    assert world.phase("digits-1", "Failed")["heals"] == 2


def test_who_does_not_lead_does_nothing(world: World) -> None:
    """An operator that lost its Lease writes and creates nothing."""
    world.leads = False
    world.launch("digits-1")
    time.sleep(0.5)  # a leading operator would have created a Job by now
    assert world.status("digits-1") == {}
    assert world.server.names("jobs") == []


class Says:
    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    def decide(self, cluster: object) -> Verdict:
        return self.verdict


def test_admission_is_asked_before_anything_is_made(world: World) -> None:
    """Admission decides before any object of a run is created. The message of a waiting run has the
    reason and the place in the queue; a refused run fails with all its problems.
    """
    world.admission = Says(Waiting(Message("TurnAfter", {"name": "digits-7"}), 3))
    world.operate()
    world.launch("digits-1")
    status = world.wait("digits-1", lambda s: s.get("message"))
    assert "its turn after digits-7 (place 3 in the queue)" in status["message"]
    assert world.server.names("jobs") == []
    world.admission = Says(Refused((Problem("spec.image", "x", "use one of: y"),)))
    world.operate()
    assert "use one of: y" in world.phase("digits-1", "Failed")["message"]
    assert world.server.names("configmaps") == []


def test_records_and_objects_go_in_their_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The objects of a finished run are deleted first; its record is deleted after `keepFor`."""
    monkeypatch.setattr("tfcluster_magic.operator.reconcile.retention.OBJECTS_STAY", 1.0)
    up(world, keep_for=600.0)
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    world.phase("digits-1", "Succeeded")
    wait_until(lambda: world.server.names("jobs") == [])
    assert world.server.names("services") == world.server.names("configmaps") == []
    run = copy.deepcopy(world.run("digits-1"))
    assert run["status"]["phase"] == "Succeeded"
    # keepFor is over now, so the record is due for deletion
    run["spec"]["lifecycle"]["keepForSeconds"] = 1
    world.server.put(f"{RUNS}/digits-1", run)
    wait_until(lambda: world.server.names("tfclusters") == [])


def test_statuses_are_written_together(world: World) -> None:
    """A hundred pods that become ready one after the other cause few writes, and the last state is
    written.
    """
    world.launch("digits-1", workers=100)
    wait_until(lambda: world.server.names("jobs") == ["digits-1-worker"])
    before = len(world.server.calls)
    began = time.monotonic()
    for index in range(100):
        world.pod("digits-1-worker", "running", index)
    status = world.phase("digits-1", "Running")
    assert status["counts"]["worker"] == {"desired": 100, "running": 100}
    patches = [path for method, path in world.server.calls[before:] if method == "PATCH"]
    assert len(patches) <= 5 + (time.monotonic() - began) / 0.25


def test_tasks_have_what_caches_leave_out(world: World) -> None:
    """Caches leave out environment, arguments and program; when the tasks of a run are created,
    these are read again.
    """
    asked = spec()
    assert asked.program is not None
    program = replace(asked.program, arguments=("--epochs", "3"))
    asked = replace(asked, env={"COLOUR": "green"}, program=program)
    world.server.put(f"{RUNS}/digits-1", custom_resource.write("digits", 1, asked))
    wait_until(lambda: world.server.names("jobs") == ["digits-1-worker"])
    assert world.controller is not None
    cached = world.controller.caches.runs.get("a", "digits-1")
    assert cached is not None
    assert "env" not in cached["spec"]
    assert "arguments" not in cached["spec"]["program"]
    (files,) = [found for where, found in world.server.objects.items() if "/configmaps/" in where]
    task = json.loads(files["data"]["task.json"])
    assert "green" in json.dumps(task) and "--epochs" in json.dumps(task)
