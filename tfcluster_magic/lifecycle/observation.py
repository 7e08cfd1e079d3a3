"""Observations that a backend gives to the lifecycle, and the decisions that it gets: plain frozen
values, JSON both ways for replays.
"""

from __future__ import annotations

from ..spec import Message, Model, Status, TaskExit, TaskState


class Quiet(Model, frozen=True):
    """An idle task: since when it prints nothing, writes no event file and uses almost no CPU.

    `until` is up to when that is known, None where its end would be told at once (both in epoch
    seconds); `peer` is the task that TensorFlow says it waits for, `words` are TensorFlow's.
    """

    since: float
    until: float | None = None
    peer: str = ""
    words: str = ""


class ObservedTask(Model, frozen=True):
    """One task as the world shows it. `attempt` is the number it was started with.

    `exit` is present once the task has ended. A backend reports Cause.STOPPED only for a task that
    a decision had asked to stop; anybody else's SIGTERM is Cause.KILLED. `since` is when it began
    to hold what it asks for, None when that is not so or not known; `idle_since` is reported by
    In-Graph servers while nobody uses them; `began` is when it was started where it is (all in
    epoch seconds). `quiet` is set while a program does nothing. `oddity` says how it counts as
    started although its own port is closed. `uncopied` says why the log volume took no copy of its
    output at one time. `wrote` are folders outside of the run's own in which it has results, `lost`
    those of them that go with its pod.
    """

    name: str
    attempt: int
    state: TaskState
    ready: bool = False
    exit: TaskExit | None = None
    idle_since: float | None = None
    since: float | None = None
    began: float | None = None
    quiet: Quiet | None = None
    oddity: Message | None = None
    uncopied: str = ""
    wrote: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    @property
    def alive(self) -> bool:
        """Whether it still holds anything."""
        return self.exit is None


class WaitingReason(Model, frozen=True):
    """Why tasks of an admitted run are not up, as the world tells it.

    `text` is the reason as a clause, for each of them; `sentence` is the same with who waits.
    `reason` is the world's own word for it, `words` are those of a registry that has not the image,
    `rank` says how telling it is (0 the most).
    """

    tasks: tuple[str, ...]
    text: Message
    sentence: Message
    reason: str = ""
    words: str = ""
    rank: int = 1


class Observation(Model, frozen=True):
    """The whole run as the world shows it; a task that was never started is absent.

    A run that is not admitted may be `submitted`: its tasks are made, and a scheduler that has room
    for all of them admits it. `waiting_for` says in words what it waits for, `why` what tasks wait
    for that are not up, the most telling first; `checkpoint` is the name of the newest checkpoint
    in the run's folder: None when there is none, empty where nobody could look; `cores` are the
    CPU cores that a task of a type asks for, where the world knows that better than the spec;
    `used` are the CPU seconds of all processes that have ended, where the world knows them; more
    tasks `may_come` when some were asked for that nobody has seen, and that nobody has called back.
    """

    tasks: dict[str, ObservedTask] = {}
    admitted: bool = True
    submitted: bool = False
    waiting_for: Message | None = None
    why: tuple[WaitingReason, ...] = ()
    nodes_not_ready: bool = False
    checkpoint: str | None = None
    cores: dict[str, float] = {}
    used: float | None = None
    may_come: bool = False


class StartTask(Model, frozen=True):
    """Start this task as this attempt; an older attempt is known to be gone."""

    task: str
    attempt: int


class Decision(Model, frozen=True):
    """What is true now (`status`) and what to do about it.

    `start` and `stop` are level-triggered: repeated on each turn until the observation shows them
    done, so carrying them out twice must be harmless. `done` means that nothing is left to do,
    ever. `wake_at` (epoch seconds) is the next moment at which time alone changes something.
    """

    status: Status
    start: tuple[StartTask, ...] = ()
    stop: tuple[str, ...] = ()
    done: bool = False
    wake_at: float | None = None
