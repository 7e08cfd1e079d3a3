"""The quota of a namespace: ResourceQuotas that count task pods, and LimitRanges. Pure.

This module counts the resources of pods in the same way as Kubernetes. A quota with scopes counts
only pods of these scopes. A LimitRange first adds a container's defaults, then refuses amounts that
are too large or too small.

Ref: https://kubernetes.io/docs/concepts/policy/resource-quotas/
Ref: https://kubernetes.io/docs/concepts/policy/limit-range/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from ..kube.api.resource_amounts import PODS, Amounts, parse_amounts
from ..spec import Model

Object = Mapping[str, Any]


def quota_keys(resource: str) -> set[str]:
    """Return the keys under which a quota may count a resource; `TaskDemand.counted_as` returns the
    amount for a key. The keys for limits are included: a limit is never below its request, so a
    quota of limits also bounds the requests.
    """
    return {resource, f"requests.{resource}", f"limits.{resource}", f"count/{resource}"}


class TaskDemand(Model, frozen=True):
    """The requests of one task, and its limits."""

    requests: Amounts = {}
    limits: Amounts = {}

    def counted_as(self, key: str) -> float:
        """Return the amount that a pod with this demand counts under a quota's key, such as
        `requests.cpu` or `pods`.
        """
        if key in (PODS, "count/pods"):
            return 1.0
        kind, dot, name = key.partition(".")
        if dot and kind in ("requests", "limits"):
            return (self.requests if kind == "requests" else self.limits).get(name, 0.0)
        return self.requests.get(key, 0.0)

    def says(self, key: str) -> bool:
        """Return whether the demand has the request or limit that a quota with this key requires of
        every pod.
        """
        kind, dot, name = key.partition(".")
        if key in ("cpu", "memory") or (dot and kind == "requests" and name in ("cpu", "memory")):
            return (name or key) in self.requests
        return not dot or kind != "limits" or name in self.limits


class NamespaceQuota(Model, frozen=True):
    """A ResourceQuota that counts task pods: `hard` is the total amount, `used` the used amount."""

    name: str
    hard: Amounts
    used: Amounts = {}

    def free(self, key: str) -> float:
        """Return the amount that is still free under a key of the quota."""
        return max(0.0, self.hard[key] - self.used.get(key, 0.0))


class ContainerBounds(Model, frozen=True):
    """The rules of a namespace's LimitRanges. Rules for containers and rules for pods are merged,
    because our pods have one container.
    """

    name: str = ""
    default_request: Amounts = {}
    default_limit: Amounts = {}
    most: Amounts = {}
    least: Amounts = {}
    ratio: Amounts = {}
    """The maximum ratio of limit to request."""
    claim_most: float | None = None
    """The maximum bytes of one claim."""

    def given(self, asked: TaskDemand) -> TaskDemand:
        """Return the demand with the defaults that the API server fills in."""
        limits = {**self.default_limit, **asked.limits}
        # In Kubernetes, a container with a limit and no request requests its limit.
        requests = {**self.default_request, **asked.limits, **asked.requests}
        return TaskDemand(requests=requests, limits=limits)


def namespace_quotas(
    found: Iterable[Object], priority_class: str = ""
) -> tuple[NamespaceQuota, ...]:
    """Return the ResourceQuotas that count task pods of this priority class."""
    return tuple(
        NamespaceQuota(
            name=each["metadata"]["name"],
            hard=parse_amounts((each.get("status") or {}).get("hard") or each["spec"].get("hard")),
            used=parse_amounts((each.get("status") or {}).get("used")),
        )
        for each in found
        if _counts(each.get("spec") or {}, priority_class)
    )


def _counts(spec: Mapping[str, Any], priority_class: str) -> bool:
    """Return whether every scope of a quota includes task pods. Task pods are in the scopes
    NotBestEffort, because they have requests, and NotTerminating, because they have no deadline.
    """
    scopes = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(_in_scope(scope, priority_class) for scope in scopes)


def _in_scope(scope: Mapping[str, Any], priority_class: str) -> bool:
    if scope["scopeName"] != "PriorityClass":
        return scope["scopeName"] in ("NotTerminating", "NotBestEffort")
    named = scope.get("values") or ()
    return {
        "Exists": bool(priority_class),
        "DoesNotExist": not priority_class,
        "In": priority_class in named,
        "NotIn": priority_class not in named,
    }[scope["operator"]]


def container_bounds(found: Iterable[Object]) -> ContainerBounds:
    """Return the bounds of all LimitRanges of a namespace together: the strictest value of each
    bound.
    """
    whole = ContainerBounds()
    for each in found:
        for said in (each.get("spec") or {}).get("limits") or ():
            if said.get("type") in ("Container", "Pod"):
                whole = _stricter(whole, said, each["metadata"]["name"])
            elif said.get("type") == "PersistentVolumeClaim":
                most = parse_amounts(said.get("max")).get("storage")
                known = [m for m in (whole.claim_most, most) if m is not None]
                whole = replace(whole, claim_most=min(known, default=None))
    return whole


def _stricter(known: ContainerBounds, said: Mapping[str, Any], name: str) -> ContainerBounds:
    most, least = parse_amounts(said.get("max")), parse_amounts(said.get("min"))
    ratio = parse_amounts(said.get("maxLimitRequestRatio"))
    return replace(
        known,
        name=", ".join(dict.fromkeys(filter(None, (*known.name.split(", "), name)))),
        default_request={**parse_amounts(said.get("defaultRequest")), **known.default_request},
        default_limit={**parse_amounts(said.get("default")), **known.default_limit},
        most={**known.most, **{k: min(v, known.most.get(k, v)) for k, v in most.items()}},
        least={**known.least, **{k: max(v, known.least.get(k, v)) for k, v in least.items()}},
        ratio={**known.ratio, **{k: min(v, known.ratio.get(k, v)) for k, v in ratio.items()}},
    )
