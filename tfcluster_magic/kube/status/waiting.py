"""Why tasks of a run do not run: pods, Jobs and their events in, sentences out. Pure.

Promises one sentence for each distinct reason, the most telling first, with who is concerned; and
that 600 pods that wait for the same thing are one question (`ask`). Words that nobody here knows
are Kubernetes' own, shortened. It decides nothing and remembers nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ...i18n import _, ngettext
from ...lifecycle import Why
from ...lifecycle.messages import shorten
from ..api.amounts import Amounts, amounts, asked_by
from ..api.decoding import condition, seconds
from . import peers, pod_problems, refused, task_pods, unscheduled
from .exit_status import container, is_over
from .said import BY_SOMEBODY, GOES_ON, Asked, Clause, Object
from .task_pods import LOG

MOST_QUESTIONS = 6
_PATIENCE = 3.0
"""Seconds for which a Job may make no pod before anybody asks why."""


@dataclass(frozen=True)
class Question:
    """An object whose events (LOG: whose last lines) have to be read to know more."""

    kind: str
    name: str
    uid: str = ""


@dataclass(frozen=True)
class Facts:
    """What is known beside pods and Jobs.

    `claims` by name, each with the newest words of its events as `said`; `lines` are last lines of
    output by a pod's uid; `free` is what each node has left, where that is known.
    """

    nodes: Sequence[Object] = ()
    free: Sequence[Amounts] | None = None
    claims: Mapping[str, Object] = field(default_factory=dict)
    lines: Mapping[str, Sequence[str]] = field(default_factory=dict)


def why(
    pods: Iterable[Object],
    jobs: Iterable[Object],
    events: Mapping[str, Sequence[Object]],
    facts: Facts,
) -> list[Why]:
    """Why tasks do not run, the most telling first. `events` are those of an object, by its uid."""
    tasks, jobs = task_pods.newest(pods), list(jobs)
    asker = _Asker(facts, task_pods.read(tasks, events), task_pods.read(tasks, facts.lines))
    found: dict[Clause, list[str]] = {}
    for task, pod in tasks.items():
        told = _of_pod(pod, tasks, events, asker)
        if told is not None:
            found.setdefault(told, []).append(task)
    for job in jobs:
        missing = task_pods.without_pod(job, tasks)
        refusal = _refusal(events.get(job["metadata"]["uid"], ()))
        if missing and refusal:
            told = refused.clause(refusal, Asked(task_type=task_pods.type_of(job)))
            found.setdefault(told, []).extend(missing)
    reasons = [_why(clause, names) for clause, names in found.items()]
    away, waiting = peers.missed(tasks, jobs)
    if waiting:
        reasons.append(_for_peers(waiting, away))
    return sorted(reasons, key=lambda each: (each.rank, -len(each.tasks)))


def ask(
    pods: Iterable[Object],
    jobs: Iterable[Object],
    now: float,
    events: Mapping[str, Sequence[Object]] | None = None,
) -> list[Question]:
    """What has to be read to explain more, at most MOST_QUESTIONS: one object for each state.

    `events` are what was read of pods before: they may lead to their claims.
    """
    tasks = task_pods.newest(pods)
    newest: dict[str, float] = {}
    """When the last pod of each type was made: a Job that makes one after the other is well."""
    for pod in tasks.values():
        made = seconds(pod["metadata"].get("creationTimestamp")) or 0.0
        newest[task_pods.type_of(pod)] = max(made, newest.get(task_pods.type_of(pod), 0.0))
    found: dict[object, Question] = {}
    for job in jobs:
        head, status = job["metadata"], job.get("status") or {}
        since = seconds(status.get("startTime")) or seconds(head.get("creationTimestamp")) or now
        since = max(since, newest.get(task_pods.type_of(job), 0.0))
        if now - since >= _PATIENCE and task_pods.without_pod(job, tasks):
            found["Job", head["name"]] = Question("Job", head["name"], head["uid"])
    for pod in tasks.values():
        head, state = pod["metadata"], task_pods.silent(pod, now)
        if state is not None:
            kind = LOG if state[0] == LOG else "Pod"
            found.setdefault(state, Question(kind, head["name"], head["uid"]))
        if task_pods.needs_claims(pod, now) or pod_problems.tell_of_claims(
            (events or {}).get(head["uid"], ())
        ):
            for name in task_pods.claims_of(pod):
                found.setdefault(("claim", name), Question("PersistentVolumeClaim", name))
    return list(found.values())[:MOST_QUESTIONS]


class _Asker:
    """What sentences about pods of one template need, computed once for all; `told` and `printed`
    are the pods of which events and output were read.
    """

    def __init__(self, facts: Facts, told: Sequence[Object], printed: Sequence[Object]) -> None:
        self.facts, self.told, self.printed = facts, told, printed
        self.silent = {
            node["metadata"]["name"]
            for node in facts.nodes
            if condition(node, "Ready").get("status", "True") != "True"
        }

    @cached_property
    def _nodes(self) -> list[Amounts]:
        return [
            amounts((node.get("status") or {}).get("allocatable"))
            for node in self.facts.nodes
            if not (node.get("spec") or {}).get("unschedulable")
            and node["metadata"]["name"] not in self.silent
        ]

    def room(self, asked: Asked) -> Asked:
        """With what the nodes have: of hundreds, so only for a pod that has none."""
        return replace(asked, nodes=self._nodes, free=self.facts.free)

    def about(self, pod: Object) -> Asked:
        """The facts that a sentence about this pod may name, but for the nodes'."""
        spec, known = pod["spec"], self.facts.claims
        every = spec.get("containers") or [{}]
        return Asked(
            task_type=task_pods.type_of(pod),
            amounts=asked_by(spec),
            selector=spec.get("nodeSelector") or {},
            claims={name: known[name] for name in task_pods.claims_of(pod) if name in known},
            image=every[0].get("image", ""),
            pull_secrets=[each["name"] for each in spec.get("imagePullSecrets") or ()],
            node=spec.get("nodeName") or "",
        )


def _of_pod(
    pod: Object,
    tasks: Mapping[str, Object],
    events: Mapping[str, Sequence[Object]],
    asker: _Asker,
) -> Clause | None:
    if is_over(pod) or (task_pods.is_up(pod) and not asker.silent):
        return None
    asked = asker.about(pod)
    if not asked.node:
        return _unscheduled(pod, asked, asker)
    if asked.node in asker.silent:
        text = _("its node {node} does not answer: it starts elsewhere when the node stays away")
        return Clause(BY_SOMEBODY, text.format(node=asked.node), "NodeNotReady")
    state = container(pod).get("state") or {}
    if "running" in state:
        lines = task_pods.answer(pod, asker.printed, asker.facts.lines)
        return None if task_pods.is_up(pod) or not lines else peers.in_output(lines, tasks)
    waits = state.get("waiting") or {}
    told = pod_problems.of_state(waits.get("reason", ""), waits.get("message", ""), asked)
    return told or pod_problems.of_events(task_pods.answer(pod, asker.told, events), asked)


def _unscheduled(pod: Object, asked: Asked, asker: _Asker) -> Clause | None:
    told = condition(pod, "PodScheduled")
    if told.get("status") == "False" and told.get("reason") == "SchedulingGated":
        text = _("its pod is held back by a scheduling gate")
        return Clause(BY_SOMEBODY, text, "SchedulingGated")
    if told.get("status") == "False":
        return unscheduled.clause(str(told.get("message", "")), asker.room(asked))
    for claim in asked.claims.values():
        if claim.get("said") and (claim.get("status") or {}).get("phase") != "Bound":
            return Clause(BY_SOMEBODY, unscheduled.unbound(claim), "ClaimPending")
    return None


def _refusal(events: Sequence[Object]) -> str:
    """The words of the newest FailedCreate of a Job."""
    told = [each for each in events if each.get("reason") == refused.REASON]
    return str(max(told, key=pod_problems.when)["message"]) if told else ""


# -- who ---------------------------------------------------------------------------------------


def _why(clause: Clause, tasks: Sequence[str]) -> Why:
    one, many = _("{who} waits: {why}."), _("{who} wait: {why}.")
    text = (one if len(tasks) == 1 else many).format(who=_who(tasks), why=clause.text)
    return Why(
        tasks=tuple(tasks),
        text=clause.text,
        sentence=text,
        reason=clause.reason,
        rank=clause.rank,
    )


def _for_peers(waiting: Sequence[str], away: Sequence[str]) -> Why:
    text = _("waits for {peers}").format(peers=shorten(away))
    one, many = _("{who} waits for {peers}."), _("{who} wait for {peers}.")
    told = (one if len(waiting) == 1 else many).format(who=_who(waiting), peers=shorten(away))
    return Why(tasks=tuple(waiting), text=text, sentence=told, reason=peers.REASON, rank=GOES_ON)


def _who(tasks: Sequence[str]) -> str:
    """`worker-1`, `3 workers`, or `5 tasks`."""
    if len(tasks) <= 2:
        return _(" and ").join(tasks)
    types = {task.rpartition("-")[0] for task in tasks}
    count = len(tasks)
    if types == {"worker"}:
        return ngettext("{count} worker", "{count} workers", count).format(count=count)
    if types == {"ps"}:
        text = ngettext("{count} parameter server", "{count} parameter servers", count)
        return text.format(count=count)
    return ngettext("{count} task", "{count} tasks", count).format(count=count)
