"""The operator's API requests about tasks that have not started; the requests are few, and their
answers are cached and then forgotten.
"""

from __future__ import annotations

import copy
import json
from types import SimpleNamespace
from typing import Any

import pytest
from support.project import DATA

from tfcluster_magic.kube.api.client import ApiError, Listing
from tfcluster_magic.kube.status.waiting_reasons import explain_waiting
from tfcluster_magic.lifecycle import Quiet
from tfcluster_magic.lifecycle.messages import sentences
from tfcluster_magic.operator import pending_tasks
from tfcluster_magic.operator.cluster_state import ObservedRun
from tfcluster_magic.operator.pending_tasks import BURST, READS_A_SECOND, PendingTaskDiagnosis
from tfcluster_magic.spec import Metadata, Replicas, ReplicaSet, Spec, TaskType, TFCluster

RECORDED = DATA / "waiting"


class RecordedApi:
    """An API that gives the answers recorded for a cause, and counts its requests."""

    def __init__(self, seen: dict[str, Any]) -> None:
        self.seen, self.reads, self.answers = seen, 0, True

    def every(self, where: str, **query: Any) -> Listing:
        """Return the events of an object; the operator lists nothing else."""
        self._count()
        assert where.endswith("/events")
        uid = str(query["fieldSelector"]).removeprefix("involvedObject.uid=")
        return Listing(self.seen["events"].get(uid, []), "1")

    def get(self, where: str, **_query: Any) -> dict[str, Any]:
        """Return the recorded claim that the path names; the operator gets no other objects."""
        self._count()
        name = where.rpartition("/")[2]
        found = [each for each in self.seen["claims"] if each["metadata"]["name"] == name]
        if not found:
            raise ApiError(404, "NotFound", name)
        claim: dict[str, Any] = found[0]
        return claim

    def lines(self, where: str, **_query: Any) -> list[bytes]:
        """Return the last lines of a pod's log."""
        self._count()
        return [line.encode() for line in self.seen["logs"][where.split("/")[-2]]]

    def _count(self) -> None:
        self.reads += 1
        if not self.answers:
            raise ApiError(0, "NoAnswer", "nobody is there")


class Place:
    """An explainer with recorded objects, and a clock that the test moves."""

    def __init__(self, cause: str) -> None:
        self.seen = json.loads((RECORDED / f"{cause}.json").read_text())
        self.api, self.time = RecordedApi(self.seen), 0.0
        self.summed_up = 0
        nodes = SimpleNamespace(nodes=SimpleNamespace(every=lambda: self.seen["nodes"]))
        self.explainer = PendingTaskDiagnosis(
            self.api,  # type: ignore[arg-type]
            nodes,  # type: ignore[arg-type]
            free=self._free,
            clock=lambda: self.time,
            now=lambda: 2e9 + self.time,
        )

    def _free(self) -> None:
        self.summed_up += 1

    def sentences(self, run: int = 1, pods: list[Any] | None = None) -> list[str]:
        """Return the sentences that explain why tasks of the run `digits-<run>` wait."""
        head = Metadata(
            name=f"digits-{run}",
            cluster="digits",
            run=run,
            uid=f"u{run}",
            created_at=0,
            owner="ada",
        )
        cluster = TFCluster(metadata=head, spec=Spec(replicas=ReplicaSet(worker=Replicas(count=3))))
        jobs = {TaskType.WORKER: self.seen["jobs"][0]}
        sight = ObservedRun(cluster, self.seen["pods"] if pods is None else pods, jobs)
        return [sentences([each.sentence]) for each in self.explainer.why(sight)]


def test_a_quota_is_told_after_one_question() -> None:
    """A Job's events are read once and cached; a second later they are read again."""
    place = Place("quota")
    assert "the quota small of this namespace is used up" in place.sentences()[0]
    assert place.api.reads == 1
    place.sentences()
    assert place.api.reads == 1
    place.time += 1.1
    place.sentences()
    assert place.api.reads == 2


def test_an_old_question_is_asked_less_often() -> None:
    """If a task waits for minutes for the same reason, the operator reads the state again only
    every ten seconds.
    """
    place = Place("quota")
    place.sentences()
    for _second in range(200):
        place.time += 1.0
        place.sentences()
    before = place.api.reads
    for _second in range(20):
        place.time += 1.0
        place.sentences()
    assert place.api.reads - before <= 2


def test_many_runs_share_a_few_reads() -> None:
    """The requests about all waiting runs together, here a hundred, stay within one rate limit; so
    the explanations of the runs are read one after the other.
    """
    place = Place("quota")
    for run in range(1, 101):
        place.sentences(run)
    assert place.api.reads == BURST
    for _second in range(25):
        place.time += 1.0
        for run in range(1, 101):
            place.sentences(run)
    assert place.api.reads <= BURST + 25 * READS_A_SECOND
    assert all(place.sentences(run) for run in range(1, 51))


def pods_of(place: Place, count: int) -> list[Any]:
    """Return `count` pods that are copies of the first recorded pod, and the pods' Job."""
    pod, pods = place.seen["pods"][0], []
    for index in range(count):
        head = pod["metadata"]
        notes = {**head["annotations"], "batch.kubernetes.io/job-completion-index": str(index)}
        uid = head["uid"] if index == 0 else f"u{index}"
        pods.append({**pod, "metadata": {**head, "uid": uid, "annotations": notes}})
    place.seen["jobs"][0]["spec"]["completions"] = count
    return pods


def test_six_hundred_pods_are_one_question() -> None:
    """All pods of a run that wait for the same reason, here 600, together cause one request."""
    place = Place("secret-file-missing")
    pods = pods_of(place, 600)
    assert place.sentences(pods=pods) == [
        "600 workers wait: there is no secret keys in this namespace."
    ]
    assert place.api.reads == 1


@pytest.mark.parametrize(("tasks", "looks"), [(20, 50), (600, 2)])
def test_many_pods_are_looked_through_now_and_then(
    tasks: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change of one of 600 starting pods causes a turn of their run, but the pods of a large
    run are examined only every few seconds.
    """
    looked = []

    def count(*words: Any) -> list[Any]:
        looked.append(words)
        return explain_waiting(*words)

    monkeypatch.setattr(pending_tasks, "explain_waiting", count)
    place = Place("secret-file-missing")
    pods = pods_of(place, tasks)
    for turn in range(50):
        place.time = turn / 10
        assert place.sentences(pods=pods) == [
            f"{tasks} workers wait: there is no secret keys in this namespace."
        ]
    assert len(looked) == looks
    place.explainer.forget(("ada", "digits-1"))
    place.sentences(pods=pods)
    assert len(looked) == looks + 1


def test_an_api_that_does_not_answer_is_left_alone() -> None:
    """After an unanswered request, no request is sent for a while; the last explanation stays."""
    place = Place("quota")
    known = place.sentences()
    place.api.answers = False
    place.time += 2.0
    assert place.sentences() == known
    reads = place.api.reads
    place.time += 5.0
    assert place.sentences() == known
    assert place.api.reads == reads
    place.api.answers = True
    place.time += 6.0
    place.sentences()
    assert place.api.reads == reads + 1


def test_what_does_not_wait_is_forgotten() -> None:
    """Cached answers about a run are dropped once it is forgotten, and a run whose tasks all run
    causes no requests.
    """
    place = Place("quota")
    place.sentences()
    place.explainer.forget(("ada", "digits-1"))
    place.sentences()
    assert place.api.reads == 2
    running = Place("running")
    assert running.sentences() == []
    assert running.api.reads == 0


def test_a_claim_says_why_it_has_no_volume() -> None:
    """The reason why a pod waits for a claim comes from the claim and the claim's events."""
    place = Place("claim-unbound-no-provisioner")
    assert "example.org/nobody" in place.sentences()[0]
    assert place.api.reads == 2


def test_what_nodes_have_left_is_summed_up_for_who_has_no_room() -> None:
    """The free resources of hundreds of nodes are summed only if a pod lacks resources, not for
    pods that only start.
    """
    starting, crowded = Place("image-missing"), Place("no-cpu")
    assert starting.sentences()
    assert starting.summed_up == 0
    assert crowded.sentences()
    assert crowded.summed_up == 1


# -- tasks that do nothing -------------------------------------------------------------------------

QUIET = "tfcluster: quiet since 2033-05-18T03:33:20Z: it prints nothing, writes no event file"
SESSION = "I] CreateSession still waiting for response from worker: /job:worker/replica:0/task:0"


class QuietPlace(Place):
    """Three workers that are up, and their output."""

    def __init__(self, *logs: list[str]) -> None:
        super().__init__("running")
        pod = json.loads((DATA / "pods" / "running.json").read_text())
        self.seen["logs"] = {f"pod-{index}": log for index, log in enumerate(logs)}
        self.pods = [copy.deepcopy(pod) for _log in logs]
        for index, each in enumerate(self.pods):
            each["metadata"] |= {"name": f"pod-{index}", "uid": f"u-{index}"}
            each["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = str(index)

    def quiet(self, pause: float = 10.0) -> dict[str, Quiet]:
        """Return what the logs say about a standstill, by worker; a log is read again only after
        `pause` seconds.
        """
        head = Metadata(
            name="digits-1", cluster="digits", run=1, uid="u1", created_at=0, owner="ada"
        )
        cluster = TFCluster(metadata=head, spec=Spec(replicas=ReplicaSet(worker=Replicas(count=3))))
        tasks = [f"worker-{index}" for index in range(len(self.pods))]
        return self.explainer.quiet(ObservedRun(cluster, self.pods, {}), tasks, pause)


def test_a_run_that_works_is_asked_once_a_pause() -> None:
    """If one task works, no other log is read, and the log of that task is read again only after
    the pause.
    """
    place = QuietPlace(["step 1"], [QUIET], [QUIET])
    for _turn in range(20):
        place.quiet()
    assert place.api.reads == 1
    place.time += 10
    place.quiet()
    assert place.api.reads == 2


def test_all_that_do_nothing_are_known() -> None:
    """If no task works, all logs are read. The result says since when each task does nothing, for
    which task it waits, and when its log was read.
    """
    place = QuietPlace([QUIET], [QUIET, SESSION, SESSION], [QUIET])
    found = place.quiet()
    assert sorted(found) == ["worker-0", "worker-1", "worker-2"]
    assert {each.since for each in found.values()} == {2e9}
    assert found["worker-1"].peer == "worker-0"
    assert "CreateSession still waiting" in found["worker-1"].words
    place.time += 10
    assert {each.until for each in place.quiet().values()} == {2e9 + 10}
    place.seen["logs"]["pod-2"].append("step 2")
    place.time += 10
    assert "worker-2" not in place.quiet()
    place.explainer.forget(("ada", "digits-1"))
    assert not place.explainer._quiets


def test_logs_that_nobody_reads_say_nothing() -> None:
    """While the API does not answer, no task is reported as idle."""
    place = QuietPlace([QUIET])
    place.api.answers = False
    assert place.quiet() == {}
