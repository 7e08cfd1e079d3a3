"""Reasons why a notebook does not start or is lost, each with advice."""

from __future__ import annotations

from typing import Any

import pytest

from tfcluster_magic.hub.spawning import spawner, startup_problems
from tfcluster_magic.kube.status.task_pods import claims_of

POD = {
    "metadata": {"name": "jupyter-ann", "uid": "1"},
    "spec": {
        "nodeName": "node-1",
        "containers": [{"image": "example.com/lab:1", "resources": {"requests": {"cpu": "2"}}}],
        "volumes": [{"persistentVolumeClaim": {"claimName": "data"}}, {"emptyDir": {}}],
    },
}
NOW = 1_800_000_000.0
UNBOUND = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."


def why(pod: Any, claims: Any = None, events: Any = ()) -> startup_problems.StartupProblem | None:
    """Return the reason why this pod waits."""
    return startup_problems.problem_of_pod({**POD, **pod}, events, claims or {}, NOW)


def waiting(reason: str, message: str, **last: Any) -> dict[str, Any]:
    """Return a pod whose container waits."""
    state = {"state": {"waiting": {"reason": reason, "message": message}}, **last}
    return {"status": {"containerStatuses": [state]}}


def unscheduled(message: str) -> dict[str, Any]:
    """Return a pod that fits on no node."""
    told = {"type": "PodScheduled", "status": "False", "message": message}
    spec = {**POD["spec"], "nodeName": None}
    return {"spec": spec, "status": {"conditions": [told]}}


def test_an_image_that_is_missing_is_named() -> None:
    """The message about a missing image names the image and says what to do. The problem is final,
    because waiting does not help.
    """
    told = why(waiting("ErrImagePull", "manifest unknown: not found"))
    assert told
    assert told.for_good
    assert told.failed == (
        "Your server did not start: there is no image example.com/lab:1: check its name and tag. "
        "Choose another image, or ask the administrator."
    )


def test_a_pod_without_room_names_what_is_asked() -> None:
    """If a pod fits on no node, the message names the requested amount and advises a smaller
    size.
    """
    told = why(unscheduled("0/3 nodes are available: 3 Insufficient cpu."))
    assert told
    assert "no node has 2 CPU free" in told.waits
    assert told.waits.endswith("Choose a smaller size, or try again later.")
    assert not told.for_good


def test_new_claims_are_no_trouble_and_old_ones_are() -> None:
    """While claims are new, they are reported as being created; later, the message blames the
    storage class or its provisioner.
    """
    pod = unscheduled(UNBOUND)
    made = "2027-01-15T07:59:55Z"  # five seconds before NOW
    claim = {"metadata": {"name": "data", "creationTimestamp": made}, "spec": {}, "said": ""}
    young = why(pod, {"data": claim})
    assert young
    assert young.waits == "Your server is waiting: its volumes are being created: data."
    missing = {**claim, "said": 'storageclass.storage.k8s.io "fast" not found'}
    told = why(pod, {"data": missing, "log": missing})
    assert told
    assert told.waits == (
        "Your server is waiting: the claims data, log request the storage class fast, which does "
        "not exist: an administrator has to create it, or to set another one in the hub's policy "
        "(storage.class)."
    )
    assert not told.for_good
    again = {"involvedObject": {"uid": "2"}, "message": "of the claim that there is now"}
    before = {"involvedObject": {"uid": "1"}, "message": "of one before it"}
    assert startup_problems.events_of({"metadata": {"uid": "2"}}, [before, again]) == [again]
    bound = {**claim, "status": {"phase": "Bound"}}
    assert why(pod, {"data": bound}) is None
    assert startup_problems.needs_claims({**POD, **pod})
    assert claims_of(POD) == ["data"]


def test_a_program_that_keeps_ending_is_told_by_its_end() -> None:
    """For a container that keeps restarting, the message says how the container last ended."""
    ended = {"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    told = why(waiting("CrashLoopBackOff", "back-off 10s", **ended))
    assert told
    assert "used more memory than its size allows" in told.failed


def test_events_of_an_earlier_pod_do_not_count() -> None:
    """Events of an earlier pod of the same name are ignored."""
    old = {"involvedObject": {"uid": "0"}, "reason": "FailedMount", "message": "x"}
    new = {"involvedObject": {"uid": "1"}, "reason": "FailedMount", "message": "y"}
    assert startup_problems.events_of(POD, [old, new]) == [new]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            'pods "x" is forbidden: exceeded quota: q, requested: p=1, used: p=2, limited: p=2',
            "the quota q of your namespace is used up: the pod asks for p=1, and 2 of p=2",
        ),
        ('pods "x" is forbidden: violates PodSecurity "restricted": hostPath', "Pod Security"),
        (
            "pods \"x\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no",
            "the cluster's rules refuse its pod: no",
        ),
        (
            'pods "x" is forbidden: error looking up service account ns/notebook: not found',
            "names the service account notebook, which does not exist in the namespace ns",
        ),
    ],
)
def test_a_refused_pod_is_explained(words: str, said: str) -> None:
    """A refusal by the API server becomes a sentence with advice."""
    told = startup_problems.problem_of_refusal(words)
    assert said in told.failed
    assert told.advice


def test_a_notebook_is_lost_when_its_node_does_not_answer() -> None:
    """A notebook counts as lost with its node if its pod is not ready although its containers were
    ready. A healthy, starting or briefly silent notebook does not count as lost.
    """
    lately = "2027-01-15T07:59:40Z"  # twenty seconds before NOW

    def pod(ready: str, container: bool) -> dict[str, Any]:
        told = {"type": "Ready", "status": ready, "lastTransitionTime": lately}
        return {
            "spec": {"nodeName": "node-2"},
            "status": {"conditions": [told], "containerStatuses": [{"ready": container}]},
        }

    silent = pod("False", True)
    assert spawner.is_on_lost_node(silent, NOW, 20)
    assert not spawner.is_on_lost_node(silent, NOW, 21)
    for other in (pod("True", True), pod("False", False), POD, None):
        assert not spawner.is_on_lost_node(other, NOW, 0)
    assert spawner.loss_message(silent).startswith(
        "Your notebook was stopped, because its node node-2 does not answer"
    )


def test_a_node_that_goes_away_under_a_start_is_tried_again() -> None:
    """If the node of a pod is lost before the pod runs, the start fails at once, and the message
    advises to try again.
    """
    event = {"reason": "NodeNotReady", "message": "Node is not ready", "type": "Warning"}
    told = why({"status": {}}, events=[event])
    assert told
    assert told.for_good
    assert told.waits == (
        "Your server is waiting: its node node-1 does not answer. "
        "Try again: it starts on another node."
    )


def test_what_the_administrator_must_mend_needs_no_smaller_size() -> None:
    """If no node matches the policy's labels, no smaller size is advised."""
    told = why(unscheduled("0/2 nodes are available: 2 node(s) didn't match Pod's node selector."))
    assert told
    assert "ask the administrator" in told.waits
    assert "smaller" not in told.waits
