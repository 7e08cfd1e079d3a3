"""The lifecycle's rules one by one: success, limits, stops."""

from __future__ import annotations

import time

import msgspec
import pytest
from support.lifecycle_simulation import Story, spec_of

from tfcluster_magic.lifecycle import WaitingReason, messages
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
    """The phase changes from Starting to Running when every task is ready."""
    story = Story(spec_of())
    assert story.status.phase is Phase.RUNNING
    assert sorted(story.tasks) == ["ps-0", "worker-0", "worker-1"]
    assert story.status.counts["worker"].running == 2


def test_parameter_servers_are_reclaimed_after_success() -> None:
    """Parameter servers are reclaimed thirty seconds after the last worker's success, and the
    record says so.
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
    """If a worker had nothing left to train, the message names the checkpoint with which it began,
    also after the reclaim.
    """
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
    """The output folder of several tasks is reported in one event; a folder that is deleted with
    its pod is also named in a warning.
    """
    story = Story(spec_of())
    for task in ("worker-0", "worker-1"):
        story.ends(task, Cause.COMPLETED, exit_code=0, wrote=("/w/logs",), lost=("/tmp/m",))
        story.passes(1)
    codes = [message.code for event in story.status.events for message in event.messages]
    assert (codes.count("WritesElsewhere"), codes.count("WritesLost")) == (1, 1)
    (warning,) = story.status.warnings
    assert warning.startswith("worker-0 writes to /tmp/m on the disk of its pod")


def test_a_stop_after_success_reclaims_at_once() -> None:
    """Stopping a successful run reclaims its parameter servers at once, and the run stays
    Succeeded.
    """
    story = Story(spec_of())
    for task in ("worker-0", "worker-1"):
        story.ends(task, Cause.COMPLETED, exit_code=0)
    story.spec = msgspec.structs.replace(story.spec, stop=Stop())
    story.passes(1)
    assert story.status.phase is Phase.SUCCEEDED and story.decision.done


def test_the_chiefs_success_is_enough_when_asked_for() -> None:
    """With the success policy `chief`, the run succeeds when the chief does, and the workers are
    stopped at once.
    """
    spec = spec_of(lifecycle=Lifecycle(success_policy=SuccessPolicy.CHIEF), chief=1, worker=2, ps=1)
    story = Story(spec)
    story.ends("chief-0", Cause.COMPLETED, exit_code=0)
    assert story.status.phase is Phase.SUCCEEDED
    assert story.running() == ["ps-0"]


@pytest.mark.parametrize(
    ("policy", "chief", "ends_with"),
    [
        (None, 1, "chief-0"),
        (None, 0, "worker-1"),
        (SuccessPolicy.ALL, 1, "worker-1"),
        (SuccessPolicy.CHIEF, 0, "worker-0"),
    ],
)
def test_the_chief_decides_where_there_is_one(
    policy: SuccessPolicy | None, chief: int, ends_with: str
) -> None:
    """By default, a run with a chief succeeds when the chief does, and a run without a chief when
    all workers do. `successPolicy` overrides both defaults.
    """
    spec = spec_of(lifecycle=Lifecycle(success_policy=policy), chief=chief, worker=2, ps=1)
    story = Story(spec)
    for task in [*(["chief-0"] if chief else []), "worker-0", "worker-1"]:
        assert story.status.phase is Phase.RUNNING
        story.ends(task, Cause.COMPLETED, exit_code=0)
        if task == ends_with:
            break
    assert story.status.phase is Phase.SUCCEEDED


def test_workers_that_a_chief_has_left_may_end_by_themselves() -> None:
    """If the chief's success decides by default, the workers have the time `reclaimAfter` to
    end.
    """
    story = Story(spec_of(chief=1, worker=2, ps=1))
    story.ends("chief-0", Cause.COMPLETED, exit_code=0)
    assert story.status.phase is Phase.SUCCEEDED
    assert story.running() == ["worker-0", "worker-1", "ps-0"]
    story.ends("worker-0", Cause.COMPLETED, exit_code=0)
    story.passes(30)
    assert story.decision.done and story.running() == []
    counts = story.status.counts["worker"]
    assert (counts.succeeded, counts.stopped) == (1, 1)


def test_who_waits_for_whom_is_told() -> None:
    """If one worker has finished and the others do nothing, the message says within a minute which
    task waits for which task, since when, and what to do. The message disappears once the workers
    continue.
    """
    story = Story(spec_of())
    story.passes(20)
    story.ends("worker-0", Cause.COMPLETED, exit_code=0)
    clock = time.strftime("%H:%M", time.localtime(story.now))
    story.falls_quiet("ps-0")
    story.falls_quiet("worker-1", peer="worker-0", words="CreateSession still waiting")
    assert story.decision.wake_at == story.now + 30
    story.passes(30)
    assert (story.status.phase, story.status.reason) == (Phase.RUNNING, Reason.STALLED)
    assert story.status.message == (
        f"Since {clock}, worker-1 has printed nothing, written no event file and used "
        f"almost no CPU. worker-1 waits for worker-0, which finished at {clock}. "
        "Where each task is in its code: `tfcluster stack digits-2`. If "
        "you expect nothing more from it, end it: `tfcluster stop digits-2`. With --success-policy "
        "chief a run succeeds when worker-0 does; with --stall-timeout 10m it ends when nothing "
        "happens."
    )
    story.passes(30)
    assert [e.reason for e in story.status.events].count("Stalled") == 1
    story.works("worker-1")
    assert story.status.reason is Reason.RUNNING
    assert "worker-0 finished" in story.status.message


def test_all_may_wait_for_their_data() -> None:
    """If no task has finished, a standstill is reported only after a minute, because all tasks may
    wait for data.
    """
    story = Story(spec_of(worker=2))
    story.falls_quiet("worker-0", "worker-1")
    story.passes(59)
    assert story.status.reason is Reason.RUNNING
    story.passes(1)
    assert story.status.reason is Reason.STALLED
    assert "worker-0, worker-1 have printed nothing, written no event" in story.status.message


def test_one_that_works_is_enough() -> None:
    """As long as one task works, or it is unknown whether it works, no standstill is reported, and
    the time `stallTimeout` does not begin.
    """
    story = Story(spec_of(lifecycle=Lifecycle(stall_timeout=60)))
    story.ends("worker-0", Cause.COMPLETED, exit_code=0)
    story.falls_quiet("worker-1")
    story.passes(600)
    assert (story.status.phase, story.status.reason) == (Phase.RUNNING, Reason.RUNNING)
    story.falls_quiet("ps-0")
    story.passes(59)
    assert story.status.reason is Reason.STALLED and story.status.phase is Phase.RUNNING


def test_a_standstill_is_ended_when_that_is_asked_for() -> None:
    """After `stallTimeout`, the run ends as Stalled, and the message names a task that waits for a
    finished task.
    """
    story = Story(spec_of(lifecycle=Lifecycle(stall_timeout=120), ps=1, worker=3))
    story.ends("worker-0", Cause.COMPLETED, exit_code=0)
    story.falls_quiet("ps-0", "worker-1")
    story.falls_quiet("worker-2", peer="worker-0")
    story.passes(119)
    assert story.status.phase is Phase.RUNNING
    story.passes(1)
    assert story.outcome == (Phase.FAILED, Reason.STALLED, "worker-2")
    assert "Nothing has happened for 2m (--stall-timeout)" in story.status.message
    assert "worker-2 waits for worker-0, which finished" in story.status.message
    assert "`tfcluster logs digits-2 worker-2`" in story.status.message
    assert story.decision.done and story.running() == []


def test_what_was_read_late_counts_as_far_as_it_was_read() -> None:
    """If logs are read rarely, a standstill counts only up to the last time at which they were
    read.
    """
    story = Story(spec_of(lifecycle=Lifecycle(stall_timeout=100), worker=2))
    story.ends("worker-0", Cause.COMPLETED, exit_code=0)
    since = story.now
    story.falls_quiet("worker-1", until=since + 40)
    story.passes(200)
    assert (story.status.phase, story.status.reason) == (Phase.RUNNING, Reason.STALLED)
    story.falls_quiet("worker-1", since=since, until=since + 100)
    assert story.outcome == (Phase.FAILED, Reason.STALLED, "worker-1")


def test_a_task_that_began_late_has_its_time() -> None:
    """A run that does not start in time fails at `startTimeout`; if the pod of a task came late,
    half of `startTimeout` is added.
    """
    spec = spec_of(lifecycle=Lifecycle(start_timeout=100), worker=1)
    story = Story(spec, obeys=False)
    story.passes(90)
    began = msgspec.structs.replace(story.tasks["worker-0"], began=story.now)
    story.tasks["worker-0"] = began
    story.passes(30)
    assert story.status.phase is Phase.STARTING
    story.passes(25)
    assert story.outcome == (Phase.FAILED, Reason.START_TIMEOUT, "worker-0")


def test_how_a_task_counts_as_started_is_a_warning() -> None:
    """A task that counts as started although its own port is closed is named in a warning, once for
    each reason.
    """
    story = Story(spec_of(worker=3))
    odd = messages.start_oddity("worker-0", "ports", 2222, [18888], 0, 0)
    more = messages.start_oddity("worker-1", "ports", 2222, [18889], 0, 0)
    for task, oddity in (("worker-0", odd), ("worker-1", more)):
        story.tasks[task] = msgspec.structs.replace(story.tasks[task], oddity=oddity)
    story.passes(1)
    (warning,) = story.status.warnings
    assert warning.startswith("worker-0 does not listen on its own port 2222, but on port 18888")
    story.passes(1)
    assert len(story.status.warnings) == 1


@pytest.mark.parametrize("first", ["evaluator-0", "worker-0"])
def test_an_evaluator_that_fails_decides_nothing(first: str) -> None:
    """A run whose training succeeds has succeeded, whether its evaluator failed before or after.
    The message says how the evaluator ended.
    """
    story = Story(spec_of(worker=1, evaluator=1))
    broken = {"exit_code": 1, "last_lines": ("Traceback", "KeyError: 'evaluator'")}
    ends = {"worker-0": (Cause.COMPLETED, {"exit_code": 0}), "evaluator-0": (Cause.ERROR, broken)}
    for task in (first, *(ends.keys() - {first})):
        cause, how = ends[task]
        story.ends(task, cause, **how)
        story.passes(25)
    assert story.outcome == (Phase.SUCCEEDED, Reason.COMPLETED, None)
    assert story.decision.done
    assert story.status.message == (
        "worker-0 finished successfully; the evaluator failed: KeyError: 'evaluator'."
    )


def test_a_failed_evaluator_is_told_while_training_goes_on() -> None:
    """The message of a continuing run says that its evaluator failed; the evaluator is restarted
    only while retries are left.
    """
    story = Story(spec_of(lifecycle=Lifecycle(restarts=1), worker=1, evaluator=1))
    story.ends("evaluator-0", Cause.ERROR, exit_code=1, last_lines=("ValueError: x",))
    assert story.running() == ["worker-0"]
    story.passes(10)
    assert story.tasks["evaluator-0"].attempt == 2
    story.ends("evaluator-0", Cause.ERROR, exit_code=1, last_lines=("ValueError: x",))
    story.passes(600)
    assert story.status.phase is Phase.RUNNING and story.status.reason is Reason.RUNNING
    assert story.status.message == "1 task is running; the evaluator failed: ValueError: x."
    assert story.tasks["evaluator-0"].attempt == 2


def test_a_disrupted_evaluator_is_healed() -> None:
    """An evaluator that was killed from outside is restarted up to the limit."""
    story = Story(spec_of(lifecycle=Lifecycle(heals=1), worker=1, evaluator=1))
    story.ends("evaluator-0", Cause.KILLED, signal=9)
    assert story.status.heals == 1 and story.tasks["evaluator-0"].attempt == 2
    story.ends("evaluator-0", Cause.KILLED, signal=9)
    story.passes(60)
    assert story.status.phase is Phase.RUNNING and story.running() == ["worker-0"]
    assert "evaluator-0 was killed from outside (SIGKILL)" in story.status.message


@pytest.mark.parametrize(
    ("quiet", "said"),
    [
        (True, "the evaluator was stopped after its last evaluation"),
        (False, "the evaluator was stopped while it worked: raise --reclaim-after"),
    ],
)
def test_an_evaluator_has_its_time_after_success(quiet: bool, said: str) -> None:
    """After a success, the evaluator has the time `reclaimAfter` to finish, and the message says
    how it ended.
    """
    story = Story(spec_of(worker=1, evaluator=1))
    story.ends("worker-0", Cause.COMPLETED, exit_code=0)
    assert "evaluator-0 will be reclaimed 30s later" in story.status.message
    story.passes(29)
    assert story.running() == ["evaluator-0"]
    if quiet:
        story.falls_quiet("evaluator-0")
    story.passes(1)
    assert story.decision.done and story.status.phase is Phase.SUCCEEDED
    assert story.status.message.startswith(f"worker-0 finished successfully; {said}")


def test_an_evaluator_that_ends_by_itself_is_done() -> None:
    """An evaluator that exits with 0 has finished, whether this is before or after the other
    tasks.
    """
    story = Story(spec_of(worker=1, evaluator=1))
    story.ends("evaluator-0", Cause.COMPLETED, exit_code=0)
    story.passes(60)
    assert story.status.phase is Phase.RUNNING
    story.ends("worker-0", Cause.COMPLETED, exit_code=0)
    assert story.decision.done
    assert story.status.message == "worker-0 finished successfully; the evaluator finished, too."


def test_nobody_waits_for_an_evaluator_beyond_the_start() -> None:
    """An evaluator that does not start within `startTimeout` does not stop the training."""
    story = Story(
        spec_of(lifecycle=Lifecycle(start_timeout=60), worker=1, evaluator=1), obeys=False
    )
    story.tasks["worker-0"] = msgspec.structs.replace(story.tasks["worker-0"], ready=True)
    story.passes(59)
    assert story.status.phase is Phase.STARTING
    story.passes(1)
    assert story.status.phase is Phase.RUNNING
    story.ends("worker-0", Cause.COMPLETED, exit_code=0)
    assert story.status.phase is Phase.SUCCEEDED


def test_start_timeout_names_who_is_missing() -> None:
    """A run that does not start fails after `startTimeout`, and the message names the missing
    tasks.
    """
    story = Story(spec_of(lifecycle=Lifecycle(start_timeout=60)), admitted=True, obeys=False)
    assert story.status.message == "Waiting for worker-0, worker-1, ps-0 to start (0 of 3 ready)."
    story.obeys = True
    story.passes(60)
    assert story.outcome == (Phase.FAILED, Reason.START_TIMEOUT, "worker-0")
    assert "worker-0, worker-1, ps-0 did not come up within 1m" in story.status.message


def test_what_the_world_knows_of_a_start_is_told() -> None:
    """The message of a run has the reason why each task has not started; the message of a timeout
    has these reasons, too.
    """
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


def test_an_image_that_no_registry_has_is_not_waited_for() -> None:
    """If a task's image is missing, the run fails `imageTimeout` after the task got a node, with
    the image and the registry's message. An image that is being pulled has the time `startTimeout`.
    """
    story = Story(spec_of(lifecycle=Lifecycle(image_timeout=30), worker=1), obeys=False)
    story.passes(100)  # the task has no node for 100 s
    bound = msgspec.structs.replace(story.tasks["worker-0"], ready=False, since=story.now)
    story.tasks["worker-0"] = bound

    def waits(code: str, words: str) -> None:
        text = Message(code, {"image": "r/a:1"})
        values = {"who": ["worker-0"], "why": text, "count": 1}
        sentence = Message("TasksWait", values)
        story.why = (WaitingReason(("worker-0",), text, sentence, "ErrImagePull", words),)

    waits("ImageFetching", "")
    story.passes(29)
    waits("ImageNotFound", "manifest unknown")
    story.passes(0.5)
    assert story.status.phase is Phase.STARTING
    story.obeys = True
    story.passes(1)
    assert story.outcome == (Phase.FAILED, Reason.START_FAILED, "worker-0")
    assert story.status.message.startswith(
        "worker-0 had no image after 30s: there is no image r/a:1: check its name and tag "
        "(the registry says: manifest unknown). Name another image (--image)"
    )


@pytest.mark.parametrize(
    ("limits", "ready"),
    [
        (Lifecycle(start_timeout=3), False),
        (Lifecycle(start_timeout=8, restarts=1), False),
        (Lifecycle(max_duration=8, restarts=1), True),
    ],
)
def test_a_limit_reached_amid_a_failure_blames_the_failure(limits: Lifecycle, ready: bool) -> None:
    """If a run reaches a limit while a failure is investigated or retried, the failure is reported
    as the cause.
    """
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
    """If a run reaches a limit after a task was restarted, that task is not reported as the
    cause.
    """
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
    """A program that exceeds `maxDuration` has failed; In-Graph servers are stopped."""
    story = Story(spec_of(mode, Lifecycle(max_duration=100)))
    story.passes(100)
    assert story.status.phase is phase and story.status.reason is Reason.MAX_DURATION
    assert "`tfcluster logs digits-2`" in story.status.message
    assert story.decision.done


def test_idle_servers_are_stopped() -> None:
    """An unused In-Graph cluster ends after `idleTimeout`, counted from its last use."""
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
    """A task that dies after a request to stop is not restarted."""
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
    assert story.status.message == "Stopped by ada: enough."


def test_a_parameter_server_that_leaves_early_is_named() -> None:
    """Workers cannot finish without a parameter server, so a parameter server that exits with 0 by
    itself is the cause of the failure.
    """
    story = Story(spec_of())
    story.ends("ps-0", Cause.COMPLETED, exit_code=0)
    story.passes(59)
    assert story.status.phase is Phase.RUNNING
    story.passes(1)
    assert story.outcome == (Phase.FAILED, Reason.PS_EXITED, "ps-0")


def test_queued_waits_and_gives_up_after_its_time_out() -> None:
    """A run that is not admitted reports the reason, and ends after `queueTimeout`."""
    story = Story(spec_of(lifecycle=Lifecycle(queue_timeout=50)), admitted=False, obeys=True)
    assert story.status.phase is Phase.QUEUED and not story.tasks
    story.passes(50)
    assert story.status.reason is Reason.QUEUE_TIMEOUT and story.decision.done


def test_tasks_that_came_up_while_nobody_looked_did_start() -> None:
    """If the lifecycle decides only after `startTimeout`, and every task has started by then, the
    run is Running.
    """
    story = Story(spec_of(lifecycle=Lifecycle(start_timeout=60)), obeys=False)
    story.tasks = {
        name: msgspec.structs.replace(task, ready=True) for name, task in story.tasks.items()
    }
    story.passes(61)
    assert story.status.phase is Phase.RUNNING
    assert story.status.reason is Reason.RUNNING
