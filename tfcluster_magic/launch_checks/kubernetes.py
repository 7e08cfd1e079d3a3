"""The facts by which operator and clients judge a spec: policy, capacity, its claims. Pure.

Both come to the same problems: the operator reads the facts from the cluster, and publishes them
beside the options, so that a client needs no right to look at nodes, quotas, claims or secrets.
What changes with every pod is only in the operator's own.
"""

from __future__ import annotations

from collections import Counter

import msgspec
from msgspec.structs import replace

from ..errors import Problem
from ..i18n import _
from ..kube.api.resource_amounts import CPU, MEMORY, parse_amounts
from ..kube.objects.pod_template import task_resources
from ..kube.objects.policy import Policy
from ..quota.preflight import Limit, Preflight
from ..spec import Model, Spec, TaskType
from ..spec.quantities import format_duration
from . import fit, policy_check
from .fit import NamespaceCapacity, NodeCapacity
from .namespace_quota import TaskDemand
from .policy_check import NamespaceObjects

FACTS_KEY = "offer.json"
"""Key of the ConfigMap `labels.OPTIONS`, beside `options.json`."""


class LaunchFacts(Model, frozen=True):
    """All that decides whether a spec may run here. `enforced`: NetworkPolicies are; None while
    nobody knows.
    """

    policy: Policy = Policy()
    place: NamespaceCapacity = NamespaceCapacity()
    names: NamespaceObjects = NamespaceObjects()
    enforced: bool | None = None

    def published(self) -> LaunchFacts:
        """What clients get: what there is when nothing runs, which seldom changes."""
        place = self.place.empty()
        if place.nodes is not None:
            kinds = Counter(tuple(sorted(n.total.items())) for n in place.nodes)
            nodes = [
                NodeCapacity(total=dict(t), free=dict(t), count=n) for t, n in sorted(kinds.items())
            ]
            place = replace(place, nodes=tuple(nodes))
        return replace(self, place=place)


_FACTS = msgspec.json.Decoder(LaunchFacts)


def read_facts(text: str) -> LaunchFacts:
    """Return the facts as they were published. Raises msgspec.ValidationError."""
    return _FACTS.decode(text)


def task_demands(spec: Spec, facts: LaunchFacts) -> dict[TaskType, tuple[int, TaskDemand]]:
    """What the tasks of a spec ask for, as the API server completes it."""
    found = {}
    for task_type, count in spec.replicas.counts.items():
        requests, limits = map(parse_amounts, task_resources(spec, facts.policy, task_type))
        asked = TaskDemand(requests=requests, limits=limits)
        found[task_type] = (count, facts.place.bounds.given(asked))
    return found


def launch_problems(spec: Spec, facts: LaunchFacts) -> list[Problem]:
    """Everything that keeps this spec from ever running here."""
    found = policy_check.policy_problems(spec, facts.policy, facts.names)
    if facts.enforced is False and facts.policy.require_network_policy:
        told = _(
            "NetworkPolicies are not enforced on this cluster, so everybody on it could use the "
            "tasks: install a network plugin that enforces them, or accept it in the operator's "
            "policy (requireNetworkPolicy: false)"
        )
        found.append(Problem(_("the cluster"), None, told))
    place = facts.place if facts.policy.nodes_are_fixed else replace(facts.place, nodes=None)
    return found + fit.fit_problems(task_demands(spec, facts), place.empty())


def launch_preflight(spec: Spec, facts: LaunchFacts) -> Preflight:
    """The same for a face; what fits later is no problem, the run waits for it."""
    return Preflight(tuple(launch_problems(spec, facts)))


def launch_notes(facts: LaunchFacts) -> tuple[str, ...]:
    """What a person should know of this place before a launch."""
    policy, found = facts.policy, []
    if policy.images:
        images = ", ".join((policy.default_image, *policy.images))
        found.append(_("Images that may be used: {images}.").format(images=images))
    if policy.max_duration is not None:
        most = format_duration(policy.max_duration)
        found.append(_("A run ends after {most} at the latest.").format(most=most))
    if facts.enforced is False:
        found.append(
            _("NetworkPolicies are not enforced here: everybody on the cluster can use your tasks.")
        )
    return tuple(found)


def resource_limits(place: NamespaceCapacity, gpu: str) -> tuple[Limit, Limit, Limit]:
    """Cores, bytes of memory and GPUs that tasks may have here at most, and now."""
    return _limit(place, CPU), _limit(place, MEMORY), _limit(place, gpu)


def _limit(place: NamespaceCapacity, name: str) -> Limit:
    totals, frees = [], []
    if place.nodes is not None:
        totals.append(sum(n.count * n.total.get(name, 0.0) for n in place.nodes))
        frees.append(sum(n.count * n.free.get(name, 0.0) for n in place.nodes))
    for quota in place.quotas:
        for key in {name, f"requests.{name}", f"limits.{name}"} & quota.hard.keys():
            totals.append(quota.hard[key])
            frees.append(quota.free(key))
    return Limit(total=min(totals, default=0.0), free=min(frees, default=0.0))
