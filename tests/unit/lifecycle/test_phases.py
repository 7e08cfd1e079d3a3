"""The lifecycle's rules one by one: success, limits, stops."""

from __future__ import annotations

import msgspec
import pytest
from support.lifecycle_simulation import Story, spec_of

from tfcluster_magic.lifecycle import WaitingReason
from tfcluster_magic.spec import (
    Cause,
    FoundCheckpoint,
    Lifecycle,
    Message,
    Mode,
    Phase,
    Reason,
    Stop,
    SuccessPolicy,
)


def test_a_cluster_whose_tasks_are_up_is_running() -> None:
    """Starting becomes Running when every task is ready."""
    story = Story(spec_of())
    assert story.status.phase is Phase.RUNNING
    assert sorted(story.tasks) == ["ps-0", "worker-0", "worker-1"]
    assert story.status.counts["worker"].running == 2


def test_parameter_servers_are_reclaimed_after_success() -> None:
    """Thirty seconds after the last worker's success the parameter servers are gone, and the record
    says so.
    """
    story = Story(spec_of())
    story.ends("worker-0", Cause.COMPLETED, exit_code=0)
    assert story.status.phase is Phase.RUNNING
    story.ends("worker-1", Cause.COMPLETED, exit_code=0)
    assert story.outcome == (Phase.SUCCEEDED, Reason.COMPLETED, None)
    assert story.decision.wake_at == story.now + 30
    story.passes(29)
    assert story.running() == ["ps-0"] and not story.decision.done
    story.passes(1)
    assert story.decision.done and story.running() == []
    assert story.status.reclaimed is not None
    assert story.status.reclaimed.tasks == ("ps-0",)
    assert story.status.reclaimed.at == story.now
    assert story.status.message == "worker-0, worker-1 finished successfully."


def test_a_success_that_trained_nothing_says_so_to_the_end() -> None:
    """What a worker found and did not go beyond stands in the sentence, also after the reclaim."""
    story = Story(spec_of())
    found = FoundCheckpoint(checkpoint="model.ckpt-800", folder="/m", run="old-1", steps=1)
    story.ends("worker-0", Cause.COMPLETED, exit_code=0, found=found)
    story.ends("worker-1", Cause.COMPLETED, exit_code=0)
    said = "It found the checkpoint at step 800 of old-1 in /m, so it had nothing left to do"
    assert said in story.status.message
    story.passes(30)
    assert story.decision.done
    assert said in story.status.message and "trained 1 step" in story.status.message


def test_where_results_are_is_said_once() -> None:
    """A folder of several tasks is one event; what goes with a pod is one warning, too."""
    story = Story(spec_of())
    for task in ("worker-0", "worker-1"):
        story.ends(task, Cause.COMPLETED, exit_code=0, wrote=("/w/logs",), lost=("/tmp/m",))
        story.passes(1)
    codes = [message.code for event in story.status.events for message in event.messages]
    assert (codes.count("WritesElsewhere"), codes.count("WritesLost")) == (1, 1)
    (warning,) = story.status.warnings
    assert warning.startswith("worker-0 writes to /tmp/m, on the disk of its pod")


def test_a_stop_after_success_reclaims_at_once() -> None:
    """Stopping a run that has succeeded gives its parameter servers back now and keeps it
    Succeeded.
    """
    story = Story(spec_of())
    for task in ("worker-0", "worker-1"):
        story.ends(task, Cause.COMPLETED, exit_code=0)
    story.spec = msgspec.structs.replace(story.spec, stop=Stop())
    story.passes(1)
    assert story.status.phase is Phase.SUCCEEDED and story.decision.done


def test_the_chiefs_success_is_enough_when_asked_for() -> None:
    """With successPolicy chief the run succeeds with the chief, and the workers are stopped at
    once.
    """
    spec = spec_of(lifecycle=Lifecycle(success_policy=SuccessPolicy.CHIEF), chief=1, worker=2, ps=1)
    story = Story(spec)
    story.ends("chief-0", Cause.COMPLETED, exit_code=0)
    assert story.status.phase is Phase.SUCCEEDED
    assert story.running() == ["ps-0"]


def test_start_timeout_names_who_is_missing() -> None:
    """A cluster that does not come up fails after startTimeout and says who is missing."""
    story = Story(spec_of(lifecycle=Lifecycle(start_timeout=60)), admitted=True, obeys=False)
    assert story.status.message == "Waiting for worker-0, worker-1, ps-0 to start (0 of 3 ready)."
    story.obeys = True
    story.passes(60)
    assert story.outcome == (Phase.FAILED, Reason.START_TIMEOUT, "worker-0")
    assert "worker-0, worker-1, ps-0 did not come up within 1m" in story.status.message


def test_what_the_world_knows_of_a_start_is_told() -> None:
    """Why tasks are not up stands in the message, beside each task, and in what a timeout says."""
    story = Story(spec_of(lifecycle=Lifecycle(start_timeout=60)), admitted=True, obeys=False)
    story.why = (
        WaitingReason(
            tasks=("worker-0", "worker-1"),
            text=Message("NoRoomForAll"),
            sentence=Message(
                "TasksWait", {"who": "2 workers", "why": Message("NoRoomForAll"), "count": 2}
            ),
        ),
    )
    story.passes(1)
    room = "there is no room for all tasks together yet"
    assert story.status.message == (
        f"Waiting for worker-0, worker-1, ps-0 to start (0 of 3 ready). 2 workers wait: {room}."
    )
    told = {task.name: task.message for task in story.status.attention}
    assert told == {"worker-0": room, "worker-1": room, "ps-0": ""}
    story.passes(60)
    told_late = f"did not come up within 1m: 2 workers wait: {room}. Its output"
    assert told_late in story.status.message


@pytest.mark.parametrize(
    ("limits", "ready"),
    [
        (Lifecycle(start_timeout=3), False),
        (Lifecycle(start_timeout=8, restarts=1), False),
        (Lifecycle(max_duration=8, restarts=1), True),
    ],
)
def test_a_limit_reached_amid_a_failure_blames_the_failure(limits: Lifecycle, ready: bool) -> None:
    """When time runs out while a failure is looked into or retried, that failure is the cause."""
    story = Story(spec_of(lifecycle=limits), obeys=ready)
    story.obeys = True
    story.ends("worker-0", Cause.ERROR, exit_code=1, follows=True)
    story.ends("worker-1", Cause.OOM, exit_code=137)
    story.passes(8)
    assert story.outcome == (Phase.FAILED, Reason.OOM_KILLED, "worker-1")
    assert story.decision.done


@pytest.mark.parametrize(
    ("limits", "reason", "culprit"),
    [
        (Lifecycle(start_timeout=10), Reason.START_TIMEOUT, "worker-0"),
        (Lifecycle(max_duration=10), Reason.MAX_DURATION, None),
    ],
)
def test_a_limit_reached_after_a_healing_blames_nothing_that_was_healed(
    limits: Lifecycle, reason: Reason, culprit: str | None
) -> None:
    """A task that was ended and started again is not why a run reaches a limit later."""
    story = Story(spec_of(lifecycle=limits), obeys=False)
    story.ends("ps-0", Cause.KILLED, signal=9)
    story.ends("worker-0", Cause.ERROR, exit_code=1, follows=True)
    assert story.status.reason is Reason.HEALING
    story.obeys = True
    story.passes(10)
    assert story.outcome == (Phase.FAILED, reason, culprit)
    assert story.status.failures == ()


@pytest.mark.parametrize(
    ("mode", "phase"), [(Mode.BETWEEN_GRAPH, Phase.FAILED), (Mode.IN_GRAPH, Phase.STOPPED)]
)
def test_max_duration_ends_a_run(mode: Mode, phase: Phase) -> None:
    """A program that is not finished in time has failed; servers were only lent."""
    story = Story(spec_of(mode, Lifecycle(max_duration=100)))
    story.passes(100)
    assert story.status.phase is phase and story.status.reason is Reason.MAX_DURATION
    assert story.decision.done


def test_idle_servers_are_stopped() -> None:
    """An In-Graph cluster that nobody uses ends after idleTimeout, counted from its last user."""
    story = Story(spec_of(Mode.IN_GRAPH))
    start = story.now
    for name, since in (("ps-0", 5.0), ("worker-0", 10.0)):
        story.tasks[name] = msgspec.structs.replace(story.tasks[name], idle_since=start + since)
    story.passes(4000)
    assert story.status.phase is Phase.RUNNING
    story.tasks["worker-1"] = msgspec.structs.replace(story.tasks["worker-1"], idle_since=story.now)
    story.passes(3599)
    assert story.status.phase is Phase.RUNNING
    story.passes(1)
    assert story.status.phase is Phase.STOPPED and story.status.reason is Reason.IDLE_TIMEOUT


def test_stop_wins_over_healing() -> None:
    """A task that dies after a stop was asked for is not restarted."""
    story = Story(spec_of())
    story.obeys = False
    story.spec = msgspec.structs.replace(story.spec, stop=Stop(reason="enough", by="ada"))
    story.turn()
    assert story.status.phase is Phase.STOPPING
    story.ends("worker-0", Cause.KILLED, signal=9)
    assert not story.decision.start
    story.obeys = True
    story.turn()
    assert story.outcome == (Phase.STOPPED, Reason.STOP_REQUESTED, None)
    assert story.status.message == "Ended by ada: enough."


def test_a_parameter_server_that_leaves_early_is_named() -> None:
    """Workers cannot finish without a parameter server: one that exits 0 by itself is the cause."""
    story = Story(spec_of())
    story.ends("ps-0", Cause.COMPLETED, exit_code=0)
    story.passes(59)
    assert story.status.phase is Phase.RUNNING
    story.passes(1)
    assert story.outcome == (Phase.FAILED, Reason.PS_EXITED, "ps-0")


def test_queued_waits_and_gives_up_after_its_time_out() -> None:
    """A run that is not admitted says what it waits for, and ends after queueTimeout."""
    story = Story(spec_of(lifecycle=Lifecycle(queue_timeout=50)), admitted=False, obeys=True)
    assert story.status.phase is Phase.QUEUED and not story.tasks
    story.passes(50)
    assert story.status.reason is Reason.QUEUE_TIMEOUT and story.decision.done


def test_tasks_that_came_up_while_nobody_looked_did_start() -> None:
    """When the first look after startTimeout finds every task up the run is Running."""
    story = Story(spec_of(lifecycle=Lifecycle(start_timeout=60)), obeys=False)
    story.tasks = {
        name: msgspec.structs.replace(task, ready=True) for name, task in story.tasks.items()
    }
    story.passes(61)
    assert story.status.phase is Phase.RUNNING
    assert story.status.reason is Reason.RUNNING
