"""What the user wants: mode, replicas, program, lifecycle. Shapes, bounds and defaults; no rules
between fields.

Durations are seconds. Memory is a Kubernetes quantity ("512Mi", "2Gi").
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

NAME_PATTERN = r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$"
MEMORY_PATTERN = r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$"
ENV_NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"

Seconds = Annotated[float, Meta(ge=0, le=366 * 86400)]
PositiveSeconds = Annotated[float, Meta(gt=0, le=366 * 86400)]


class Model(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename="camel",
    omit_defaults=True,
):
    """Base of every model: immutable, strict, camelCase in JSON, defaults left out."""


class Mode(str, enum.Enum):
    """Who builds the graph: each worker's program, or the notebook."""

    BETWEEN_GRAPH = "between-graph"
    IN_GRAPH = "in-graph"


class TaskType(str, enum.Enum):
    """TensorFlow's task types, in the order in which people read them."""

    CHIEF = "chief"
    WORKER = "worker"
    PS = "ps"
    EVALUATOR = "evaluator"


class Resources(Model, frozen=True):
    """What one task may use. None means no limit of its own."""

    cpu: (
        Annotated[float, Meta(gt=0, le=1024, description="CPU cores; sets TensorFlow's threads")]
        | None
    ) = None
    memory: (
        Annotated[
            str, Meta(pattern=MEMORY_PATTERN, description="memory limit, such as 512Mi or 2Gi")
        ]
        | None
    ) = None
    gpu: Annotated[
        int, Meta(ge=0, le=64, description="whole GPUs, not shared between running clusters")
    ] = 0


class Replicas(Model, frozen=True):
    """How many tasks of one type, and what each may use."""

    count: Annotated[int, Meta(ge=0, le=1000, description="number of tasks")]
    resources: Resources = Resources()


class ReplicaSet(Model, frozen=True):
    """The tasks of a cluster by task type; a type that is absent has none."""

    worker: Replicas = Replicas(count=1)
    ps: Replicas = Replicas(count=0)
    chief: Replicas = Replicas(count=0)
    evaluator: Replicas = Replicas(count=0)

    def of(self, task_type: TaskType) -> Replicas:
        """The replicas of one task type."""
        replicas: Replicas = getattr(self, task_type.value)
        return replicas

    @property
    def counts(self) -> dict[TaskType, int]:
        """Counts of the types that have tasks, in the order of `TaskType`."""
        return {t: self.of(t).count for t in TaskType if self.of(t).count}

    @property
    def total(self) -> int:
        """Number of tasks in all."""
        return sum(self.counts.values())


class ProgramKind(str, enum.Enum):
    """Where a program came from."""

    FILE = "file"
    FOLDER = "folder"
    CELL = "cell"
    URL = "url"


class Program(Model, frozen=True):
    """A snapshot of the user's program, taken once at launch.

    Small ones (64 KiB) travel in `files`; larger ones lie under
    `<workspace>/.tfcluster/code/<sha256>/`.
    """

    kind: ProgramKind
    source: Annotated[str, Meta(description="what the user named: a path, a URL, or 'cell'")]
    entrypoint: Annotated[str, Meta(description="file inside the snapshot that is started")]
    sha256: Annotated[
        str, Meta(pattern="^[0-9a-f]{64}$", description="checksum of the whole snapshot")
    ]
    files: Annotated[dict[str, str], Meta(description="path to base64 content")] | None = None
    executables: Annotated[
        tuple[str, ...], Meta(description="files of the snapshot that have the executable bit")
    ] = ()
    arguments: tuple[str, ...] = ()
    flags: Annotated[
        tuple[str, ...], Meta(description="address flags that the program mentions")
    ] = ()
    serves: Annotated[
        bool, Meta(description="the program mentions TensorFlow's distributed runtime")
    ] = False
    working_dir: (
        Annotated[str, Meta(description="where it starts; relative to its own folder")] | None
    ) = None


class ServerKind(str, enum.Enum):
    """What an In-Graph task runs: TensorFlow's C API, or tf.distribute.Server."""

    NATIVE = "native"
    PYTHON = "python"


class SuccessPolicy(str, enum.Enum):
    """Whose success ends a Between-Graph run."""

    ALL = "all"
    CHIEF = "chief"


class Lifecycle(Model, frozen=True):
    """Limits and policies; see docs/lifecycle.md for the table of defaults."""

    success_policy: SuccessPolicy = SuccessPolicy.ALL
    restarts: Annotated[int, Meta(ge=0, le=100, description="retries of a failing program")] = 0
    heals: Annotated[int, Meta(ge=0, le=100, description="disruptions healed without asking")] = 3
    reclaim_after: Annotated[
        Seconds, Meta(description="ps and evaluator live this long after success")
    ] = 30.0
    queue_timeout: (
        Annotated[Seconds, Meta(description="bound on Queued; none when absent")] | None
    ) = None
    start_timeout: Annotated[PositiveSeconds, Meta(description="bound on Starting")] = 600.0
    max_duration: Annotated[
        PositiveSeconds, Meta(description="bound on the run from its start")
    ] = 86400.0
    idle_timeout: Annotated[PositiveSeconds, Meta(description="In-Graph: bound on idling")] = 3600.0
    grace: Annotated[Seconds, Meta(description="between SIGTERM and SIGKILL")] = 10.0
    keep_for: Annotated[Seconds, Meta(description="how long a finished record stays")] = (
        30 * 86400.0
    )


class Stop(Model, frozen=True):
    """A request to end the run; the only part of a spec that may change."""

    reason: str = ""
    by: str = ""
    at: float = 0.0


class Spec(Model, frozen=True):
    """What the user wants."""

    mode: Mode = Mode.BETWEEN_GRAPH
    replicas: ReplicaSet = ReplicaSet()
    program: Program | None = None
    server: ServerKind = ServerKind.NATIVE
    image: str | None = None
    env: dict[Annotated[str, Meta(pattern=ENV_NAME_PATTERN)], str] = {}
    lifecycle: Lifecycle = Lifecycle()
    resume_from: (
        Annotated[str, Meta(description="run whose checkpoints this one starts from")] | None
    ) = None
    stop: Stop | None = None
