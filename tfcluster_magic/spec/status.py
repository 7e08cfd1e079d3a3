"""The status of a run: phase, reason, tasks, failures, history. It has only one writer: the
supervisor, or the operator.
"""

from __future__ import annotations

import enum
from typing import Annotated

from msgspec import Meta

from .message_table import Message
from .spec import Model

_BY_CODE = "the sentences of `message` as codes, which views show in the reader's language"


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
        """Whether tasks of the run are running or should be."""
        return self in (Phase.QUEUED, Phase.STARTING, Phase.RUNNING)

    @property
    def is_final(self) -> bool:
        """Whether no later phase can follow."""
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.STOPPED)


class Reason(str, enum.Enum):
    """The reason why a run is in its phase, from a fixed list. `messages` says more."""

    QUEUED = "Queued"
    """The run waits for room, for its turn, for another run, or for something else that the message
    names.
    """
    STARTING = "Starting"
    """The run waits until its tasks are ready."""
    RUNNING = "Running"
    """All tasks run."""
    HEALING = "Healing"
    """Tasks were lost, killed or evicted; they are started again."""
    BACKING_OFF = "BackingOff"
    """The program failed; the run waits before the next try (`restarts`)."""
    INVESTIGATING = "Investigating"
    """A task failed; the cause is not known yet."""
    STOP_REQUESTED = "StopRequested"
    """A stop was requested; the run is stopping or has stopped."""
    COMPLETED = "Completed"
    """Every task whose success counts (`successPolicy`) has succeeded."""
    PROGRAM_FAILED = "ProgramFailed"
    """A task's program ended with an error."""
    OOM_KILLED = "OOMKilled"
    """A task used more memory than its limit."""
    DISRUPTED = "Disrupted"
    """Tasks were lost, killed or evicted more often than `heals` allows."""
    SERVER_FAILED = "ServerFailed"
    """In-Graph: a TensorFlow server failed."""
    PS_EXITED = "PSExited"
    """A parameter server ended before the workers."""
    PEER_FINISHED = "PeerFinished"
    """A worker ended before the others, which need it for each step."""
    START_FAILED = "StartFailed"
    """A task could not be started."""
    DEPENDENCY_FAILED = "DependencyFailed"
    """Another run, for which this run waits (`after`), can no longer succeed or end as required."""
    QUEUE_TIMEOUT = "QueueTimeout"
    """The run waited in the queue longer than `queueTimeout`."""
    START_TIMEOUT = "StartTimeout"
    """Tasks were not ready within `startTimeout`."""
    MAX_DURATION = "MaxDuration"
    """The run took longer than `maxDuration`."""
    IDLE_TIMEOUT = "IdleTimeout"
    """In-Graph: the cluster was not used for `idleTimeout`."""
    STALLED = "Stalled"
    """No task shows a sign of work; after `stallTimeout` the run fails for this reason."""
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
    """A checkpoint of an earlier run from which a program resumed although it had nothing left to
    train.
    """

    checkpoint: Annotated[str, Meta(description="name of the checkpoint")]
    folder: Annotated[str, Meta(description="folder of the checkpoint")]
    run: Annotated[str, Meta(description="the run that wrote it; empty if unknown")] = ""
    steps: Annotated[
        int, Meta(description="steps that the program trained after it restored the checkpoint")
    ] = 0


class TaskExit(Model, frozen=True):
    """The end of one task, from the runtime's termination message on any backend."""

    cause: Cause
    finished_at: Annotated[float, Meta(description="time of its end, in seconds since 1970")]
    exit_code: (
        Annotated[int, Meta(description="exit code of its process; absent if a signal ended it")]
        | None
    ) = None
    signal: Annotated[int, Meta(description="signal that ended it, as a number")] | None = None
    follows: Annotated[
        bool, Meta(description="whether its last lines report the loss of another task")
    ] = False
    last_lines: Annotated[tuple[str, ...], Meta(description="the last lines of its output")] = ()
    error: Annotated[str, Meta(description="the error in its output, such as an exception")] = ""
    file: Annotated[str, Meta(description="the user's file that raised `error`")] = ""
    line: Annotated[int, Meta(description="the line in `file`; 0 if unknown")] = 0
    origin: Annotated[str, Meta(description="the exception that led to `error`")] = ""
    hidden: Annotated[
        str,
        Meta(
            description=(
                "where `error` happened although the exit code is 0: in a `thread`, in a child"
                " `process`, or before a `pipe` of a shell script"
            )
        ),
    ] = ""
    detail: Annotated[
        str, Meta(description="explanation by the cluster or the machine, in English")
    ] = ""
    detail_message: Message | None = None
    uncopied: Annotated[
        str, Meta(description="why lines are missing in the copy of its output")
    ] = ""
    wrote: Annotated[
        tuple[str, ...], Meta(description="folders outside the run's own that it wrote to")
    ] = ()
    lost: Annotated[
        tuple[str, ...],
        Meta(
            description="folders on its pod's own disk that it wrote to; they are lost with the pod"
        ),
    ] = ()
    found: FoundCheckpoint | None = None


class TaskFailure(Model, frozen=True):
    """The failure of one attempt of a task."""

    task: Annotated[str, Meta(description="the task, such as worker-3")]
    attempt: Annotated[int, Meta(description="the attempt of the task that ended; 1 is the first")]
    exit: TaskExit


class TaskStatus(Model, frozen=True):
    """The state of one task, for display."""

    name: Annotated[str, Meta(description="the task, such as worker-3")]
    state: TaskState
    message: Annotated[str, Meta(description="explanation of the state, in English")] = ""
    restarts: Annotated[int, Meta(description="number of restarts")] = 0
    exit: TaskExit | None = None
    messages: Annotated[tuple[Message, ...], Meta(description=_BY_CODE)] = ()


class TypeCounts(Model, frozen=True):
    """The number of tasks of one type by state."""

    desired: Annotated[int, Meta(description="tasks requested")]
    starting: Annotated[int, Meta(description="tasks starting")] = 0
    running: Annotated[int, Meta(description="tasks running")] = 0
    succeeded: Annotated[int, Meta(description="tasks that succeeded")] = 0
    failed: Annotated[int, Meta(description="tasks that failed")] = 0
    stopped: Annotated[int, Meta(description="tasks that were stopped")] = 0


class Event(Model, frozen=True):
    """A notable event of the run."""

    at: Annotated[float, Meta(description="time of the event")]
    reason: Annotated[str, Meta(description="the kind of event, in one word")]
    message: Annotated[str, Meta(description="what happened, in English")]
    messages: Annotated[tuple[Message, ...], Meta(description=_BY_CODE)] = ()


class Reclaimed(Model, frozen=True):
    """Resources that the run released, and when."""

    at: Annotated[float, Meta(description="time of the release")]
    tasks: Annotated[tuple[str, ...], Meta(description="the tasks that were ended")]
    cpu: Annotated[float, Meta(description="CPU cores")] = 0.0
    memory: Annotated[int, Meta(description="memory in bytes")] = 0
    gpu: Annotated[int, Meta(description="GPUs")] = 0


class Usage(Model, frozen=True):
    """The time for which tasks have reserved their resources."""

    at: Annotated[float, Meta(description="time up to which `days` counts")]
    holding: Annotated[
        dict[str, int], Meta(description="number of tasks by type that still reserve resources")
    ] = {}
    days: Annotated[
        dict[str, dict[str, float]],
        Meta(
            description=(
                "seconds for which the tasks of a type together reserved resources, by day (UTC, "
                "such as 2026-11-22) and type"
            )
        ),
    ] = {}
    cores: Annotated[
        dict[str, float], Meta(description="CPU cores requested by one task of each type")
    ] = {}
    used: (
        Annotated[
            float,
            Meta(
                description=(
                    "CPU time used by all tasks, in seconds; known once no task reserves resources"
                )
            ),
        ]
        | None
    ) = None


class AwaitedRun(Model, frozen=True):
    """A run of `after` that exists or existed."""

    run: Annotated[str, Meta(description="the run, such as prepare-3")]
    uid: Annotated[
        str, Meta(description="uid of that run; a later run of the same name has another uid")
    ]
    done_at: (
        Annotated[
            float,
            Meta(
                description="time at which that run was seen to have succeeded or ended as required"
            ),
        ]
        | None
    ) = None


class Status(Model, frozen=True):
    """The state of a run. It has only one writer: the supervisor, or the operator.

    `evaluator` is present if the evaluator failed or was stopped, which does not end the run.
    """

    phase: Phase
    reason: Reason
    message: Annotated[str, Meta(description="why the run is in this phase, in English")] = ""
    messages: Annotated[tuple[Message, ...], Meta(description=_BY_CODE)] = ()
    attempt: Annotated[
        int, Meta(description="number of the attempt of all tasks together; 1 is the first")
    ] = 1
    queued_at: (
        Annotated[
            float,
            Meta(description="time at which the supervisor or the operator first saw the run"),
        ]
        | None
    ) = None
    awaited: Annotated[
        tuple[AwaitedRun, ...],
        Meta(description="the runs of `after` that were found, also if they were deleted later"),
    ] = ()
    started_at: (
        Annotated[float, Meta(description="time at which the run was admitted and started")] | None
    ) = None
    running_at: Annotated[float, Meta(description="time at which all tasks were up")] | None = None
    finished_at: Annotated[float, Meta(description="time at which the run ended")] | None = None
    released_at: (
        Annotated[float, Meta(description="time at which the last task was gone")] | None
    ) = None
    stop_at: (
        Annotated[float, Meta(description="time at which tasks that still run are ended")] | None
    ) = None
    retry_at: (
        Annotated[float, Meta(description="time at which the tasks are started again")] | None
    ) = None
    heals: Annotated[int, Meta(description="disruptions after which tasks were started again")] = 0
    program_restarts: Annotated[int, Meta(description="retries of a failing program")] = 0
    restarts: Annotated[dict[str, int], Meta(description="restarts by task, if it had any")] = {}
    window_opened_at: (
        Annotated[
            float,
            Meta(description="time of the first of the failures that are investigated now"),
        ]
        | None
    ) = None
    failures: Annotated[
        tuple[TaskFailure, ...],
        Meta(description="failures whose common cause is sought now, or that ended the run"),
    ] = ()
    culprit: Annotated[str, Meta(description="the task that failed first")] | None = None
    evaluator: TaskFailure | None = None
    counts: Annotated[
        dict[str, TypeCounts], Meta(description="number of tasks by type and state")
    ] = {}
    attention: Annotated[
        tuple[TaskStatus, ...], Meta(description="at most 20 tasks that need attention")
    ] = ()
    events: Annotated[tuple[Event, ...], Meta(description="the newest 50 events")] = ()
    reclaimed: Reclaimed | None = None
    usage: Usage | None = None
    addresses: Annotated[
        dict[str, tuple[str, ...]], Meta(description="host:port by task type")
    ] = {}
    paths: Annotated[
        dict[str, str], Meta(description="output: the run's own folder; logs: its log files")
    ] = {}
    warnings: Annotated[
        tuple[str, ...], Meta(description="warnings of the launch and the operator")
    ] = ()
    inferred: Annotated[
        tuple[Message, ...],
        Meta(
            description=(
                "what the launch inferred from the program's text, such as flags and counts, "
                "each with the option that overrides it"
            )
        ),
    ] = ()
