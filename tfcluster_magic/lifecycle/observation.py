"""The lifecycle's input and output: observations of a backend, and decisions. All are frozen values
that convert to and from JSON, for replays.
"""

from __future__ import annotations

from ..spec import Message, Model, Phase, Status, TaskExit, TaskState


class Quiet(Model, frozen=True):
    """An idle task: since when it prints nothing, writes no event file and uses almost no CPU.

    `until` is the time up to which this is known; None if the end of the silence would be reported
    at once. Both are in epoch seconds. `peer` is the task that TensorFlow says it waits for,
    `words` are TensorFlow's.
    """

    since: float
    until: float | None = None
    peer: str = ""
    words: str = ""


class ObservedTask(Model, frozen=True):
    """The observed state of one task.

    `attempt` is the number with which it was started. `exit` is set once the task has ended; a
    backend reports Cause.STOPPED only if a decision asked the task to stop, and Cause.KILLED for
    any other SIGTERM. In epoch seconds: `since` is when it began to use its resources, None if it
    does not or that is unknown; `began` is when its process or container started; `idle_since` is
    set by In-Graph servers while nobody uses them. `quiet` is set while a program does nothing.
    `oddity` says how it counts as started although its own port is closed. `uncopied` says why the
    log volume took no copy of its output. `wrote` are folders with results outside of the run's
    own, `lost` those of them that are deleted with its pod.
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
        """Whether it has not ended."""
        return self.exit is None


class WaitingReason(Model, frozen=True):
    """Why tasks of an admitted run are not up.

    `text` is the reason as a clause, `sentence` the same with the tasks as its subject. `reason` is
    Kubernetes' own word, `words` are those of a registry that lacks the image, `rank` orders
    reasons (0 is the most telling).
    """

    tasks: tuple[str, ...]
    text: Message
    sentence: Message
    reason: str = ""
    words: str = ""
    rank: int = 1


class SeenRun(Model, frozen=True):
    """A run that this one waits for, as its record is now. `released`: it has no tasks left."""

    uid: str
    phase: Phase
    released: bool = False


class Observation(Model, frozen=True):
    """The observed state of a whole run; a task that was never started is absent.

    A run that is not admitted may be `submitted`: its tasks are created, and a scheduler with room
    for all of them admits it. `waiting_for` is what the run waits for, `why` what its tasks wait
    for, the most telling first. `checkpoint` is the name of the newest checkpoint in the run's
    folder, None if there is none, empty if unknown. `cores` are the CPU cores that a task of a type
    requests, if known better than from the spec. `used` are the CPU seconds of all ended processes,
    if known. `may_come` is set while tasks may appear that were requested and that nobody has seen.
    `runs` are the existing runs of `spec.after` by name. `circle` are runs that wait for each
    other, this one among them.
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
    runs: dict[str, SeenRun] = {}
    circle: tuple[str, ...] = ()


class StartTask(Model, frozen=True):
    """Start this task as this attempt; an older attempt is known to be gone."""

    task: str
    attempt: int


class Decision(Model, frozen=True):
    """The next status, and what to do.

    `start` and `stop` are level-triggered: they are repeated in each turn until the observation
    shows them done, so carrying them out twice must be harmless. `done` means that nothing is left
    to do, ever. `wake_at` (epoch seconds) is the next moment at which time alone changes something.
    """

    status: Status
    start: tuple[StartTask, ...] = ()
    stop: tuple[str, ...] = ()
    done: bool = False
    wake_at: float | None = None
