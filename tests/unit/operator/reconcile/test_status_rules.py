"""The rule by which the operator decides whether a run still waits for a task."""

from __future__ import annotations

from msgspec.structs import replace
from support.recorded_pods import RUNNING

from tfcluster_magic.lifecycle import Observation, ObservedTask
from tfcluster_magic.operator.reconcile.status_rules import are_all_tasks_up
from tfcluster_magic.spec import Cause, Replicas, ReplicaSet, Spec, TaskExit, TaskState

SPEC = Spec(replicas=ReplicaSet(worker=Replicas(count=2)))
ENDED = TaskExit(cause=Cause.COMPLETED, finished_at=1.0, exit_code=0)


def seen(*tasks: ObservedTask) -> Observation:
    return Observation(tasks={each.name: each for each in tasks})


def test_who_is_up_or_over_is_not_waited_for() -> None:
    """A task without a pod, or not ready, counts as waiting."""
    first = ObservedTask(name="worker-0", attempt=1, state=TaskState.RUNNING, ready=True)
    second = ObservedTask(name="worker-1", attempt=1, state=TaskState.STARTING)
    over = ObservedTask(name="worker-1", attempt=1, state=TaskState.SUCCEEDED, exit=ENDED)
    assert not are_all_tasks_up(SPEC, RUNNING, seen(first))
    assert not are_all_tasks_up(SPEC, RUNNING, seen(first, second))
    assert are_all_tasks_up(SPEC, RUNNING, seen(first, over))


def test_who_is_started_again_is_waited_for() -> None:
    """A task whose earlier attempt has ended counts as waiting until its next pod is seen."""
    first = ObservedTask(name="worker-0", attempt=1, state=TaskState.RUNNING, ready=True)
    killed = TaskExit(cause=Cause.KILLED, finished_at=1.0)
    gone = ObservedTask(name="worker-1", attempt=1, state=TaskState.FAILED, exit=killed)
    again = replace(RUNNING, restarts={"worker-1": 1})
    assert not are_all_tasks_up(SPEC, again, seen(first, gone))
