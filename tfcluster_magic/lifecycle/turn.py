"""One turn of the state machine: the spec, the observation, and a draft of the next status.

This module reads and writes the draft, including task counts and the tasks that need attention. The
rules are in `phases`, `failures` and `reclaim`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ..quota import ledger
from ..spec import (
    Cause,
    Message,
    Mode,
    Phase,
    Reason,
    Spec,
    Status,
    SuccessPolicy,
    TaskExit,
    TaskFailure,
    TaskState,
    TaskStatus,
    TaskType,
    TypeCounts,
    Usage,
)
from ..spec.names import task_name
from . import messages, root_cause
from .observation import Decision, Observation, ObservedTask, StartTask

MOST_ATTENTION = 20
NEVER_STARTED = Message("NeverStarted")
"""The message of a task that was never started before its run ended."""
_COUNT_FIELDS = {
    TaskState.PENDING: "",
    TaskState.STARTING: "starting",
    TaskState.RUNNING: "running",
    TaskState.SUCCEEDED: "succeeded",
    TaskState.FAILED: "failed",
    TaskState.STOPPED: "stopped",
}


def task_state(task: ObservedTask | None) -> TaskState:
    """Return the state of a task as shown to users."""
    if task is None:
        return TaskState.PENDING
    if task.exit is None:
        return TaskState.RUNNING if task.ready else TaskState.STARTING
    if task.exit.cause is Cause.COMPLETED:
        return TaskState.SUCCEEDED
    return TaskState.STOPPED if task.exit.cause is Cause.STOPPED else TaskState.FAILED


def count_tasks(spec: Spec, seen: Observation, names: Sequence[str]) -> dict[str, TypeCounts]:
    """Count tasks by type and state; a task in none of the counted states is pending."""
    tally: dict[str, dict[str, int]] = {
        t.value: {"desired": n} for t, n in spec.replicas.counts.items()
    }
    for name in names:
        field = _COUNT_FIELDS[task_state(seen.tasks.get(name))]
        if field:
            of_type = tally[name.rpartition("-")[0]]
            of_type[field] = of_type.get(field, 0) + 1
    return {t: TypeCounts(**numbers) for t, numbers in tally.items()}


def tasks_needing_attention(
    seen: Observation,
    names: Sequence[str],
    restarts: Mapping[str, int],
    culprit: str | None,
    *,
    never: Container[str],
) -> tuple[TaskStatus, ...]:
    """Return tasks that failed, were restarted or are not up, the culprit first; at most 20. A
    cluster of up to 20 tasks lists all of them. `never` are tasks that will never be started.
    """
    others = _LAST_RANK if len(names) <= MOST_ATTENTION else None
    clauses = {task: why.text for why in reversed(seen.why) for task in why.tasks}
    ranked = []
    for position, name in enumerate(names):
        task = seen.tasks.get(name)
        state = task_state(task)
        rank = (
            0
            if name == culprit
            else _ATTENTION_RANK.get(state, 3 if restarts.get(name) else others)
        )
        if rank is not None:
            exit_ = task.exit if task else None
            clause = clauses.get(name)
            if clause is None and task is None and name in never:
                clause = NEVER_STARTED
            entry = TaskStatus(
                name=name,
                state=state,
                message=messages.english_clause(clause) if clause else "",
                messages=(clause,) if clause else (),
                restarts=restarts.get(name, 0),
                exit=exit_,
            )
            ranked.append((rank, position, entry))
    ranked.sort(key=lambda item: item[:2])
    return tuple(entry for _, _, entry in ranked[:MOST_ATTENTION])


_LAST_RANK = 4
_ATTENTION_RANK = {TaskState.FAILED: 1, TaskState.PENDING: 2, TaskState.STARTING: 2}


# ---- the turn ----

MOST_EVENTS = 50
MOST_FAILURES = 20


class Turn:
    """One turn of a run: its inputs, a draft of the next status, and tasks to start and stop."""

    def __init__(
        self, spec: Spec, name: str, status: Status, seen: Observation, now: float
    ) -> None:
        self.spec, self.name, self.before, self.seen, self.now = spec, name, status, seen, now
        self._draft: dict[str, Any] = {}
        self._wake: list[float] = []
        self.start: list[StartTask] = []
        self.stop: list[str] = []
        self.done = False
        counts = spec.replicas.counts
        self.all_tasks = [task_name(t, i) for t in counts for i in range(counts[t])]
        self.trainers = [t for t in self.all_tasks if t.startswith(("chief-", "worker-"))]
        self.evaluators = [t for t in self.all_tasks if t.startswith("evaluator-")]
        self.needed = [t for t in self.all_tasks if t not in self.evaluators]
        """The tasks that training needs: all except evaluators, whose end never decides about a
        run.
        """
        self.between = spec.mode is Mode.BETWEEN_GRAPH
        self.collective = self.between and TaskType.PS not in counts
        """Whether all workers must restart together to heal a lost task, because there is no
        parameter server.
        """

    # -- the draft ---------------------------------------------------------------------------------

    def get(self, field: str) -> Any:
        """Return a field of the next status. If this turn has not set it, return its value before
        the turn.
        """
        return self._draft.get(field, getattr(self.before, field))

    def set(self, **fields: Any) -> None:
        """Set fields of the next status."""
        self._draft.update(fields)

    def say(self, reason: Reason, *sentences: Message) -> None:
        """Set the reason and the messages of the next status."""
        self.set(reason=reason, messages=sentences, message=messages.english(sentences))

    def event(self, reason: Reason, *sentences: Message) -> None:
        """Add an event to the run's history."""
        entry = messages.event(self.now, reason, *sentences)
        self.set(events=(*self.get("events"), entry)[-MOST_EVENTS:])

    def finish(self, phase: Phase, reason: Reason, *sentences: Message) -> None:
        """Put the run into a final phase."""
        self.set(phase=phase, finished_at=self.now, retry_at=None)
        self.say(reason, *sentences)
        self.event(reason, *sentences)

    def queued_at(self) -> float:
        """Return the time at which the run began to wait; the first call records it."""
        if self.get("queued_at") is None:
            self.set(queued_at=self.now)
        since: float = self.get("queued_at")
        return since

    def wake(self, at: float) -> None:
        """Ask for another turn no later than `at`."""
        self._wake.append(at)

    @property
    def phase(self) -> Phase:
        """The phase of the run in the next status."""
        phase: Phase = self.get("phase")
        return phase

    # -- tasks -------------------------------------------------------------------------------------

    def desired_attempt(self, task: str) -> int:
        """Return the number of the attempt as which the task should be running."""
        restarts: dict[str, int] = self.get("restarts")
        return 1 + restarts.get(task, 0)

    def current(self, task: str) -> ObservedTask | None:
        """Return the observed task if it runs as the desired attempt."""
        seen = self.seen.tasks.get(task)
        return seen if seen is not None and seen.attempt >= self.desired_attempt(task) else None

    def exit_of(self, task: str) -> TaskExit | None:
        """Return how the desired attempt ended; None if it has not ended."""
        seen = self.current(task)
        return seen.exit if seen else None

    def succeeded(self, task: str) -> bool:
        """Return whether the desired attempt ended successfully; a server never succeeds by
        itself.
        """
        task_exit = self.exit_of(task)
        return self.between and task_exit is not None and task_exit.cause is Cause.COMPLETED

    def is_up(self, task: str) -> bool:
        """Return whether the desired attempt is ready or has already succeeded."""
        seen = self.current(task)
        return seen is not None and (seen.ready or self.succeeded(task))

    def alive(self, tasks: Iterable[str] | None = None) -> list[str]:
        """Return the tasks that have not ended, whichever attempt they run as."""
        names = self.all_tasks if tasks is None else tasks
        return [t for t in names if (seen := self.seen.tasks.get(t)) is not None and seen.alive]

    def all_ended(self) -> bool:
        """Return whether every needed task has ended."""
        return all(self.exit_of(task) is not None for task in self.needed)

    def is_given_up(self, task: str) -> bool:
        """Return whether `task` is an evaluator that failed and will not be restarted."""
        ended: TaskFailure | None = self.get("evaluator")
        return (
            ended is not None and ended.task == task and ended.attempt >= self.desired_attempt(task)
        )

    @property
    def wanted(self) -> list[str]:
        """The tasks that should run: all except evaluators that are given up."""
        return [t for t in self.all_tasks if not self.is_given_up(t)]

    def unfinished(self) -> list[str]:
        """Return the trainers that have not succeeded."""
        return [t for t in self.trainers if not self.succeeded(t)]

    def required(self) -> list[str]:
        """Return the tasks that must succeed for the run to succeed."""
        if self.spec.success_policy is SuccessPolicy.CHIEF:
            return self.trainers[:1]
        return self.trainers

    def restart(self, tasks: Iterable[str]) -> None:
        """Increase the desired attempt of each of these tasks by one, so that the task is started
        again.
        """
        restarts = dict(self.get("restarts"))
        for task in tasks:
            restarts[task] = restarts.get(task, 0) + 1
        self.set(restarts=restarts)

    def bring_up(self, tasks: Iterable[str]) -> None:
        """Start each of these tasks whose desired attempt does not exist yet. If an older attempt
        is still alive, stop it first; a later turn then starts the task.
        """
        for task in tasks:
            seen = self.seen.tasks.get(task)
            if seen is not None and seen.attempt >= self.desired_attempt(task):
                continue
            if seen is not None and seen.alive:
                self.stop.append(task)
            else:
                self.start.append(StartTask(task=task, attempt=self.desired_attempt(task)))

    def fresh_failures(self) -> list[TaskFailure]:
        """Return the recorded failures whose task was not restarted after the failure."""
        return [f for f in self.get("failures") if f.attempt >= self.desired_attempt(f.task)]

    # -- the result --------------------------------------------------------------------------------

    def _never_started(self) -> frozenset[str]:
        """Return the tasks of an ended run that had never been started when it ended."""
        known = self.before.attention if self.phase.is_final else ()
        # After the end of a run, a task that is gone looks like one that never started.
        if self.before.phase.is_final:
            return frozenset(t.name for t in known if t.messages == (NEVER_STARTED,))
        return frozenset(t.name for t in known if t.state is TaskState.PENDING and not t.restarts)

    def _counted(self) -> Observation:
        """Return the observation from which the tasks are counted. It differs from the real
        observation only in a failed run: a task that has ended again since its recorded failure is
        shown with the recorded failure. This happens if a backend that restarts tasks by itself
        began another attempt before the decision to stop the run.
        """
        judged = {f.task: f for f in self.get("failures") if self.phase is Phase.FAILED}
        tasks = dict(self.seen.tasks)
        for name, failure in judged.items():
            seen = tasks.get(name)
            if seen is not None and seen.exit is not None and seen.attempt > failure.attempt:
                tasks[name] = ObservedTask(
                    name=name,
                    attempt=failure.attempt,
                    state=TaskState.FAILED,
                    exit=failure.exit,
                )
        return msgspec.structs.replace(self.seen, tasks=tasks)

    def _warn_of_tasks(self) -> None:
        """Warn of problems that would go unnoticed: log copies that fail while training continues,
        and errors in the output of tasks that succeeded. Each warning is given once.
        """
        for name, seen in self.seen.tasks.items():
            why = seen.uncopied or (seen.exit.uncopied if seen.exit else "")
            hidden = messages.hidden_error(name, seen.exit) if seen.exit else None
            for warning in (messages.log_copy_failed(why) if why else None, hidden):
                if warning is None:
                    continue
                if (text := messages.english_clause(warning)) not in self.get("warnings"):
                    self.set(warnings=(*self.get("warnings"), text))
                    self.event(self.get("reason"), warning)

    def _tell_of_oddities(self) -> None:
        """Warn that tasks count as started although their ports are closed. There is one warning
        for each sign of activity (`START_SIGNS`), with the first task that shows it.
        """
        told: set[str] = set()
        for name in self.all_tasks:
            seen = self.seen.tasks.get(name)
            if seen is None or seen.oddity is None or seen.oddity.code in told:
                continue
            told.add(seen.oddity.code)
            if (text := messages.english_clause(seen.oddity)) not in self.get("warnings"):
                self.set(warnings=(*self.get("warnings"), text))
                self.event(self.get("reason"), seen.oddity)

    def _tell_of_writes(self) -> None:
        """Report each folder outside of the run's own folder to which a task writes results. Each
        folder is reported only once.
        """
        wrote: set[str] = set()
        lost: dict[str, str] = {}
        for seen in self.seen.tasks.values():
            wrote.update(seen.wrote, seen.exit.wrote if seen.exit else ())
            for folder in (*seen.lost, *(seen.exit.lost if seen.exit else ())):
                lost.setdefault(folder, seen.name)
        if not wrote and not lost:
            return
        told = {each.message for each in self.get("events")}
        for about in map(messages.writes_elsewhere, sorted(wrote)):
            if messages.english((about,)) not in told:
                self.event(self.get("reason"), about)
        for folder, task in sorted(lost.items()):
            warning = messages.writes_lost(task, folder)
            if (text := messages.english_clause(warning)) not in self.get("warnings"):
                self.set(warnings=(*self.get("warnings"), text))
                self.event(self.get("reason"), warning)

    def _usage(self) -> Usage | None:
        """Return the resources that tasks have used until now."""
        seen = self.seen.tasks
        spans = (
            (name.rpartition("-")[0], task.since, task.exit.finished_at if task.exit else None)
            for name in self.all_tasks
            if (task := seen.get(name)) is not None
        )
        used = self.seen.used
        return ledger.update_usage(self.before.usage, spans, self.now, self._cores(), used)

    def _cores(self) -> dict[str, float]:
        known = self.before.usage.cores if self.before.usage else {}
        types = {t: self.spec.replicas.of(t).resources.cpu for t in self.spec.replicas.counts}
        asked = {t.value: cpu for t, cpu in types.items() if cpu}
        return {**asked, **known, **self.seen.cores}

    def decision(self) -> Decision:
        """Return the decision of this turn."""
        seen = self._counted()
        self._warn_of_tasks()
        self._tell_of_oddities()
        self._tell_of_writes()
        self.set(
            failures=root_cause.causes_first(self.get("failures"), MOST_FAILURES),
            counts=count_tasks(self.spec, seen, self.all_tasks),
            usage=self._usage(),
            attention=tasks_needing_attention(
                seen,
                self.all_tasks,
                self.get("restarts"),
                self.get("culprit"),
                never=self._never_started(),
            ),
        )
        due = [at for at in self._wake if at > self.now]
        return Decision(
            status=msgspec.structs.replace(self.before, **self._draft),
            start=tuple(self.start),
            stop=tuple(dict.fromkeys(self.stop)),
            done=self.done,
            wake_at=min(due) if due and not self.done else None,
        )
