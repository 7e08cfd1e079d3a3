"""Amounts of resources as people read them: "2 CPU, 4Gi, 1 GPU". Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...i18n import _, ngettext
from ...spec.quantities import format_bytes
from .amounts import CPU, MEMORY, PODS, Amounts

MOST_HOLDERS = 5


def show(key: str, value: float) -> str:
    """An amount of a resource, by the name of Kubernetes or by a quota's key."""
    name = key.partition(".")[2] if key.startswith(("requests.", "limits.")) else key
    if name == CPU:
        return _("{cores:g} CPU").format(cores=round(value, 3))
    if name in (PODS, "count/pods"):
        return ngettext("{count:g} pod", "{count:g} pods", value).format(count=value)
    if name.endswith("/gpu"):
        return ngettext("{count:g} GPU", "{count:g} GPUs", value).format(count=value)
    if "/" in name or name.startswith("count"):
        return f"{value:g} {name}"
    return format_bytes(value)


def show_all(each: Mapping[str, float]) -> str:
    """All that one task asks for; that it is one pod goes without saying."""
    order = sorted(each, key=lambda key: (key != CPU, key != MEMORY, key))
    return ", ".join(show(key, each[key]) for key in order if each[key] and key != PODS)


def held_by(held: Mapping[str, Amounts]) -> str:
    """Who holds the rest, the largest first; empty when nobody of this namespace does."""
    order = sorted(held, key=lambda run: -held[run].get("memory", 0.0))
    holders = [f"{run} ({show_all(held[run])})" for run in order if show_all(held[run])]
    if len(holders) > MOST_HOLDERS:
        rest = ngettext("{count} other", "{count} others", len(holders) - MOST_HOLDERS)
        more = rest.format(count=len(holders) - MOST_HOLDERS)
        holders = [*holders[:MOST_HOLDERS], more]
    return _(", held by {holders}").format(holders=", ".join(holders)) if holders else ""


def emptiest(nodes: Sequence[Mapping[str, float]], one: Mapping[str, float]) -> str:
    """The most that a node has of what a task asks for."""
    most = {k: max(n.get(k, 0.0) for n in nodes) for k in one}
    return _("the largest has {amount}").format(amount=show_all(most))
