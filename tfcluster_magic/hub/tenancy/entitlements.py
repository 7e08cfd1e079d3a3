"""Grants to users of the hub: sizes, quotas, storage, networks; every word has a default. Pure.

Of several groups the one of the highest priority counts, of equal ones the first by name. It
applies nothing: the hub's spawner and `namespace_objects` do. `policy` reads the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ...kube.objects import network_policy
from ...quota.budgets import Budget
from ...quota.limits import OverrideTerm
from ...spec import MEMORY_PATTERN, Model, PositiveSeconds

Name = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$",
        description="small letters, digits and hyphens, at most 40",
    ),
]
Amount = Annotated[
    str, Meta(pattern=MEMORY_PATTERN, description="an amount with Ki, Mi, Gi or Ti, such as 2Gi")
]
Cores = Annotated[float, Meta(gt=0, le=4096, description="a number of cores above 0")]
Count = Annotated[int, Meta(ge=0, le=100_000, description="a whole number, 0 or more")]
Path = Annotated[str, Meta(pattern="^/[^:]*[^:/]$", description="an absolute path")]
Network = Annotated[str, Meta(description="a network such as 10.0.0.0/8")]
Records = Annotated[int, Meta(ge=10, le=100_000, description="a whole number, 10 or more")]
CLAIM = "10Gi"
"""The size of a claim of which nothing is said."""

PriorityClass = Annotated[
    str,
    Meta(
        pattern=r"^((?!system-|tfcluster-notebook$)[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?)?$",
        description="a PriorityClass, none of Kubernetes' own and not tfcluster-notebook",
    ),
]
Queue = Annotated[
    str,
    Meta(
        pattern=r"^([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?)?$",
        description="a queue of Volcano",
    ),
]


class Size(Model, frozen=True):
    """A notebook server that users may choose. What it reserves, and what it may use at most."""

    name: Name
    title: str = ""
    cpu: Cores = 0.5
    memory: Amount = "1Gi"
    gpu: Count = 0
    cpu_limit: Cores | None = None
    memory_limit: Amount | None = None


class TaskQuota(Model, frozen=True):
    """What all tasks of a user may have at once, notebooks aside; none: as much as there is."""

    cpu: Cores | None = None
    memory: Amount | None = None
    gpu: Count | None = None
    pods: Count | None = None
    run_claims: Count | None = 20
    run_storage: Amount | None = None
    records: Records | None = 40


class ContainerAmounts(Model, frozen=True):
    """Amounts of one container; none: not said."""

    cpu: Cores | None = None
    memory: Amount | None = None
    ephemeral_storage: Amount | None = None


class ContainerLimits(Model, frozen=True):
    """What a container may use at most, and what one gets that says nothing."""

    max: ContainerAmounts = ContainerAmounts()
    default: ContainerAmounts = ContainerAmounts(ephemeral_storage="10Gi")
    request: ContainerAmounts = ContainerAmounts(ephemeral_storage="100Mi")


class StorageSizes(Model, frozen=True):
    """The claims of a user, of this machine the folders; none: not said.

    A claim that is there grows with its word and never shrinks. One of which nothing is said has a
    size all the same; a folder then has no bound.
    """

    class_: Annotated[
        str, Meta(description='a StorageClass with ReadWriteMany; "": the cluster\'s default')
    ] = msgspec.field(default="", name="class")
    workspace: Amount | None = None
    data: Amount | None = None
    log: Amount | None = None

    @property
    def said(self) -> dict[str, str | None]:
        """What was said of each, by name."""
        return {"workspace": self.workspace, "data": self.data, "log": self.log}

    @property
    def claims(self) -> dict[str, str]:
        """The size of each claim."""
        return {name: size or CLAIM for name, size in self.said.items()}


class SharedData(Model, frozen=True):
    """Data that all users of the group may read: a claim of this name in each tenant.

    One of `volume` (a PersistentVolume made for that tenant; `{namespace}` stands for it) and
    `class` (a StorageClass all of whose volumes are the same folder).
    """

    name: Name
    path: Path
    volume: str = ""
    class_: str = msgspec.field(default="", name="class")
    size: Amount = "1Gi"


class Idle(Model, frozen=True):
    """When a notebook server is ended, in seconds; none: never. Clusters are no activity."""

    cull: PositiveSeconds | None = 3600.0
    max_age: PositiveSeconds | None = None


class Grant(Model, frozen=True):
    """All that a user of one group may have."""

    sizes: tuple[Size, ...] = (Size(name="small"),)
    named_servers: Count = 0
    quota: TaskQuota = TaskQuota()
    limits: ContainerLimits = ContainerLimits()
    storage: StorageSizes = StorageSizes()
    shared_data: tuple[SharedData, ...] = ()
    image_pull_secrets: tuple[Name, ...] = ()
    require_digest: bool = False
    egress: tuple[Network, ...] = ()
    queue: Queue = ""
    priority_class: PriorityClass = ""
    budget: Budget = Budget()
    idle: Idle = Idle()


class Pool(Model, frozen=True):
    """Nodes, as a pod's own `nodeSelector` and `tolerations` say them."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()


class Placement(Model, frozen=True):
    """Where notebooks run. Tasks: the operator's policy; the hub: its Deployment."""

    notebooks: Pool = Pool()


class Image(Model, frozen=True):
    """A notebook image that users may choose."""

    name: Name
    image: Annotated[str, Meta(min_length=1)]
    title: str = ""


ETCD_BUDGET = "256Mi"
"""What TFClusters may take of etcd: an eighth of the 2 GiB that it has by default. It keeps what
was before for some minutes, other objects lie there, too, and the operator reads all TFClusters
when it starts: 256Mi in less than five seconds.
"""


class HubPolicy(Model, frozen=True):
    """The whole file, read: `grants` has each group's words over those of `default`."""

    default: Grant = Grant()
    grants: dict[str, Grant] = {}
    priorities: dict[str, int] = {}
    placement: Placement = Placement()
    images: tuple[Image, ...] = ()
    gpu_resource: str = "nvidia.com/gpu"
    dns: tuple[network_policy.DnsResolver, ...] = network_policy.DEFAULT_DNS
    operator_secrets: bool = True
    on_removal: Literal["keep", "delete"] = "keep"
    etcd_budget: Amount = ETCD_BUDGET


def task_classes(policy: HubPolicy) -> tuple[str, ...]:
    """The priority classes of tasks that any group has: who changes groups has some of each."""
    every = (policy.default, *policy.grants.values())
    return tuple(sorted({grant.priority_class for grant in every} - {""}))


class Entitlement(msgspec.Struct, frozen=True):
    """What one user may have, and the group by which; "" where `default` alone says it.

    `override` says until when and why it is another than the group's.
    """

    grant: Grant
    group: str = ""
    override: OverrideTerm | None = None


def entitlement_for_groups(policy: HubPolicy, groups: Iterable[str]) -> Entitlement:
    """What a member of these groups may have; groups that the policy does not name do not count."""
    known = sorted(
        (each for each in groups if each in policy.grants),
        key=lambda name: (-policy.priorities.get(name, 0), name),
    )
    if not known:
        return Entitlement(policy.default)
    return Entitlement(policy.grants[known[0]], known[0])
