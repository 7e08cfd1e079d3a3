"""Amounts of resources: Kubernetes quantities, requests of pods, and their display. Pure.

Sums follow Kubernetes: all containers together, or the largest init container if that is more.
Amounts are plain numbers by resource name: cores, bytes, devices, pods.

Ref: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/ Ref:
https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from ...i18n import _, ngettext
from ...spec import resource_form
from ...spec.quantities import format_bytes, format_gpus

Amounts = dict[str, float]

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"


def parse_quantity(said: object) -> float:
    """Return a quantity as a number: "250m" gives 0.25, "1Gi" 2**30. Raises ValueError."""
    return _number(str(said))


@lru_cache(4096)  # hundreds of pods and nodes have the same few quantities
def _number(said: str) -> float:
    return float(resource_form.parse_quantity(said.strip()))


def parse_amounts(said: Mapping[str, object] | None) -> Amounts:
    """Return quantities by resource name as numbers."""
    return {name: parse_quantity(value) for name, value in (said or {}).items()}


def plus(*parts: Mapping[str, float]) -> Amounts:
    """Return the sum of amounts."""
    return {name: sum(p.get(name, 0.0) for p in parts) for name in _names(parts)}


def minus(whole: Mapping[str, float], part: Mapping[str, float]) -> Amounts:
    """Return `whole` minus `part` for each resource of `whole`, at least 0."""
    return {name: max(0.0, value - part.get(name, 0.0)) for name, value in whole.items()}


def times(each: Mapping[str, float], count: float) -> Amounts:
    """Return `count` times an amount."""
    return {name: value * count for name, value in each.items()}


def largest(parts: Iterable[Mapping[str, float]]) -> Amounts:
    """Return, for each resource, the largest of its amounts in `parts`."""
    every = list(parts)
    return {name: max(p.get(name, 0.0) for p in every) for name in _names(every)}


def pod_resources(spec: Mapping[str, Any], what: str = "requests") -> Amounts:
    """Return the requests of a pod with this spec; its limits, if `what` is "limits"."""

    def of(container: Mapping[str, Any]) -> Amounts:
        return parse_amounts((container.get("resources") or {}).get(what))

    beside: Amounts = {}
    before: list[Amounts] = []
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            beside = plus(beside, of(container))
            before.append(beside)
        else:
            before.append(plus(beside, of(container)))
    running = plus(beside, *(of(container) for container in spec.get("containers") or ()))
    whole = parse_amounts((spec.get("resources") or {}).get(what))
    return plus({**largest([running, *before]), **whole}, parse_amounts(spec.get("overhead")))


def _names(parts: Iterable[Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for part in parts for name in part))


# Amounts as users read them: "2 CPU, 4Gi, 1 GPU".

MOST_HOLDERS = 5


def format_amount(key: str, value: float) -> str:
    """Return an amount as text; `key` is a resource name of Kubernetes or a key of a quota."""
    name = key.partition(".")[2] if key.startswith(("requests.", "limits.")) else key
    if name == CPU:
        return _("{cores:g} CPU").format(cores=round(value, 3))
    if name in (PODS, "count/pods"):
        return ngettext("{count:g} pod", "{count:g} pods", value).format(count=value)
    if name.endswith("/gpu"):
        return format_gpus(value)
    if "/" in name or name.startswith("count"):
        return f"{value:g} {name}"
    return format_bytes(value)


def format_amounts(each: Mapping[str, float]) -> str:
    """Return the requests of one task as text, without the resource `pods`."""
    order = sorted(each, key=lambda key: (key != CPU, key != MEMORY, key))
    return ", ".join(format_amount(key, each[key]) for key in order if each[key] and key != PODS)


def holders(held: Mapping[str, Amounts]) -> list[str]:
    """Return a text for each run that uses resources; the run that uses most comes first."""
    order = sorted(held, key=lambda run: -held[run].get("memory", 0.0))
    names = [f"{run} ({format_amounts(held[run])})" for run in order if format_amounts(held[run])]
    if len(names) > MOST_HOLDERS:
        rest = ngettext("{count} other", "{count} others", len(names) - MOST_HOLDERS)
        return [*names[:MOST_HOLDERS], rest.format(count=len(names) - MOST_HOLDERS)]
    return names
