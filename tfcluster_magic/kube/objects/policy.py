"""The administrator's policy for the tasks of every run, one YAML file. Pure.

The defaults work without a file, and errors name the mistake in a file. The policy has limits and
defaults; `launch_checks.policy_check` and the other modules of this package apply them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta

from ...i18n import mark
from ...notifications import NotificationPolicy
from ...quota.policy_file import Amount, LimitSeconds, Network, PolicyText, Wrong, read_policy_file
from ...spec import Model
from . import images as references
from . import network_policy as networks
from .network_policy import DEFAULT_DNS, DnsResolver

ClaimName = Annotated[
    str, Meta(description=mark('name of a claim in the run\'s namespace; "": none'))
]
MountPath = Annotated[
    str, Meta(pattern="^/[^:]+$", description=mark("an absolute path without a colon"))
]
GroupId = Annotated[int, Meta(ge=0, description=mark("the number of a group, from 0"))]


class SharedClaim(Model, frozen=True):
    """A claim that every task mounts read-only by default, and the path at which tasks mount it."""

    claim: Annotated[str, Meta(min_length=1, description=mark("the name of a claim"))]
    """The claim's name in the run's namespace."""
    path: MountPath
    """The path at which tasks mount the claim."""


class MonitoringPolicy(Model, frozen=True):
    """The monitoring that shows users graphs of their runs."""

    grafana_url: Annotated[
        str,
        Meta(
            pattern=r"^(https?://[^\s?#@]+)?$",
            description=mark(
                "an address such as https://grafana.example.com, without an account, ? or #"
            ),
        ),
    ] = ""
    """The address of a Grafana that has the dashboard of `k8s/monitoring/dashboard-run.json`, such
    as `https://grafana.example.com`. Each run links to it."""


class Policy(Model, frozen=True):
    """The limits and defaults of tasks; docs/reference/policy.md is generated from the fields.

    `images.admits_image` defines image patterns.
    """

    default_image: str = "tensorflow/tensorflow:2.19.0"
    """The image of tasks whose run names no image. Set your own image if nodes do not reach Docker
    Hub, or if notebooks connect In-Graph with another version of TensorFlow.
    """
    images: tuple[str, ...] = ()
    """Patterns of images that runs may name, such as `registry.example.com/team/*`. An empty list
    allows any image."""
    require_digest: bool = False
    """Whether images that runs name need a digest: `registry.example.com/team/img@sha256:…`. The
    annotation `tfcluster.dev/require-digest: "true"` of a namespace requires it too.
    """
    always_pull: bool = True
    """Whether each pod whose run names an image asks the registry for it. Set false if nodes have
    images that no registry has.
    """
    python: str = "python3"
    """The Python interpreter in the images of tasks; process 1 of each task runs in it."""
    data_claim: ClaimName = "data"
    """The claim for data sets in the run's namespace. An empty name mounts no claim."""
    data_path: MountPath = "/data"
    """The path at which tasks mount the claim of data sets."""
    data_read_only: bool = True
    """Whether tasks mount the claim of data sets read-only."""
    log_claim: ClaimName = "log"
    """The claim for the output of runs. If empty, output stays on the task's node."""
    log_path: MountPath = "/log"
    """The path at which tasks mount the claim of output."""
    log_size: Amount = "10Gi"
    """With `logClaim: ""`: the most output that a task may keep on its node. A task with more
    output is evicted.
    """
    workspace_claim: ClaimName = "workspace"
    """The claim with the user's home. An empty name mounts no claim."""
    workspace_path: MountPath = "/home/jovyan"
    """The path at which tasks mount the user's home read-only; the same path as in the notebook."""
    shared_data: tuple[SharedClaim, ...] = ()
    """Claims that every task mounts read-only, besides claims of the run's namespace with the
    annotation `tfcluster.dev/mounted-at`.
    """
    storage_class: str = ""
    """The StorageClass of claims that a run creates (`--data-claim`). If empty, the cluster's
    default StorageClass.
    """
    default_cpu: Annotated[
        float, Meta(gt=0, le=1024, description=mark("a number of cores above 0, at most 1024"))
    ] = 0.5
    """Cores of a task that requests none."""
    default_memory: Amount = "1Gi"
    """Memory of a task that requests none."""
    max_tasks: Annotated[
        int, Meta(ge=1, le=4000, description=mark("a whole number from 1 to 4000"))
    ] = 1000
    """The most tasks of one run."""
    max_duration: LimitSeconds | None = None
    """The most seconds that a run may take."""
    stall_timeout: LimitSeconds | None = None
    """Seconds without any activity after which a run ends, unless the run sets its own time."""
    max_stall_timeout: LimitSeconds | None = None
    """The longest `stallTimeout` that a run may set, in seconds."""
    max_grace: LimitSeconds = 600.0
    """The longest `grace` that a run may set, in seconds. After a stop, tasks may keep their place
    on a node for that time.
    """
    max_reclaim_after: Annotated[
        float, Meta(ge=0, le=3600, description=mark("a number of seconds from 0 to 3600"))
    ] = 3600.0
    """The longest `reclaimAfter` that a run may set, in seconds. Kubernetes itself removes the
    parameter servers an hour after a success.
    """
    max_keep_for: LimitSeconds = 365 * 86400.0
    """The longest `keepFor` that a run may set, in seconds."""
    service_account: str = "default"
    """The ServiceAccount of task pods, which get no token. If you change it, add the name to
    `accounts` of `k8s/base/admission-operator.yaml`.
    """
    priority_class: str = ""
    """The PriorityClass of task pods, to which a quota can be scoped. `k8s/base` sets
    `tfcluster-task`. A namespace's annotation `tfcluster.dev/priority-class` takes precedence.
    """
    annotations: tuple[str, ...] = ()
    """Shell patterns of the pod annotations that runs may set. An empty list allows none."""
    node_selector: dict[str, str] = {}
    """Labels of the nodes on which tasks run."""
    tolerations: tuple[dict[str, Any], ...] = ()
    """Tolerations of task pods, as in a pod."""
    gpu_resource: str = "nvidia.com/gpu"
    """The resource that counts as one GPU."""
    nodes_are_fixed: bool = True
    """Whether launches are refused for the size of the nodes. Set false if an autoscaler adds
    nodes.
    """
    run_as_user: Annotated[
        int, Meta(ge=1, description=mark("the number of a user other than root, from 1"))
    ] = 1000
    """The user id of tasks."""
    run_as_group: GroupId = 100
    """The group id of tasks."""
    fs_group: GroupId | None = 100
    """The group id of the files on the volumes of tasks."""
    gang: Annotated[bool | Literal["auto"], Meta(description=mark("use true, false or auto"))] = (
        "auto"
    )
    """Whether Volcano starts all tasks of a run or none. `auto`: if the cluster has Volcano; true:
    always, and launches wait while Volcano is missing; false: never.
    """
    queue: str = "default"
    """Volcano's queue of tasks. A namespace's annotation `tfcluster.dev/queue` takes precedence."""
    egress: tuple[Network, ...] = ()
    """Networks that tasks may reach besides one another, such as `10.0.0.0/8`. Add the network of
    an object store (S3) here.
    """
    dns: tuple[DnsResolver, ...] = DEFAULT_DNS
    """The cluster's DNS servers. The default is CoreDNS in `kube-system`."""
    require_network_policy: bool = True
    """Whether launches are refused if NetworkPolicies are not enforced."""
    notifications: NotificationPolicy = NotificationPolicy()
    monitoring: MonitoringPolicy = MonitoringPolicy()


def uses_gangs(policy: Policy) -> bool:
    """Return whether Volcano schedules the tasks. The operator replaces `auto` by true or false
    before it uses the policy; `auto` itself counts as false.
    """
    return policy.gang is True


def parse_policy(text: str) -> Policy:
    """Parse a policy. Raises InvalidPolicy, which names every mistake."""
    return PolicyText(text).read(Policy, lambda policy, _data: _mistakes(policy))


def load_policy(file: str) -> Policy:
    """Return the policy in a file; the defaults if no file is named.

    Raises:
        InvalidPolicy: the policy has mistakes; all are named.
        InvalidRequest: the file cannot be read.
    """
    return read_policy_file(file, parse_policy) if file else Policy()


def _mistakes(policy: Policy) -> Iterator[Wrong]:
    """Yield the mistakes that a policy's types cannot express."""
    if policy.notifications.private_networks:
        from ...notifications.sending import private_network_mistakes  # slow to import, seldom used

        for each in private_network_mistakes(policy.notifications):
            yield each.below(("notifications",))
    yield from networks.egress_mistakes(policy.egress)
    if why := networks.dns_mistake(policy.dns):
        yield Wrong(("dns",), why)
    for place, pattern in enumerate(policy.images):
        if why := references.pattern_mistake(pattern):
            yield Wrong(("images", place), why, repr(pattern))
    try:
        references.parse_image(policy.default_image)
    except ValueError as error:
        yield Wrong(("defaultImage",), str(error), repr(policy.default_image))
