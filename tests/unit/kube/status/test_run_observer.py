"""Tasks as the lifecycle sees them, derived from pods that were recorded on a real node."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from support.recorded_pods import NOW, PODS, RUNNING, job, observer, recorded

from tfcluster_magic.kube.api import decoding
from tfcluster_magic.kube.api.decoding import condition, epoch_seconds
from tfcluster_magic.kube.status import exit_status
from tfcluster_magic.kube.status.run_observer import task_in_pod
from tfcluster_magic.kube.status.task_pods import completed_indexes
from tfcluster_magic.spec import (
    Cause,
    Mode,
    Phase,
    Reason,
    Status,
    TaskExit,
    TaskState,
    TaskStatus,
    TaskType,
)

FINISHED = Status(phase=Phase.STOPPING, reason=Reason.STOP_REQUESTED, stop_at=5.0)


def end(name: str, asked: bool = False) -> TaskExit:
    return exit_status.pod_exit(recorded(name), asked=asked, now=NOW)


@pytest.mark.parametrize(
    ("name", "asked", "cause", "code"),
    [
        ("succeeded", False, Cause.COMPLETED, 0),
        ("succeeded", True, Cause.COMPLETED, 0),
        ("failed", False, Cause.ERROR, 1),
        ("failed", True, Cause.ERROR, 1),
        ("failed-silent", False, Cause.ERROR, 3),
        ("start-error", False, Cause.NOT_STARTED, 128),
        ("oom", False, Cause.OOM, 1),
        ("oom", True, Cause.OOM, 1),
        ("killed-silent", False, Cause.KILLED, 137),
        ("evicted", False, Cause.EVICTED, None),
        ("evicted-disk", False, Cause.EVICTED, 137),
        ("deleted", False, Cause.KILLED, None),
        ("suspended", True, Cause.STOPPED, None),
        ("evicted", True, Cause.STOPPED, None),
    ],
)
def test_causes(name: str, asked: bool, cause: Cause, code: int | None) -> None:
    """Each recorded end has the expected cause, whatever its exit code."""
    told = end(name, asked)
    assert (told.cause, told.exit_code) == (cause, code)


def test_a_pod_holds_what_it_asks_for_from_its_node_on() -> None:
    """The hours of a pod count its requested cores from the time at which it is bound to a node.
    These cores and this time stay known after the pod is gone. A pod without a node has no hours.
    """
    watching = observer(2)
    pods = [recorded("running"), recorded("unschedulable", index=1)]
    seen = watching.observe(RUNNING, pods, job(), NOW)
    bound = epoch_seconds(condition(pods[0], "PodScheduled")["lastTransitionTime"])
    assert [seen.tasks[t].since for t in ("worker-0", "worker-1")] == [bound, None]
    assert seen.cores == {"worker": 0.01}
    gone = watching.observe(RUNNING, (), job(), NOW + 5)
    assert gone.tasks["worker-0"].since == bound
    assert gone.cores == seen.cores


def test_ends_keep_what_helps() -> None:
    """The record of a failure has the last lines of the task; for a container that never ran, it
    has the container runtime's message.
    """
    assert end("failed").last_lines[-1] == "ValueError: shapes do not match"
    assert "/no/such/python" in end("start-error").detail
    assert end("evicted-disk").detail == "it wrote more than 5Mi to the volume s"
    assert end("deleted").detail == "its pod was deleted"


@pytest.mark.parametrize(
    ("printed", "kept"),
    [(["step 1"], ("step 1",)), ([], ("I0000 00:00:1.2 4 a.cc:1] Options: goo.gle/debugstr",))],
)
def test_last_lines_without_a_report_are_the_programs(
    printed: list[str], kept: tuple[str, ...]
) -> None:
    """If the kubelet takes the end of the log as the message, a protobuf of TensorFlow in it is
    left out, unless there is nothing else.
    """
    dump = ["I0000 00:00:1.2 4 a.cc:1] Options: goo.gle/debugstr", "experimental {", "}", ""]
    pod = recorded("failed")
    (container,) = pod["status"]["containerStatuses"]
    container["state"]["terminated"]["message"] = "\n".join([*printed, *dump])
    found = exit_status.pod_exit(pod, asked=False, now=NOW).last_lines
    assert found[:1] == kept
    assert not printed or found == kept


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("DeletionByTaintManager", Cause.LOST),
        ("DeletionByPodGC", Cause.LOST),
        ("PreemptionByScheduler", Cause.EVICTED),
        ("TerminationByKubelet", Cause.EVICTED),
        (exit_status.DELETED_BY_SOMEBODY, Cause.KILLED),
    ],
)
def test_disruptions(reason: str, cause: Cause) -> None:
    """The reason in the pod's condition DisruptionTarget gives the cause of the pod's end, also
    before the end.
    """
    pod = recorded("evicted")
    (found,) = [c for c in pod["status"]["conditions"] if c["type"] == exit_status.DISRUPTION]
    found["reason"] = reason
    assert exit_status.pod_exit(pod, asked=False, now=NOW).cause is cause
    assert exit_status.lost_pod_exit(pod, asked=False, now=NOW).cause is cause


def test_a_preemption_is_told_in_the_schedulers_words() -> None:
    """The message of a preempted task has the scheduler's own text."""
    pod = recorded("evicted")
    (found,) = [c for c in pod["status"]["conditions"] if c["type"] == exit_status.DISRUPTION]
    words = "volcano: preempting to accommodate a higher priority pod"
    found |= {"reason": "PreemptionByScheduler", "message": words}
    pod["status"]["message"] = ""
    told = exit_status.pod_exit(pod, asked=False, now=NOW).detail
    assert told == f"a pod of higher priority took its place: {words}"


RUNTIME = (
    "failed to create containerd task: failed to create shim task: "
    "OCI runtime create failed: runc create failed: "
)


@pytest.mark.parametrize(
    ("reason", "words", "cause"),
    [
        ("StartError", 'exec: "x": executable file not found in $PATH: unknown', Cause.NOT_STARTED),
        ("StartError", "exec /usr/bin/python3: exec format error: unknown", Cause.NOT_STARTED),
        ("StartError", 'exec: "/x": permission denied: unknown', Cause.NOT_STARTED),
        ("StartError", 'chdir to cwd ("/x") set in config.json failed: unknown', Cause.NOT_STARTED),
        ("StartError", 'exec: "/x": resource temporarily unavailable: unknown', Cause.LOST),
        ("StartError", "context deadline exceeded: unknown", Cause.LOST),
        ("StartError", "can't get final child's PID from pipe: EOF: unknown", Cause.LOST),
        ("StartError", "namespace path: lstat /proc/0/ns/ipc: no such file or dir", Cause.LOST),
        ("StartError", "", Cause.LOST),
        ("ContainerStatusUnknown", "The container could not be located", Cause.LOST),
        ("Unknown", "", Cause.LOST),
    ],
)
def test_what_a_busy_node_could_not_start_is_tried_again(
    reason: str, words: str, cause: Cause
) -> None:
    """Errors of the image or the command are final. If the container runtime was late or lost a
    task, the task is started again.
    """
    pod = recorded("start-error")
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    ended |= {"reason": reason, "message": words and RUNTIME + words}
    told = exit_status.pod_exit(pod, asked=False, now=NOW)
    assert told.cause is cause
    assert told.detail.startswith("its node ") == (cause is Cause.LOST)


def test_a_container_whose_end_nobody_saw_was_lost() -> None:
    """If the shim of a container was killed, containerd reports exit code 255, and the task counts
    as lost. If the program itself exits with 255, the task's own message says so.
    """
    silent, told = recorded("failed-silent"), recorded("failed")
    for pod in (silent, told):
        pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] = 255
    lost = exit_status.pod_exit(silent, asked=False, now=NOW)
    assert (lost.cause, lost.detail) == (Cause.LOST, "its node lost its container")
    assert exit_status.pod_exit(told, asked=False, now=NOW).cause is Cause.ERROR


def test_a_node_that_turns_a_pod_away_is_a_disruption() -> None:
    """A pod that its node did not admit counts as evicted; it never had a container."""
    pod = recorded("unschedulable", phase="Failed", reason="OutOfcpu", message="no room")
    told = exit_status.pod_exit(pod, asked=False, now=NOW)
    assert (told.cause, told.detail) == (Cause.EVICTED, "OutOfcpu: no room")


@pytest.mark.parametrize(
    ("name", "state", "ready"),
    [
        ("unschedulable", TaskState.PENDING, False),
        ("image-missing", TaskState.PENDING, False),
        ("starting", TaskState.STARTING, False),
        ("running", TaskState.RUNNING, True),
        ("deleting", TaskState.RUNNING, True),
        ("succeeded", TaskState.SUCCEEDED, False),
        ("suspended", TaskState.FAILED, False),
    ],
)
def test_states(name: str, state: TaskState, ready: bool) -> None:
    """A task is ready once its container has started and its port, if any, is open."""
    seen = observer().observe(RUNNING, [recorded(name)], job(), NOW).tasks["worker-0"]
    assert (seen.state, seen.ready) == (state, ready)


@pytest.mark.parametrize(
    ("name", "state", "dated"),
    [
        ("unschedulable", TaskState.PENDING, False),
        ("running", TaskState.RUNNING, True),
        ("succeeded", TaskState.SUCCEEDED, True),
        ("suspended", TaskState.FAILED, True),
    ],
)
def test_a_pod_alone_tells_since_when(name: str, state: TaskState, dated: bool) -> None:
    """The state of a task, and the time since when it has this state, come only from its pod."""
    told, since = task_in_pod(recorded(name), NOW)
    assert told is state
    assert (since is not None and 0 < since < NOW) is dated


def test_a_server_is_idle_since_its_readiness_ended() -> None:
    """An In-Graph server counts as idle since its readiness ended, but not before it has run. A
    task that runs a program never counts as idle.
    """
    pod = recorded("ready-in-use")
    since = epoch_seconds(exit_status.container_status(pod)["state"]["running"]["startedAt"])
    in_graph = observer(mode=Mode.IN_GRAPH)
    assert in_graph.observe(RUNNING, [pod], job(), NOW).tasks["worker-0"].idle_since == since
    assert observer().observe(RUNNING, [pod], job(), NOW).tasks["worker-0"].idle_since is None
    away = in_graph.observe(RUNNING, [pod], job(), NOW, frozenset({"node-1"}))
    assert away.nodes_not_ready and away.tasks["worker-0"].idle_since is None


def test_the_end_of_a_pod_that_is_gone_stays() -> None:
    """An observed end stays after the pod's deletion; a pod that is gone without an observed end
    counts as deleted or stopped.
    """
    watched = observer(3)
    pods = [recorded("oom"), recorded("running", index=1), recorded("running", index=2)]
    watched.observe(RUNNING, pods, job(), NOW)
    seen = watched.observe(RUNNING, pods[2:], job(), NOW).tasks
    assert seen["worker-0"].exit == end("oom")
    assert seen["worker-1"].exit is not None and seen["worker-1"].exit.cause is Cause.KILLED
    watched.asked_to_stop(TaskType.WORKER)
    seen = watched.observe(RUNNING, [], job(), NOW).tasks
    assert seen["worker-2"].exit is not None and seen["worker-2"].exit.cause is Cause.STOPPED


def test_a_restarted_operator_knows_ends_whose_pods_are_gone() -> None:
    """Without pods, ends come from the completed indexes of the Job, its suspension, and the
    record.
    """
    told = observer(3).observe(RUNNING, [], job(completed="0,2"), NOW).tasks
    assert [t.exit.cause for t in told.values() if t.exit] == [Cause.COMPLETED, Cause.COMPLETED]
    assert "worker-1" not in told
    stopped = observer().observe(FINISHED, [], job(suspend=True), NOW).tasks["worker-0"]
    assert stopped.exit is not None and stopped.exit.cause is Cause.STOPPED
    entry = TaskStatus(name="worker-0", state=TaskState.FAILED, exit=end("oom"))
    final = Status(phase=Phase.FAILED, reason=Reason.OOM_KILLED, attention=(entry,))
    assert observer().observe(final, [], job(suspend=True), NOW).tasks["worker-0"].exit == end(
        "oom"
    )
    assert observer().observe(RUNNING, [], job(suspend=True), NOW).tasks == {}


def test_completed_indexes() -> None:
    """The ranges in which a Job lists its successes are read as numbers."""
    counted = {"status": {"completedIndexes": "0,3-5,9"}}
    assert completed_indexes(counted) == {0, 3, 4, 5, 9}
    assert completed_indexes({"status": {}}) == set() == completed_indexes(None)


def test_trimming_keeps_the_original() -> None:
    """A cache keeps at most a third of a pod, and does not change the original."""
    whole = json.loads((PODS / "oom.json").read_text())
    before = copy.deepcopy(whole)
    kept = decoding.trim_pod(whole)
    assert whole == before
    assert "command" not in kept["spec"]["containers"][0]


def test_a_finished_record_is_kept_without_its_program() -> None:
    """Caches drop the programs of records that have ended and released their resources."""
    found = {"metadata": {"name": "d-1"}, "spec": {"program": {"files": {}}, "mode": "x"}}
    over = {**found, "status": {"phase": "Failed", "releasedTime": "2026-01-31T12:00:00Z"}}
    holding = {**found, "status": {"phase": "Succeeded"}}
    assert decoding.trim_tfcluster(over)["spec"] == {"mode": "x"}
    assert decoding.trim_tfcluster(holding)["spec"] == {"program": {}, "mode": "x"}


@pytest.mark.parametrize(
    "clause",
    [
        {"code": "Nope"},
        {"code": "OutOfMemory"},
        {"code": "OutOfMemory", "params": {"task": {"code": "Nope"}, "limit": 1, "more": []}},
    ],
)
def test_a_message_of_the_programs_own_making_is_no_reason(clause: dict[str, Any]) -> None:
    """A program may write anything to the termination log: an invalid message is left out, and the
    run's result is decided without it.
    """
    words = {"cause": "NotStarted", "finishedAt": 1.0, "detailMessage": clause}
    ended = {"reason": "Error", "exitCode": 1, "finishedAt": "2026-01-01T00:00:00Z"}
    ended["message"] = json.dumps(words)
    pod = {
        "metadata": {},
        "spec": {"containers": [{}]},
        "status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": ended}}]},
    }
    told = exit_status.pod_exit(pod, asked=False, now=0.0)
    assert told.detail_message is None


def test_a_zero_after_an_oom_is_no_success() -> None:
    """A container with reason OOMKilled has not succeeded, even with exit code 0 and no message."""
    ended = {"reason": "OOMKilled", "exitCode": 0, "finishedAt": "2026-01-01T00:00:00Z"}
    limits = {"resources": {"limits": {"memory": "200Mi"}}}
    pod = {
        "metadata": {},
        "spec": {"containers": [limits]},
        "status": {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": ended}}]},
    }
    told = exit_status.pod_exit(pod, asked=False, now=0.0)
    assert (told.cause, told.detail) == (Cause.OOM, "limit 200Mi")
    done = TaskExit(cause=Cause.COMPLETED, finished_at=1.0, exit_code=0)
    ended["message"] = msgspec.json.encode(done).decode()
    assert exit_status.pod_exit(pod, asked=False, now=0.0).cause is Cause.COMPLETED
