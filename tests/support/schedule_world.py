"""A schedule in simulated time, whose simulated runs end after a given duration. The function `due`
is called as the product calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tfcluster_magic.schedules import (
    Occurrence,
    OccurrenceKind,
    OccurrenceState,
    Overlap,
    ScheduleRules,
    ScheduleStatus,
)
from tfcluster_magic.schedules.due import FindSchedule, RunOutcome, due, launched, settle
from tfcluster_magic.spec import Phase

START = 1_780_000_000.0
"""28 May 2026, 20:26:40 UTC."""


@dataclass
class SimulatedRun:
    """One run: its due time, when it ends, and how."""

    occurrence: Occurrence
    began: float
    lasts: float
    ends_as: Phase
    stopped: bool = False
    phase: Phase = Phase.RUNNING


@dataclass
class ScheduleWorld:
    """One schedule and its runs. `lasts` and `ends_as` are functions that return how long a run
    lasts and how it ends.
    """

    rules: ScheduleRules
    now: float = START
    lasts: Callable[[Occurrence], float] = lambda _o: 10.0
    ends_as: Callable[[Occurrence], Phase] = lambda _o: Phase.SUCCEEDED
    find: FindSchedule = lambda _name: None
    runs: dict[str, SimulatedRun] = field(default_factory=dict)
    worked: float = 0.0
    """Seconds that have passed on the machine of the runs, whose clock may differ from the
    schedule's.
    """

    def __post_init__(self) -> None:
        self.status = ScheduleStatus(cursor=self.now)

    def look(self) -> None:
        """Call `due` once, and apply its decision to the schedule and its runs."""
        outcomes = {name: RunOutcome(run.phase) for name, run in self.runs.items()}
        self.status = settle(self.rules, self.status, outcomes, self.now)
        turn = due(self.rules, self.status, self.now, self.find)
        self.status = turn.status
        for name in turn.stop:
            self.runs[name].stopped = True
        for each in turn.launch:
            name = f"digits-{len(self.runs) + 1}"
            self.status = launched(self.status, each, name, self.now, created=True)
            run = SimulatedRun(each, self.worked, self.lasts(each), self.ends_as(each))
            self.runs[name] = run
        self.check()

    def pass_time(self, seconds: float, *, clock: float | None = None) -> None:
        """Advance the runs by `seconds`, and the clock by the same time or by `clock`."""
        self.worked += seconds
        self.now += seconds if clock is None else clock
        for run in self.runs.values():
            if run.phase is not Phase.RUNNING:
                continue
            if run.stopped:
                run.phase = Phase.STOPPED
            elif self.worked - run.began >= run.lasts:
                run.phase = run.ends_as

    def active(self) -> list[SimulatedRun]:
        """Return the active runs."""
        return [run for run in self.runs.values() if run.phase is Phase.RUNNING]

    def check(self) -> None:
        """Check the invariants that hold after every turn."""
        keys = [each.key for each in self.status.occurrences]
        assert len(keys) == len(set(keys))
        tries = [(run.occurrence.key, run.occurrence.attempt) for run in self.runs.values()]
        assert len(tries) == len(set(tries)), "a due time ran twice"
        going = [r for r in self.active() if r.occurrence.kind is not OccurrenceKind.BACKFILL]
        if self.rules.overlap is not Overlap.ALLOW:
            assert len(going) <= 1, "two runs overlap"
        if self.rules.max_parallel is not None:
            assert len(self.active()) <= self.rules.max_parallel

    def states(self) -> dict[float, OccurrenceState]:
        """Return the state of each due time."""
        return {each.due: each.state for each in self.status.occurrences}
