"""Diagnosis of tasks that are not up, and of running tasks that do nothing.

The diagnosis reads events and logs, which the caches of pods and Jobs do not contain. The answers
are cached, too. If many pods wait for the same thing, such as a claim, one request answers for all
of them. A run with many pods is examined less often: a run of 600 pods every three seconds. The
requests for all runs together are limited to a few in a second, and an API server that does not
answer gets no requests for a while. Answers are dropped when no run needs them. This module does
not watch events and takes no decisions; `kube.status.waiting_reasons` interprets the answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..kube.api.client import Api, ApiError, Object, path
from ..kube.api.decoding import condition
from ..kube.api.labels import CONTAINER
from ..kube.api.resource_amounts import Amounts
from ..kube.status.pod_problems import event_time
from ..kube.status.task_pods import LOG_QUESTION, newest_pods
from ..kube.status.waiting_reasons import (
    Question,
    WaitingFacts,
    explain_waiting,
    oddity_in_output,
    open_questions,
    quiet_in_output,
)
from ..lifecycle import Quiet, WaitingReason
from ..spec import Message
from .cluster_state import ClusterCaches, Key, ObservedRun

READS_A_SECOND = 5.0
BURST = 20.0
SECONDS = 3.0
"""Timeout of one read in seconds."""
READ_AGAIN = 1.0
"""Seconds after which an answer is read again if it changed within the last `YOUNG` seconds."""
YOUNG = 120.0
READ_AGAIN_LATER = 10.0
REST = 10.0
"""Seconds without any read after the API server did not answer a read."""
FEW, PODS_A_SECOND = 20, 200.0
"""FEW: a run with more pods than this is not diagnosed at each change of a pod, but at a limited
rate. PODS_A_SECOND: the pods of one run that are diagnosed in a second. So a run of 600 pods is
diagnosed every three seconds.
"""
GROUP, QUEUE = "PodGroup", "Queue"
LINES = 20
LOG_BYTES = 16 * 1024


class ReadRateLimit:
    """A rate limit for the reads of all runs together, with a small burst."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left, self._at = burst, clock()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Return whether a read is allowed now; if so, count it."""
        with self._lock:
            now = self._clock()
            self._left = min(self._burst, self._left + (now - self._at) * self._rate)
            self._at = now
            if self._left < 1.0:
                return False
            self._left -= 1.0
            return True

    def rest(self, seconds: float) -> None:
        """Allow no reads for some seconds."""
        with self._lock:
            self._left, self._at = 0.0, self._clock() + seconds


@dataclass(frozen=True)
class PodGroupEvents:
    """The events of a waiting run's PodGroup, and the state of its queue."""

    events: Sequence[Object] = ()
    queue: str = ""


@dataclass
class _Answer:
    """An answer of the API server to one question. `found` is the answer, `at` the time at which it
    was read last, and `since` the time since which it has not changed.
    """

    since: float
    at: float
    found: Any


@dataclass
class _RunAnswers:
    """The answers about one run, by question, such as the events of a pod. `uid` distinguishes the
    run from an earlier run of its name.
    """

    uid: str
    answers: dict[Question, _Answer] = field(default_factory=dict)


@dataclass(frozen=True)
class _RunDiagnosis:
    """The diagnosis of a run with many pods, and the time at which it was made."""

    uid: str
    at: float
    why: tuple[WaitingReason, ...]


@dataclass
class _RunQuiets:
    """Facts from the logs of a run's running tasks, by pod uid. Each entry has the monotonic time
    at which the log was read, and the task's quiet period, None if the task works.
    """

    uid: str
    read: dict[str, tuple[float, Quiet | None]] = field(default_factory=dict)


class PendingTaskDiagnosis:
    """Explains why tasks are not up, and finds running tasks that do nothing.

    Args:
        api: the connection, for reading events and logs.
        caches: the operator's caches, of which the nodes are used.
        free: returns the free resources of each node; None if unknown.
        clock: returns monotonic seconds, by which pauses are measured.
        now: returns the current time, in seconds since the epoch.
    """

    def __init__(
        self,
        api: Api,
        caches: ClusterCaches,
        *,
        free: Callable[[], Sequence[Amounts] | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._api, self._caches, self._free = api, caches, free
        self._clock, self._now = clock, now
        self._allowance = ReadRateLimit(READS_A_SECOND, BURST, clock)
        self._known: dict[Key, _RunAnswers] = {}
        self._told: dict[Key, _RunDiagnosis] = {}
        self._odd: dict[Key, dict[str, Message]] = {}
        self._quiets: dict[Key, _RunQuiets] = {}

    def why(self, run: ObservedRun) -> tuple[WaitingReason, ...]:
        """Return the reasons why tasks do not run, the most important first; empty if unknown."""
        head, count = run.cluster.metadata, len(run.pods)
        key, at = (head.owner, head.name), self._clock()
        told = self._told.get(key)
        rest = count / PODS_A_SECOND if count > FEW else 0.0
        if told is None or told.uid != head.uid or at - told.at >= rest:
            told = _RunDiagnosis(head.uid, at, self._why(run))
            if count > FEW:
                self._told[key] = told
        return told.why

    def _why(self, run: ObservedRun) -> tuple[WaitingReason, ...]:
        jobs = list(run.jobs.values())
        questions = open_questions(run.pods, jobs, self._now(), self._events_known(run))
        if run.group is not None and (run.group.get("status") or {}).get("phase") == "Pending":
            head, queue = run.group["metadata"], run.group["spec"].get("queue") or "default"
            questions += [Question(GROUP, head["name"], head["uid"]), Question(QUEUE, queue)]
        answers = self._answers(run, questions)
        facts = WaitingFacts(
            nodes=self._caches.nodes.every(),
            free=self._free() if any(map(_is_unschedulable, run.pods)) else None,
            claims={
                question.name: found
                for question, found in answers.items()
                if question.kind == "PersistentVolumeClaim" and found
            },
            lines={
                q.uid: found for q, found in answers.items() if q.kind == LOG_QUESTION and found
            },
        )
        self._note_oddities(run, facts.lines)
        events = {q.uid: found for q, found in answers.items() if q.kind in ("Job", "Pod")}
        return tuple(explain_waiting(run.pods, jobs, events, facts))

    def pod_group_events(self, run: ObservedRun) -> PodGroupEvents:
        """Return the PodGroup events and the queue state that the last call of `why` read."""
        known = self._known.get((run.cluster.metadata.owner, run.cluster.metadata.name))
        answers = known.answers if known else {}
        events = [told for q, each in answers.items() if q.kind == GROUP for told in each.found]
        queues = [each.found for q, each in answers.items() if q.kind == QUEUE]
        return PodGroupEvents(events, queues[0] if queues and queues[0] else "")

    def _note_oddities(self, run: ObservedRun, lines: Mapping[str, Sequence[str]]) -> None:
        head = run.cluster.metadata
        for task, pod in newest_pods(run.pods).items() if lines else ():
            oddity = oddity_in_output(task, lines.get(pod["metadata"]["uid"], ()))
            if oddity is not None:
                self._odd.setdefault((head.owner, head.name), {})[task] = oddity

    def oddities(self, key: Key) -> Mapping[str, Message]:
        """Return, by task, a remark for each task that counts as started although its own port is
        closed.
        """
        return self._odd.get(key, {})

    def quiet(self, run: ObservedRun, tasks: Iterable[str], pause: float) -> dict[str, Quiet]:
        """Return, by task, the quiet period of each of the `tasks` whose log shows that it does
        nothing. Tasks whose log has not been read are left out.

        A log is read again after `pause` seconds. If one log shows that its task works, no further
        log is read, because then the run is not stalled.
        """
        head, clock = run.cluster.metadata, self._clock()
        known = self._quiets.get((head.owner, head.name))
        if known is None or known.uid != head.uid:
            known = self._quiets[(head.owner, head.name)] = _RunQuiets(head.uid)
        pods = newest_pods(run.pods)
        asked = {task: pods[task]["metadata"] for task in tasks if task in pods}
        known.read = {
            m["uid"]: known.read[m["uid"]] for m in asked.values() if m["uid"] in known.read
        }
        never = (float("-inf"), None)
        due = [m for m in asked.values() if clock - known.read.get(m["uid"], never)[0] >= pause]
        fresh = [known.read[m["uid"]][1] for m in asked.values() if m not in due]
        # Read first the logs of tasks that worked at the last read, because they probably work
        # still; then the logs that were not read for the longest time.
        worked = {uid for uid, (_at, quiet) in known.read.items() if quiet is None}
        due.sort(key=lambda m: (m["uid"] not in worked, known.read.get(m["uid"], never)[0]))
        for pod in due if None not in fresh else ():
            if not self._allowance.take():
                break
            question = Question(LOG_QUESTION, pod["name"], pod["uid"])
            try:
                quiet = quiet_in_output(self._log(question, head.owner), self._now())
            except ApiError as error:
                if error.unanswered:
                    self._allowance.rest(REST)
                    break
                quiet = None  # the pod is gone, or its log cannot be read
            known.read[pod["uid"]] = (clock, quiet)
            if quiet is None:
                break
        told = {task: known.read.get(m["uid"], never)[1] for task, m in asked.items()}
        return {task: quiet for task, quiet in told.items() if quiet is not None}

    def forget(self, key: Key) -> None:
        """Forget a run that has ended."""
        self._quiets.pop(key, None)
        self.forget_waiting(key)

    def forget_waiting(self, key: Key) -> None:
        """Forget the reasons why tasks of a run were not up."""
        self._odd.pop(key, None)
        self._forget_answers(key)

    def _forget_answers(self, key: Key) -> None:
        self._known.pop(key, None)
        self._told.pop(key, None)

    def _events_known(self, run: ObservedRun) -> dict[str, list[Object]]:
        known = self._known.get((run.cluster.metadata.owner, run.cluster.metadata.name))
        answers = known.answers if known else {}
        return {q.uid: each.found for q, each in answers.items() if q.kind == "Pod"}

    # -- reading -----------------------------------------------------------------------------------

    def _answers(self, run: ObservedRun, questions: list[Question]) -> Mapping[Question, Any]:
        """Return the answer to each question. An old answer is read again if the rate limit allows
        it.
        """
        head = run.cluster.metadata
        key = (head.owner, head.name)
        if not questions:
            self._forget_answers(key)
            return {}
        known = self._known.get(key)
        if known is None or known.uid != head.uid:
            known = self._known[key] = _RunAnswers(head.uid)
        known.answers = {q: known.answers[q] for q in questions if q in known.answers}
        # New questions come first, then the questions with the oldest answers.
        for question in sorted(questions, key=lambda q: self._age(known, q), reverse=True):
            self._refresh(known, question, head.owner)
        return {question: answer.found for question, answer in known.answers.items()}

    def _age(self, known: _RunAnswers, question: Question) -> float:
        answer = known.answers.get(question)
        return self._clock() - answer.at if answer else float("inf")

    def _refresh(self, known: _RunAnswers, question: Question, namespace: str) -> None:
        now = self._clock()
        answer = known.answers.get(question)
        if answer is not None:
            pause = READ_AGAIN if now - answer.since < YOUNG else READ_AGAIN_LATER
            if now - answer.at < max(pause, self._round()):
                return
        if not self._allowance.take():
            return
        try:
            found = self._read(question, namespace)
        except ApiError as error:
            if error.unanswered:
                self._allowance.rest(REST)
                return
            found = ()  # the object is gone or cannot be read
        since = answer.since if answer and answer.found == found else now
        known.answers[question] = _Answer(since, self._clock(), found)

    def _round(self) -> float:
        """Return the seconds that it takes to ask all known questions again at half of the allowed
        rate; the other half is left for new questions. Return 0 for at most `READS_A_SECOND`
        questions.
        """
        asked = sum(len(known.answers) for known in list(self._known.values()))
        return 2 * asked / READS_A_SECOND if asked > READS_A_SECOND else 0.0

    def _read(self, question: Question, namespace: str) -> Hashable | list[Any] | Object:
        if question.kind == LOG_QUESTION:
            return self._log(question, namespace)
        if question.kind == QUEUE:
            # The queue itself is read, because no event of the pods says that it was closed.
            queue = self._api.get(path("queues", "", question.name), seconds=SECONDS)
            return str((queue.get("status") or {}).get("state") or "")
        if question.kind == "PersistentVolumeClaim":
            where = path("persistentvolumeclaims", namespace, question.name)
            claim = self._api.get(where, seconds=SECONDS)
            if (claim.get("status") or {}).get("phase") == "Bound":
                return claim
            told = self._events(namespace, claim["metadata"]["uid"])
            said = max(told, key=event_time)["message"] if told else ""
            return {**claim, "said": said}
        return self._events(namespace, question.uid)

    def _log(self, question: Question, namespace: str) -> list[str]:
        """Return the last lines of a pod's log."""
        where = path("pods", namespace, question.name, "log")
        asked: dict[str, Any] = {
            "container": CONTAINER,
            "tailLines": LINES,
            "limitBytes": LOG_BYTES,
        }
        lines = self._api.lines(where, silence=SECONDS, **asked)
        return [line.decode("utf-8", "replace") for line in lines]

    def _events(self, namespace: str, uid: str) -> list[Object]:
        """Return the events of one object. Ref: core/v1 Event, field selectors of `kubectl get
        events`.
        """
        selector = f"involvedObject.uid={uid}"
        found = self._api.every(path("events", namespace), seconds=SECONDS, fieldSelector=selector)
        return found.items


def _is_unschedulable(pod: Object) -> bool:
    """Return whether the scheduler found no node for the pod."""
    return condition(pod, "PodScheduled").get("status") == "False"
