"""A simulated run: a spec, tasks that start and stop as the lifecycle decides, and a clock that the
test moves.
"""

from __future__ import annotations

import msgspec

from tfcluster_magic.lifecycle import (
    Decision,
    Observation,
    ObservedTask,
    Quiet,
    SeenRun,
    WaitingReason,
    decide,
)
from tfcluster_magic.spec import (
    Cause,
    Dependency,
    Lifecycle,
    Mode,
    Phase,
    Program,
    ProgramKind,
    Reason,
    Replicas,
    ReplicaSet,
    Spec,
    Status,
    TaskExit,
    TaskState,
)

PROGRAM = Program(
    kind=ProgramKind.FILE, source="train.py", entrypoint="train.py", sha256="0" * 64, serves=True
)


def spec_of(
    mode: Mode = Mode.BETWEEN_GRAPH,
    lifecycle: Lifecycle | None = None,
    after: tuple[Dependency, ...] = (),
    **counts: int,
) -> Spec:
    counts = counts or {"ps": 1, "worker": 2}
    replicas = {"worker": Replicas(count=0)} | {t: Replicas(count=n) for t, n in counts.items()}
    program = PROGRAM if mode is Mode.BETWEEN_GRAPH else None
    return Spec(
        mode=mode,
        replicas=ReplicaSet(**replicas),
        program=program,
        lifecycle=lifecycle or Lifecycle(),
        after=after,
    )


class Story:
    """A run whose tasks start and stop as the lifecycle decides; the test moves its clock."""

    def __init__(self, spec: Spec, *, admitted: bool = True, obeys: bool = True) -> None:
        self.spec, self.now = spec, 1000.0
        self.status = Status(phase=Phase.QUEUED, reason=Reason.QUEUED)
        self.tasks: dict[str, ObservedTask] = {}
        self.admitted, self.obeys = admitted, obeys
        self.checkpoint: str | None = None
        self.why: tuple[WaitingReason, ...] = ()
        self.not_ready = False
        self.runs: dict[str, SeenRun] = {}
        self.circle: tuple[str, ...] = ()
        self.turn()

    def turn(self) -> Decision:
        """Let the lifecycle decide until it changes nothing more; return its last decision. If
        `obeys` is true, started tasks become ready, and stopped tasks end.
        """
        for _ in range(20):
            seen = Observation(
                tasks=dict(self.tasks),
                admitted=self.admitted,
                checkpoint=self.checkpoint,
                nodes_not_ready=self.not_ready,
                why=self.why,
                runs=dict(self.runs),
                circle=self.circle,
            )
            self.decision = decide(self.spec, "digits-2", self.status, seen, self.now)
            before, self.status = self.status, self.decision.status
            for order in self.decision.start:
                self.tasks[order.task] = ObservedTask(
                    name=order.task,
                    attempt=order.attempt,
                    state=TaskState.RUNNING,
                    ready=self.obeys,
                )
            for name in self.decision.stop:
                if self.obeys and self.tasks[name].alive:
                    self.ends(name, Cause.STOPPED, turn=False)
            if before == self.status and not self.decision.start and not self.decision.stop:
                break
        return self.decision

    def ends(self, task: str, cause: Cause, *, turn: bool = True, **how: object) -> None:
        task_exit = TaskExit(cause=cause, finished_at=self.now, **how)
        self.tasks[task] = msgspec.structs.replace(self.tasks[task], exit=task_exit, ready=False)
        if turn:
            self.turn()

    def falls_quiet(self, *tasks: str, **how: object) -> None:
        """Make these tasks do nothing from now on."""
        for task in tasks:
            quiet = Quiet(**{"since": self.now, **how})
            self.tasks[task] = msgspec.structs.replace(self.tasks[task], quiet=quiet)
        self.turn()

    def works(self, *tasks: str) -> None:
        """Make these tasks show that they work."""
        for task in tasks:
            self.tasks[task] = msgspec.structs.replace(self.tasks[task], quiet=None)
        self.turn()

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.turn()

    @property
    def outcome(self) -> tuple[Phase, Reason, str | None]:
        return self.status.phase, self.status.reason, self.status.culprit

    def sees(self, name: str, phase: Phase, *, released: bool = True, uid: str = "") -> None:
        """Put another run, for which this run waits, into this phase."""
        ended = released and phase.is_final
        self.runs[name] = SeenRun(uid=uid or name, phase=phase, released=ended)
        self.turn()

    def running(self) -> list[str]:
        return [t.name for t in self.tasks.values() if t.alive]
