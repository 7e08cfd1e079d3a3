"""What a TFCluster can say, as frozen msgspec structs: the one JSON form of REST, records, forms
and the custom resource.

Imports nothing of ours. It owns shapes, bounds and defaults; rules between fields live in
`validation.py`. JSON names are camelCase; Python names are snake_case.
"""

from __future__ import annotations

from .resource import API_VERSION, KIND, Metadata, TFCluster, schema, to_json
from .spec import (
    ENV_NAME_PATTERN,
    MEMORY_PATTERN,
    NAME_PATTERN,
    Lifecycle,
    Mode,
    Model,
    PositiveSeconds,
    Program,
    ProgramKind,
    Replicas,
    ReplicaSet,
    Resources,
    Seconds,
    ServerKind,
    Spec,
    Stop,
    SuccessPolicy,
    TaskType,
)
from .status import (
    Cause,
    Event,
    Phase,
    Reason,
    Reclaimed,
    Status,
    TaskExit,
    TaskFailure,
    TaskState,
    TaskStatus,
    TypeCounts,
)

__all__ = [
    "API_VERSION",
    "ENV_NAME_PATTERN",
    "KIND",
    "MEMORY_PATTERN",
    "NAME_PATTERN",
    "Cause",
    "Event",
    "Lifecycle",
    "Metadata",
    "Mode",
    "Model",
    "Phase",
    "PositiveSeconds",
    "Program",
    "ProgramKind",
    "Reason",
    "Reclaimed",
    "ReplicaSet",
    "Replicas",
    "Resources",
    "Seconds",
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
    "schema",
    "to_json",
]
