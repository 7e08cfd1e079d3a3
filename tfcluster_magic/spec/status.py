"""The status of a run: phase, reason, tasks, failures, history. It has only one writer: the
supervisor, or the operator.
"""

from __future__ import annotations

import enum
from typing import Annotated

from msgspec import Meta

from .message_table import Message
from .spec import Model

_BY_CODE = "the sentences of `message` by their codes, to be shown in any language"


class Phase(str, enum.Enum):
    """The phase of a run. The last three are final."""

    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"

    @property
    def is_active(self) -> bool:
        """Whether its tasks run or are to run."""
        return self in (Phase.QUEUED, Phase.STARTING, Phase.RUNNING)

    @property
    def is_final(self) -> bool:
        """Whether no later phase can follow."""
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.STOPPED)


class Reason(str, enum.Enum):
    """Why a run is in its phase: the closed list. `Message`s say more."""

    QUEUED = "Queued"
    """Waits for room, for its turn, for another run, or for what the sentence names."""
    STARTING = "Starting"
    """Waits for tasks to be ready."""
    RUNNING = "Running"
    """All tasks run."""
    HEALING = "Healing"
    """Restarts tasks that were lost, killed or evicted."""
    BACKING_OFF = "BackingOff"
    """Waits before the next retry of a program that failed (`restarts`)."""
    INVESTIGATING = "Investigating"
    """A task failed; the cause is not settled yet."""
    STOP_REQUESTED = "StopRequested"
    """Stops, or was stopped, because somebody asked for it."""
    COMPLETED = "Completed"
    """Every task whose success counts has succeeded."""
    PROGRAM_FAILED = "ProgramFailed"
    """A task's program ended with an error."""
    OOM_KILLED = "OOMKilled"
    """A task used more memory than it may."""
    DISRUPTED = "Disrupted"
    """Tasks were lost, killed or evicted more often than `heals` allows."""
    SERVER_FAILED = "ServerFailed"
    """In-Graph: a TensorFlow server failed."""
    PS_EXITED = "PSExited"
    """A parameter server ended before the workers."""
    PEER_FINISHED = "PeerFinished"
    """A worker ended before the others, which take each step together with it."""
    START_FAILED = "StartFailed"
    """A task could not be started."""
    DEPENDENCY_FAILED = "DependencyFailed"
    """A run that it waited for (`after`) cannot do any more what was waited for."""
    QUEUE_TIMEOUT = "QueueTimeout"
    """Waited longer than `queueTimeout`."""
    START_TIMEOUT = "StartTimeout"
    """Tasks were not ready within `startTimeout`."""
    MAX_DURATION = "MaxDuration"
    """Ran longer than `maxDuration`."""
    IDLE_TIMEOUT = "IdleTimeout"
    """In-Graph: nobody used the cluster for `idleTimeout`."""
    STALLED = "Stalled"
    """No task shows a sign of work."""
    SUPERVISOR_LOST = "SupervisorLost"
    """On one machine: the supervisor was killed, and its tasks ended with it."""
    RECORD_DAMAGED = "RecordDamaged"
    """On one machine: the files of the run cannot be read."""


class TaskState(str, enum.Enum):
    """The state of one task."""

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"


class Cause(str, enum.Enum):
    """Why a task ended."""

    COMPLETED = "Completed"
    ERROR = "Error"
    OOM = "OOMKilled"
    KILLED = "Killed"
    EVICTED = "Evicted"
    LOST = "Lost"
    STOPPED = "Stopped"
    NOT_STARTED = "NotStarted"


class FoundCheckpoint(Model, frozen=True):
    """A checkpoint of an earlier run, beyond which a program did not train. `run` is its run, if
    known, and `steps` how many steps it trained all the same.
    """

    checkpoint: Annotated[str, Meta(description="name of the checkpoint")]
    folder: Annotated[str, Meta(description="the folder that it is in")]
    run: Annotated[str, Meta(description="the run that wrote it; empty when it is not known")] = ""
    steps: Annotated[int, Meta(description="steps that the program trained all the same")] = 0


class TaskExit(Model, frozen=True):
    """The end of one task, from the runtime's termination message on any backend."""

    cause: Cause
    finished_at: Annotated[float, Meta(description="when it ended, in seconds since 1970")]
    exit_code: (
        Annotated[
            int, Meta(description="how its process ended; absent when it did not end by itself")
        ]
        | None
    ) = None
    signal: Annotated[int, Meta(description="number of the signal that ended it")] | None = None
    follows: Annotated[bool, Meta(description="its last lines say that it lost a peer")] = False
    last_lines: Annotated[tuple[str, ...], Meta(description="the end of its output")] = ()
    error: Annotated[
        str, Meta(description="what its output says that went wrong, such as an exception")
    ] = ""
    file: Annotated[str, Meta(description="the user's own file where that was raised")] = ""
    line: Annotated[int, Meta(description="the line of `file`; 0 when it is not known")] = 0
    origin: Annotated[str, Meta(description="the exception that led to `error`")] = ""
    hidden: Annotated[
        str,
        Meta(
            description="what its exit code 0 did not tell of `error`: that it ended a `thread`, "
            "a child `process`, or what stands before a `pipe` in a shell script"
        ),
    ] = ""
    detail: Annotated[
        str, Meta(description="what the cluster or the machine says of it, in English")
    ] = ""
    detail_message: Message | None = None
    uncopied: Annotated[str, Meta(description="why the copy of its output lacks lines")] = ""
    wrote: Annotated[
        tuple[str, ...], Meta(description="folders with results outside of the run's own")
    ] = ()
    lost: Annotated[
        tuple[str, ...], Meta(description="folders with results on the disk of its pod")
    ] = ()
    found: FoundCheckpoint | None = None


class TaskFailure(Model, frozen=True):
    """The failure of one attempt of a task."""

    task: Annotated[str, Meta(description="the task, such as worker-3")]
    attempt: Annotated[int, Meta(description="the attempt of the task that ended; 1 is the first")]
    exit: TaskExit


class TaskStatus(Model, frozen=True):
    """The state of one task for display; `name` is `worker-3`."""

    name: Annotated[str, Meta(description="the task, such as worker-3")]
    state: TaskState
    message: Annotated[str, Meta(description="what is to be said of it, in English")] = ""
    restarts: Annotated[int, Meta(description="how often it was started again")] = 0
    exit: TaskExit | None = None
    messages: Annotated[tuple[Message, ...], Meta(description=_BY_CODE)] = ()


class TypeCounts(Model, frozen=True):
    """The number of tasks of one type by state."""

    desired: Annotated[int, Meta(description="tasks that were asked for")]
    starting: Annotated[int, Meta(description="tasks that are started")] = 0
    running: Annotated[int, Meta(description="tasks that run")] = 0
    succeeded: Annotated[int, Meta(description="tasks that have succeeded")] = 0
    failed: Annotated[int, Meta(description="tasks that have failed")] = 0
    stopped: Annotated[int, Meta(description="tasks that were ended")] = 0


class Event(Model, frozen=True):
    """A notable event of the run."""

    at: Annotated[float, Meta(description="when it happened")]
    reason: Annotated[str, Meta(description="what happened, in one word")]
    message: Annotated[str, Meta(description="what happened, in English")]
    messages: Annotated[tuple[Message, ...], Meta(description=_BY_CODE)] = ()


class Reclaimed(Model, frozen=True):
    """The released resources, and the time."""

    at: Annotated[float, Meta(description="when it was given back")]
    tasks: Annotated[tuple[str, ...], Meta(description="the tasks that gave it back")]
    cpu: Annotated[float, Meta(description="CPU cores")] = 0.0
    memory: Annotated[int, Meta(description="memory in bytes")] = 0
    gpu: Annotated[int, Meta(description="GPUs")] = 0


class Usage(Model, frozen=True):
    """The time for which tasks have had their requests; see `quota.ledger`."""

    at: Annotated[float, Meta(description="up to when `days` counts")]
    holding: Annotated[
        dict[str, int], Meta(description="tasks by type that hold something since then")
    ] = {}
    days: Annotated[
        dict[str, dict[str, float]],
        Meta(description="seconds by day (2026-11-22, UTC) and task type, of all tasks together"),
    ] = {}
    cores: Annotated[
        dict[str, float], Meta(description="CPU cores that a task of a type asks for")
    ] = {}
    used: (
        Annotated[
            float,
            Meta(description="CPU seconds that all tasks really used, when none holds anything"),
        ]
        | None
    ) = None


class AwaitedRun(Model, frozen=True):
    """A run of `after` that was seen."""

    run: Annotated[str, Meta(description="the run, such as prepare-3")]
    uid: Annotated[str, Meta(description="its uid: a later run of this name is another one")]
    done_at: (
        Annotated[float, Meta(description="when it was seen to have done what was waited for")]
        | None
    ) = None


class Status(Model, frozen=True):
    """The state of a run. It has only one writer: the supervisor, or the operator. `evaluator` is
    how the evaluator ended if it failed or was stopped, which ends no run.
    """

    phase: Phase
    reason: Reason
    message: Annotated[str, Meta(description="why it is there, in English")] = ""
    messages: Annotated[tuple[Message, ...], Meta(description=_BY_CODE)] = ()
    attempt: Annotated[int, Meta(description="group attempt; 1 is the first")] = 1
    queued_at: Annotated[float, Meta(description="when it was seen first")] | None = None
    awaited: Annotated[
        tuple[AwaitedRun, ...], Meta(description="the runs of `after` that were seen")
    ] = ()
    started_at: (
        Annotated[float, Meta(description="when it got what it asks for and began")] | None
    ) = None
    running_at: Annotated[float, Meta(description="when all of its tasks were up")] | None = None
    finished_at: Annotated[float, Meta(description="when it ended")] | None = None
    released_at: Annotated[float, Meta(description="when the last task was gone")] | None = None
    stop_at: Annotated[float, Meta(description="when what still runs is ended")] | None = None
    retry_at: Annotated[float, Meta(description="when its tasks are started again")] | None = None
    heals: Annotated[int, Meta(description="disruptions that were healed")] = 0
    program_restarts: Annotated[int, Meta(description="retries of a failing program")] = 0
    restarts: Annotated[
        dict[str, int], Meta(description="restarts of single tasks, where above 0")
    ] = {}
    window_opened_at: (
        Annotated[
            float, Meta(description="when the first of the failures came that are judged together")
        ]
        | None
    ) = None
    failures: Annotated[
        tuple[TaskFailure, ...],
        Meta(description="failures in the open window, or those that ended the run"),
    ] = ()
    culprit: Annotated[str, Meta(description="the task that failed first")] | None = None
    evaluator: TaskFailure | None = None
    counts: Annotated[dict[str, TypeCounts], Meta(description="tasks by task type and state")] = {}
    attention: Annotated[
        tuple[TaskStatus, ...], Meta(description="at most 20 tasks that need attention")
    ] = ()
    events: Annotated[tuple[Event, ...], Meta(description="the newest 50")] = ()
    reclaimed: Reclaimed | None = None
    usage: Usage | None = None
    addresses: Annotated[
        dict[str, tuple[str, ...]], Meta(description="host:port by task type")
    ] = {}
    paths: Annotated[
        dict[str, str], Meta(description="output: the run's own folder; logs: its log files")
    ] = {}
    warnings: Annotated[
        tuple[str, ...], Meta(description="what the launch and the operator warn of")
    ] = ()
    inferred: Annotated[
        tuple[Message, ...],
        Meta(
            description="what the launch read from the program's text: flags that are passed, and "
            "counts; each with the option that overrides it"
        ),
    ] = ()
