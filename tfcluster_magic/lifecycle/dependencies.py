"""The rules of `after`: a run waits for other runs and starts when they are done.

For each awaited run, `after` says whether it must succeed or only end. The waiting run fails if
this is no longer possible.

As soon as an awaited run is done, `status.awaited` of the waiting run records that, so the awaited
run may then be deleted. A waiting run reserves no resources and takes no place in the launch queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..spec import (
    AwaitedOutcome,
    AwaitedRun,
    Dependency,
    Message,
    Phase,
    Reason,
    Spec,
    Status,
)
from . import messages
from .observation import SeenRun
from .turn import Turn

MISSING_PATIENCE = 60.0
"""Maximum seconds to wait for an awaited run that does not exist yet, because two manifests may be
applied in any order.
"""


def open_dependencies(spec: Spec, awaited: Sequence[AwaitedRun]) -> list[Dependency]:
    """Return the dependencies whose conditions are not met yet."""
    done = {each.run for each in awaited if each.done_at is not None}
    return [each for each in spec.after if each.run not in done]


def waits_for_runs(spec: Spec, status: Status) -> bool:
    """Return whether a run waits for other runs, according to its record."""
    return status.phase is Phase.QUEUED and bool(open_dependencies(spec, status.awaited))


def circle_of(name: str, waits_for: Callable[[str], Sequence[str]]) -> tuple[str, ...]:
    """Return the runs of a circular wait that includes `name`, with `name` first and last; empty if
    there is no such circle.

    `waits_for` returns the runs for which a run still waits.
    """
    way: dict[str, str] = {}
    todo = [name]
    while todo:
        run = todo.pop()
        for other in waits_for(run):
            if other == name:
                found = [name, run]
                while found[-1] != name:
                    found.append(way[found[-1]])
                return tuple(reversed(found))
            if other not in way:
                way[other] = run
                todo.append(other)
    return ()


def await_runs(turn: Turn) -> bool:
    """Record which awaited runs are done; fail the run if one can no longer succeed or end as
    required.

    Return whether the run must not start now: it waits for other runs, or has just failed.
    """
    left = open_dependencies(turn.spec, turn.get("awaited"))
    if not left:
        return False
    if turn.seen.circle:
        _give_up(turn, Message("AwaitedCircle", {"runs": list(turn.seen.circle)}))
        return True
    since = turn.queued_at()
    waits, missing = [], []
    for each in left:
        known = {run.run: run for run in turn.get("awaited")}
        found = _found(known.get(each.run), turn.seen.runs.get(each.run))
        if found is None and each.run in known:
            _give_up(turn, Message("AwaitedDeleted", {"run": each.run}))
            return True
        if found is None:
            missing.append(each.run)
            waits.append(each)
        elif is_done(each, found):
            _note(turn, known, AwaitedRun(each.run, found.uid, turn.now))
        elif found.phase.is_final and each.until is AwaitedOutcome.SUCCESS:
            code = "AwaitedFailed" if found.phase is Phase.FAILED else "AwaitedStopped"
            _give_up(turn, Message(code, {"run": each.run}))
            return True
        else:
            _note(turn, known, AwaitedRun(each.run, found.uid))
            waits.append(each)
    if not waits:
        turn.event(Reason.QUEUED, messages.awaited_done(turn.spec.after))
        return False
    if missing and turn.now >= since + MISSING_PATIENCE:
        _give_up(turn, Message("AwaitedMissing", {"run": missing[0], "time": MISSING_PATIENCE}))
        return True
    if missing:
        turn.wake(since + MISSING_PATIENCE)
    turn.say(Reason.QUEUED, messages.queued(messages.awaits(waits, missing)))
    return True


def awaited_since(status_awaited: Sequence[AwaitedRun]) -> float:
    """Return the time at which the last of the awaited runs was done; 0 if there are none."""
    return max((each.done_at or 0.0 for each in status_awaited), default=0.0)


def _found(known: AwaitedRun | None, found: SeenRun | None) -> SeenRun | None:
    """Return `found`, the run that now has the name of an awaited run. If another uid was recorded
    for the awaited run (`known`), return None, because `found` is then a later run of the same
    name.
    """
    if known is not None and found is not None and found.uid != known.uid:
        return None
    return found


def is_done(dependency: Dependency, found: SeenRun) -> bool:
    """Return whether an awaited run has succeeded or ended as the dependency requires."""
    if found.phase is Phase.SUCCEEDED:
        return True
    # Until its tasks are gone (`released`), a run in a final phase may still write files.
    ended = found.phase.is_final and found.released
    return dependency.until is AwaitedOutcome.END and ended


def _note(turn: Turn, known: Mapping[str, AwaitedRun], run: AwaitedRun) -> None:
    if known.get(run.run) != run:
        turn.set(awaited=tuple({**known, run.run: run}.values()))


def _give_up(turn: Turn, why: Message) -> None:
    advice = Message("StartWithoutWaiting", {"name": turn.name})
    turn.finish(Phase.FAILED, Reason.DEPENDENCY_FAILED, why, advice)
