"""The lifecycle's input and output: observations of a backend, and decisions. All values are frozen
and convert to and from JSON, for replays.
"""

from __future__ import annotations

from ..spec import Message, Model, Phase, Status, TaskExit, TaskState


class Quiet(Model, frozen=True):
    """The silence of an idle task, which prints nothing, writes no event file and uses almost no
    CPU.

    `since` is when the silence began. `until` is the time at which a backend that checks only from
    time to time last found the task silent; it is None if the backend reports the end of a silence
    at once. Both are in epoch seconds. `peer` is the task for which the idle task waits, as
    TensorFlow says, and `words` is TensorFlow's text.
    """

    since: float
    until: float | None = None
    peer: str = ""
    words: str = ""


class ObservedTask(Model, frozen=True):
    """The observed state of one task.

    `attempt` is the number of the task's attempt. `exit` is set as soon as the task has ended. A
    backend reports Cause.STOPPED only if a decision asked the task to stop; for any other SIGTERM
    it reports Cause.KILLED. Times are in epoch seconds. `since` is when the task began to use its
    resources; None if it uses none or the time is unknown. `began` is when its process or container
    started. `idle_since` is the time at which an In-Graph server was last used. `quiet` is set
    while a program does nothing. `oddity` says why the task counts as started although its own port
    is closed. `uncopied` says why its output could not be copied to the log volume. `wrote` has the
    folders outside of the run's own folder to which the task wrote results. `lost` has such folders
    on the pod's own disk, which are deleted with the pod.
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
        """Whether the task has not ended."""
        return self.exit is None


class WaitingReason(Model, frozen=True):
    """Why tasks of an admitted run are not up.

    `text` is the reason as a clause, `sentence` the same reason as a sentence about the tasks.
    `reason` is Kubernetes' own reason, `words` is the answer of a registry that lacks the image,
    and `rank` orders reasons (0 is the most important).
    """

    tasks: tuple[str, ...]
    text: Message
    sentence: Message
    reason: str = ""
    words: str = ""
    rank: int = 1


class SeenRun(Model, frozen=True):
    """The current state of a run for which the observed run waits. `released` says that the awaited
    run has no tasks left.
    """

    uid: str
    phase: Phase
    released: bool = False


class Observation(Model, frozen=True):
    """The observed state of a whole run; a task that was never started is absent.

    `admitted` says that the run may begin. A run that is not admitted may be `submitted`: its tasks
    are created, and a gang scheduler starts them once all of them fit. `waiting_for` is what a run
    that is not admitted waits for; `why` are the reasons why tasks are not up, the most important
    first. `checkpoint` is the name of the newest checkpoint in the run's folder, None if there is
    none, empty if unknown. `cores` are the CPU cores that a task of each type requests, if these
    differ from the spec, for example by a default. `used` are the CPU seconds of all ended
    processes, if known. `may_come` is set while requested tasks may appear that have not been
    observed yet. `runs` has, by name, the states of the runs in `spec.after` that exist. `circle`
    are runs that wait for each other, including this run.
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
    """A request to start a task as its attempt number `attempt`. No older attempt of the task
    exists any more.
    """

    task: str
    attempt: int


class Decision(Model, frozen=True):
    """A decision: the next status of a run, and the tasks to start and stop.

    `start` and `stop` are level-triggered: each turn repeats them until the observation shows that
    they were carried out. So carrying them out twice must be harmless. `done` means that the run
    needs no further turn. `wake_at` (epoch seconds) is the time by which the next turn is due even
    if no observation changes, for example because a limit is reached.
    """

    status: Status
    start: tuple[StartTask, ...] = ()
    stop: tuple[str, ...] = ()
    done: bool = False
    wake_at: float | None = None
