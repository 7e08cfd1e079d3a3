"""An operator with schedules, on a server that stores objects."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterator

import pytest
from support.kube_server import Refusal
from support.operator_world import RUNS
from support.polling import wait_until
from support.scheduled_operator import SCHEDULES, START, ScheduledWorld

from tfcluster_magic.kube.objects import custom_resource, schedule_resource


@pytest.fixture
def world() -> Iterator[ScheduledWorld]:
    made = ScheduledWorld()
    made.operate()
    yield made
    made.rest()
    for each in made.others:
        each.end()
    made.server.close()


def test_a_due_time_launches_one_run_that_knows_its_time(world: ScheduledWorld) -> None:
    """The run has the schedule's name and labels, and its placeholders are filled in. The
    schedule's status follows the run until its end.
    """
    world.create(timeZone="Asia/Shanghai")
    assert world.schedule()["status"]["nextTime"].endswith(":00Z")
    assert not world.runs()
    world.pass_to(START + 60)
    world.wait_for("nightly", lambda s: world.states() == ["Running"])
    assert world.runs() == ["nightly-1"]
    run = world.run("nightly-1")
    due = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(START + 60))
    assert run["metadata"]["labels"]["tfcluster.dev/schedule"] == "nightly"
    assert run["metadata"]["labels"]["tfcluster.dev/due"] == due
    assert run["spec"]["program"]["arguments"][1] == "04:27"
    assert run["spec"]["env"] == {"AT": ""}
    told = custom_resource.read(run).metadata.scheduled
    assert told is not None and told.local.endswith("T04:27:00+08:00")
    world.end("nightly-1")
    world.wait_for("nightly", lambda s: world.states() == ["Succeeded"])
    world.pass_to(START + 120)
    world.wait_for("nightly", lambda s: world.states() == ["Succeeded", "Running"])
    assert world.run("nightly-2")["spec"]["env"] == {"AT": "04:27"}
    conditions = {c["type"]: c["status"] for c in world.schedule()["status"]["conditions"]}
    assert conditions == {"Ready": "True", "Paused": "False"}


def test_its_task_reads_the_due_time(world: ScheduledWorld) -> None:
    """The tasks' configuration has the due time, which tasks get as TFCLUSTER_SCHEDULED_FOR."""
    world.create()
    world.pass_to(START + 60)
    wait_until(lambda: any("nightly-1" in name for name in world.server.names("configmaps")))
    (files,) = (
        found for where, found in world.server.objects.items() if "/configmaps/nightly-1" in where
    )
    assert '"scheduledFor":"2026-05-28T20:27:00+00:00"' in str(files["data"]).replace('": "', '":"')


def test_overlap_rules_hold(world: ScheduledWorld) -> None:
    """`Forbid` skips the due time; `Replace` first stops the active run, as its owner would, and
    then launches.
    """
    world.create("skips")
    world.create("replaces", overlap="Replace")
    world.pass_to(START + 60)
    wait_until(lambda: world.states("skips") == world.states("replaces") == ["Running"])
    world.pass_to(START + 120)
    wait_until(lambda: world.states("skips") == ["Running", "Skipped"])
    wait_until(lambda: world.run("replaces-1")["spec"].get("stop"))
    assert world.run("replaces-1")["spec"]["stop"]["by"] == "schedule replaces"
    assert world.states("replaces") == ["Running", "Waiting"]
    assert "stop" not in world.run("skips-1")["spec"]
    world.phase("replaces-1", "Stopped")
    wait_until(lambda: world.states("replaces") == ["Stopped", "Running"])
    assert world.runs() == ["replaces-1", "replaces-2", "skips-1"]


@pytest.mark.parametrize("taken", ["foreign", "deleted"])
def test_a_name_that_another_run_has_or_had_is_not_taken(world: ScheduledWorld, taken: str) -> None:
    """If a run launched by hand has, or had, the next name, the schedule takes the next number and
    does not change that run.
    """
    world.launch("nightly-7")
    if taken == "deleted":
        wait_until(lambda: world.controller and world.controller.caches.runs.get("a", "nightly-7"))
        world.server.remove(f"{RUNS}/nightly-7")
        assert world.controller is not None
        runs = world.controller.caches.runs
        wait_until(lambda: not runs.get("a", "nightly-7"))
    before = copy.deepcopy(world.server.objects.get(f"{RUNS}/nightly-7", {}).get("spec"))
    world.create()
    world.pass_to(START + 60)
    world.wait_for("nightly", lambda s: world.states() == ["Running"])
    assert "nightly-8" in world.runs()
    assert world.server.objects.get(f"{RUNS}/nightly-7", {}).get("spec") == before


def test_a_run_whose_answer_was_lost_is_not_launched_again(world: ScheduledWorld) -> None:
    """An existing run with the recorded name and the labels of the due time counts as the launch of
    that due time.
    """
    lost = []

    def loses(method: str, where: str) -> bool:
        is_it = method == "POST" and where == RUNS and not lost
        lost.extend([where] if is_it else [])
        return is_it

    world.server.loses = loses
    world.create()
    world.pass_to(START + 60)
    world.wait_for("nightly", lambda s: world.states() == ["Running"])
    assert lost and world.runs() == ["nightly-1"]


def test_an_operator_that_was_killed_after_the_note_is_followed_by_another(
    world: ScheduledWorld,
) -> None:
    """If an operator is killed after it named a run in the status, the next operator creates the
    run.
    """
    world.create()

    def refuses(method: str, where: str) -> Refusal | None:
        return Refusal(500, "InternalError") if (method, where) == ("POST", RUNS) else None

    world.server.refuses = refuses
    world.pass_to(START + 60)
    status = world.wait_for("nightly", lambda s: world.states() == ["Launching"])
    assert status["occurrences"][0]["run"] == "nightly-1" and not world.runs()
    world.rest()
    world.server.refuses = lambda _method, _path: None
    world.operate()
    world.wait_for("nightly", lambda s: world.states() == ["Running"])
    assert world.runs() == ["nightly-1"]


def test_a_run_that_is_deleted_at_once_is_not_launched_again(world: ScheduledWorld) -> None:
    """A user deletes a run before the schedule's status records its creation, and changes the
    schedule meanwhile. The run is not launched again, even if the response to its creation was
    lost.
    """
    posts: list[str] = []

    def loses(method: str, where: str) -> bool:
        if (method, where) != ("POST", RUNS):
            return False
        name = world.runs()[-1]
        posts.append(name)
        runs = world.controller.caches.runs if world.controller else None
        assert runs is not None
        wait_until(lambda: runs.get("a", name), "the watch has it")
        world.change(description=name)
        world.server.remove(f"{RUNS}/{name}")
        return len(posts) > 1

    world.server.loses = loses
    world.create()
    for number, states in ((1, ["Stopped"]), (2, ["Stopped", "Stopped"])):
        world.pass_to(START + 60 * number)
        world.wait_for("nightly", lambda s, states=states: world.states() == states)
    assert posts == ["nightly-1", "nightly-2"] and not world.runs()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_the_end_of_a_deleted_run_is_noted_if_it_was_seen(
    world: ScheduledWorld, phase: str
) -> None:
    """An operator that sees a run end before its deletion records the end; an operator that was
    away records an unknown end.
    """
    world.create()
    world.pass_to(START + 60)
    world.wait_for("nightly", lambda s: world.states() == ["Running"])
    held = threading.Event()

    def refuses(method: str, where: str) -> Refusal | None:
        is_ours = method == "PATCH" and where.startswith(SCHEDULES)
        return None if held.is_set() or not is_ours else Refusal(500, "InternalError")

    world.server.refuses = refuses
    world.end("nightly-1", phase)
    world.server.remove(f"{RUNS}/nightly-1")
    runs = world.controller.caches.runs if world.controller else None
    assert runs is not None
    wait_until(lambda: not runs.get("a", "nightly-1"))
    held.set()
    world.wait_for("nightly", lambda s: world.states() == [phase])
    world.pass_to(START + 120)
    world.wait_for("nightly", lambda s: world.states() == [phase, "Running"])
    world.rest()
    world.end("nightly-2", phase)
    world.server.remove(f"{RUNS}/nightly-2")
    world.operate()
    world.wait_for("nightly", lambda s: world.states() == [phase, "Unknown"])


def test_what_cel_cannot_check_is_said_and_launches_nothing(world: ScheduledWorld) -> None:
    """A wrong cron expression, time zone or template is reported in the condition `Ready`; the
    schedule starts once the mistake is corrected.
    """
    world.create("odd", cron="61 * * * *")
    world.create("zone", timeZone="Mars/Base")
    inline = {"inline": "print()", "arguments": ["{scheduled_for:%Q}"]}
    world.create("format", template={"spec": {"program": inline}})
    world.pass_to(START + 3600)
    for name, words in (("odd", "spec.cron"), ("zone", "spec.timeZone"), ("format", "%Q")):
        status = world.wait_for(name, lambda s: s.get("state") == "Invalid")
        (ready,) = (each for each in status["conditions"] if each["type"] == "Ready")
        assert ready["status"] == "False" and ready["reason"] == "InvalidSchedule"
        assert words in ready["message"], ready
    assert not world.runs()
    world.change("odd", cron="* * * * *")
    world.wait_for("odd", lambda s: s.get("state") == "Active")
    assert not world.runs(), "due times of the past were never due"
    world.pass_to(START + 3660)
    wait_until(lambda: world.runs() == ["odd-1"])


def test_a_pause_is_kept_and_not_caught_up(world: ScheduledWorld) -> None:
    """A pause is shown with its author and reason. After the pause, due times that fell into it are
    not caught up, not even with `catchUp: All`. `resumeTime` resumes a schedule that paused itself.
    """
    world.create(pauseAfter=1, catchUp="All")
    said = {"by": "ida", "reason": "repairs"}
    world.change(suspend=True, suspension=said)
    status = world.wait_for("nightly", lambda s: s.get("state") == "Paused")
    assert status["paused"]["by"] == "ida" and "nextTime" not in status
    world.pass_to(START + 600)
    world.change(suspend=False)
    world.wait_for("nightly", lambda s: s.get("state") == "Active")
    assert not world.runs()
    world.pass_to(START + 660)
    wait_until(lambda: world.states() == ["Running"])
    world.end("nightly-1", "Failed")
    status = world.wait_for("nightly", lambda s: s.get("state") == "Paused")
    assert world.states() == ["Failed"]
    assert "failed: it ended" in str(
        schedule_resource.read(world.schedule(), world.clock.now()).status.occurrences[0].reason
    )
    world.change(resumeTime="2027-01-01T00:00:00Z")
    world.wait_for("nightly", lambda s: s.get("state") == "Active" and not s.get("failures"))


def test_runs_and_backfills_that_are_asked_for_are_taken_once(world: ScheduledWorld) -> None:
    """`runTimes` and `backfills` of the spec are launched; a restarted operator launches none of
    them again.
    """
    world.create(cron="0 0 1 1 *", overlap="Allow")
    asked = "2026-05-28T20:27:00Z"
    world.change(runTimes=[asked])
    wait_until(lambda: world.states() == ["Running"])
    span = {"startTime": "2020-01-01T00:00:00Z", "endTime": "2023-01-01T00:00:00Z"}
    world.change(backfills=[{"number": 1, "requestTime": asked, "parallel": 2, **span}])
    wait_until(lambda: len(world.runs()) == 3)
    world.operate()
    for name in ("nightly-1", "nightly-2", "nightly-3"):
        world.end(name)
    wait_until(lambda: len(world.runs()) == 5)
    for name in ("nightly-4", "nightly-5"):
        world.end(name)
    status = world.wait_for("nightly", lambda s: s["backfills"][0].get("completionTime"))
    assert status["backfills"][0]["done"] == 4
    assert len(world.runs()) == 5


def test_a_refused_run_is_a_failure_and_a_full_quota_is_none(world: ScheduledWorld) -> None:
    """The cluster's admission policies apply to a schedule's runs: a refused run counts as failed.
    If a quota leaves no room for the record, the run waits.
    """
    words = "ValidatingAdmissionPolicy 'tfcluster-limits' denied request: never starts"
    answers = [Refusal(422, "Invalid", words), Refusal(403, "Forbidden", "exceeded quota: records")]

    def refuses(method: str, where: str) -> Refusal | None:
        return answers[0] if (method, where) == ("POST", RUNS) and answers else None

    world.server.refuses = refuses
    world.create()
    world.pass_to(START + 60)
    wait_until(lambda: world.states() == ["Failed"])
    answers.pop(0)
    world.pass_to(START + 120)
    wait_until(lambda: world.states() == ["Failed", "Waiting"])
    reason = schedule_resource.read(world.schedule(), 0.0).status.occurrences[1].reason
    assert "exceeded quota" in str(reason)
    answers.pop(0)
    world.pass_to(START + 155)
    wait_until(lambda: world.states() == ["Failed", "Running"])


def test_a_quiet_schedule_costs_no_request(world: ScheduledWorld) -> None:
    """Between due times, the operator sends no requests."""
    world.create(cron="0 0 1 1 *")
    world.pass_to(START + 1)
    before = len(world.server.calls)
    for second in range(2, 20):
        world.pass_to(START + second)
    assert world.controller is not None
    wait_until(lambda: world.controller and not len(world.controller.schedules.turns.work))
    about = [call for call in world.server.calls[before:] if "schedules" in call[1]]
    assert about == []


def test_a_deleted_schedule_leaves_its_runs(world: ScheduledWorld) -> None:
    """If a schedule is deleted, its active runs continue; schedules of the local backend behave
    alike.
    """
    world.create()
    world.pass_to(START + 60)
    wait_until(lambda: world.states() == ["Running"])
    world.server.remove(f"{SCHEDULES}/nightly")
    world.pass_to(START + 120)
    assert world.runs() == ["nightly-1"]
    assert "stop" not in world.run("nightly-1")["spec"]


def test_a_schedule_waits_for_the_run_of_another_of_the_same_time(world: ScheduledWorld) -> None:
    """A schedule launches its run when the awaited schedule's run for the same due time has
    succeeded. It skips a due time for which the awaited schedule has no run. If schedules wait for
    each other, their condition `Ready` says so until one of them no longer waits.
    """
    world.create("first")
    world.create("then", after=[{"schedule": "first"}])
    world.pass_to(START + 60)
    wait_until(lambda: world.states("first") == ["Running"])
    wait_until(lambda: world.states("then") == ["Waiting"])
    assert world.runs() == ["first-1"]
    world.end("first-1")
    wait_until(lambda: world.states("then") == ["Running"])
    world.end("then-1")
    wait_until(lambda: world.states("then") == ["Succeeded"])
    world.change("first", suspend=True)
    world.wait_for("first", lambda status: status.get("state") == "Paused")
    world.pass_to(START + 120)
    wait_until(lambda: world.states("then") == ["Succeeded", "Skipped"])
    why = world.schedule("then")["status"]["occurrences"][-1]["reason"]
    assert why["code"] == "ScheduleAwaitedPaused"
    world.change("first", suspend=False, after=[{"schedule": "then", "until": "End"}])
    for name in ("first", "then"):
        world.wait_for(name, lambda status: status.get("state") == "Invalid")
    assert "then → first → then" in world.schedule("then")["status"]["problem"]
    world.change("first", after=[])
    for name in ("first", "then"):
        world.wait_for(name, lambda status: status.get("state") == "Active")
