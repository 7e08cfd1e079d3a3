"""Reasons why tasks of a Kubernetes run wait: a message for every recorded cause."""

from __future__ import annotations

from typing import Any

import pytest
from support.waiting_pods import LATER, RECORDED, recorded, told

from tfcluster_magic.i18n import language
from tfcluster_magic.kube.status import waiting_reasons
from tfcluster_magic.lifecycle.messages import sentences

BUSYBOX = "registry:5001/busybox:3937bac03110"
PRIVATE = (
    f"the registry refuses the image {BUSYBOX} to the account in the secret access: "
    "check that the secret exists, and its user and password."
)
SENTENCES = {
    "no-cpu": "3 workers wait: no node has 64 CPU; the largest has 2 CPU: use --worker-cpu 2.",
    "no-memory": "worker-0 waits: no node has 900Gi of memory; the largest has 23Gi: "
    "use --worker-memory 23Gi.",
    "no-cpu-and-memory": "worker-0 waits: no node has 3 CPU and 900Gi of memory; the largest has "
    "2 CPU, 23Gi: use --worker-cpu 2 --worker-memory 23Gi.",
    "no-gpu": "worker-0 and worker-1 wait: no node has 1 GPU; the largest has none: "
    "use --worker-gpu 0.",
    "no-node-selected": "worker-0 waits: no free node has the label pool=gpu, which the task "
    "requires here: ask the administrator.",
    "quota": "worker-1 waits: the quota small of this namespace is used up (2 CPU of 2 CPU is "
    "taken and a worker needs 1 CPU): end another run, or ask for fewer or smaller tasks.",
    "quota-count": "worker-1 and worker-2 wait: the quota small of this namespace is used up "
    "(1 pod of 1 pod is taken and a worker needs 1 pod): end another run, or ask for fewer or "
    "smaller tasks.",
    "quota-unstated": "worker-0 waits: the quota small requires every task to state limits.memory, "
    "requests.cpu: use --worker-cpu 1 --worker-memory 1Gi.",
    "limit-range": "worker-0 waits: a task may use at most 1 CPU in this namespace, but 2 CPU is "
    "requested; a task may use at most 32Mi in this namespace, but 64Mi is requested: "
    "use --worker-cpu 1 --worker-memory 32Mi.",
    "image-missing": "worker-0 and worker-1 wait: there is no image registry:5000/nothing:1: "
    "check its name and tag.",
    "image-tag-missing": "worker-0 waits: there is no image registry:5000/busybox:no-such-tag: "
    "check its name and tag.",
    "image-no-registry": "worker-0 waits: the node does not reach the registry of the image "
    "registry.invalid/team/train:1: dial tcp: lookup registry.invalid on [::1]:53: read udp "
    "[::1]:57241->[::1]:53: read: connection refused.",
    "image-name-wrong": "worker-0 waits: 'Registry//Train:1:2' is not a valid image name.",
    "image-private": f"worker-0 waits: the image {BUSYBOX} is private: use "
    "--image-pull-secret to name a secret that opens its registry.",
    "image-private-wrong-password": f"worker-0 waits: {PRIVATE}",
    "image-private-secret-missing": f"worker-0 waits: {PRIVATE}",
    "image-never": "worker-0 waits: the node has no image registry:5000/nothing:2 and may not "
    "fetch it.",
    "claim-missing": "worker-0 and worker-1 wait: there is no claim data in this namespace: "
    "make it, or name one that exists.",
    "claim-unbound-no-class": "worker-0 waits: the claim data asks for the storage class "
    "no-such-class, which does not exist: make the claim again with a class of "
    "`kubectl get storageclass`.",
    "claim-unbound-no-provisioner": "worker-0 waits: the claim data has no volume yet, "
    "because its provisioner example.org/nobody has not created one: ask the administrator whether "
    "the provisioner runs.",
    "claim-one-pod-only": "worker-1 waits: the claim data serves one pod at a time "
    "(ReadWriteOncePod) and another uses it: use a claim that is ReadWriteMany.",
    "claim-on-another-node": "worker-0 waits: the volume of the claim data is on one node only, "
    "which has too few free resources: use a claim that is ReadWriteMany; no free node has the "
    "label kubernetes.io/hostname=node-1, which the task requires here: ask the administrator.",
    "claim-mounted-elsewhere": "worker-0 waits: its claim data is in use on another node and "
    "serves one node at a time (ReadWriteOnce): use a claim that is ReadWriteMany.",
    "secret-missing": "worker-0 waits: there is no secret keys in this namespace.",
    "secret-file-missing": "worker-0 waits: there is no secret keys in this namespace.",
    "webhook-down": "worker-0 waits: the admission webhook pods.policy.example.org, which must "
    "admit each pod, does not answer: it is tried again; ask the administrator (service "
    '"nobody" not found).',
    "pod-security": "worker-0 waits: Pod Security restricted:latest of this namespace refuses its "
    "pod: host namespaces (hostNetwork=true); ask the administrator.",
    "priority-class-missing": "worker-0 waits: there is no priority class no-such-class, which the "
    "administrator's policy names.",
    "service-account-missing": "worker-0 waits: the administrator's policy names the service "
    "account nobody, which does not exist in the namespace ada.",
    "node-lost": "worker-0 waits: its node node-2 does not answer: if it stays silent, the "
    "task starts on another node.",
}
NOTHING = ("running", "oom", "evicted-storage", "evicted-by-api", "no-such-command")
"""Recordings in which no task waits: the end of these pods is reported instead."""


@pytest.mark.parametrize("cause", SENTENCES)
def test_a_cause_is_one_sentence(cause: str) -> None:
    """The message for each recorded cause has the tasks, the reason, the numbers, and a remedy."""
    assert sentences([told(recorded(cause))[0].sentence]) == SENTENCES[cause]


@pytest.mark.parametrize("cause", NOTHING)
def test_who_runs_or_has_ended_does_not_wait(cause: str) -> None:
    """There is no message about waiting if tasks run, or have ended."""
    assert told(recorded(cause)) == []


def test_every_recording_is_told() -> None:
    """Every recorded cause has an expected message in this file, except those in NOTHING."""
    assert {path.stem for path in RECORDED.glob("*.json")} == {*SENTENCES, *NOTHING}


@pytest.mark.parametrize("cause", SENTENCES)
def test_every_cause_is_told_in_chinese(cause: str) -> None:
    """Each message has a Chinese translation."""
    with language("zh_CN"):
        sentence = sentences([told(recorded(cause))[0].sentence])
    assert "等待" in sentence
    assert "waits" not in sentence


class Counted(dict[str, Any]):
    """A mapping of answers that counts its lookups."""

    looked_for = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.looked_for += 1
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.looked_for += 1
        return super().__contains__(key)


def test_what_waits_alike_is_one_question() -> None:
    """If 600 pods wait on one node without a reason, one request is sent. Its answer is used for
    each of these pods, without a search through the others.
    """
    seen = recorded("secret-file-missing")
    asked, read = seen["pods"][0], seen["events"][seen["pods"][0]["metadata"]["uid"]]
    pods = []
    for index in range(600):
        head = asked["metadata"]
        notes = {**head["annotations"], "batch.kubernetes.io/job-completion-index": str(index)}
        pods.append({**asked, "metadata": {**head, "uid": f"u{index}", "annotations": notes}})
    questions = waiting_reasons.open_questions(pods, [], LATER)
    assert [each.kind for each in questions] == ["Pod"]
    answers = Counted({questions[0].uid: read})
    found = waiting_reasons.explain_waiting(pods, [], answers, waiting_reasons.WaitingFacts())
    assert [sentences([each.sentence]) for each in found] == [
        "600 workers wait: there is no secret keys in this namespace."
    ]
    assert answers.looked_for < 5 * len(pods)
    nothing = Counted()
    assert waiting_reasons.explain_waiting(pods, [], nothing, waiting_reasons.WaitingFacts()) == []
    assert nothing.looked_for < 5 * len(pods)


@pytest.mark.parametrize("cause", ["no-cpu", "image-missing", "claim-missing", "running"])
def test_a_pod_that_says_why_is_not_asked(cause: str) -> None:
    """For pods that run, or that state why they wait, no further object is requested."""
    seen = recorded(cause)
    assert waiting_reasons.open_questions(seen["pods"], seen["jobs"], LATER) == []


@pytest.mark.parametrize("cause", ["quota", "limit-range", "webhook-down", "pod-security"])
def test_a_job_without_its_pods_is_asked(cause: str) -> None:
    """If a Job has no pods one second after its creation, its events are requested, which have the
    reason.
    """
    seen = recorded(cause)
    assert ("Job", "digits-1-worker") in [
        (each.kind, each.name)
        for each in waiting_reasons.open_questions(seen["pods"], seen["jobs"], LATER)
    ]
    assert waiting_reasons.open_questions([], seen["jobs"], 0.0) == []


def test_unknown_words_are_passed_on() -> None:
    """An unknown reason is shown in Kubernetes' own words, shortened."""
    seen = recorded("no-cpu")
    for pod in seen["pods"]:
        for each in pod["status"]["conditions"]:
            each["message"] = "0/2 nodes are available: 2 node(s) had " + "strange weather " * 40
    sentence = sentences([told(seen)[0].sentence])
    assert sentence.startswith("3 workers wait: Kubernetes says: 2 node(s) had strange weather")
    assert len(sentence) < 400


SCHEDULER = {
    "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) had untolerated taint "
    "{node.kubernetes.io/unreachable: }. preemption: 0/3 nodes are available": "1 node is closed "
    "to new pods; 2 nodes do not answer",
    "0/2 nodes are available: 2 node(s) had untolerated taint {team: vision}. no new claims to "
    "deallocate, preemption: none": "2 nodes are reserved for others (team: vision)",
    "0/2 nodes are available: 1 Insufficient cpu, 1 Too many pods.": "no node has 64 CPU; the "
    "largest has 2 CPU: use --worker-cpu 2; every node holds as many pods as it may",
}


@pytest.mark.parametrize("words", SCHEDULER)
def test_the_scheduler_may_have_several_reasons(words: str) -> None:
    """If the scheduler gives different reasons for different nodes, the message lists them all."""
    seen = recorded("no-cpu")
    for pod in seen["pods"]:
        for each in pod["status"]["conditions"]:
            each["message"] = words
    assert str(told(seen)[0].text) == SCHEDULER[words]


def test_room_that_others_use_is_said_to_be_theirs() -> None:
    """If a pod would fit on an empty node, the message says that other pods use the resources; free
    amounts are shown if they are known.
    """
    seen = recorded("no-cpu")
    for pod in seen["pods"]:
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1500m"}}
    assert str(told(seen)[0].text) == (
        "no node has 1.5 CPU free, because others use it: the run starts when they end; or ask "
        "for less"
    )
    free = waiting_reasons.WaitingFacts(nodes=seen["nodes"], free=[{"cpu": 0.52}, {"cpu": 0.25}])
    found = waiting_reasons.explain_waiting(seen["pods"], seen["jobs"], {}, free)
    assert str(found[0].text) == (
        "no node has 1.5 CPU free; the largest has 0.52 CPU free: use --worker-cpu 0.5"
    )


def test_a_long_fetch_is_told() -> None:
    """An image whose download takes long is reported as being pulled."""
    seen = recorded("secret-file-missing")
    uid = seen["pods"][0]["metadata"]["uid"]
    pulling = {"type": "Normal", "reason": "Pulling", "message": "Pulling image", "count": 1}
    found = waiting_reasons.explain_waiting(
        seen["pods"], [], {uid: [pulling]}, waiting_reasons.WaitingFacts()
    )
    assert str(found[0].text).startswith("its image registry:5000/busybox")
    assert str(found[0].text).endswith("is being fetched")
