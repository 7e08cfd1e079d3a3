"""The administrator's policy for the tasks of every run, one YAML file. Pure.

The defaults work without a file, and errors name the mistake in a file. The policy has limits and
defaults; `launch_checks.policy_check` and the other modules of this package apply them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import yaml
from msgspec import Meta

from ...errors import InvalidRequest, Problem
from ...i18n import _
from ...notifications import NotificationPolicy
from ...spec import MEMORY_PATTERN, Model, PositiveSeconds, conversion
from ...spec.quantities import NUMBER_RULE, non_finite_numbers
from . import images as references
from . import network_policy as networks
from .network_policy import DEFAULT_DNS, DnsResolver

ClaimName = Annotated[str, Meta(description='name of a claim in the run\'s namespace; "": none')]
MountPath = Annotated[str, Meta(pattern="^/[^:]+$")]


class SharedClaim(Model, frozen=True):
    """A claim that every task mounts read-only by default, and the path at which tasks mount it."""

    claim: Annotated[str, Meta(min_length=1)]
    """The claim's name in the run's namespace."""
    path: MountPath
    """The path at which tasks mount the claim."""


class MonitoringPolicy(Model, frozen=True):
    """The monitoring that shows users graphs of their runs."""

    grafana_url: Annotated[str, Meta(pattern=r"^(https?://[^\s?#@]+)?$")] = ""
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
    log_size: Annotated[str, Meta(pattern=MEMORY_PATTERN)] = "10Gi"
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
    default_cpu: Annotated[float, Meta(gt=0, le=1024)] = 0.5
    """Cores of a task that requests none."""
    default_memory: Annotated[str, Meta(pattern=MEMORY_PATTERN)] = "1Gi"
    """Memory of a task that requests none."""
    max_tasks: Annotated[int, Meta(ge=1, le=4000)] = 1000
    """The most tasks of one run."""
    max_duration: PositiveSeconds | None = None
    """The most seconds that a run may take."""
    stall_timeout: PositiveSeconds | None = None
    """Seconds without any activity after which a run ends, unless the run sets its own time."""
    max_stall_timeout: PositiveSeconds | None = None
    """The longest `stallTimeout` that a run may set, in seconds."""
    max_grace: PositiveSeconds = 600.0
    """The longest `grace` that a run may set, in seconds. After a stop, tasks may keep their place
    on a node for that time.
    """
    max_reclaim_after: Annotated[float, Meta(ge=0, le=3600)] = 3600.0
    """The longest `reclaimAfter` that a run may set, in seconds. Kubernetes itself removes the
    parameter servers an hour after a success.
    """
    max_keep_for: PositiveSeconds = 365 * 86400.0
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
    run_as_user: Annotated[int, Meta(ge=1)] = 1000
    """The user id of tasks."""
    run_as_group: Annotated[int, Meta(ge=0)] = 100
    """The group id of tasks."""
    fs_group: Annotated[int, Meta(ge=0)] | None = 100
    """The group id of the files on the volumes of tasks."""
    gang: bool | Literal["auto"] = "auto"
    """Whether Volcano starts all tasks of a run or none. `auto`: if the cluster has Volcano; true:
    always, and launches wait while Volcano is missing; false: never.
    """
    queue: str = "default"
    """Volcano's queue of tasks. A namespace's annotation `tfcluster.dev/queue` takes precedence."""
    egress: tuple[str, ...] = ()
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
    """Parse a policy file.

    Raises:
        InvalidRequest: the file is not YAML or has invalid fields; the message names the first
            problem.
    """
    headline = _("the policy cannot be used")
    try:
        said = yaml.safe_load(text)
    except yaml.YAMLError as error:
        problem = Problem("policy", str(error), _("it must be YAML"))
        raise InvalidRequest([problem], headline) from None
    except (ValueError, RecursionError) as error:  # for example, a number is too long
        problem = Problem("policy", str(error), _("it must be YAML"))
        raise InvalidRequest([problem], headline) from None
    if odd := [Problem(at, text, NUMBER_RULE) for at, text in non_finite_numbers(said)]:
        raise InvalidRequest(odd, headline)
    try:
        policy = conversion.convert(said or {}, Policy)
    except ValueError as error:  # msgspec's errors are ValueErrors, too
        problem = Problem("policy", str(error), _("see docs/reference/policy.md"))
        raise InvalidRequest([problem], headline) from None
    if mistakes := list(_mistakes(policy)):
        raise InvalidRequest(mistakes, headline)
    return policy


def _mistakes(policy: Policy) -> Iterator[Problem]:
    """Yield the mistakes that a policy's schema cannot express."""
    if policy.notifications.private_networks:
        from ...notifications.sending import network_mistake as closed_network

        for network in policy.notifications.private_networks:
            if why := closed_network(network):
                yield Problem("notifications.privateNetworks", network, why)
    for network in policy.egress:
        if why := networks.network_mistake(network):
            yield Problem("egress", network, why)
    if why := networks.dns_mistake(policy.dns):
        yield Problem("dns", None, why)
    for pattern in policy.images:
        if why := references.pattern_mistake(pattern):
            yield Problem("images", pattern, why)
    try:
        references.parse_image(policy.default_image)
    except ValueError as error:
        yield Problem("defaultImage", policy.default_image, str(error))
