"""Entitlements of the hub's users: sizes, quotas, storage, networks; each field has a default.
Pure.

For a user in several groups, the group with the highest priority applies; of groups with the same
priority, the first by name. The hub's spawner and `namespace_objects` apply the result; `policy`
reads the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ...i18n import mark
from ...kube.objects import network_policy
from ...notifications import NotificationPolicy
from ...quota.budgets import Budget
from ...quota.limits import OverrideTerm
from ...quota.policy_file import Amount, LimitSeconds, Network
from ...spec import Model

Name = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$",
        description=mark("at most 40 lower-case letters, digits and hyphens"),
    ),
]
Cores = Annotated[
    float, Meta(gt=0, le=4096, description=mark("a number of cores above 0, at most 4096"))
]
Count = Annotated[int, Meta(ge=0, le=100_000, description=mark("a whole number from 0 to 100000"))]
Path = Annotated[
    str,
    Meta(
        pattern="^/[^:]*[^:/]$",
        description=mark("an absolute path without a colon and without a slash at its end"),
    ),
]
Records = Annotated[
    int, Meta(ge=10, le=100_000, description=mark("a whole number from 10 to 100000"))
]
CLAIM = "10Gi"
"""Size of a claim if the policy sets none."""

PriorityClass = Annotated[
    str,
    Meta(
        pattern=r"^((?!system-|tfcluster-notebook$)[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?)?$",
        description=mark("a PriorityClass other than Kubernetes' own and tfcluster-notebook"),
    ),
]
Queue = Annotated[
    str,
    Meta(
        pattern=r"^([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?)?$",
        description=mark("a queue of Volcano"),
    ),
]


class Size(Model, frozen=True):
    """A notebook server that users may choose: what it reserves, and its limits."""

    name: Name
    """The name of the size, which must be unique."""
    title: str = ""
    """The text that users see; without it, they see the name."""
    cpu: Cores = 0.5
    """Cores that the notebook reserves."""
    memory: Amount = "1Gi"
    """Memory that the notebook reserves."""
    gpu: Count = 0
    """GPUs of the notebook."""
    cpu_limit: Cores | None = None
    """The most cores that the notebook may use."""
    memory_limit: Amount | None = None
    """The most memory that the notebook may use."""


class TaskQuota(Model, frozen=True):
    """Limits of all tasks of a user together, without notebooks; None for no limit."""

    cpu: Cores | None = None
    """Cores of all tasks of a user together. Notebooks do not count, so that a cluster never
    prevents a notebook from starting.
    """
    memory: Amount | None = None
    """Memory of all tasks of a user together."""
    gpu: Count | None = None
    """GPUs of all tasks of a user together."""
    pods: Count | None = None
    """Number of task pods of a user; on one machine, of tasks."""
    run_claims: Count | None = 20
    """Number of claims that a user's runs may create with `--data-claim`."""
    run_storage: Amount | None = None
    """Total size of the claims that a user's runs create with `--data-claim`."""
    records: Records | None = 40
    """Number of TFClusters that a user may have on record, ended ones included; null: any number.
    The oldest ended ones are deleted before the limit is reached.
    """


class ContainerAmounts(Model, frozen=True):
    """Amounts of one container; None if not set."""

    cpu: Cores | None = None
    """Cores."""
    memory: Amount | None = None
    """Memory."""
    ephemeral_storage: Amount | None = None
    """Disk on the node."""


class ContainerLimits(Model, frozen=True):
    """The largest amounts of a container, and the defaults. Each docstring of a field introduces
    those of ContainerAmounts in docs/reference/policy.md.
    """

    max: ContainerAmounts = ContainerAmounts()
    """The highest limit that a container may have:"""
    default: ContainerAmounts = ContainerAmounts(ephemeral_storage="10Gi")
    """The limit of a container that sets none:"""
    request: ContainerAmounts = ContainerAmounts(ephemeral_storage="100Mi")
    """The request of a container that sets none:"""


class StorageSizes(Model, frozen=True):
    """Sizes of a user's claims, or folders on one machine; None if not set.

    An existing claim grows with its size here and never shrinks. A claim without a size gets a
    default one; a folder without a size has no limit.
    """

    class_: Annotated[
        str,
        Meta(description=mark('a StorageClass with ReadWriteMany; "" for the cluster\'s default')),
    ] = msgspec.field(default="", name="class")
    """A StorageClass with ReadWriteMany. If empty, the cluster's default."""
    workspace: Amount | None = None
    """The size of the user's home, by default 10Gi. On one machine, a folder without a size has no
    limit.
    """
    data: Amount | None = None
    """The size of the claim for data sets, by default 10Gi."""
    log: Amount | None = None
    """The size of the claim for output, by default 10Gi."""

    @property
    def said(self) -> dict[str, str | None]:
        """The sizes by the name of the claim or folder; None where the policy sets no size."""
        return {"workspace": self.workspace, "data": self.data, "log": self.log}

    @property
    def claims(self) -> dict[str, str]:
        """The sizes of all claims by name; a claim for which none is set has the default size."""
        return {name: size or CLAIM for name, size in self.said.items()}


class SharedData(Model, frozen=True):
    """Data that all users of a group may read, as the claim `name` in each tenant's namespace.

    Set either `volume`, a PersistentVolume for that tenant with `{namespace}` in its name, or
    `class`, a StorageClass whose volumes are all the same folder.
    """

    name: Name
    """The name of the claim in the user's namespace."""
    path: Path
    """The path at which notebooks and tasks mount the claim."""
    volume: str = ""
    """The name of each user's PersistentVolume, with `{namespace}` in it. Set this or `class`."""
    class_: str = msgspec.field(default="", name="class")
    """The name of a StorageClass whose volumes are all the same folder. Set this or `volume`."""
    size: Amount = "1Gi"
    """The size of the claim."""


class Idle(Model, frozen=True):
    """The times in seconds after which notebook servers are stopped; None for never. A running
    cluster does not count as activity of a notebook.
    """

    cull: LimitSeconds | None = 3600.0
    """Seconds after which an unused notebook is stopped, checked once a minute; null: never. A
    running cluster does not count as use of a notebook.
    """
    max_age: LimitSeconds | None = None
    """Age in seconds at which any notebook is stopped."""


class Grant(Model, frozen=True):
    """Everything that users of one group may have."""

    sizes: tuple[Size, ...] = (Size(name="small"),)
    """Sizes of notebooks to choose from."""
    named_servers: Count = 0
    """Number of notebook servers that a user may have besides the first, up to the hub's own limit
    (`TFCLUSTER_HUB_NAMED_SERVERS`).
    """
    quota: TaskQuota = TaskQuota()
    limits: ContainerLimits = ContainerLimits()
    storage: StorageSizes = StorageSizes()
    shared_data: tuple[SharedData, ...] = ()
    """Data that notebooks and tasks of the group may read."""
    image_pull_secrets: tuple[Name, ...] = ()
    """Names of registries' Secrets in `tfcluster-hub`; each user's namespace gets a copy."""
    require_digest: bool = False
    """Whether the images of runs and all `images` need a digest."""
    egress: tuple[Network, ...] = ()
    """Networks that notebooks may reach, such as `0.0.0.0/0`. For tasks, see `egress` in the
    operator's policy.
    """
    queue: Queue = ""
    """Volcano's queue for tasks. If empty, that of the operator's policy."""
    priority_class: PriorityClass = ""
    """The PriorityClass of tasks. If empty, that of the operator's policy."""
    budget: Budget = Budget()
    idle: Idle = Idle()


class Pool(Model, frozen=True):
    """A set of nodes, selected by a pod's `nodeSelector` and `tolerations`."""

    node_selector: dict[str, str] = {}
    """Labels of the nodes on which notebooks run."""
    tolerations: tuple[dict[str, Any], ...] = ()
    """Tolerations of notebook pods, as in a pod."""


class Placement(Model, frozen=True):
    """Where notebooks run. The operator's policy says where tasks run."""

    notebooks: Pool = Pool()


class Image(Model, frozen=True):
    """A notebook image that users may choose."""

    name: Name
    """The name of the image, which must be unique."""
    image: Annotated[str, Meta(min_length=1, description=mark("an image reference, as in a pod"))]
    """The image reference, as in a pod."""
    title: str = ""
    """The text that users see; without it, they see the name."""


ETCD_BUDGET = "256Mi"
"""Maximum bytes of etcd for TFClusters: an eighth of etcd's default of 2 GiB.

The rest is for other objects, and for old versions of objects, which etcd keeps for some minutes.
The operator reads all TFClusters when it starts; it reads 256Mi in less than five seconds.
"""


class HubPolicy(Model, frozen=True):
    """The parsed policy file. `grants` has the grant of each group: the group's own settings,
    merged over those of `default`.
    """

    default: Grant = Grant()
    grants: dict[str, Grant] = {}
    priorities: dict[str, int] = {}
    placement: Placement = Placement()
    images: tuple[Image, ...] = ()
    """Notebook images to choose from. If empty, the hub's own image."""
    gpu_resource: str = "nvidia.com/gpu"
    """The resource that counts as one GPU, as in the operator's policy."""
    dns: tuple[network_policy.DnsResolver, ...] = network_policy.DEFAULT_DNS
    """The cluster's DNS servers, as in the operator's policy."""
    operator_secrets: bool = True
    """Whether the operator may read the secrets of users' namespaces, to find those labelled for
    tasks. Without this right, runs cannot use secrets.
    """
    on_removal: Literal["keep", "delete"] = "keep"
    """Whether the data of a user who is removed is kept or deleted."""
    notifications: NotificationPolicy | None = None
    """On one machine: where the notifications of all users may go, with the same fields as
    `notifications` of the operator's policy. If it is set, a user's own `policy.yaml`
    does not count. On Kubernetes, the operator's policy sets this."""
    etcd_budget: Amount = ETCD_BUDGET
    """Bytes of etcd that the TFClusters of all users may take; above that, tenancy warns."""


def task_classes(policy: HubPolicy) -> tuple[str, ...]:
    """Return the priority classes of all groups. The quotas need all of them, because a user who
    changes groups may have tasks of several classes.
    """
    every = (policy.default, *policy.grants.values())
    return tuple(sorted({grant.priority_class for grant in every} - {""}))


class Entitlement(msgspec.Struct, frozen=True):
    """What one user may have; `group` is empty if only `default` applies. `override` says until
    when and why the user has other limits than the group.
    """

    grant: Grant
    group: str = ""
    override: OverrideTerm | None = None


def entitlement_for_groups(policy: HubPolicy, groups: Iterable[str]) -> Entitlement:
    """Return the entitlement of a member of these groups; groups that are not in the policy are
    ignored.
    """
    known = sorted(
        (each for each in groups if each in policy.grants),
        key=lambda name: (-policy.priorities.get(name, 0), name),
    )
    if not known:
        return Entitlement(policy.default)
    return Entitlement(policy.grants[known[0]], known[0])
