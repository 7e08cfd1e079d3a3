"""The attempts of a task, which follow from its pods; the end of each attempt is reported."""

from __future__ import annotations

import pytest
from support.recorded_pods import NOW, RUNNING, Object, job, observer, recorded

from tfcluster_magic.kube.status import exit_status
from tfcluster_magic.kube.status.run_observer import RunObserver
from tfcluster_magic.spec import Phase, Reason, Status, TaskExit, TaskFailure, TaskType


def end(name: str) -> TaskExit:
    return exit_status.pod_exit(recorded(name), asked=False, now=NOW)


def test_a_new_pod_is_the_next_attempt() -> None:
    """Pods of an index are attempts 1, 2, ... in their order; the end of a pod is kept until the
    next pod exists.
    """
    watched = observer()
    first = recorded("running", uid="a")
    assert watched.observe(RUNNING, [first], job(), NOW).tasks["worker-0"].attempt == 1
    ended = recorded("failed", uid="a")
    assert watched.observe(RUNNING, [ended], job(), NOW).tasks["worker-0"].exit == end("failed")
    seen = watched.observe(RUNNING, [ended, recorded("retried", uid="b")], job(), NOW)
    assert seen.tasks["worker-0"].attempt == 2
    seen = watched.observe(RUNNING, [recorded("running", uid="c")], job(), NOW)
    assert (seen.tasks["worker-0"].attempt, seen.tasks["worker-0"].alive) == (3, True)


def test_a_group_restart_counts_every_member() -> None:
    """Pods that a group restart ends belong to the old attempt; the following pods belong to the
    new attempt.
    """
    watched = observer(2)
    watched.observe(RUNNING, [recorded("failed"), recorded("running", index=1)], job(), NOW)
    again = Status(
        phase=Phase.RUNNING,
        reason=Reason.HEALING,
        attempt=2,
        restarts={"worker-0": 1, "worker-1": 1},
    )
    # the Job replaced the failed pod before the operator decided on a group restart
    early = recorded("retried", uid="early")
    pods = [recorded("failed"), early, recorded("running", index=1)]
    assert watched.observe(again, pods, job(), NOW).tasks["worker-0"].attempt == 2
    watched.set_back(["worker-0", "worker-1"], again)
    watched.asked_to_stop(TaskType.WORKER)
    assert {t.attempt for t in watched.observe(again, [], job(True), NOW).tasks.values()} == {1}
    watched.asked_to_go_on(TaskType.WORKER)
    fresh = [recorded("running", uid="x"), recorded("running", uid="y", index=1)]
    seen = watched.observe(again, fresh, job(attempt=2), NOW).tasks
    assert {t.attempt for t in seen.values()} == {2}


@pytest.mark.parametrize(
    ("jobs", "attempt"),
    [(job(attempt=2), 2), (job(attempt=1), 1), (job(suspend=True, attempt=2), 1)],
)
def test_a_restarted_operator_knows_which_attempt_a_pod_is(
    jobs: dict[TaskType, Object], attempt: int
) -> None:
    """After a restart of the operator, a pod belongs to the attempt in the record, unless its group
    is still being ended.
    """
    status = Status(phase=Phase.RUNNING, reason=Reason.HEALING, attempt=2, restarts={"worker-0": 1})
    seen = observer().observe(status, [recorded("running")], jobs, NOW).tasks["worker-0"]
    assert (seen.attempt, seen.alive) == (attempt, True)


def test_a_restarted_operator_judges_no_end_twice() -> None:
    """After a restart, the operator finds a pod that has ended. If this end is in the record, it
    keeps its attempt; if not, it belongs to the record's current attempt.
    """
    failure = TaskFailure(task="worker-0", attempt=1, exit=end("failed"))
    status = Status(
        phase=Phase.RUNNING,
        reason=Reason.HEALING,
        restarts={"worker-0": 1},
        failures=(failure,),
    )
    assert (
        observer().observe(status, [recorded("failed")], job(), NOW).tasks["worker-0"].attempt == 1
    )
    assert observer().observe(status, [recorded("oom")], job(), NOW).tasks["worker-0"].attempt == 2


def pod(name: str, number: int) -> Object:
    """Return a recorded pod of the only task, created at second `number` of a minute, so that a
    higher number means a newer pod.
    """
    made = recorded(name, uid=f"pod-{number}")
    made["metadata"]["creationTimestamp"] = f"2026-11-21T20:15:{number:02}Z"
    made["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] = str(number - 1)
    return made


def attempts(watched: RunObserver, status: Status, pods: list[Object]) -> list[tuple[int, bool]]:
    """Return, for two successive turns, the attempt of the only task and whether the task lives."""
    seen = [watched.observe(status, pods, job(), NOW).tasks["worker-0"] for _turn in range(2)]
    return [(task.attempt, task.alive) for task in seen]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("met", [True, False])
def test_an_end_that_is_seen_late_is_told_before_the_next_attempt(met: bool, order: int) -> None:
    """If a failed pod and its successor are seen together, in any order, the first attempt's end is
    reported before the second attempt.
    """
    watched = observer()
    if met:
        watched.observe(RUNNING, [pod("running", 1)], job(), NOW)
    both = [pod("failed", 1), pod("running", 2)]
    assert attempts(watched, RUNNING, both[::order]) == [(1, False), (2, True)]


def test_an_end_that_nobody_saw_is_told_before_the_next_attempt() -> None:
    """If a pod is gone when its Job's next pod exists, the attempt of the first pod counts as
    killed.
    """
    watched = observer()
    watched.observe(RUNNING, [pod("running", 1)], job(), NOW)
    later = [pod("running", 2)]
    assert attempts(watched, RUNNING, later) == [(1, False), (2, True)]


def test_of_several_attempts_that_are_seen_at_once_each_end_is_told() -> None:
    """If two ends and a third pod are seen at once, they are reported one after the other."""
    watched = observer()
    watched.observe(RUNNING, [pod("running", 1)], job(), NOW)
    pods = [pod("failed", 1), pod("oom", 2), pod("running", 3)]
    seen = [watched.observe(RUNNING, pods, job(), NOW).tasks["worker-0"] for _turn in range(3)]
    assert [(task.attempt, task.alive) for task in seen] == [(1, False), (2, False), (3, True)]


def test_a_restarted_operator_knows_the_attempt_after_an_end_on_record() -> None:
    """A pod that is found while an earlier failure is investigated belongs to the attempt after
    that failure.
    """
    failure = TaskFailure(task="worker-0", attempt=1, exit=end("failed"))
    status = Status(phase=Phase.RUNNING, reason=Reason.INVESTIGATING, failures=(failure,))
    pods = [pod("failed", 1), pod("running", 2)]
    assert attempts(observer(), status, pods) == [(2, True), (2, True)]
