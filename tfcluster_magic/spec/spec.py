"""The spec of a TFCluster, its desired state: mode, replicas, program, pods, lifecycle.

This module defines the fields, their bounds and their defaults; rules about several fields are in
`launch.validation`. Durations are in seconds. Memory is a Kubernetes quantity ("512Mi", "2Gi").
"""

from __future__ import annotations

import enum
from functools import cache
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import FieldInfo, fields

NAME_PATTERN = r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$"
MEMORY_PATTERN = r"^[0-9]{1,15}(\.[0-9]{1,9})?(Ki|Mi|Gi|Ti|k|M|G|T)?$"
ENV_NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"


class Model(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename="camel",
    omit_defaults=True,
):
    """Base of every model: immutable, strict, camelCase in JSON, defaults left out."""


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[FieldInfo, ...]:
    """Return the fields of a model, cached: msgspec takes milliseconds to read annotations."""
    return fields(kind)


# Options that exist only on Kubernetes: claims, secrets and annotations of a run's pods. The
# administrator's policy decides which of them a user may name.
# Ref: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/

OBJECT_NAME_PATTERN = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
"""Names of claims, secrets and storage classes: DNS subdomains (RFC 1123)."""
MOUNT_PATTERN = r"^/[^:\x00-\x1f]+$"
"""Pattern of a volume's mount path: Kubernetes allows no colon."""
MOUNT_OR_NOTHING = r"^(/[^:\x00-\x1f]+)?$"
SUB_PATH_PATTERN = r"^([^/:\x00-\x1f][^:\x00-\x1f]*)?$"
ANNOTATION_PATTERN = (
    r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
)

KEY_PATTERN = r"^[A-Za-z0-9._-]+$"
"""Pattern of the keys of a Secret."""

ObjectName = Annotated[str, Meta(pattern=OBJECT_NAME_PATTERN, max_length=253)]
MountPath = Annotated[str, Meta(pattern=MOUNT_PATTERN, max_length=512)]


class Volume(Model, frozen=True):
    """An existing claim, mounted in every pod of the run."""

    claim: Annotated[ObjectName, Meta(description="name of a PersistentVolumeClaim")]
    path: Annotated[MountPath, Meta(description="mount path in the tasks")]
    read_only: Annotated[bool, Meta(description="mount the claim for reading only")] = False
    sub_path: Annotated[
        str,
        Meta(
            pattern=SUB_PATH_PATTERN,
            max_length=512,
            description="folder of the claim to mount; empty: the whole claim",
        ),
    ] = ""


class SecretUse(Model, frozen=True):
    """A secret that the administrator labelled for tasks, used in every pod of the run."""

    name: Annotated[ObjectName, Meta(description="name of a Secret labelled for tasks")]
    path: Annotated[
        str,
        Meta(
            pattern=MOUNT_OR_NOTHING,
            max_length=512,
            description=(
                "mount path, with one file for each key; empty: the keys become environment "
                "variables"
            ),
        ),
    ] = ""
    variables: Annotated[
        dict[
            Annotated[str, Meta(pattern=ENV_NAME_PATTERN, max_length=256)],
            Annotated[str, Meta(pattern=KEY_PATTERN, max_length=253)],
        ],
        Meta(
            max_length=50,
            description=(
                "environment variables, each with the key of the secret that holds its value; if "
                "`variables` and `path` are empty, each key becomes a variable of the same name"
            ),
        ),
    ] = {}

    @property
    def is_environment(self) -> bool:
        """Whether each key is an environment variable of the same name."""
        return not self.path and not self.variables


class DataClaim(Model, frozen=True):
    """The run's own claim at /data, created and deleted with the run."""

    size: Annotated[
        str, Meta(pattern=MEMORY_PATTERN, max_length=32, description="size, such as 10Gi")
    ]
    storage_class: (
        Annotated[
            ObjectName,
            Meta(description="a StorageClass with ReadWriteMany; absent: the cluster's default"),
        ]
        | None
    ) = None


class Pods(Model, frozen=True):
    """Options of pods: claims, secrets, annotations. Only on Kubernetes."""

    image_pull_secrets: Annotated[
        tuple[ObjectName, ...],
        Meta(max_length=10, description="secrets for pulling the image from its registry"),
    ] = ()
    volumes: Annotated[
        tuple[Volume, ...],
        Meta(max_length=20, description="claims to mount besides /data and /log"),
    ] = ()
    secrets: Annotated[
        tuple[SecretUse, ...], Meta(max_length=20, description="secrets for the tasks")
    ] = ()
    annotations: Annotated[
        dict[
            Annotated[str, Meta(pattern=ANNOTATION_PATTERN, max_length=317)],
            Annotated[str, Meta(max_length=4096)],
        ],
        Meta(max_length=32, description="annotations of the pods"),
    ] = {}
    data_claim: DataClaim | None = None


# The spec itself.

IMAGE_PATTERN = r"^[A-Za-z0-9\[][A-Za-z0-9._:@\[\]-]*(/[A-Za-z0-9._:@-]+)*$"

MOST_CORES = 1024
"""Maximum CPU cores of one task."""
PROGRAM_PATH_PATTERN = r"^[^\x00-\x1f]+$"
PROGRAM_URL_PATTERN = r"^https?://[!-~]+$"
PAYLOAD_BYTES = 64 * 1024
"""Maximum bytes that the environment, the arguments and a program stored in the record may have
together; see `record_size`.
"""
MOST_FILES = 1000
"""Maximum files of a program inside the record; larger programs are in the workspace."""

LongText = Annotated[str, Meta(max_length=PAYLOAD_BYTES * 4 // 3 + 4)]
ShortText = Annotated[str, Meta(max_length=4096)]
Seconds = Annotated[float, Meta(ge=0, le=366 * 86400)]
PositiveSeconds = Annotated[float, Meta(gt=0, le=366 * 86400)]


class Mode(str, enum.Enum):
    """Where the TensorFlow graph is built: in each task's program, or in the notebook."""

    BETWEEN_GRAPH = "between-graph"
    IN_GRAPH = "in-graph"


class TaskType(str, enum.Enum):
    """TensorFlow's task types, in display order."""

    CHIEF = "chief"
    WORKER = "worker"
    PS = "ps"
    EVALUATOR = "evaluator"


class Resources(Model, frozen=True):
    """The limits of one task. If a limit is absent, the task has no limit of its own."""

    cpu: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=MOST_CORES,
                description="CPU cores; also the number of TensorFlow's threads",
            ),
        ]
        | None
    ) = None
    memory: (
        Annotated[
            str,
            Meta(
                pattern=MEMORY_PATTERN,
                max_length=32,
                description="memory limit, such as 512Mi or 2Gi",
            ),
        ]
        | None
    ) = None
    gpu: Annotated[
        int,
        Meta(ge=0, le=64, description="number of whole GPUs; running clusters do not share a GPU"),
    ] = 0


class Replicas(Model, frozen=True):
    """The number of tasks of one type, and the resources of each."""

    count: Annotated[int, Meta(ge=0, le=1000, description="number of tasks")]
    resources: Resources = Resources()


class ReplicaSet(Model, frozen=True):
    """The tasks of a cluster by task type; a type that is absent has no tasks."""

    worker: Annotated[
        Replicas, Meta(description="tasks that train; in-graph: TensorFlow servers that compute")
    ] = Replicas(count=1)
    ps: Annotated[
        Replicas, Meta(description="parameter servers, released when the workers are done")
    ] = Replicas(count=0)
    chief: Annotated[
        Replicas, Meta(description="one task that leads the workers, if the program needs it")
    ] = Replicas(count=0)
    evaluator: Annotated[
        Replicas, Meta(description="one task outside the cluster that evaluates checkpoints")
    ] = Replicas(count=0)

    def of(self, task_type: TaskType) -> Replicas:
        """Return the replicas of one task type."""
        replicas: Replicas = getattr(self, task_type.value)
        return replicas

    @property
    def counts(self) -> dict[TaskType, int]:
        """The number of tasks by type, without empty types, in the order of `TaskType`."""
        return {t: self.of(t).count for t in TaskType if self.of(t).count}

    @property
    def total(self) -> int:
        """The total number of tasks."""
        return sum(self.counts.values())


class ProgramKind(str, enum.Enum):
    """The origin of a program. For `file`, `folder`, `cell` and `url`, a launch took a snapshot."""

    FILE = "file"
    FOLDER = "folder"
    CELL = "cell"
    URL = "url"
    INLINE = "inline"
    COMMAND = "command"
    PATH = "path"
    LINK = "link"


class Program(Model, frozen=True):
    """The program of the tasks. In a record written by hand, it is `inline`, `command`, `path` or
    `url`.

    A launch takes a snapshot instead: a small one (up to 64 KiB) is in `files`, a larger one under
    `<workspace>/.tfcluster/code/<sha256>/`. When a record is read,
    `kind` and `source` are filled in if they are absent.
    """

    inline: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=PAYLOAD_BYTES,
                description=(
                    "text of a Python program, or of a shell script if `entrypoint` ends in .sh"
                ),
            ),
        ]
        | None
    ) = None
    command: (
        Annotated[
            tuple[LongText, ...],
            Meta(
                min_length=1,
                max_length=1000,
                description="a command of the image; it starts in the image's working directory",
            ),
        ]
        | None
    ) = None
    path: (
        Annotated[
            str,
            Meta(
                pattern=PROGRAM_PATH_PATTERN,
                max_length=4096,
                description=(
                    "file or folder that tasks can read; a relative path is in the workspace. "
                    "A task runs the content that is there when the task starts"
                ),
            ),
        ]
        | None
    ) = None
    url: (
        Annotated[
            str,
            Meta(
                pattern=PROGRAM_URL_PATTERN,
                max_length=4096,
                description=(
                    "address of a .py or .sh file, a .zip or a .tar.gz, which each task "
                    "fetches when it starts; the administrator's policy must grant egress to "
                    "it"
                ),
            ),
        ]
        | None
    ) = None
    kind: Annotated[ProgramKind, Meta(description="how the program was given")] | None = None
    source: Annotated[
        ShortText, Meta(description="what the user launched: a path, a URL, or 'cell'")
    ] = ""
    entrypoint: Annotated[
        ShortText,
        Meta(
            description=(
                "file to start; absent: the program itself if it is one file, and in a folder "
                "run.sh, main.py, __main__.py or the only .py file"
            )
        ),
    ] = ""
    sha256: Annotated[
        str,
        Meta(
            pattern="^([0-9a-f]{64})?$",
            description=(
                "checksum that the program must have; otherwise it does not run. For inline, a "
                "file and a url, it is what sha256sum prints; for a folder and a snapshot, see "
                "docs/how-to/kubernetes-files.md"
            ),
        ),
    ] = ""
    files: (
        Annotated[
            dict[str, LongText],
            Meta(
                max_length=MOST_FILES,
                description="contents of the program's files in base64, by path",
            ),
        ]
        | None
    ) = None
    executables: Annotated[
        tuple[ShortText, ...],
        Meta(max_length=5000, description="executable files of the snapshot"),
    ] = ()
    arguments: Annotated[
        tuple[LongText, ...],
        Meta(max_length=5000, description="arguments of the program"),
    ] = ()
    flags: Annotated[
        tuple[ShortText, ...],
        Meta(
            max_length=1000,
            description="flags to add to the command line, spelled as the program declares them",
        ),
    ] = ()
    imports_tensorflow: Annotated[
        bool, Meta(description="whether the program needs TensorFlow to start")
    ] = True
    serves: Annotated[
        bool,
        Meta(
            description=(
                "whether the program uses TensorFlow's distributed runtime. A launch determines "
                "this from the program. If a record written by hand does not have `true` here, "
                "each task determines it from the program's files"
            )
        ),
    ] = False
    working_dir: (
        Annotated[
            ShortText, Meta(description="working directory, relative to the program's folder")
        ]
        | None
    ) = None

    def __repr__(self) -> str:
        """Return the fields that are set, without the contents of files."""
        said = {name: getattr(self, name) for name in self.__struct_fields__}
        if self.files is not None:
            said["files"] = dict.fromkeys(self.files, ...)
        shown = (f"{name}={value!r}" for name, value in said.items() if value not in (None, "", ()))
        return f"Program({', '.join(shown)})"

    @property
    def by_hand(self) -> bool:
        """Whether the record was written by hand, so that no launch took a snapshot of its program.
        Each task then reads the program itself.
        """
        by_text = self.kind is ProgramKind.INLINE
        return by_text or bool(self.inline or self.command or self.path or self.url)

    @property
    def is_stored(self) -> bool:
        """Whether the program is a snapshot in the workspace, stored by its checksum."""
        return self.files is None and not self.by_hand

    @property
    def is_pinned(self) -> bool:
        """Whether a rerun runs the same program: it is in the record or the image, or has a
        checksum.
        """
        return not (self.path or self.url) or bool(self.sha256)


class ServerKind(str, enum.Enum):
    """The server of an In-Graph task: TensorFlow's C API, or tf.distribute.Server."""

    NATIVE = "native"
    PYTHON = "python"


class PassFlags(str, enum.Enum):
    """The flags that are added to a program's command line, out of those that it accepts."""

    ALL = "all"
    ADDRESSES = "addresses"
    NONE = "none"


ADDRESS_FLAGS = ("ps_hosts", "worker_hosts", "job_name", "task_index")
"""Flags for the addresses of all tasks, and for the task's own type and index."""
FOLDER_FLAGS = (
    "data_dir",
    "log_path",
    "log_dir",
    "logdir",
    "train_dir",
    "model_dir",
    "output_dir",
    "checkpoint_dir",
)
"""Flags for folders: the first gets the data folder, the others the run's output folder.
"""


def flag_key(name: str) -> str:
    """Return a flag's name with underscores: programs may declare `--data-dir` or `--data_dir`."""
    return name.replace("-", "_")


class SuccessPolicy(str, enum.Enum):
    """The tasks whose success ends a Between-Graph run."""

    ALL = "all"
    CHIEF = "chief"


class Lifecycle(Model, frozen=True):
    """Limits of a run; docs/reference/limits.md has the table of defaults."""

    success_policy: (
        Annotated[
            SuccessPolicy,
            Meta(
                description=(
                    "tasks whose success ends the run: the workers and the chief (`all`), or "
                    "only the chief; absent: only the chief if there is one, else all workers"
                )
            ),
        ]
        | None
    ) = None
    restarts: Annotated[
        int, Meta(ge=0, le=100, description="maximum number of retries of a failing program")
    ] = 0
    heals: Annotated[
        int,
        Meta(
            ge=0, le=100, description="maximum number of disruptions after which tasks start again"
        ),
    ] = 3
    reclaim_after: Annotated[
        Seconds, Meta(description="time that ps and evaluator stay after success")
    ] = 30.0
    queue_timeout: (
        Annotated[Seconds, Meta(description="longest time in Queued; absent: no limit")] | None
    ) = None
    start_timeout: Annotated[PositiveSeconds, Meta(description="longest time in Starting")] = 600.0
    image_timeout: Annotated[
        PositiveSeconds,
        Meta(
            description=(
                "longest time in Starting while a task has a node but its image cannot be pulled"
            )
        ),
    ] = 120.0
    max_duration: Annotated[PositiveSeconds, Meta(description="longest time from start to end")] = (
        86400.0
    )
    idle_timeout: Annotated[
        PositiveSeconds,
        Meta(description="In-Graph: longest time in which no notebook uses the run"),
    ] = 3600.0
    stall_timeout: (
        Annotated[
            PositiveSeconds,
            Meta(
                description=(
                    "Between-Graph: longest time in which no task prints, writes event files "
                    "or uses CPU; absent: no limit"
                )
            ),
        ]
        | None
    ) = None
    grace: Annotated[Seconds, Meta(description="time between SIGTERM and SIGKILL")] = 10.0
    keep_for: Annotated[
        Seconds, Meta(description="time for which the record of a finished run is kept")
    ] = 30 * 86400.0


STOP_LENGTH, ASKER_LENGTH = 1000, 300
"""A pair: the maximum characters of a stop's reason, and those of the name of the person who
requested the stop.
"""


class AwaitedOutcome(str, enum.Enum):
    """The required end of an awaited run: success, or any end."""

    SUCCESS = "success"
    END = "end"


RUN_NAME_PATTERN = NAME_PATTERN[:-1] + "-[1-9][0-9]{0,8}$"
MOST_DEPENDENCIES = 10
"""Maximum runs that one run may wait for."""


class Dependency(Model, frozen=True):
    """A run that must succeed or end before this one starts."""

    run: Annotated[
        str,
        Meta(
            pattern=RUN_NAME_PATTERN,
            max_length=50,
            description="the run, such as prepare-3, on the same machine or in the same namespace",
        ),
    ]
    until: Annotated[
        AwaitedOutcome, Meta(description="what that run must do: succeed, or end in any way")
    ] = AwaitedOutcome.SUCCESS

    @property
    def words(self) -> str:
        """The value of `--after`: `prepare-3`, or `prepare-3:end`."""
        is_usual = self.until is AwaitedOutcome.SUCCESS
        return self.run if is_usual else f"{self.run}:{self.until.value}"


class Stop(Model, frozen=True):
    """A request to end the run; the only part of a spec that may change."""

    reason: Annotated[
        str, Meta(max_length=STOP_LENGTH, description="the reason, as the record shows it")
    ] = ""
    by: Annotated[
        str, Meta(max_length=ASKER_LENGTH, description="the person who requested the stop")
    ] = ""
    at: Annotated[float, Meta(description="time of the request, in seconds since 1970")] = 0.0


class Spec(Model, frozen=True):
    """The desired state of a cluster."""

    mode: Annotated[
        Mode,
        Meta(description="where the graph is built: in the program, or in one notebook (in-graph)"),
    ] = Mode.BETWEEN_GRAPH
    replicas: ReplicaSet = ReplicaSet()
    program: Program | None = None
    pass_flags: Annotated[
        PassFlags,
        Meta(
            description="which of the flags that the program accepts are added to its command line"
        ),
    ] = PassFlags.ALL
    server: ServerKind = ServerKind.NATIVE
    image: (
        Annotated[
            str,
            Meta(
                pattern=IMAGE_PATTERN,
                max_length=512,
                description="container image of the tasks; absent: the administrator's choice",
            ),
        ]
        | None
    ) = None
    interpreter: (
        Annotated[
            ShortText,
            Meta(
                description="Python interpreter of the tasks; absent: the one that launched the run"
            ),
        ]
        | None
    ) = None
    env: Annotated[
        dict[Annotated[str, Meta(pattern=ENV_NAME_PATTERN, max_length=256)], LongText],
        Meta(max_length=500, description="environment variables of the tasks"),
    ] = {}
    lifecycle: Lifecycle = Lifecycle()
    resume_from: (
        Annotated[
            str, Meta(max_length=64, description="run from whose checkpoints this run starts")
        ]
        | None
    ) = None
    after: Annotated[
        tuple[Dependency, ...],
        Meta(
            max_length=MOST_DEPENDENCIES,
            description=(
                "runs that this run waits for. While it waits, it is Queued and uses no resources. "
                "It fails as soon as one of those runs can no longer succeed or end as required"
            ),
        ),
    ] = ()
    pods: Pods | None = None
    stop: Stop | None = None

    @property
    def success_policy(self) -> SuccessPolicy:
        """The tasks whose success ends the run: as requested, or else the chief if there is one."""
        chief = SuccessPolicy.CHIEF if self.replicas.chief.count else SuccessPolicy.ALL
        return self.lifecycle.success_policy or chief

    @property
    def passed_flags(self) -> tuple[str, ...]:
        """The flags to add to the program's command line, spelled as the program declares them.
        Flags that the user gave are left out.
        """
        if self.program is None or self.pass_flags is PassFlags.NONE:
            return ()
        left_out = FOLDER_FLAGS if self.pass_flags is PassFlags.ADDRESSES else ()
        return tuple(
            flag
            for flag in self.program.flags
            if flag_key(flag) not in left_out and not self.gives_flag(flag)
        )

    def gives_flag(self, name: str) -> bool:
        """Return whether the user's own arguments contain this flag, in either spelling."""
        words = self.program.arguments if self.program else ()
        given = (word.lstrip("-").partition("=")[0] for word in words if word.startswith("-"))
        return flag_key(name) in map(flag_key, given)
