"""For any order of events, the lifecycle leaks no task, loses no record, restarts nothing after a
stop, and ends with a reason.

Simulated tasks obey the lifecycle's actions late or in any order, or die without an action.
Hypothesis searches for an order of events that violates an invariant.
"""

from __future__ import annotations

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tfcluster_magic.lifecycle import (
    Decision,
    Observation,
    ObservedTask,
    Quiet,
    SeenRun,
    decide,
    root_cause,
)
from tfcluster_magic.lifecycle.dependencies import waits_for_runs
from tfcluster_magic.lifecycle.messages import start_oddity
from tfcluster_magic.spec import (
    AwaitedOutcome,
    Cause,
    Dependency,
    Lifecycle,
    Message,
    Mode,
    Phase,
    Program,
    ProgramKind,
    Reason,
    Replicas,
    ReplicaSet,
    Spec,
    Status,
    Stop,
    SuccessPolicy,
    TaskExit,
    TaskState,
    TaskType,
)

PROGRAM = Program(
    kind=ProgramKind.FILE, source="train.py", entrypoint="train.py", sha256="0" * 64, serves=True
)
OWN_ENDS = (Cause.COMPLETED, Cause.ERROR, Cause.KILLED, Cause.OOM, Cause.LOST, Cause.NOT_STARTED)


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    in_graph = draw(st.booleans())
    counts = {"worker": draw(st.integers(1, 3)), "ps": draw(st.integers(0, 2))}
    if not in_graph:
        counts["chief"] = draw(st.integers(0, 1))
        counts["evaluator"] = draw(st.integers(0, 1))
    return Spec(
        mode=Mode.IN_GRAPH if in_graph else Mode.BETWEEN_GRAPH,
        program=None if in_graph else PROGRAM,
        replicas=ReplicaSet(**{t: Replicas(count=n) for t, n in counts.items()}),
        lifecycle=Lifecycle(
            restarts=draw(st.integers(0, 2)),
            heals=draw(st.integers(0, 3)),
            success_policy=draw(st.sampled_from([None, *SuccessPolicy])),
            stall_timeout=draw(st.sampled_from([None, 40, 100])),
            start_timeout=50,
            max_duration=500,
            idle_timeout=100,
            queue_timeout=draw(st.sampled_from([None, 30])),
        ),
        after=tuple(
            Dependency(run=name, until=draw(st.sampled_from(AwaitedOutcome)))
            for name in draw(st.sampled_from([(), (), ("a-1",), ("a-1", "b-1")]))
        ),
    )


class World(RuleBasedStateMachine):
    """A simulation of tasks, a clock and the record; each rule is one event, followed by a
    decision.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.tasks: dict[str, ObservedTask] = {}
        self.asked: set[str] = set()
        self.started_after_stop = False
        self.history: list[Status] = []
        self.runs: dict[str, SeenRun] = {}
        self.circle: tuple[str, ...] = ()
        self.done: set[str] = set()
        """The awaited runs that were seen to have ended as required."""
        self.decision = Decision(status=Status(phase=Phase.QUEUED, reason=Reason.QUEUED))

    @initialize(spec=specs(), admitted=st.booleans())
    def launch(self, spec: Spec, admitted: bool) -> None:
        self.spec, self.admitted = spec, admitted
        self.turn()

    def turn(self) -> None:
        before = self.decision.status
        seen = Observation(
            tasks=dict(self.tasks),
            admitted=self.admitted,
            waiting_for=Message("Room"),
            runs=dict(self.runs),
            circle=self.circle,
        )
        for each in self.spec.after:
            run = self.runs.get(each.run)
            ended = run is not None and run.phase.is_final and run.released
            if run is not None and (
                run.phase is Phase.SUCCEEDED or (ended and each.until is AwaitedOutcome.END)
            ):
                self.done.add(each.run)
        self.decision = decide(self.spec, "digits-2", before, seen, self.now)
        again = decide(self.spec, "digits-2", self.decision.status, seen, self.now)
        assert again.status.phase is self.decision.status.phase, "a second look changes nothing"
        self.history.append(self.decision.status)
        for order in self.decision.start:
            old = self.tasks.get(order.task)
            assert old is None or not old.alive, "two attempts of one task never live together"
            assert old is None or order.attempt > old.attempt, "an attempt is started once"
            if self.spec.stop is not None or before.phase.is_final:
                self.started_after_stop = True
            self.tasks[order.task] = ObservedTask(
                name=order.task, attempt=order.attempt, state=TaskState.STARTING
            )
            self.asked.discard(order.task)
        self.asked |= set(self.decision.stop)

    def pick(self, data: st.DataObject, alive: bool = True) -> str | None:
        names = sorted(n for n, t in self.tasks.items() if t.alive is alive)
        return data.draw(st.sampled_from(names)) if names else None

    def end(self, name: str, cause: Cause, follows: bool = False) -> None:
        if name in self.asked:
            cause = Cause.STOPPED
        code = 0 if cause in (Cause.COMPLETED, Cause.STOPPED) else 1
        task_exit = TaskExit(cause=cause, finished_at=self.now, exit_code=code, follows=follows)
        self.tasks[name] = msgspec.structs.replace(self.tasks[name], exit=task_exit, ready=False)

    @rule(data=st.data())
    def a_task_becomes_ready(self, data: st.DataObject) -> None:
        if name := self.pick(data):
            self.tasks[name] = msgspec.structs.replace(self.tasks[name], ready=True)
            self.turn()

    @rule(data=st.data(), cause=st.sampled_from(OWN_ENDS), follows=st.booleans())
    def a_task_ends(self, data: st.DataObject, cause: Cause, follows: bool) -> None:
        if name := self.pick(data):
            self.end(name, cause, follows and cause is Cause.ERROR)
            self.turn()

    @rule(data=st.data())
    def several_tasks_end_unseen_at_once(self, data: st.DataObject) -> None:
        for _ in range(3):
            if name := self.pick(data):
                self.end(name, data.draw(st.sampled_from(OWN_ENDS)))
        self.turn()

    @rule(data=st.data(), seen_first=st.booleans())
    def a_failing_task_takes_its_peers_along(self, data: st.DataObject, seen_first: bool) -> None:
        """Let a task fail; its peers report that they lost it, before or after the task's own
        end.
        """
        if not (name := self.pick(data)):
            return
        peers = [n for n, t in self.tasks.items() if t.alive and n != name]
        if not seen_first:
            self.end(name, Cause.ERROR)
            self.turn()
        for peer in peers:
            self.end(peer, Cause.ERROR, follows=True)
        self.turn()
        if seen_first:
            self.now += 1
            if self.tasks[name].alive:
                self.end(name, Cause.ERROR)
            self.turn()

    @rule()
    def trainers_finish(self) -> None:
        for name in [
            n for n, t in self.tasks.items() if t.alive and n.startswith(("chief", "worker"))
        ]:
            self.end(name, Cause.COMPLETED)
        self.turn()

    @rule(seconds=st.sampled_from([0.2, 1, 5, 12, 31, 61]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.turn()

    @precondition(lambda self: self.decision.wake_at is not None)
    @rule()
    def the_alarm_rings(self) -> None:
        self.now = max(self.now, self.decision.wake_at or 0)
        self.turn()

    @rule()
    def asked_tasks_are_gone(self) -> None:
        for name in sorted(self.asked):
            if self.tasks[name].alive:
                self.end(name, Cause.STOPPED)
        self.turn()

    @rule()
    def room_appears(self) -> None:
        self.admitted = True
        self.turn()

    @rule(
        name=st.sampled_from(["a-1", "b-1"]),
        phase=st.sampled_from([Phase.QUEUED, Phase.RUNNING, *(p for p in Phase if p.is_final)]),
        released=st.booleans(),
    )
    def an_awaited_run_changes(self, name: str, phase: Phase, released: bool) -> None:
        before = self.runs.get(name)
        if before is None or not before.phase.is_final:
            self.runs[name] = SeenRun(uid=name, phase=phase, released=phase.is_final and released)
            self.turn()
        elif released and not before.released:
            self.runs[name] = msgspec.structs.replace(before, released=True)
            self.turn()

    @rule(name=st.sampled_from(["a-1", "b-1"]), anew=st.booleans())
    def an_awaited_run_is_deleted(self, name: str, anew: bool) -> None:
        """Delete the awaited run `name`; if `anew`, create another run with this name."""
        if self.runs.pop(name, None) is not None:
            self.turn()
            if anew:
                self.runs[name] = SeenRun(uid=f"{name} again", phase=Phase.QUEUED)
                self.turn()

    @precondition(lambda self: self.spec.after)
    @rule()
    def a_circle_is_found(self) -> None:
        self.circle = ("digits-2", "a-1", "digits-2")
        self.turn()

    @rule(idle=st.booleans())
    def the_notebook_leaves_or_returns(self, idle: bool) -> None:
        for name, task in self.tasks.items():
            self.tasks[name] = msgspec.structs.replace(task, idle_since=self.now if idle else None)
        self.turn()

    @rule(
        data=st.data(),
        peer=st.sampled_from(["", "worker-0", "chief-0"]),
        until=st.sampled_from([None, 0.0, 20.0]),
    )
    def tasks_fall_quiet(self, data: st.DataObject, peer: str, until: float | None) -> None:
        """Let all tasks, or one task, do nothing, which is observed at once or some time later."""
        chosen = data.draw(st.sampled_from([None, *sorted(self.tasks)]))
        for name, task in self.tasks.items():
            if task.alive and chosen in (None, name):
                known = None if until is None else self.now + until
                quiet = Quiet(since=self.now, until=known, peer=peer, words="still waiting")
                self.tasks[name] = msgspec.structs.replace(task, quiet=quiet)
        self.turn()

    @rule(data=st.data())
    def a_task_works_again(self, data: st.DataObject) -> None:
        if name := self.pick(data):
            self.tasks[name] = msgspec.structs.replace(self.tasks[name], quiet=None)
            self.turn()

    @rule(data=st.data(), sign=st.sampled_from(["ports", "steps", "events", "cpu", "newer"]))
    def a_task_starts_oddly(self, data: st.DataObject, sign: str) -> None:
        if name := self.pick(data):
            oddity = start_oddity(name, sign, 2222, [18888], 0.9, 300.0)
            task = msgspec.structs.replace(self.tasks[name], ready=True, oddity=oddity)
            self.tasks[name] = msgspec.structs.replace(task, began=self.now)
            self.turn()

    @precondition(lambda self: self.spec.stop is None)
    @rule()
    def the_owner_stops_it(self) -> None:
        self.spec = msgspec.structs.replace(self.spec, stop=Stop(reason="enough"))
        self.turn()

    # -- invariants --------------------------------------------------------------------------------

    @invariant()
    def nothing_starts_after_a_stop(self) -> None:
        assert not self.started_after_stop

    @invariant()
    def a_final_phase_never_changes(self) -> None:
        final = [s.phase for s in self.history if s.phase.is_final]
        assert len(set(final)) <= 1
        assert not self.history or not final or self.history[-1].phase is final[0]

    @invariant()
    def there_is_always_a_sentence(self) -> None:
        for status in self.history[-1:]:
            assert status.message.strip().endswith("."), status
            assert "None" not in status.message

    @invariant()
    def done_means_that_nothing_is_left(self) -> None:
        if self.decision.done:
            assert self.decision.status.phase.is_final
            assert self.decision.status.released_at is not None
            assert not [t for t in self.tasks.values() if t.alive]

    @invariant()
    def waiting_always_has_an_end(self) -> None:
        """Check that an active run always waits for something: a task that runs or starts, a stop,
        a timer, or resources.
        """
        if self.history and not self.decision.done:
            assert (
                any(t.alive for t in self.tasks.values())
                or self.decision.start
                or self.decision.wake_at is not None
                or not self.admitted
                or waits_for_runs(self.spec, self.decision.status)
            )

    @invariant()
    def nothing_starts_before_what_it_waits_for(self) -> None:
        """Check that a run gets tasks and a place in the queue only after every awaited run has
        ended as required. What happens to an awaited run afterwards does not matter.
        """
        if self.history and any(each.run not in self.done for each in self.spec.after):
            assert not self.tasks
            assert self.decision.status.started_at is None

    @invariant()
    def a_run_that_cannot_start_says_which_run_is_to_blame(self) -> None:
        status = self.decision.status
        if status.reason is Reason.DEPENDENCY_FAILED:
            assert status.phase is Phase.FAILED and not self.tasks
            assert "rerun digits-2" in status.message
            assert any(each.run in status.message for each in self.spec.after)

    @invariant()
    def an_evaluator_decides_nothing(self) -> None:
        """Check that an evaluator is never blamed, and that a run whose required tasks succeed has
        succeeded.
        """
        status = self.decision.status
        assert not (status.culprit or "").startswith("evaluator-")
        assert not [f for f in status.failures if f.task.startswith("evaluator-")]

    @invariant()
    def a_standstill_is_told_of_tasks_that_are_quiet(self) -> None:
        status = self.decision.status
        if status.reason is Reason.STALLED and status.phase is Phase.RUNNING:
            left = [t for n, t in self.tasks.items() if t.alive and not n.startswith("evaluator-")]
            assert left and all(t.quiet is not None for t in left)

    @invariant()
    def only_a_cause_is_blamed(self) -> None:
        status = self.decision.status
        if status.phase is not Phase.FAILED or not status.failures:
            return
        blamed = next(f for f in status.failures if f.task == status.culprit)
        assert not (blamed.exit.follows and any(not f.exit.follows for f in status.failures)), (
            "a follower was blamed"
        )
        if any(f.exit.cause is Cause.OOM for f in status.failures):
            assert status.reason is Reason.OOM_KILLED

    @invariant()
    def heals_and_restarts_keep_their_budgets(self) -> None:
        status, limits = self.decision.status, getattr(self, "spec", Spec()).lifecycle
        assert status.heals <= limits.heals
        assert status.program_restarts <= limits.restarts

    @invariant()
    def a_record_stays_small(self) -> None:
        status = self.decision.status
        assert (
            len(status.events) <= 50 and len(status.attention) <= 20 and len(status.failures) <= 20
        )

    def teardown(self) -> None:
        """Check that, after any events, a run that gets no further events ends and leaves
        nothing.
        """
        if not hasattr(self, "spec"):
            return
        self.admitted = True
        for each in self.spec.after:
            self.runs.setdefault(each.run, SeenRun(uid=each.run, phase=Phase.QUEUED))
            self.an_awaited_run_changes(each.run, Phase.STOPPED, True)
            self.turn()
        for _ in range(400):
            if self.decision.done:
                break
            self.asked_tasks_are_gone()
            if self.decision.wake_at is not None:
                self.the_alarm_rings()
        assert self.decision.done, self.decision
        assert not [t for t in self.tasks.values() if t.alive]
        assert self.decision.status.phase.is_final


World.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestNoOrderOfEvents = World.TestCase


def test_every_disruption_is_a_cause_from_outside() -> None:
    """A program's own failures are never healed as disruptions."""
    assert not root_cause.DISRUPTIONS & {
        Cause.ERROR,
        Cause.OOM,
        Cause.NOT_STARTED,
        Cause.COMPLETED,
    }


def test_every_task_type_has_a_place() -> None:
    """The property test draws every task type."""
    assert {t.value for t in TaskType} == {"worker", "ps", "chief", "evaluator"}
