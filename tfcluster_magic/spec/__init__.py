"""A TFCluster as frozen msgspec structs, with one JSON form for the REST API, records and forms.
`resource_form` converts it to the form of the Kubernetes resource.

This package defines the fields, their bounds and their defaults; rules about several fields are in
`launch.validation`. JSON names are camelCase; Python names are snake_case.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from .message_table import Clause, Message
from .spec import (
    ADDRESS_FLAGS,
    ENV_NAME_PATTERN,
    FOLDER_FLAGS,
    MEMORY_PATTERN,
    NAME_PATTERN,
    AwaitedOutcome,
    DataClaim,
    Dependency,
    Lifecycle,
    Mode,
    Model,
    PassFlags,
    Pods,
    PositiveSeconds,
    Program,
    ProgramKind,
    Replicas,
    ReplicaSet,
    Resources,
    Seconds,
    SecretUse,
    ServerKind,
    Spec,
    Stop,
    SuccessPolicy,
    TaskType,
    Volume,
    flag_key,
)
from .status import (
    AwaitedRun,
    Cause,
    Event,
    FoundCheckpoint,
    Phase,
    Reason,
    Reclaimed,
    Status,
    TaskExit,
    TaskFailure,
    TaskState,
    TaskStatus,
    TypeCounts,
    Usage,
)

__all__ = [
    "ADDRESS_FLAGS",
    "API_VERSION",
    "DISPLAY_NAME_LENGTH",
    "ENV_NAME_PATTERN",
    "FOLDER_FLAGS",
    "KIND",
    "MEMORY_PATTERN",
    "MOST_TAGS",
    "NAME_PATTERN",
    "NOTE_LENGTH",
    "TAG_LENGTH",
    "AdvisedOption",
    "Annotations",
    "AwaitedOutcome",
    "AwaitedRun",
    "Cause",
    "Clause",
    "DataClaim",
    "Dependency",
    "Event",
    "FoundCheckpoint",
    "Lifecycle",
    "Message",
    "Metadata",
    "Mode",
    "Model",
    "Note",
    "PassFlags",
    "Phase",
    "Pods",
    "PositiveSeconds",
    "Program",
    "ProgramKind",
    "Reason",
    "Reclaimed",
    "ReplicaSet",
    "Replicas",
    "Resources",
    "ScheduledRun",
    "Seconds",
    "SecretUse",
    "ServerKind",
    "Spec",
    "Status",
    "Stop",
    "SuccessPolicy",
    "TFCluster",
    "TaskExit",
    "TaskFailure",
    "TaskState",
    "TaskStatus",
    "TaskType",
    "TypeCounts",
    "Usage",
    "Volume",
    "flag_key",
    "schema",
    "to_json",
]


# One run: identity, spec and status, and its JSON Schema.

API_VERSION = "tfcluster.dev/v1beta1"
KIND = "TFCluster"
NOTE_LENGTH = 500
DISPLAY_NAME_LENGTH = 100
TAG_LENGTH = 40
MOST_TAGS = 16
Note = Annotated[str, Meta(max_length=NOTE_LENGTH, description="a note about the run, on one line")]
DisplayName = Annotated[
    str,
    Meta(
        max_length=DISPLAY_NAME_LENGTH,
        description="the title that views show; `name` still identifies the run",
    ),
]
Tag = Annotated[str, Meta(min_length=1, max_length=TAG_LENGTH)]
Tags = Annotated[
    tuple[Tag, ...], Meta(max_length=MOST_TAGS, description="tags, by which lists are filtered")
]


class Annotations(Model, frozen=True):
    """Note, display name and tags of a run. They do not change how it runs."""

    note: Note = ""
    display_name: DisplayName = ""
    tags: Tags = ()


class AdvisedOption(Model, frozen=True, kw_only=True):
    """An option of a schedule's runs, changed by advice on the usage of an earlier run."""

    option: Annotated[str, Meta(description="the option by key, such as worker_memory")]
    own: Annotated[str, Meta(description="its value in the schedule itself")]
    value: Annotated[str, Meta(description="the value that runs get instead")]
    run: Annotated[str, Meta(description="the run whose usage led to the advice")]
    why: Annotated[Message, Meta(description="the advice")]

    @property
    def change(self) -> str:
        """The change in words: `--worker-memory 8Gi → 4Gi`."""
        return f"--{self.option.replace('_', '-')} {self.own} → {self.value}"


class ScheduledRun(Model, frozen=True):
    """The schedule and the due time for which a run was launched."""

    schedule: Annotated[str, Meta(description="the schedule's name")]
    uid: Annotated[str, Meta(description="the schedule's uid")]
    due: Annotated[float, Meta(description="the due time, in seconds since 1970")]
    attempt: Annotated[
        int, Meta(ge=1, description="1 for the first attempt, 2 for the first retry")
    ] = 1
    local: Annotated[str, Meta(description="the due time in the schedule's zone, ISO 8601")] = ""
    advised: (
        Annotated[
            tuple[AdvisedOption, ...],
            Meta(description="options that advice changed; absent if the schedule takes no advice"),
        ]
        | None
    ) = None

    @property
    def identity(self) -> tuple[str, float, int]:
        """The identity of the launch: the schedule's uid, the due time and the attempt. The local
        time is not part of the identity, because the schedule may get another time zone.
        """
        return self.uid, self.due, self.attempt


class Metadata(Model, frozen=True):
    """The identity of a run. `name` is `<cluster>-<run>`, as in `digits-2`."""

    name: str
    cluster: Annotated[str, Meta(pattern=NAME_PATTERN, description="the name that the user chose")]
    run: Annotated[int, Meta(ge=1)]
    uid: str
    created_at: float
    owner: str = ""
    note: Note = ""
    display_name: DisplayName = ""
    tags: Tags = ()
    scheduled: ScheduledRun | None = None

    @property
    def annotations(self) -> Annotations:
        """The run's note, display name and tags."""
        return Annotations(self.note, self.display_name, self.tags)


class TFCluster(Model, frozen=True, kw_only=True, omit_defaults=False):
    """One run of a TFCluster: identity, spec and status."""

    api_version: str = API_VERSION
    kind: str = KIND
    metadata: Metadata
    spec: Spec
    status: Status = Status(phase=Phase.QUEUED, reason=Reason.QUEUED)

    @property
    def active(self) -> bool:
        """Whether the run is in no final phase."""
        return not self.status.phase.is_final


def schema() -> dict[str, object]:
    """Return the JSON Schema (2020-12) of a TFCluster, for forms, OpenAPI and the resource."""
    return msgspec.json.schema(TFCluster)


def to_json(model: Model) -> bytes:
    """Encode a model as JSON. The JSON of a whole TFCluster includes `apiVersion` and `kind`."""
    return msgspec.json.encode(model)
