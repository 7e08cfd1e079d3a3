"""The lifecycle's rules about failures: causes, restarts and retries."""

from __future__ import annotations

import msgspec
from support.lifecycle_simulation import PROGRAM, Story, spec_of

from tfcluster_magic.spec import (
    Cause,
    Lifecycle,
    Message,
    Phase,
    Reason,
    Replicas,
    ReplicaSet,
    Resources,
    Spec,
)


def test_a_failing_program_fails_the_cluster_when_the_window_closes() -> None:
    """The first failure is the cause, and the message has its last lines; the failures that
    followed are only counted.
    """
    story = Story(spec_of())
    story.ends("worker-1", Cause.ERROR, exit_code=1, last_lines=("ValueError: bad shape",))
    assert story.status.reason is Reason.INVESTIGATING
    story.passes(1)
    story.ends("worker-0", Cause.ERROR, exit_code=1, follows=True, last_lines=("UNAVAILABLE: x",))
    assert story.status.phase is Phase.RUNNING
    story.passes(5)
    assert story.outcome == (Phase.FAILED, Reason.PROGRAM_FAILED, "worker-1")
    assert "ValueError: bad shape" in story.status.message
    assert "worker-0 ended after it" in story.status.message
    assert story.decision.done and story.running() == []


def test_a_failure_counts_though_the_world_had_begun_the_next_attempt() -> None:
    """A task that failed counts as failed, even if its next attempt had begun and ends with the
    run.
    """
    story = Story(spec_of(worker=2))
    story.ends("worker-1", Cause.ERROR, exit_code=1)
    again = msgspec.structs.replace(story.tasks["worker-1"], attempt=2, exit=None, ready=True)
    story.tasks["worker-1"] = again
    story.passes(15)
    assert story.outcome == (Phase.FAILED, Reason.PROGRAM_FAILED, "worker-1")
    counts = story.status.counts["worker"]
    assert (counts.failed, counts.stopped) == (1, 1)
    culprit = story.status.attention[0]
    assert (culprit.name, culprit.exit and culprit.exit.exit_code) == ("worker-1", 1)


def test_a_follower_seen_first_is_not_blamed() -> None:
    """A task that lost its peer is not the cause, even if its end was seen first."""
    story = Story(spec_of())
    story.ends("worker-0", Cause.ERROR, exit_code=1, follows=True)
    story.passes(2)
    story.ends("worker-1", Cause.ERROR, exit_code=3)
    story.passes(5)
    assert story.status.culprit == "worker-1"


def test_a_worker_that_left_early_is_the_cause_without_parameter_servers() -> None:
    """A worker that finished before the others is the cause if the others failed because they lost
    it. With parameter servers it is not the cause, because there each worker takes its own steps.
    """
    for counts, culprit, reason in (
        ({"worker": 2}, "worker-1", Reason.PEER_FINISHED),
        ({"ps": 1, "worker": 2}, "worker-0", Reason.PROGRAM_FAILED),
    ):
        story = Story(spec_of(**counts))
        story.ends("worker-1", Cause.COMPLETED, exit_code=0)
        story.passes(3)
        story.ends("worker-0", Cause.ERROR, exit_code=1, follows=True, last_lines=("UNAVAILABLE",))
        story.passes(15)
        assert story.outcome == (Phase.FAILED, reason, culprit)
        early = "worker-1 finished first, and worker-0 could not go on without it"
        assert (early in story.status.message) is (culprit == "worker-1")


def test_who_starts_again_is_not_said_to_run() -> None:
    """While a lost task restarts, which may take long, the message says that the run waits for this
    task, not that all tasks run.
    """
    story = Story(spec_of())
    story.obeys = False
    story.ends("ps-0", Cause.LOST)
    story.passes(600)
    assert story.outcome == (Phase.RUNNING, Reason.RUNNING, None)
    assert story.status.message == "Waiting for ps-0 to start (2 of 3 ready)."


def test_the_window_closes_when_everybody_has_ended() -> None:
    """Once every task has ended, no later end can change which task is the cause, so the failure is
    reported at once.
    """
    story = Story(spec_of(worker=2))
    story.ends("worker-0", Cause.ERROR, exit_code=1, follows=True)
    story.passes(3)
    assert story.status.reason is Reason.INVESTIGATING
    story.ends("worker-1", Cause.ERROR, exit_code=1)
    assert story.outcome == (Phase.FAILED, Reason.PROGRAM_FAILED, "worker-1")
    assert story.decision.done


def test_out_of_memory_is_the_cause_whatever_came_first() -> None:
    """A lack of memory is the reported cause whatever failed first; the message has the limit and
    the option that raises it.
    """
    memory = Replicas(count=2, resources=Resources(memory="512Mi"))
    spec = Spec(replicas=ReplicaSet(worker=memory, ps=Replicas(count=1)), program=PROGRAM)
    story = Story(spec)
    story.ends("worker-0", Cause.ERROR, exit_code=1)
    story.passes(1)
    story.ends("worker-1", Cause.OOM, signal=9)
    story.passes(5)
    assert story.outcome == (Phase.FAILED, Reason.OOM_KILLED, "worker-1")
    assert "its limit of 512Mi" in story.status.message
    assert "tfcluster rerun digits-2 --worker-memory 1Gi" in story.status.message


def test_a_killed_parameter_server_is_restarted_at_once() -> None:
    """A task killed from outside is restarted automatically, and the record says from which step
    training resumes.
    """
    story = Story(spec_of())
    story.checkpoint = "model.ckpt-278"
    story.ends("ps-0", Cause.KILLED, signal=9)
    assert story.tasks["ps-0"].attempt == 2 and story.tasks["ps-0"].alive
    assert story.status.heals == 1
    assert "checkpoint at step 278" in story.status.events[-1].message
    story.passes(31)
    assert story.outcome == (Phase.RUNNING, Reason.RUNNING, None)


def test_workers_that_fell_with_a_parameter_server_restart_together() -> None:
    """Workers that failed because of a disruption restart together as the next attempt."""
    story = Story(spec_of())
    story.ends("ps-0", Cause.KILLED, signal=9)
    story.passes(1)
    story.ends("worker-1", Cause.ERROR, exit_code=1, follows=True)
    assert story.status.attempt == 2
    assert {t.name: t.attempt for t in story.tasks.values()} == {
        "ps-0": 2,
        "worker-0": 2,
        "worker-1": 2,
    }
    assert story.status.heals == 1


def test_without_parameter_servers_all_workers_restart_together() -> None:
    """With MultiWorkerMirroredStrategy, a single worker cannot join again, so the whole group
    restarts.
    """
    story = Story(spec_of(worker=3))
    story.ends("worker-2", Cause.KILLED, signal=9)
    assert {t.attempt for t in story.tasks.values()} == {2}
    assert story.status.attempt == 2


def test_the_fourth_disruption_is_not_healed() -> None:
    """Tasks are restarted after disruptions up to three times; then the run fails as Disrupted."""
    story = Story(spec_of())
    for _ in range(3):
        story.ends("worker-0", Cause.KILLED, signal=9)
        story.passes(31)
    assert story.status.heals == 3
    story.ends("worker-0", Cause.KILLED, signal=9)
    story.passes(6)
    assert story.outcome == (Phase.FAILED, Reason.DISRUPTED, "worker-0")


def test_retries_come_ten_twenty_and_forty_seconds_apart() -> None:
    """`--restarts N` retries a failing program N times; the failure after the last retry ends the
    run.
    """
    story = Story(spec_of(lifecycle=Lifecycle(restarts=2)))
    for number, delay in enumerate((10, 20), 1):
        story.ends("worker-0", Cause.ERROR, exit_code=1)
        story.passes(5)
        assert story.status.reason is Reason.BACKING_OFF
        assert f"Retry {number} of 2 in {delay}s" in story.status.message
        story.passes(delay - 1)
        assert not story.tasks["worker-0"].alive
        story.passes(1)
        assert story.tasks["worker-0"].attempt == number + 1
    story.ends("worker-0", Cause.ERROR, exit_code=1)
    story.passes(5)
    assert story.status.phase is Phase.FAILED


def test_a_lost_node_keeps_the_window_open() -> None:
    """If a task fails while a node is NotReady, the run waits up to 90 s before it decides which
    task is the cause, because a task on this node may turn out to be lost.
    """
    story = Story(spec_of())
    story.not_ready = True
    story.ends("worker-0", Cause.ERROR, exit_code=1, follows=True)
    story.passes(80)
    assert story.status.reason is Reason.INVESTIGATING
    story.ends("ps-0", Cause.LOST)
    assert story.tasks["ps-0"].attempt == 2 and story.tasks["worker-0"].attempt == 2


def test_tasks_that_fail_alike_are_no_consequence_of_each_other() -> None:
    """If workers fail with the same error of the program, the message says that they failed
    alike.
    """
    story = Story(spec_of(worker=3))
    for task in ("worker-1", "worker-0"):
        story.ends(task, Cause.ERROR, exit_code=1, last_lines=("ValueError: bad shape",))
        story.passes(1)
    story.ends("worker-2", Cause.ERROR, exit_code=1, follows=True, last_lines=("UNAVAILABLE: x",))
    story.passes(5)
    assert "worker-0 failed in the same way. worker-2 ended after it." in story.status.message


def test_a_program_that_never_runs_fails_the_cluster_at_once() -> None:
    """A wrong checksum is reported at once, with the real checksum. There is no search for another
    cause, and no retry, which would find the same checksum.
    """
    values = {"source": "train.py", "expected": "0" * 64, "found": "f" * 64}
    story = Story(spec_of(worker=3, lifecycle=Lifecycle(restarts=3)))
    wrong = Message("ChecksumDiffers", values)
    story.ends("worker-1", Cause.NOT_STARTED, detail="another checksum", detail_message=wrong)
    assert story.outcome == (Phase.FAILED, Reason.START_FAILED, "worker-1")
    assert f"the checksum {'0' * 64} of spec.program.sha256, but {'f' * 64}" in story.status.message
    assert story.running() == []
