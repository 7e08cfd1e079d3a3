"""A schedule that takes advice on Kubernetes, where the reports of ended tasks change the next
run.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from support.kube_server import Object, Refusal
from support.operator_world import JOBS, PODS, RUNS
from support.polling import wait_until
from support.scheduled_operator import START, ScheduledWorld

from tfcluster_magic.kube.objects import custom_resource

HEAD = '{"v":1,"at":1800000000,"attempt":1}\n'
IDLE = HEAD + "[20,100,1600]\n" * 30
"""The usage report of a task that used half a core and 100 MiB of memory for a minute."""


@pytest.fixture
def world() -> Iterator[ScheduledWorld]:
    made = ScheduledWorld()
    status = made.server.objects["/api/v1/nodes/node-1"]["status"]
    status["allocatable"] = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    made.operate()
    yield made
    made.rest()
    made.server.close()


def create(world: ScheduledWorld, memory: str, ps: int = 0, **more: Any) -> None:
    each = {"resources": {"memory": memory}}
    replicas = {"worker": {"count": 1, **each}, "ps": {"count": ps, **each}}
    spec = {
        "program": {"inline": "print('hello')"},
        "replicas": replicas,
        "lifecycle": {"reclaimAfterSeconds": 0},
    }
    world.create(template={"spec": spec}, **({"advised": True} | more))


def launch(world: ScheduledWorld, number: int) -> None:
    """Let the next due time come, and wait for its Job."""
    world.pass_to(START + 60 * number)
    wait_until(lambda: f"{JOBS}/nightly-{number}-worker" in world.server.objects)


def end(world: ScheduledWorld, job: str, usage: str, recorded: str = "succeeded") -> str:
    """End the pod of a Job as a kubelet does, with a report of its usage; return its name."""
    name = world.pod(job, "running")
    world.pod(job, recorded, 0, name)
    with world.server.changed:
        found = copy.deepcopy(world.server.objects[f"{PODS}/{name}"])
        (container,) = found["status"]["containerStatuses"]
        ended = container["state"]["terminated"]
        ended["message"] = f"{ended.get('message', '')}\n{usage}"
        world.server.put(f"{PODS}/{name}", found)
    return name


def memory(world: ScheduledWorld, run: str, task_type: str = "worker") -> str:
    text: str = world.run(run)["spec"]["replicas"][task_type]["resources"]["memory"]
    return text


def occurrence(world: ScheduledWorld, number: int) -> Object:
    found: Object = world.schedule()["status"]["occurrences"][number - 1]
    return found


def test_the_next_run_gets_what_tasks_reported(world: ScheduledWorld) -> None:
    """A run of a schedule that takes advice asks its tasks for reports. The advice is in the
    schedule's status before the next due time, and afterwards in the next run and in the history.
    """
    create(world, "8Gi")
    launch(world, 1)
    (files,) = (f for where, f in world.server.objects.items() if "/configmaps/nightly-1" in where)
    assert '"reportsUsage":true' in str(files["data"]).replace(" ", "")
    end(world, "nightly-1-worker", IDLE)
    status = world.wait_for("nightly", lambda s: s.get("judged") == "nightly-1")
    (advised,) = status["advised"]
    assert (advised["option"], advised["own"], advised["value"]) == ("worker_memory", "8Gi", "4Gi")
    assert (advised["run"], advised["why"]["code"]) == ("nightly-1", "AdviceMemoryTooHigh")
    launch(world, 2)
    assert (memory(world, "nightly-1"), memory(world, "nightly-2")) == ("8Gi", "4Gi")
    told = custom_resource.read(world.run("nightly-2")).metadata.scheduled
    assert told is not None
    assert [each.change for each in told.advised or ()] == ["--worker-memory 8Gi → 4Gi"]
    world.wait_for("nightly", lambda s: world.states() == ["Succeeded", "Running"])
    assert occurrence(world, 2)["advice"]["code"] == "ScheduleAdvised"
    assert "advice" not in occurrence(world, 1)


def test_parameter_servers_count_although_their_pods_are_deleted(world: ScheduledWorld) -> None:
    """Advice on a run is computed when all its tasks are gone. The report of a pod that was deleted
    earlier is kept until then.
    """
    create(world, "8Gi", ps=1)
    launch(world, 1)
    wait_until(lambda: f"{JOBS}/nightly-1-ps" in world.server.objects)
    server = world.pod("nightly-1-ps", "running")
    end(world, "nightly-1-worker", IDLE)
    wait_until(lambda: world.job("nightly-1-ps")["spec"]["suspend"], "it is reclaimed")
    assert not world.schedule()["status"].get("judged")
    world.server.remove(f"{PODS}/{server}")
    name = end(world, "nightly-1-ps", IDLE, "failed")
    pods = world.controller.caches.pods if world.controller else None
    assert pods is not None
    wait_until(lambda: pods.get("a", name))
    world.server.remove(f"{PODS}/{name}")
    status = world.wait_for("nightly", lambda s: s.get("judged") == "nightly-1")
    assert sorted(each["option"] for each in status["advised"]) == ["ps_memory", "worker_memory"]


def test_without_the_option_nothing_is_reported_or_changed(world: ScheduledWorld) -> None:
    """If a schedule takes no advice, a report that a program forged changes no run."""
    create(world, "8Gi", advised=False)
    launch(world, 1)
    (files,) = (f for where, f in world.server.objects.items() if "/configmaps/nightly-1" in where)
    assert "reportsUsage" not in str(files["data"])
    end(world, "nightly-1-worker", IDLE)
    world.wait_for("nightly", lambda s: world.states() == ["Succeeded"])
    launch(world, 2)
    assert memory(world, "nightly-2") == "8Gi"
    assert "judged" not in world.schedule()["status"]


@pytest.mark.parametrize("refused_by", ["a limit", "the API"])
def test_a_change_that_would_be_refused_does_not_prevent_the_launch(
    world: ScheduledWorld, refused_by: str
) -> None:
    """If the advised change would be refused, the run is launched as the schedule says; the history
    and the run's warnings have the reason.
    """
    create(world, "1Gi")
    launch(world, 1)
    if refused_by == "a limit":
        limits = [{"type": "Container", "max": {"memory": "1200Mi"}}]
        world.server.put(
            "/api/v1/namespaces/a/limitranges/most", {"spec": {"limits": limits}, "metadata": {}}
        )
        ranges = world.controller.scheduler.cluster_state.ranges if world.controller else None
        assert ranges is not None
        wait_until(lambda: ranges.of("a"))
    else:
        refusals = iter([Refusal(422, "Invalid", "nothing above 1Gi, says a webhook")])

        def refuses(method: str, where: str) -> Refusal | None:
            return next(refusals, None) if (method, where) == ("POST", RUNS) else None

        world.server.refuses = refuses
    end(world, "nightly-1-worker", "", "oom")
    status = world.wait_for("nightly", lambda s: s.get("judged") == "nightly-1")
    assert [each["value"] for each in status["advised"]] == ["1536Mi"]
    launch(world, 2)
    assert memory(world, "nightly-2") == "1Gi"
    world.wait_for("nightly", lambda s: world.states() == ["Failed", "Running"])
    advice = occurrence(world, 2)["advice"]
    assert advice["code"] == "ScheduleAdviceRefused"
    (warning,) = custom_resource.read(world.run("nightly-2")).status.warnings
    assert warning.startswith("Launched without the advised --worker-memory 1Gi → 1536Mi: ")
    assert ("1200Mi" if refused_by == "a limit" else "says a webhook") in warning


def test_a_run_is_looked_at_by_the_next_operator(world: ScheduledWorld) -> None:
    """If no operator was running when a run ended, the next operator reads the reports of the run's
    pods.
    """
    create(world, "8Gi")
    launch(world, 1)
    name = world.pod("nightly-1-worker", "running")
    world.phase("nightly-1", "Running")
    world.rest()
    world.server.remove(f"{PODS}/{name}")
    end(world, "nightly-1-worker", IDLE)
    world.operate()
    status = world.wait_for("nightly", lambda s: s.get("judged") == "nightly-1")
    assert [each["value"] for each in status["advised"]] == ["4Gi"]


def test_a_reduced_template_ends_the_advice(world: ScheduledWorld) -> None:
    """If the owner sets a smaller value in the template, this value counts at once, and the advice
    ends.
    """
    create(world, "8Gi")
    launch(world, 1)
    end(world, "nightly-1-worker", IDLE)
    world.wait_for("nightly", lambda s: s.get("judged") == "nightly-1")
    template = copy.deepcopy(world.schedule()["spec"]["template"])
    template["spec"]["replicas"]["worker"]["resources"]["memory"] = "2Gi"
    world.change(template=template)
    launch(world, 2)
    assert memory(world, "nightly-2") == "2Gi"
    world.wait_for("nightly", lambda s: world.states() == ["Succeeded", "Running"])
    assert "advice" not in occurrence(world, 2)
