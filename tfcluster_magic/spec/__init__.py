"""What a TFCluster can say, as frozen msgspec structs: the one JSON form of REST, records, forms
and the custom resource.

Imports nothing of ours. It owns shapes, bounds and defaults; rules between fields live in
`validation/`. JSON names are camelCase; Python names are snake_case.
"""

from __future__ import annotations

from .base import ENV_NAME_PATTERN, MEMORY_PATTERN, NAME_PATTERN, Model
from .pods import DataClaim, Pods, SecretUse, Volume
from .resource import API_VERSION, KIND, Metadata, TFCluster, schema, to_json
from .spec import (
    Lifecycle,
    Mode,
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
    Usage,
)

__all__ = [
    "API_VERSION",
    "ENV_NAME_PATTERN",
    "KIND",
    "MEMORY_PATTERN",
    "NAME_PATTERN",
    "Cause",
    "DataClaim",
    "Event",
    "Lifecycle",
    "Metadata",
    "Mode",
    "Model",
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
    "schema",
    "to_json",
]
