"""The lifecycle's rules one by one, each as a short story told to `decide`."""

from __future__ import annotations

import msgspec
import pytest

from tfcluster_magic.lifecycle import Decision, Observation, ObservedTask, decide
from tfcluster_magic.models import (
    Cause,
    Lifecycle,
    Mode,
    Phase,
    Program,
    ProgramKind,
    Reason,
    Replicas,
    ReplicaSet,
    Resources,
    Spec,
    Status,
    Stop,
    SuccessPolicy,
    TaskExit,
    TaskState,
)

PROGRAM = Program(
    kind=ProgramKind.FILE, source="train.py", entrypoint="train.py", sha256="0" * 64, serves=True
)


def spec_of(
    mode: Mode = Mode.BETWEEN_GRAPH, lifecycle: Lifecycle | None = None, **counts: int
) -> Spec:
    counts = counts or {"ps": 1, "worker": 2}
    replicas = {"worker": Replicas(count=0)} | {t: Replicas(count=n) for t, n in counts.items()}
    program = PROGRAM if mode is Mode.BETWEEN_GRAPH else None
    return Spec(
        mode=mode,
        replicas=ReplicaSet(**replicas),
        program=program,
        lifecycle=lifecycle or Lifecycle(),
    )


class Story:
    """A run, a world of tasks that obey, and a clock: the test moves both."""

    def __init__(self, spec: Spec, *, admitted: bool = True, obeys: bool = True) -> None:
        self.spec, self.now = spec, 1000.0
        self.status = Status(phase=Phase.QUEUED, reason=Reason.QUEUED)
        self.tasks: dict[str, ObservedTask] = {}
        self.admitted, self.obeys = admitted, obeys
        self.checkpoint: str | None = None
        self.not_ready = False
        self.turn()

    def turn(self) -> Decision:
        """Decide until nothing changes any more; started tasks become ready, stopped ones end."""
        for _ in range(20):
            seen = Observation(
                tasks=dict(self.tasks),
                admitted=self.admitted,
                checkpoint=self.checkpoint,
                nodes_not_ready=self.not_ready,
            )
            self.decision = decide(self.spec, "digits-2", self.status, seen, self.now)
            before, self.status = self.status, self.decision.status
            for order in self.decision.start:
                self.tasks[order.task] = ObservedTask(
                    name=order.task,
                    attempt=order.attempt,
                    state=TaskState.RUNNING,
                    ready=self.obeys,
                )
            for name in self.decision.stop:
                if self.obeys and self.tasks[name].alive:
                    self.ends(name, Cause.STOPPED, turn=False)
            if before == self.status and not self.decision.start and not self.decision.stop:
                break
        return self.decision

    def ends(self, task: str, cause: Cause, *, turn: bool = True, **how: object) -> None:
        task_exit = TaskExit(cause=cause, finished_at=self.now, **how)
        self.tasks[task] = msgspec.structs.replace(self.tasks[task], exit=task_exit, ready=False)
        if turn:
            self.turn()

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.turn()

    @property
    def outcome(self) -> tuple[Phase, Reason, str | None]:
        return self.status.phase, self.status.reason, self.status.culprit

    def running(self) -> list[str]:
        return [t.name for t in self.tasks.values() if t.alive]


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


def test_a_failing_program_fails_the_cluster_when_the_window_closes() -> None:
    """The first failure is blamed with its last words; those that followed are only counted."""
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


def test_a_follower_seen_first_is_not_blamed() -> None:
    """A task that says it lost its peer is a consequence, even when its end was seen first."""
    story = Story(spec_of())
    story.ends("worker-0", Cause.ERROR, exit_code=1, follows=True)
    story.passes(2)
    story.ends("worker-1", Cause.ERROR, exit_code=3)
    story.passes(5)
    assert story.status.culprit == "worker-1"


def test_the_window_closes_when_everybody_has_ended() -> None:
    """A failure is told at once when no task is left whose end could change the verdict."""
    story = Story(spec_of(worker=2))
    story.ends("worker-0", Cause.ERROR, exit_code=1, follows=True)
    story.passes(3)
    assert story.status.reason is Reason.INVESTIGATING
    story.ends("worker-1", Cause.ERROR, exit_code=1)
    assert story.outcome == (Phase.FAILED, Reason.PROGRAM_FAILED, "worker-1")
    assert story.decision.done


def test_out_of_memory_is_the_cause_whatever_came_first() -> None:
    """OOM is reported as OOM, with the limit and the command that raises it."""
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
    """A kill from outside is healed without asking, and the record says from which step training
    resumes.
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
    """Collateral of a disruption restarts all unfinished workers as the next attempt."""
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
    """MultiWorkerMirroredStrategy cannot take a single worker back: the group restarts."""
    story = Story(spec_of(worker=3))
    story.ends("worker-2", Cause.KILLED, signal=9)
    assert {t.attempt for t in story.tasks.values()} == {2}
    assert story.status.attempt == 2


def test_the_fourth_disruption_is_not_healed() -> None:
    """Disruptions are healed up to three times; then the run fails as Disrupted."""
    story = Story(spec_of())
    for _ in range(3):
        story.ends("worker-0", Cause.KILLED, signal=9)
        story.passes(31)
    assert story.status.heals == 3
    story.ends("worker-0", Cause.KILLED, signal=9)
    story.passes(6)
    assert story.outcome == (Phase.FAILED, Reason.DISRUPTED, "worker-0")


def test_retries_come_ten_twenty_and_forty_seconds_apart() -> None:
    """--restarts N retries a failing program, and the failure after the last retry ends the run."""
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


def test_start_timeout_names_who_is_missing() -> None:
    """A cluster that does not come up fails after startTimeout and says who is missing."""
    story = Story(spec_of(lifecycle=Lifecycle(start_timeout=60)), admitted=True, obeys=False)
    assert story.status.message == "Waiting for worker-0, worker-1, ps-0 to start (0 of 3 ready)."
    story.obeys = True
    story.passes(60)
    assert story.outcome == (Phase.FAILED, Reason.START_TIMEOUT, "worker-0")
    assert "worker-0, worker-1, ps-0 did not come up within 1m" in story.status.message


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


def test_a_lost_node_keeps_the_window_open() -> None:
    """While a node is NotReady, failures wait up to 90 s for their cause."""
    story = Story(spec_of())
    story.not_ready = True
    story.ends("worker-0", Cause.ERROR, exit_code=1, follows=True)
    story.passes(80)
    assert story.status.reason is Reason.INVESTIGATING
    story.ends("ps-0", Cause.LOST)
    assert story.tasks["ps-0"].attempt == 2 and story.tasks["worker-0"].attempt == 2


def test_queued_waits_and_gives_up_after_its_time_out() -> None:
    """A run that is not admitted says what it waits for, and ends after queueTimeout."""
    story = Story(spec_of(lifecycle=Lifecycle(queue_timeout=50)), admitted=False, obeys=True)
    assert story.status.phase is Phase.QUEUED and not story.tasks
    story.passes(50)
    assert story.status.reason is Reason.QUEUE_TIMEOUT and story.decision.done
