"""The policy file of the hub's administrators. Pure.

`policy_file` parses the file strictly. In a parsed policy, limits are at least the requests, and
names are unique. A group's settings are merged over those of `default`: mappings key by key, while
lists are replaced. `entitlements` defines the fields and their defaults; `overrides` changes them
for single users.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ...i18n import _, mark
from ...kube.api.resource_amounts import parse_quantity
from ...kube.objects import images, network_policy
from ...notifications import NotificationPolicy
from ...notifications.sending import private_network_mistakes
from ...quota.limits import Limits, Quota
from ...quota.policy_file import Amount, PolicyText, Where, Wrong
from ...spec import Model, conversion
from ...spec.spec import fields_of
from .entitlements import (
    ETCD_BUDGET,
    ContainerAmounts,
    Entitlement,
    Grant,
    HubPolicy,
    Image,
    Placement,
    entitlement_for_groups,
)

__all__ = [
    "Entitlement",
    "Grant",
    "HubPolicy",
    "entitlement_for_groups",
    "parse_policy",
]

CLAIMS = ("workspace", "data", "log")
TAKEN = ("/home/jovyan", "/data", "/log", "/tmp")  # noqa: S108
"""Paths that notebooks and tasks already use."""


class _Group(Grant, frozen=True):
    """The fields of a group; only groups have `priority`."""

    priority: Annotated[
        int,
        Meta(
            ge=-1_000_000,
            le=1_000_000,
            description=mark("a whole number from -1000000 to 1000000"),
        ),
    ] = 0


class PolicyFields(Model, frozen=True):
    """The top-level fields of the policy file. Each group has only its own settings here."""

    default: Grant = Grant()
    groups: dict[str, _Group] = {}
    placement: Placement = Placement()
    images: tuple[Image, ...] = ()
    gpu_resource: Annotated[
        str,
        Meta(min_length=1, description=mark("the name of a resource, such as nvidia.com/gpu")),
    ] = "nvidia.com/gpu"
    dns: tuple[network_policy.DnsResolver, ...] = network_policy.DEFAULT_DNS
    operator_secrets: bool = True
    on_removal: Literal["keep", "delete"] = "keep"
    notifications: NotificationPolicy | None = None
    etcd_budget: Amount = ETCD_BUDGET


def parse_policy(text: str) -> HubPolicy:
    """Return the policy in a file; an empty file gives the defaults. Raises InvalidPolicy, which
    names every mistake.
    """
    grants: dict[str, Grant] = {}

    def rules(file: PolicyFields, data: Any) -> Iterator[Wrong]:
        grants.update(_merged(data))
        yield from _mistakes(file, grants)

    file = PolicyText(text).read(PolicyFields, rules, _unit)
    return HubPolicy(
        default=file.default,
        grants=grants,
        priorities={name: group.priority for name, group in file.groups.items()},
        placement=file.placement,
        images=file.images,
        gpu_resource=file.gpu_resource,
        dns=file.dns,
        operator_secrets=file.operator_secrets,
        on_removal=file.on_removal,
        notifications=file.notifications,
        etcd_budget=file.etcd_budget,
    )


def _unit(where: Where) -> int:
    """Return the number of steps to a setting: of a group, of `default`, or at the top."""
    return {"default": 2, "groups": 3}.get(str(where[0]), 1)


def _merged(data: Mapping[str, Any]) -> dict[str, Grant]:
    """Return the grant of each group: its own settings, merged over those of `default`."""
    default = data.get("default", {})
    grants = {}
    for name, words in data.get("groups", {}).items():
        own = {key: value for key, value in words.items() if key != "priority"}
        grants[name] = conversion.convert(_over(default, own), Grant)
    return grants


def _mistakes(file: PolicyFields, grants: Mapping[str, Grant]) -> Iterator[Wrong]:
    """Yield the mistakes that the types of a policy cannot express."""
    default = [*_grant_mistakes(file.default)]
    yield from (each.below(("default",)) for each in default)
    for name, grant in grants.items():
        for each in _grant_mistakes(grant):
            if each not in default:  # otherwise the group inherits the mistake
                yield each.below(("groups", name))
    if why := network_policy.dns_mistake(file.dns):
        yield Wrong(("dns",), why)
    if file.notifications is not None:
        for each in private_network_mistakes(file.notifications):
            yield each.below(("notifications",))
    yield from _repeated((each.name for each in file.images), ("images",))
    every = (file.default, *grants.values())
    yield from _image_mistakes(file.images, any(grant.require_digest for grant in every))


def _grant_mistakes(grant: Grant) -> Iterator[Wrong]:
    yield from network_policy.egress_mistakes(grant.egress)
    if not grant.sizes:
        yield Wrong(("sizes",), _("there must be at least one size"))
    yield from _repeated((each.name for each in grant.sizes), ("sizes",))
    names = [*CLAIMS, *(each.name for each in grant.shared_data)]
    yield from _repeated(names, ("sharedData",))
    paths = [*TAKEN, *(each.path for each in grant.shared_data)]
    yield from _repeated(paths, ("sharedData",))
    for place, size in enumerate(grant.sizes):
        yield from _more(size.cpu, size.cpu_limit, ("sizes", place, "cpuLimit"))
        yield from _more(size.memory, size.memory_limit, ("sizes", place, "memoryLimit"))
    for place, shared in enumerate(grant.shared_data):
        if bool(shared.volume) == bool(shared.class_):
            why = _("set either volume or class, and not both")
            yield Wrong(("sharedData", place), why)
    limits = grant.limits
    for field in fields_of(ContainerAmounts):
        default, most = getattr(limits.default, field.name), getattr(limits.max, field.name)
        yield from _more(default, most, ("limits", "default", field.encode_name))
        requested = getattr(limits.request, field.name)
        yield from _more(requested, default or most, ("limits", "request", field.encode_name))


def _image_mistakes(offered: Iterable[Image], need_digest: bool) -> Iterator[Wrong]:
    for place, each in enumerate(offered):
        why = ""
        try:
            found = images.parse_image(each.image)
        except ValueError as error:
            why = str(error)
        else:
            if need_digest and not found.digest:
                command = f"`docker buildx imagetools inspect {each.image}`"
                why = _(
                    "a group requires images with a digest. To find the digest: {command}"
                ).format(command=command)
        if why:
            yield Wrong(("images", place, "image"), why, repr(each.image))


def _more(less: object, more: object, where: Where) -> Iterator[Wrong]:
    if less is not None and more is not None and parse_quantity(less) > parse_quantity(more):
        yield Wrong(where, _("{less} is more than {more}").format(less=less, more=more))


def _repeated(names: Iterable[str], where: Where) -> Iterator[Wrong]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield Wrong(where, _("{name} occurs twice").format(name=name))
        seen.add(name)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return `below` with the values in `above`: mappings are merged key by key, and any other
    value in `above` replaces the one in `below`.
    """
    found = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = _over(found[key], value) if both else value
    return found


def limits_of(entitlement: Entitlement, notifications: NotificationPolicy | None = None) -> Limits:
    """Return the limits that a notebook on this machine gets."""
    grant = entitlement.grant
    quota = grant.quota
    return Limits(
        group=entitlement.group,
        quota=Quota(cpu=quota.cpu, memory=quota.memory, gpu=quota.gpu, pods=quota.pods),
        budget=_granted(grant, "budget"),
        storage={name: size for name, size in grant.storage.said.items() if size is not None},
        notifications=None if notifications is None else msgspec.to_builtins(notifications),
        override=entitlement.override,
    )


def _granted(grant: Grant, part: str) -> dict[str, Any]:
    found = msgspec.to_builtins(getattr(grant, part, None))
    return found if isinstance(found, dict) else {}
