"""The checks of a launch on Kubernetes: policy, capacity, claims, hours, folders. Pure.

Operator and clients find the same problems. The operator reads `LaunchFacts` from the cluster and
publishes them together with the options, so that a client needs no right to read nodes, quotas,
claims or secrets. Facts that change with every pod are not published in `LaunchFacts`. Before it
creates any object, a client checks a launch with `ClientFacts`, and warns if the launch may have to
wait. The operator checks the launch again and decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from ..errors import Problem
from ..i18n import _, language
from ..kube.api.resource_amounts import CPU, MEMORY, PODS, format_amount, parse_amounts
from ..kube.objects.pod_template import task_resources
from ..kube.objects.policy import Policy
from ..program.snapshots import checksum_problems
from ..quota import budgets, ledger, storage
from ..quota.ledger import HoursAccount
from ..quota.preflight import Limit, Options, Preflight
from ..quota.storage import FolderUsage
from ..spec import Message, Model, Spec, conversion
from ..spec.message_table import format_duration
from ..spec.quantities import parse_memory
from . import capacity_check, policy_check
from .capacity_check import DemandByType, NamespaceCapacity, NodeCapacity, node_kinds
from .policy_check import NamespaceObjects
from .quota_objects import TaskDemand, quota_keys

FACTS_KEY = "offer.json"
"""Key of the facts in the ConfigMap `labels.OPTIONS`."""
LIMITS_OF = "limits.of"
"""Key in the same ConfigMap, with a copy of the text under `FACTS_KEY`. The operator writes the
copy when it computes the entries of `admission_limits` from that text. If the text later differs
from the copy, an operator of an older version, which does not know the entries, has updated only
the text; `k8s/base/admission.yaml` then ignores the entries.
"""


class LaunchFacts(Model, frozen=True):
    """The facts that decide whether a spec may run in a namespace. `enforced` says whether
    NetworkPolicies are enforced; None if unknown.
    """

    policy: Policy = Policy()
    place: NamespaceCapacity = NamespaceCapacity()
    names: NamespaceObjects = NamespaceObjects()
    enforced: bool | None = None

    def published(self, kinds: tuple[NodeCapacity, ...] | None = None) -> LaunchFacts:
        """Return the facts that the operator publishes for clients. They state the capacity of the
        namespace as if nothing ran there, because this capacity seldom changes.

        `kinds` is the result of `node_kinds` for the nodes of `place`, if it is known already.
        """
        nodes = self.place.nodes
        if nodes is not None:
            nodes = node_kinds(nodes) if kinds is None else kinds
        place = replace(self.place, nodes=None).empty()
        return replace(self, place=replace(place, nodes=nodes))


_FACTS = conversion.decoder(LaunchFacts)


def read_facts(text: str) -> LaunchFacts:
    """Decode the facts that the operator published as JSON. Raises msgspec.ValidationError."""
    return _FACTS.decode(text)


def task_demands(spec: Spec, facts: LaunchFacts) -> DemandByType:
    """Return the requests of the tasks of a spec, including defaults from the API server."""
    found = {}
    for task_type, count in spec.replicas.counts.items():
        requests, limits = map(parse_amounts, task_resources(spec, facts.policy, task_type))
        asked = TaskDemand(requests=requests, limits=limits)
        found[task_type] = (count, facts.place.bounds.given(asked))
    return found


def launch_problems(spec: Spec, facts: LaunchFacts) -> list[Problem]:
    """Return the problems that prevent this spec from ever running in this namespace."""
    return [*_setup_problems(spec, facts), *_room_problems(facts, task_demands(spec, facts))]


def _setup_problems(spec: Spec, facts: LaunchFacts) -> list[Problem]:
    """Return the problems other than missing resources: something that is not allowed, or that the
    namespace lacks.
    """
    found = checksum_problems(spec.program)
    found += policy_check.policy_problems(spec, facts.policy, facts.names)
    if facts.enforced is False and facts.policy.require_network_policy:
        found.append(Problem(Message("TheCluster"), None, Message("PoliciesNotEnforced")))
    return found


def _room_problems(facts: LaunchFacts, demands: DemandByType) -> list[Problem]:
    place = facts.place if facts.policy.nodes_are_fixed else replace(facts.place, nodes=None)
    return capacity_check.fit_problems(demands, place.empty())


# -- the checks of a client ------------------------------------------------------------------------


@dataclass(frozen=True)
class ClientFacts:
    """The facts for a client's checks of one launch, gathered once.

    Attributes:
        cluster: the facts that the operator published.
        options: the total and the free resources for tasks that the operator published.
        now: the time of the check.
        account: the user's budget and the hours used until now; empty without a budget.
        numbers: the highest run number of each cluster name, deleted runs included.
        own_image: the image of the launching notebook, if any.
        volumes: the usage of the user's claims that this process's own pod mounts.
        lost_output: the folder of the checkpoints to resume from, if it is known to be gone.
        lost_program: the folder of the stored program, if it is known to be gone.
    """

    cluster: LaunchFacts
    options: Options
    now: float
    account: HoursAccount
    numbers: Mapping[str, int] = field(default_factory=dict)
    own_image: str | None = None
    volumes: Sequence[FolderUsage] = ()
    lost_output: Path | None = None
    lost_program: Path | None = None


def with_image(spec: Spec, facts: ClientFacts) -> Spec:
    """Return `spec`. If `spec` names no image, the result names the image of the launching
    notebook, provided that the policy allows this image.
    """
    own = facts.own_image
    if spec.image is not None or own is None:
        return spec
    refused = any(policy_check.image_problems(own, facts.cluster.policy))
    return spec if refused else replace(spec, image=own)


def preflight(spec: Spec, facts: ClientFacts) -> Preflight:
    """Return the problems that prevent a launch of `spec`, and warnings about resources for which
    it may have to wait.
    """
    most, spent, now = facts.account.budget, ledger.daily_sums(facts.account.days), facts.now
    demands = task_demands(spec, facts.cluster)
    setup = (*_lost_folders(spec, facts), *_setup_problems(spec, facts.cluster))
    problems = (
        *budgets.problems(spec, _asked(demands, CPU), most, spent, now),
        *setup,
        *_room_problems(facts.cluster, demands),
        *storage.problems(facts.volumes),
    )
    spends = () if problems else budgets.warnings(most, spent, now)
    waits = () if problems else tuple(_waiting_warnings(demands, facts))
    told = budgets.remaining_text(most, spent, now)
    warnings = (*storage.warnings(facts.volumes), *spends, *waits)
    return Preflight(problems, warnings, (told,) if told else (), setup=setup, passing=waits)


def _asked(demands: DemandByType, key: str) -> float:
    return sum(count * demand.requests.get(key, 0.0) for count, demand in demands.values())


def _lost_folders(spec: Spec, facts: ClientFacts) -> Iterator[Problem]:
    """Yield a problem for each folder that the tasks need and that is known to be missing."""
    if facts.lost_output is not None:
        allowed = _("its folder {resume_from} is gone: launch without it").format(
            resume_from=facts.lost_output
        )
        yield Problem("resumeFrom", spec.resume_from, allowed)
    if facts.lost_program is not None and spec.program is not None:
        allowed = _("its files are no longer in {folder}: launch the program anew").format(
            folder=facts.lost_program
        )
        yield Problem("program", spec.program.source, allowed)


def _waiting_warnings(demands: DemandByType, facts: ClientFacts) -> Iterator[str]:
    """Yield a warning for each resource of which less than requested seems to be free now.

    The published free amounts are rounded down. They do not say how much is free on each node or
    what waiting runs request. So only the operator knows whether the run has to wait.
    """
    gpu, there = facts.cluster.policy.gpu_resource, facts.options
    for key, limit in ((CPU, there.cpu), (MEMORY, there.memory), (gpu, there.gpu)):
        asked = _asked(demands, key)
        if not limit.total and asked:
            yield _(
                "it may have to wait: it asks for {asked}, and no node has {resource} now"
            ).format(asked=format_amount(key, asked), resource=key)
        elif asked > limit.free:
            yield _(
                "it may have to wait: it asks for {asked} in total, and about {free} of {total} is "
                "free"
            ).format(
                asked=format_amount(key, asked),
                free=format_amount(key, limit.free),
                total=format_amount(key, limit.total),
            )


# -- notes and limits ------------------------------------------------------------------------------


def launch_notes(facts: LaunchFacts) -> tuple[str, ...]:
    """Return notes about this cluster that a user should read before a launch."""
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
    """Return the limits for cores, bytes of memory and GPUs of tasks in this namespace: in total,
    and free now.
    """
    return _limit(place, CPU), _limit(place, MEMORY), _limit(place, gpu)


def _limit(place: NamespaceCapacity, name: str) -> Limit:
    totals, frees = [], []
    if place.nodes is not None:
        totals.append(sum(n.count * n.total.get(name, 0.0) for n in place.nodes))
        frees.append(sum(n.count * n.free.get(name, 0.0) for n in place.nodes))
    for quota in place.quotas:
        for key in quota_keys(name) & quota.hard.keys():
            totals.append(quota.hard[key])
            frees.append(quota.free(key))
    return Limit(total=min(totals, default=0.0), free=min(frees, default=0.0))


# -- limits for the admission policy ---------------------------------------------------------------


def admission_limits(facts: LaunchFacts) -> dict[str, str]:
    """Return the limits above which no run can ever start, as entries of `labels.OPTIONS`.

    `k8s/base/admission.yaml` refuses a `kubectl apply` of runs above these limits. `run.X` limits
    the sum over all tasks of a run and `task.X` each task, where X is `cpu` (cores), `memory`
    (bytes), `gpu` or `tasks`. `run.X.text` and `task.X.text` say in English what sets the limit. A
    limit and its text are empty if there is no limit. `default.X` is the request of a task whose
    spec has none.
    """
    policy, place = facts.policy, facts.place
    resources = ("cpu", CPU), ("memory", MEMORY), ("gpu", policy.gpu_resource)
    nodes = place.nodes if policy.nodes_are_fixed and place.nodes else ()
    said = {
        "default.cpu": f"{policy.default_cpu:.15g}",
        "default.memory": str(parse_memory(policy.default_memory)),
    }

    def write(key: str, resource: str, limits: Sequence[tuple[float, str]]) -> None:
        most, source = min(limits, default=(None, ""))
        said[key] = "" if most is None else f"{most:.15g}"
        said[f"{key}.text"] = "" if most is None else f"{source} {format_amount(resource, most)}"

    with language("en"):
        for name, resource in (*resources, ("tasks", PODS)):
            found = [
                (quota.hard[key], f"ResourceQuota {quota.name} allows")
                for quota in place.quotas
                for key in quota_keys(resource) & quota.hard.keys()
            ]
            if nodes:
                every = sum(each.count * each.total.get(resource, 0.0) for each in nodes)
                found.append((every, "the nodes for tasks together have"))
            if name == "tasks":
                found.append((float(place.max_tasks), "the operator's policy allows"))
            write(f"run.{name}", resource, found)
        for name, resource in resources:
            found = []
            if resource in place.bounds.most:
                allows = f"LimitRange {place.bounds.name} allows"
                found.append((place.bounds.most[resource], allows))
            if nodes:
                largest = max(each.total.get(resource, 0.0) for each in nodes)
                found.append((largest, "the largest node has"))
            write(f"task.{name}", resource, found)
    return said
