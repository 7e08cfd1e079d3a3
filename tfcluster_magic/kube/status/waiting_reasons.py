"""Reasons why tasks of a run wait, from pods, Jobs, events and the last lines of logs. Pure.

There is one sentence for each distinct reason, with the tasks concerned; the most important comes
first. If 600 pods wait for the same thing, one question is enough (`open_questions`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from ...lifecycle import Quiet, WaitingReason
from ...lifecycle.messages import some, start_oddity
from ...spec import Message
from ..api.decoding import condition, epoch_seconds
from ..api.resource_amounts import Amounts, parse_amounts, pod_resources
from . import pod_problems, task_pods
from .exit_status import container_status, is_over
from .pod_problems import BY_SOMEBODY, GOES_ON, Object, PodContext, PodProblem
from .task_pods import LOG_QUESTION

PEER_NOT_UP = "PeerNotUp"
_ADDRESS = re.compile(r"waiting for the address of (.+)$")
_WAIT_IS_OVER = re.compile(r"every address is there$|going on without the address of ")
"""Line that shows that a task no longer waits for the addresses of the other tasks. TensorFlow may
print nothing for a long time after this line.
"""
_HOST = re.compile(r"[a-z0-9-]+?-((?:ps|worker|chief|evaluator)-\d+)\.")
_SESSION = re.compile(r"still waiting for response from worker: /job:(\w+)/replica:\d+/task:(\d+)")
TENSORFLOW_WAITS = re.compile(
    r"still waiting for response from worker: |[Bb]arrier timed out"
    r"|[Ww]aiting for \d+/\d+ tasks to connect|[Ss]tragglers:"
)
"""Lines that TensorFlow prints repeatedly while it waits; `runtime/activity.py` has the same list.
"""
_TASK = re.compile(r"/job:([a-z]+)/(?:replica:\d+/)?task:(\d+)")
_QUIET = re.compile(r"^tfcluster: quiet since (\S+): ")
_SIGN = re.compile(
    r"^tfcluster: it does not listen on its own port (?P<own>\d+), but "
    r"(?:(?P<ports>listens on port (?P<numbers>[\d, ]+))|(?P<steps>prints steps)"
    r"|(?P<events>writes event files)"
    r"|(?P<cpu>computes \((?P<cores>[\d.]+) cores for (?P<time>\d+) s\)))"
)


def quiet_in_output(lines: Sequence[str], until: float) -> Quiet | None:
    """Return the quiet period of a running task that does nothing, from its last lines of output;
    None if it works.

    `runtime/task.py` prints the line `tfcluster: quiet since …`. `until` is the time at which the
    lines were read, in seconds since the epoch.
    """
    peer = words = ""
    for line in reversed(lines):
        if TENSORFLOW_WAITS.search(line):
            found = _TASK.search(line)
            peer = peer or (f"{found.group(1)}-{found.group(2)}" if found else "")
            words = words or (line.partition("] ")[2] or line).strip()
        elif found := _QUIET.search(line):
            since = epoch_seconds(found.group(1))
            return (
                None if since is None else Quiet(since=since, until=until, peer=peer, words=words)
            )
        elif line.strip():
            return None
    return None


def oddity_in_output(task: str, lines: Sequence[str]) -> Message | None:
    """Return a message that says why a task counts as started although its port is closed. The
    reason is read from `lines`, the last lines of the task's output. Return None if no line has a
    reason.
    """
    for found in filter(None, map(_SIGN.search, reversed(lines))):
        said = found.groupdict()
        sign = next(each for each in ("ports", "steps", "events", "cpu") if said[each])
        ports = [int(each) for each in (said["numbers"] or "").split(", ") if each]
        cores, seconds = float(said["cores"] or 0), float(said["time"] or 0)
        return start_oddity(task, sign, int(said["own"]), ports, cores, seconds)
    return None


def peer_in_output(lines: Sequence[str], tasks: Mapping[str, Object]) -> PodProblem | None:
    """Return the problem of a task that waits for another task, from the last of its lines that
    names the other task.
    """
    for line in reversed(lines):
        if found := _SESSION.search(line):
            peer = f"{found.group(1)}-{found.group(2)}"
            text = Message("PeerSilent", {"peer": peer})
            return PodProblem(GOES_ON, text, PEER_NOT_UP)
        if _WAIT_IS_OVER.search(line):
            break
        if found := _ADDRESS.search(line):
            return _no_address(_HOST.findall(found.group(1)), found.group(1), tasks)
    text = Message("PortNotOpenedYet")
    return PodProblem(GOES_ON, text, "NotReady")


def _no_address(peers: Sequence[str], words: str, tasks: Mapping[str, Object]) -> PodProblem:
    away = [peer for peer in peers if not _is_running(tasks.get(peer))]
    if peers and not away:
        text = Message("NameUnresolved", {"peer": peers[0]})
        return PodProblem(BY_SOMEBODY, text, "NoAddress")
    text = Message("WaitsForAddress", {"peers": some(away) if away else words})
    return PodProblem(GOES_ON, text, PEER_NOT_UP)


def _is_running(pod: Object | None) -> bool:
    statuses = (pod["status"].get("containerStatuses") or ()) if pod is not None else ()
    return any("running" in (each.get("state") or {}) for each in statuses)


def missing_peers(
    tasks: Mapping[str, Object], jobs: Sequence[Object]
) -> tuple[list[str], list[str]]:
    """Return the parameter servers that are not up, and the running trainers that wait for them."""
    counts = {task_pods.task_type_of(job): job["spec"].get("completions") or 0 for job in jobs}
    servers = [f"ps-{index}" for index in range(counts.get("ps", 0))]
    away = [name for name in servers if name not in tasks or not task_pods.is_up(tasks[name])]
    trainers = [
        name
        for name, pod in tasks.items()
        if name.startswith(("worker-", "chief-")) and task_pods.is_up(pod) and not is_over(pod)
    ]
    return (away, trainers) if away and trainers else ([], [])


# Reasons why tasks of a run wait: the questions to ask, and the answers put together.

MOST_QUESTIONS = 6
_PATIENCE = 3.0
"""If a Job lacks pods and has created none for this many seconds, its events are read."""


@dataclass(frozen=True)
class Question:
    """A request to read an object's events; if `kind` is `log`, the last lines of a pod's log."""

    kind: str
    name: str
    uid: str = ""


@dataclass(frozen=True)
class WaitingFacts:
    """The facts that help to explain why tasks wait, besides the pods, the Jobs and their events.

    `claims` has the claims by name; the key `said` of a claim has the message of its newest event.
    `lines` has the last lines of output of pods, by the uid of the pod. `free` has the free
    resources of each node, if known.
    """

    nodes: Sequence[Object] = ()
    free: Sequence[Amounts] | None = None
    claims: Mapping[str, Object] = field(default_factory=dict)
    lines: Mapping[str, Sequence[str]] = field(default_factory=dict)


def explain_waiting(
    pods: Iterable[Object],
    jobs: Iterable[Object],
    events: Mapping[str, Sequence[Object]],
    facts: WaitingFacts,
) -> list[WaitingReason]:
    """Return the reasons why tasks do not run, the most important first. `events` has the events of
    objects by the object's uid.
    """
    tasks, jobs = task_pods.newest_pods(pods), list(jobs)
    asker = _PodContexts(
        facts,
        task_pods.representative_pods(tasks, events),
        task_pods.representative_pods(tasks, facts.lines),
    )
    found: dict[bytes, tuple[PodProblem, list[str]]] = {}
    for task, pod in tasks.items():
        told = _of_pod(pod, tasks, events, asker)
        if told is not None:
            _tasks_of(told, found).append(task)
    for job in jobs:
        missing = task_pods.tasks_without_pod(job, tasks)
        refusal = _refusal(events.get(job["metadata"]["uid"], ()))
        if missing and refusal:
            told = pod_problems.failed_create_problem(
                refusal, PodContext(task_type=task_pods.task_type_of(job))
            )
            _tasks_of(told, found).extend(missing)
    reasons = [_why_of_problem(clause, names) for clause, names in found.values()]
    away, waiting = missing_peers(tasks, jobs)
    if waiting:
        reasons.append(_why_of_peers(waiting, away))
    return sorted(reasons, key=lambda each: (each.rank, -len(each.tasks)))


def _tasks_of(problem: PodProblem, found: dict[bytes, tuple[PodProblem, list[str]]]) -> list[str]:
    """Return the list of the tasks with this problem, for the caller to extend. If `found` does not
    have the problem yet, add it with an empty list.
    """
    key = msgspec.json.encode(problem)
    return found.setdefault(key, (problem, []))[1]


def open_questions(
    pods: Iterable[Object],
    jobs: Iterable[Object],
    now: float,
    events: Mapping[str, Sequence[Object]] | None = None,
) -> list[Question]:
    """Return what to read to find further reasons: one object for all pods that wait in the same
    state, and at most MOST_QUESTIONS objects in total. `events` are events of pods that were read
    before; they may show that the claims of a pod must be read.
    """
    tasks = task_pods.newest_pods(pods)
    newest: dict[str, float] = {}
    """Creation time of the newest pod of each type. The events of a Job that created a pod recently
    are not read.
    """
    for pod in tasks.values():
        made = epoch_seconds(pod["metadata"].get("creationTimestamp")) or 0.0
        newest[task_pods.task_type_of(pod)] = max(
            made, newest.get(task_pods.task_type_of(pod), 0.0)
        )
    found: dict[object, Question] = {}
    for job in jobs:
        head, status = job["metadata"], job.get("status") or {}
        since = (
            epoch_seconds(status.get("startTime"))
            or epoch_seconds(head.get("creationTimestamp"))
            or now
        )
        since = max(since, newest.get(task_pods.task_type_of(job), 0.0))
        if now - since >= _PATIENCE and task_pods.tasks_without_pod(job, tasks):
            found["Job", head["name"]] = Question("Job", head["name"], head["uid"])
    for pod in tasks.values():
        head, state = pod["metadata"], task_pods.unexplained_wait_state(pod, now)
        if state is not None:
            kind = LOG_QUESTION if state[0] == LOG_QUESTION else "Pod"
            found.setdefault(state, Question(kind, head["name"], head["uid"]))
        if task_pods.needs_claims(pod, now) or pod_problems.are_about_claims(
            (events or {}).get(head["uid"], ())
        ):
            for name in task_pods.claims_of(pod):
                found.setdefault(("claim", name), Question("PersistentVolumeClaim", name))
    return list(found.values())[:MOST_QUESTIONS]


class _PodContexts:
    """Facts for sentences about pods, computed once for all pods. `told` are the pods whose events
    were read; `printed` are the pods whose output was read.
    """

    def __init__(
        self, facts: WaitingFacts, told: Sequence[Object], printed: Sequence[Object]
    ) -> None:
        self.facts, self.told, self.printed = facts, told, printed
        self.silent = {
            node["metadata"]["name"]
            for node in facts.nodes
            if condition(node, "Ready").get("status", "True") != "True"
        }

    @cached_property
    def _nodes(self) -> list[Amounts]:
        return [
            parse_amounts((node.get("status") or {}).get("allocatable"))
            for node in self.facts.nodes
            if not (node.get("spec") or {}).get("unschedulable")
            and node["metadata"]["name"] not in self.silent
        ]

    def room(self, asked: PodContext) -> PodContext:
        """Add the total and free resources of the nodes, which only pods without a node need."""
        return replace(asked, nodes=self._nodes, free=self.facts.free)

    def about(self, pod: Object) -> PodContext:
        """Return the facts that a sentence about this pod may name, without the resources of the
        nodes.
        """
        spec, known = pod["spec"], self.facts.claims
        every = spec.get("containers") or [{}]
        return PodContext(
            task_type=task_pods.task_type_of(pod),
            amounts=pod_resources(spec),
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
    asker: _PodContexts,
) -> PodProblem | None:
    if is_over(pod) or (task_pods.is_up(pod) and not asker.silent):
        return None
    asked = asker.about(pod)
    if not asked.node:
        return _unscheduled(pod, asked, asker)
    if asked.node in asker.silent:
        text = Message("NodeSilent", {"node": asked.node})
        return PodProblem(BY_SOMEBODY, text, "NodeNotReady")
    state = container_status(pod).get("state") or {}
    if "running" in state:
        lines = task_pods.answer_for_pod(pod, asker.printed, asker.facts.lines)
        return None if task_pods.is_up(pod) or not lines else peer_in_output(lines, tasks)
    waits = state.get("waiting") or {}
    told = pod_problems.container_waiting_problem(
        waits.get("reason", ""), waits.get("message", ""), asked
    )
    return told or pod_problems.event_problem(
        task_pods.answer_for_pod(pod, asker.told, events), asked
    )


def _unscheduled(pod: Object, asked: PodContext, asker: _PodContexts) -> PodProblem | None:
    told = condition(pod, "PodScheduled")
    if told.get("status") == "False" and told.get("reason") == "SchedulingGated":
        text = Message("SchedulingGated")
        return PodProblem(BY_SOMEBODY, text, "SchedulingGated")
    if told.get("status") == "False":
        return pod_problems.unschedulable_problem(str(told.get("message", "")), asker.room(asked))
    for claim in asked.claims.values():
        if claim.get("said") and (claim.get("status") or {}).get("phase") != "Bound":
            return PodProblem(BY_SOMEBODY, pod_problems.unbound_claim(claim), "ClaimPending")
    return None


def _refusal(events: Sequence[Object]) -> str:
    """Return the message of a Job's newest FailedCreate event; empty if there is none."""
    told = [each for each in events if each.get("reason") == pod_problems.FAILED_CREATE]
    return str(max(told, key=pod_problems.event_time)["message"]) if told else ""


# -- subjects of sentences -------------------------------------------------------------------------


def _why_of_problem(clause: PodProblem, tasks: Sequence[str]) -> WaitingReason:
    values = {"who": _who(tasks), "why": clause.text, "count": len(tasks)}
    return WaitingReason(
        tasks=tuple(tasks),
        text=clause.text,
        sentence=Message("TasksWait", values),
        reason=clause.reason,
        words=clause.words,
        rank=clause.rank,
    )


def _why_of_peers(waiting: Sequence[str], away: Sequence[str]) -> WaitingReason:
    peers = some(away)
    text = Message("PeersNotUp", {"peers": peers})
    values = {"who": _who(waiting), "peers": peers, "count": len(waiting)}
    told = Message("TasksWaitForPeers", values)
    return WaitingReason(
        tasks=tuple(waiting), text=text, sentence=told, reason=PEER_NOT_UP, rank=GOES_ON
    )


def _who(tasks: Sequence[str]) -> list[str | Message] | Message:
    """Return the subject of a sentence about these tasks: `worker-1`, `3 workers` or `5 tasks`."""
    if len(tasks) <= 2:
        return list(tasks)
    types = {task.rpartition("-")[0] for task in tasks}
    count = len(tasks)
    if types == {"worker"}:
        return Message("Workers", {"count": count})
    if types == {"ps"}:
        return Message("ParameterServers", {"count": count})
    return Message("Tasks", {"count": count})
