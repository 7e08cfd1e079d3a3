"""The administrator's policy for the tasks of every run, one YAML file. Pure.

The defaults work without a file, and errors name what is wrong in one. The policy says what is
allowed and what is filled in; `launch_checks.policy_check` and the other modules here apply it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta

from ...errors import InvalidRequest, Problem
from ...i18n import _
from ...spec import MEMORY_PATTERN, Model, PositiveSeconds
from ...spec.quantities import NUMBER_RULE, non_finite_numbers
from . import images as references
from . import network_policy as networks
from .network_policy import DEFAULT_DNS, DnsResolver

ClaimName = Annotated[str, Meta(description='name of a claim in the run\'s namespace; "": none')]
MountPath = Annotated[str, Meta(pattern="^/[^:]+$")]


class SharedClaim(Model, frozen=True):
    """A claim that every task mounts read-only by default, and its path."""

    claim: Annotated[str, Meta(min_length=1)]
    path: MountPath


class Policy(Model, frozen=True):
    """The limits and defaults of tasks.

    An empty list of `images` allows any, an empty list of `annotations` none. `images.admits_image`
    defines image patterns; patterns of annotations are shell patterns.
    """

    default_image: str = "tensorflow/tensorflow:2.19.0"
    images: tuple[str, ...] = ()
    require_digest: Annotated[
        bool,
        Meta(description="images that runs name need a digest; a namespace can demand it, too"),
    ] = False
    always_pull: Annotated[
        bool,
        Meta(
            description="ask the registry for each pod whose run names an image; false if "
            "nodes have images that no registry has"
        ),
    ] = True
    python: Annotated[str, Meta(description="what starts process 1 in the tasks' images")] = (
        "python3"
    )
    data_claim: ClaimName = "data"
    data_path: MountPath = "/data"
    data_read_only: bool = True
    log_claim: ClaimName = "log"
    log_path: MountPath = "/log"
    log_size: Annotated[
        str,
        Meta(
            pattern=MEMORY_PATTERN,
            description="most output of a task, if no claim keeps it",
        ),
    ] = "10Gi"
    workspace_claim: ClaimName = "workspace"
    workspace_path: MountPath = "/home/jovyan"
    shared_data: Annotated[
        tuple[SharedClaim, ...],
        Meta(description="claims that every task reads; a namespace's own claims may add some"),
    ] = ()
    storage_class: Annotated[
        str, Meta(description='of data claims that name none; "": the cluster\'s default')
    ] = ""
    default_cpu: Annotated[float, Meta(gt=0, le=1024)] = 0.5
    default_memory: Annotated[str, Meta(pattern=MEMORY_PATTERN)] = "1Gi"
    max_tasks: Annotated[int, Meta(ge=1, le=4000)] = 1000
    max_duration: PositiveSeconds | None = None
    stall_timeout: (
        Annotated[PositiveSeconds, Meta(description="of runs that say none; absent: they wait")]
        | None
    ) = None
    max_stall_timeout: PositiveSeconds | None = None
    max_grace: Annotated[
        PositiveSeconds, Meta(description="tasks hold their room for so long after a stop")
    ] = 600.0
    max_reclaim_after: Annotated[
        float,
        Meta(ge=0, le=3600, description="no more: Kubernetes takes them an hour after a success"),
    ] = 3600.0
    max_keep_for: PositiveSeconds = 365 * 86400.0
    service_account: str = "default"
    priority_class: str = ""
    annotations: tuple[str, ...] = ()
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()
    gpu_resource: str = "nvidia.com/gpu"
    nodes_are_fixed: Annotated[
        bool, Meta(description="false where an autoscaler adds nodes for pods that wait")
    ] = True
    run_as_user: Annotated[int, Meta(ge=1)] = 1000
    run_as_group: Annotated[int, Meta(ge=0)] = 100
    fs_group: Annotated[int, Meta(ge=0)] | None = 100
    gang: Annotated[
        bool | Literal["auto"],
        Meta(description="start all tasks or none, by Volcano; auto: where the cluster has it"),
    ] = "auto"
    queue: Annotated[
        str, Meta(description="Volcano's queue of tasks; a namespace's annotation goes before")
    ] = "default"
    egress: Annotated[
        tuple[str, ...],
        Meta(description="networks that tasks may reach beside one another, such as 10.0.0.0/8"),
    ] = ()
    dns: Annotated[tuple[DnsResolver, ...], Meta(description="the cluster's DNS servers")] = (
        DEFAULT_DNS
    )
    require_network_policy: bool = True


def uses_gangs(policy: Policy) -> bool:
    """Return whether tasks are made for Volcano; `auto` counts as no until it is resolved."""
    return policy.gang is True


def parse_policy(text: str) -> Policy:
    """Parse a policy file.

    Raises:
        InvalidRequest: it is no YAML or has invalid fields; names the first problem.
    """
    headline = _("the policy cannot be used")
    try:
        said = yaml.safe_load(text)
    except yaml.YAMLError as error:
        problem = Problem("policy", str(error), _("it must be YAML"))
        raise InvalidRequest([problem], headline) from None
    except (ValueError, RecursionError) as error:  # such as a number with thousands of digits
        problem = Problem("policy", str(error), _("it must be YAML"))
        raise InvalidRequest([problem], headline) from None
    if odd := [Problem(at, text, NUMBER_RULE) for at, text in non_finite_numbers(said)]:
        raise InvalidRequest(odd, headline)
    try:
        policy = msgspec.convert(said or {}, Policy)
    except ValueError as error:  # includes msgspec's errors
        problem = Problem("policy", str(error), _("see docs/reference/policy.md"))
        raise InvalidRequest([problem], headline) from None
    if mistakes := list(_mistakes(policy)):
        raise InvalidRequest(mistakes, headline)
    return policy


def _mistakes(policy: Policy) -> Iterator[Problem]:
    """Yield the mistakes that the schema of a policy cannot express."""
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
