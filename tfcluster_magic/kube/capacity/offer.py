"""What a namespace offers to runs: one record, by which operator and clients judge a spec. Pure.

Promises that both come to the same problems: the operator reads the offer from the cluster, and
publishes it beside the options, so that a client needs no right to look at nodes, quotas, claims or
secrets. What changes with every pod is only in the operator's own.
"""

from __future__ import annotations

from collections import Counter

import msgspec
from msgspec.structs import replace

from ...errors import Problem
from ...i18n import _
from ...quota.preflight import Limit, Preflight
from ...spec import Model, Spec, TaskType
from ...spec.quantities import format_duration
from ..api.amounts import CPU, MEMORY, amounts
from ..objects.pod import resources
from ..objects.policy import Policy
from . import fit, policy_check
from .fit import Node, Place
from .namespace_limits import Demand
from .policy_check import Names

OFFER = "offer.json"
"""Key of the ConfigMap `labels.OPTIONS`, beside `options.json`."""


class Offer(Model, frozen=True):
    """All that decides whether a spec may run here. `enforced`: NetworkPolicies are; None while
    nobody knows.
    """

    policy: Policy = Policy()
    place: Place = Place()
    names: Names = Names()
    enforced: bool | None = None

    def published(self) -> Offer:
        """What clients get: what there is when nothing runs, which seldom changes."""
        place = self.place.empty()
        if place.nodes is not None:
            kinds = Counter(tuple(sorted(n.total.items())) for n in place.nodes)
            nodes = [Node(total=dict(t), free=dict(t), count=n) for t, n in sorted(kinds.items())]
            place = replace(place, nodes=tuple(nodes))
        return replace(self, place=place)


_OFFER = msgspec.json.Decoder(Offer)


def read(text: str) -> Offer:
    """Return the facts as they were published. Raises msgspec.ValidationError."""
    return _OFFER.decode(text)


def wanted(spec: Spec, facts: Offer) -> dict[TaskType, tuple[int, Demand]]:
    """What the tasks of a spec ask for, as the API server completes it."""
    found = {}
    for task_type, count in spec.replicas.counts.items():
        requests, limits = map(amounts, resources(spec, facts.policy, task_type))
        asked = Demand(requests=requests, limits=limits)
        found[task_type] = (count, facts.place.bounds.given(asked))
    return found


def problems(spec: Spec, facts: Offer) -> list[Problem]:
    """Everything that keeps this spec from ever running here."""
    found = policy_check.problems(spec, facts.policy, facts.names)
    if facts.enforced is False and facts.policy.require_network_policy:
        told = _(
            "NetworkPolicies are not enforced on this cluster, so everybody on it could use the "
            "tasks: install a network plugin that enforces them, or accept it in the operator's "
            "policy (requireNetworkPolicy: false)"
        )
        found.append(Problem(_("the cluster"), None, told))
    place = facts.place if facts.policy.nodes_are_fixed else replace(facts.place, nodes=None)
    return found + fit.problems(wanted(spec, facts), place.empty())


def preflight(spec: Spec, facts: Offer) -> Preflight:
    """The same for a face; what fits later is no problem, the run waits for it."""
    return Preflight(tuple(problems(spec, facts)))


def notes(facts: Offer) -> tuple[str, ...]:
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


def limits(place: Place, gpu: str) -> tuple[Limit, Limit, Limit]:
    """Cores, bytes of memory and GPUs that tasks may have here at most, and now."""
    return _limit(place, CPU), _limit(place, MEMORY), _limit(place, gpu)


def _limit(place: Place, name: str) -> Limit:
    totals, frees = [], []
    if place.nodes is not None:
        totals.append(sum(n.count * n.total.get(name, 0.0) for n in place.nodes))
        frees.append(sum(n.count * n.free.get(name, 0.0) for n in place.nodes))
    for quota in place.quotas:
        for key in {name, f"requests.{name}", f"limits.{name}"} & quota.hard.keys():
            totals.append(quota.hard[key])
            frees.append(quota.free(key))
    return Limit(total=min(totals, default=0.0), free=min(frees, default=0.0))
