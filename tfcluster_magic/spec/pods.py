"""What only Kubernetes has: claims, secrets and annotations of the pods of a run. Shapes and
bounds; which of them a user may name is the administrator's policy.

Ref: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .base import MEMORY_PATTERN, Model

OBJECT_NAME_PATTERN = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
"""Names of claims, secrets and storage classes: DNS subdomains (RFC 1123)."""
MOUNT_PATTERN = r"^/[^:\x00-\x1f]+$"
"""Where a volume may be mounted: Kubernetes allows no colon."""
MOUNT_OR_NOTHING = r"^(/[^:\x00-\x1f]+)?$"
SUB_PATH_PATTERN = r"^([^/:\x00-\x1f][^:\x00-\x1f]*)?$"
ANNOTATION_PATTERN = (
    r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
)

ObjectName = Annotated[str, Meta(pattern=OBJECT_NAME_PATTERN, max_length=253)]
MountPath = Annotated[str, Meta(pattern=MOUNT_PATTERN, max_length=512)]


class Volume(Model, frozen=True):
    """A claim that exists already, in every pod of the run."""

    claim: Annotated[ObjectName, Meta(description="name of a PersistentVolumeClaim")]
    path: Annotated[MountPath, Meta(description="where the tasks find it")]
    read_only: Annotated[bool, Meta(description="the tasks may only read")] = False
    sub_path: Annotated[
        str,
        Meta(
            pattern=SUB_PATH_PATTERN,
            max_length=512,
            description="folder of the claim that is mounted; empty: all of it",
        ),
    ] = ""


class SecretUse(Model, frozen=True):
    """A secret that the administrator labelled for tasks, in every pod of the run."""

    name: Annotated[ObjectName, Meta(description="name of a Secret labelled for tasks")]
    path: Annotated[
        str,
        Meta(
            pattern=MOUNT_OR_NOTHING,
            max_length=512,
            description="where its keys are files; empty: they are environment variables",
        ),
    ] = ""


class DataClaim(Model, frozen=True):
    """A claim of the run's own at /data, made with the run and deleted with it."""

    size: Annotated[
        str, Meta(pattern=MEMORY_PATTERN, max_length=32, description="its size, such as 10Gi")
    ]
    storage_class: (
        Annotated[
            ObjectName,
            Meta(description="a ReadWriteMany class; absent: the cluster's default"),
        ]
        | None
    ) = None


class Pods(Model, frozen=True):
    """What only pods have: claims, secrets, annotations. Only on Kubernetes."""

    image_pull_secrets: Annotated[
        tuple[ObjectName, ...],
        Meta(max_length=10, description="secrets that open the image's registry"),
    ] = ()
    volumes: Annotated[
        tuple[Volume, ...], Meta(max_length=20, description="claims beside /data and /log")
    ] = ()
    secrets: Annotated[
        tuple[SecretUse, ...], Meta(max_length=20, description="secrets that the tasks use")
    ] = ()
    annotations: Annotated[
        dict[
            Annotated[str, Meta(pattern=ANNOTATION_PATTERN, max_length=317)],
            Annotated[str, Meta(max_length=4096)],
        ],
        Meta(max_length=32, description="annotations of the pods"),
    ] = {}
    data_claim: DataClaim | None = None
