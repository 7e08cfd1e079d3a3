"""The name of a tenant's namespace, and the objects in it. Pure.

The entitlement of a tenant and the properties of the cluster determine the objects. They are
returned in the order of their creation, and each is made from a template in `templates/tenancy`.
Fields that the API server would fill in with defaults are written out, so that each object can be
compared with the object in the cluster. This module creates nothing in the cluster.

    ServiceAccounts   notebook, and default for tasks; with the pull secrets of their images
    LimitRange        limits of one container
    NetworkPolicies   default-deny, and named exceptions
    claims            workspace, data, log, and the shared data of the group
    ResourceQuotas    tasks, notebooks, others (no pods), claims, records (TFClusters); created
                      after the claims: until Kubernetes has computed the usage of a new
                      quota, it refuses new claims
    RoleBindings      rights of the user and the operator; on secrets only if the policy allows

Ref: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-label-names
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import msgspec

from ...errors import UsageError
from ...i18n import _
from ...kube.api import labels
from ...kube.api.resource_amounts import parse_quantity
from ...kube.objects import network_policy, templates
from ...quota.budgets import effective_budget
from .entitlements import ContainerAmounts, ContainerLimits, Entitlement, Grant

PREFIX_VARIABLE = "TFCLUSTER_TENANT_PREFIX"
DEFAULT_PREFIX = "tfcluster-u-"
SLUG_LENGTH = 48
"""Maximum length of the slug that KubeSpawner makes of a user name in a template."""
_PREFIX = re.compile(r"[a-z][-a-z0-9]{0,13}-")


def namespace_prefix(asked: str = "") -> str:
    """Return the prefix of tenants' namespaces: `asked`, otherwise TFCLUSTER_TENANT_PREFIX,
    otherwise the default. Raises UsageError.
    """
    said = asked or os.environ.get(PREFIX_VARIABLE) or DEFAULT_PREFIX
    if not _PREFIX.fullmatch(said):
        text = _(
            "the prefix of namespaces ({variable}) is {said!r}: use at most 15 "
            "lower-case letters, digits and hyphens that begin with a letter and "
            "end with a hyphen, such as {default}"
        )
        raise UsageError(text.format(variable=PREFIX_VARIABLE, said=said, default=DEFAULT_PREFIX))
    return said


def namespace_of_user(user: str, start: str = DEFAULT_PREFIX) -> str:
    """Return the namespace of a hub user; `start` is the prefix."""
    return f"{start}{_safe_slug()(user, max_length=SLUG_LENGTH)}"


@cache
def _safe_slug() -> Callable[..., str]:
    """Return KubeSpawner's function `safe_slug` without importing KubeSpawner's package: the import
    takes seconds and 100 MB.
    """
    package = find_spec("kubespawner")
    assert package is not None
    assert package.submodule_search_locations
    file = Path(package.submodule_search_locations[0]) / "slugs.py"
    spec = spec_from_file_location("kubespawner_slugs", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., str] = module.safe_slug
    return found


# -- objects

Object = dict[str, Any]

MANAGER = "tfcluster-tenancy"
MANAGED_BY = "app.kubernetes.io/managed-by"
HUB = f"{labels.GROUP}/hub"
"""Label of tenants' namespaces and the objects in them; its value is their hub's namespace."""
TASKS, NOTEBOOKS = "tfcluster-task", "tfcluster-notebook"
"""Names of the PriorityClasses of tasks and of notebooks, by which quotas select pods."""
ACCOUNT = "notebook"
USER_ROLE, SECRETS_ROLE = "tfcluster-user", "tfcluster-operator-secrets"
NOTEBOOK = {labels.NOTEBOOK: "true"}
ARCHIVE = f"{labels.GROUP}/archive"
"""Label of the pod that sends a user's data to the console; its value is "true"."""
NOTEBOOK_PORT, HUB_PORT, ARCHIVE_PORT = 8888, 8081, 8889
HUB_APP, PROXY_APP, CONSOLE_APP = "tfcluster-hub", "tfcluster-proxy", "tfcluster-console"
"""The values of the label `app` of the pods of hub, proxy and console."""


class ApiServerAddress(msgspec.Struct, frozen=True):
    """One address of the API server: a network with this single address, and a port."""

    network: str
    port: int


class TenantContext(msgspec.Struct, frozen=True):
    """Properties of the cluster that all tenants share."""

    home: str
    servers: tuple[ApiServerAddress, ...] = ()
    gpu_resource: str = "nvidia.com/gpu"
    dns: tuple[network_policy.DnsResolver, ...] = network_policy.DEFAULT_DNS
    operator_secrets: bool = True
    task_classes: tuple[str, ...] = ()
    """The priority classes that the policy sets for tasks of any group, besides `TASKS`."""


def tenant_objects(
    entitlement: Entitlement, place: TenantContext, *, namespace: str, removed: bool = False
) -> list[Object]:
    """Return every object of a tenant except copies of secrets.

    If `removed` is true, the user was removed from the hub and gets no rights; the operator keeps
    its rights, to end the user's tasks.
    """
    found: list[Object] = []
    for shared in entitlement.grant.shared_data:
        volume = shared.volume.replace("{namespace}", namespace)
        claim = {"class": shared.class_, "volume": volume, "size": shared.size}
        made = _made("claim", place, shared.name, mode="ReadOnlyMany", **claim)
        made["metadata"]["annotations"] = {labels.MOUNTED_AT: shared.path}  # where tasks mount it
        found.append(made)
    found += _common(entitlement.grant, place)
    home, account = labels.OPERATOR
    for role in (labels.OPERATOR_ROLE, *((SECRETS_ROLE,) if place.operator_secrets else ())):
        words = {"role": role, "account": account, "namespace": home}
        found.append(_made("role-binding", place, role, **words))
    if not removed:
        words = {"role": USER_ROLE, "account": ACCOUNT, "namespace": namespace}
        found.append(_made("role-binding", place, USER_ROLE, **words))
    return found


def namespace_annotations(entitlement: Entitlement) -> dict[str, str | None]:
    """Return the annotations that tell the operator about a tenant's tasks. The value None removes
    an annotation, so that the operator's own policy applies.
    """
    grant, budget = entitlement.grant, effective_budget(entitlement.grant.budget)
    return {
        labels.USER_GROUP: entitlement.group or None,
        labels.BUDGET: None if budget is None else msgspec.json.encode(budget).decode(),
        labels.QUEUE: grant.queue or None,
        labels.PRIORITY_CLASS: grant.priority_class or None,
        labels.REQUIRE_DIGEST: "true" if grant.require_digest else None,
    }


@lru_cache(maxsize=64)
def _common(grant: Grant, place: TenantContext) -> tuple[Object, ...]:
    """Return the objects that are equal in all namespaces of a group. They are cached, so never
    change them.
    """
    accounts = [
        _made("service-account", place, name, secrets=list(grant.image_pull_secrets))
        for name in (ACCOUNT, "default")
    ]
    claims = [
        _made("claim", place, name, mode="ReadWriteMany", volume="", size=size, **_class(grant))
        for name, size in grant.storage.claims.items()
    ]
    limits = _limits(grant.limits)
    ranges = [_made("limit-range", place, "containers", limits=limits)] if limits else []
    return (*accounts, *ranges, *_policies(grant, place), *claims, *_quotas(grant, place))


def _class(grant: Grant) -> Object:
    return {"class": grant.storage.class_}


def _made(template: str, place: TenantContext, name: str, **words: object) -> Object:
    marks = {"app.kubernetes.io/name": "tfcluster", MANAGED_BY: MANAGER, HUB: place.home}
    head = {"name": name, "labels": marks}
    return templates.render_object(f"tenancy/{template}.yaml.j2", metadata=head, **words)


def _limits(limits: ContainerLimits) -> dict[str, dict[str, str]]:
    """Return a LimitRange's limits, with the defaults that the API server would fill in."""
    most, default, request = (_amounts(a) for a in (limits.max, limits.default, limits.request))
    default = {**most, **default}
    said = {"max": most, "default": default, "defaultRequest": {**default, **request}}
    return {word: amounts for word, amounts in said.items() if amounts}


def _amounts(said: ContainerAmounts) -> dict[str, str]:
    named = {"cpu": said.cpu, "memory": said.memory, "ephemeral-storage": said.ephemeral_storage}
    return {name: _text(value) for name, value in named.items() if value is not None}


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _quotas(grant: Grant, place: TenantContext) -> list[Object]:
    quota = grant.quota
    tasks = {
        "requests.cpu": quota.cpu,
        "requests.memory": quota.memory,
        f"requests.{place.gpu_resource}": quota.gpu,
        "pods": quota.pods,
    }
    claims: dict[str, float | str | None] = {}
    if quota.run_claims is not None:
        claims["persistentvolumeclaims"] = 3 + len(grant.shared_data) + quota.run_claims
    if quota.run_storage is not None:
        own = (*grant.storage.claims.values(), quota.run_storage)
        shared = (each.size for each in grant.shared_data)
        claims["requests.storage"] = f"{sum(map(parse_quantity, (*own, *shared))):.0f}"
    counted = (labels.COUNTED_RECORDS, labels.COUNTED_SCHEDULES)
    records = dict.fromkeys(counted, quota.records)
    of_tasks = [TASKS, *(each for each in place.task_classes if each != TASKS)]
    hard: list[tuple[str, dict[str, Any], str, list[str]]] = [
        ("tasks", tasks, "In", of_tasks),
        ("notebooks", {"pods": 1 + grant.named_servers}, "In", [NOTEBOOKS]),
        ("others", {"pods": 0}, "NotIn", [*of_tasks, NOTEBOOKS]),
        ("claims", claims, "", []),
        ("records", records, "", []),
    ]
    found = []
    for name, amounts, operator, classes in hard:
        said = {key: _text(value) for key, value in amounts.items() if value is not None}
        words = {"hard": said, "operator": operator, "classes": classes}
        if said:
            found.append(_made("resource-quota", place, name, **words))
    return found


def _policies(grant: Grant, place: TenantContext) -> list[Object]:
    tasks = {"app.kubernetes.io/managed-by": "tfcluster-operator"}
    servers = [msgspec.to_builtins(each) for each in place.servers]
    words: dict[str, dict[str, object]] = {
        "default-deny": {},
        "notebook-from-hub": {"apps": [PROXY_APP, HUB_APP], "port": NOTEBOOK_PORT},
        "notebook-and-tasks": {
            "tasks": tasks,
            "client": labels.CLIENT_PORTS,
            "port": labels.PORT,
        },
        "archive-to-console": {
            "archive": {ARCHIVE: "true"},
            "app": CONSOLE_APP,
            "port": ARCHIVE_PORT,
        },
        "notebook-to-services": {
            "dns": network_policy.dns_rules(place.dns),
            "hub": HUB_APP,
            "port": HUB_PORT,
            "servers": servers,
        },
    }
    if grant.egress:
        networks = [network_policy.ip_block(each) for each in grant.egress]
        words["notebook-to-networks"] = {"networks": networks}
    more = {"notebook": NOTEBOOK, "home": place.home}
    return [_made(name, place, name, **more, **said) for name, said in words.items()]
