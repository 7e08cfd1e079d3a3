"""Problems of pods that do not run, as sentences for users. Pure.

Kubernetes' messages are of three kinds: unschedulable, container waiting, and failed create. Each
kind has a table of rules: a pattern for Kubernetes' message, a rank, and our text. A message
without a rule is shortened and quoted, never dropped. A text names the requested and the available
amounts, the image, claim or secret, and the option that changes the named value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...lifecycle.messages import clauses
from ...spec import Clause, Message
from ...spec.quantities import format_bytes
from ..api import resource_amounts
from ..api.resource_amounts import Amounts, parse_quantity

Object = Mapping[str, Any]

MOST_WORDS = 300
FOR_GOOD, BY_SOMEBODY, BY_ITSELF, GOES_ON = range(4)
"""Ranks of problems. FOR_GOOD: the pod can never start as it is. BY_SOMEBODY: the pod needs a
user's action. BY_ITSELF: the pod waits for resources and will start without any action. GOES_ON:
the pod is starting.
"""
_TIDIED = re.compile(
    r"rpc error: code = \w+ desc = |failed to create (?:containerd|shim) task: |"
    r"OCI runtime create failed: |runc create failed: |: unknown$"
)


@dataclass(frozen=True)
class PodContext:
    """The facts that a message may name: a task type, the requests of one task of the type, and the
    nodes.
    """

    task_type: str = "worker"
    amounts: Amounts = field(default_factory=dict)
    nodes: Sequence[Amounts] = ()
    """The total resources that each node has for pods."""
    free: Sequence[Amounts] | None = None
    """The free resources of each node, if known."""
    selector: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, Object] = field(default_factory=dict)
    """The known claims of the pod, by name."""
    image: str = ""
    pull_secrets: Sequence[str] = ()
    node: str = ""

    def option(self, name: str, value: str) -> str:
        """Return a command-line option with its value: `--worker-cpu 2`."""
        return f"--{self.task_type}-{name} {value}".rstrip()


@dataclass(frozen=True)
class PodProblem:
    """The reason why a pod does not run, as a clause without subject and full stop. `reason` is
    Kubernetes' own reason; `words` is a registry's text, such as `not found`.
    """

    rank: int
    text: Message
    reason: str = ""
    words: str = ""


ProblemRule = tuple[str, int, Callable[[re.Match[str], PodContext], Message]]


def first_match(
    rules: Sequence[ProblemRule], words: str, asked: PodContext, reason: str
) -> PodProblem | None:
    """Return the problem, by the first rule whose pattern matches; None if none matches."""
    for pattern, rank, clause in rules:
        if match := re.search(pattern, words):
            return PodProblem(rank, clause(match, asked), reason)
    return None


def quote_kubernetes(words: str) -> Message:
    """Return a clause that quotes a message for which there is no rule."""
    return Message("KubernetesSays", {"words": shorten_message(words)})


def shorten_message(words: str) -> str:
    """Return Kubernetes' words on one line, without the prefixes that layers of the container
    runtime add.
    """
    line = _TIDIED.sub("", " ".join(words.split()))
    return (line[: MOST_WORDS - 1] + "…" if len(line) > MOST_WORDS else line).rstrip(".")


# Unschedulable: the scheduler found no node for a pod. The condition that the scheduler writes
# lists one reason for each group of nodes; at most three are shown, the most informative first.
# Ref: https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/#filter

MOST_PARTS = 3
UNSCHEDULABLE = "Unschedulable"
_AFTER_REASONS = re.compile(r"\.? (?:no new claims to deallocate|preemption: |not found$).*$")
_NODES = re.compile(r"nodes are (?:un)?available: ")
_GANG = re.compile(r"in gang unschedulable|minAvailable|pod group")
"""Signs of a message from Volcano. For some tasks, Volcano's message also names what nodes lack,
like a message of Kubernetes' scheduler.
"""
_COUNTED = re.compile(r", (?=\d+ )")


def unschedulable_problem(words: str, asked: PodContext) -> PodProblem:
    """Return the problem in a scheduler's message, `0/3 nodes are available: 2 Insufficient cpu,
    …`.
    """
    of_nodes = _NODES.split(words, maxsplit=1)
    if len(of_nodes) == 1 and _GANG.search(words):
        return PodProblem(BY_ITSELF, Message("NoRoomForAll"), UNSCHEDULABLE)
    body = _AFTER_REASONS.sub("", of_nodes[-1]).rstrip(". ")
    parts = _COUNTED.split(body)
    found = []
    if short := [m.group(1) for p in parts if (m := re.search(r"Insufficient (\S+)", p))]:
        found.append(PodProblem(*_too_small(short, asked), UNSCHEDULABLE))
    found += [
        first_match(UNSCHEDULABLE_RULES, part, asked, UNSCHEDULABLE)
        or PodProblem(BY_SOMEBODY, quote_kubernetes(part), UNSCHEDULABLE)
        for part in parts
        if "Insufficient" not in part
    ]
    found.sort(key=lambda each: each.rank)
    texts: list[Message] = []
    for each in found:
        if each.text not in texts:
            texts.append(each.text)
    return PodProblem(found[0].rank, clauses(texts[:MOST_PARTS]), UNSCHEDULABLE)


def _too_small(names: list[str], asked: PodContext) -> tuple[int, Message]:
    """Return the rank and the clause of the problem that the nodes lack the resources `names`. The
    problem is permanent if the request exceeds the total of every node.
    """
    wanted = {name: asked.amounts.get(name, 0.0) for name in names}
    most = {name: max((n.get(name, 0.0) for n in asked.nodes), default=0.0) for name in names}
    over = [name for name in names if wanted[name] > most[name]]
    what = [_amount(name, wanted[name]) for name in names]
    if not asked.nodes:
        return BY_ITSELF, Message("NodesTooBusy", {"what": what})
    if over:
        values = {
            "what": [_amount(name, wanted[name]) for name in over],
            "has": [_has(name, most[name]) for name in over],
            "use": _fewer(over, most, asked),
        }
        return FOR_GOOD, Message("NodesTooSmall", values)
    free = {name: max((n.get(name, 0.0) for n in asked.free or ()), default=0.0) for name in names}
    # `free` is None for an operator of a single namespace: it does not see all pods of a node.
    if asked.free is not None and any(free[name] < wanted[name] for name in names):
        has = [_has(name, free[name]) for name in names]
        use = _fewer(names, free, asked)
        return BY_ITSELF, Message("NoNodeFree", {"what": what, "has": has, "use": use})
    return BY_ITSELF, Message("OthersUseNodes", {"what": what})


def _amount(name: str, amount: float) -> Clause:
    """Return an amount of a resource as text, such as `4 CPU` or `8Gi of memory`; only the
    resource's name if the amount is unknown.
    """
    if not amount:
        return name
    told = resource_amounts.format_amount(name, amount)
    return Message("AmountOfMemory", {"amount": told}) if name == "memory" else told


def _has(name: str, amount: float) -> Clause:
    return resource_amounts.format_amount(name, amount) if amount else Message("None")


def _fewer(names: list[str], most: dict[str, float], asked: PodContext) -> Clause:
    """Return advice such as `: use --worker-cpu 2`, with options that request the amounts in
    `most`. The result is empty if these amounts are too small for a task.
    """
    options = []
    for name in names:
        if name == "cpu" and most[name] >= 0.1:
            options.append(asked.option("cpu", f"{int(most[name] * 10) / 10:g}"))
        elif name == "memory" and most[name] >= 2**26:
            options.append(asked.option("memory", format_bytes(int(most[name] // 2**20) * 2**20)))
        elif name.endswith("/gpu"):
            options.append(asked.option("gpu", f"{most[name]:g}"))
    return _use(options)


def _use(options: Sequence[str]) -> Clause:
    """Return the advice to use these options, such as `: use --worker-cpu 2`; empty if there is no
    option.
    """
    return Message("UseOptions", {"options": " ".join(options)}) if options else ""


def _unbound_claims(asked: PodContext) -> Message:
    waiting = [
        n for n, c in asked.claims.items() if (c.get("status") or {}).get("phase") != "Bound"
    ]
    if not waiting:
        return Message("ClaimUnbound")
    parts: list[str | Message] = [unbound_claim(asked.claims[name]) for name in sorted(waiting)]
    return Message("ClaimsUnbound", {"parts": parts})


def unbound_claim(claim: Object) -> Message:
    """Return a clause that says why a pod that uses this unbound claim cannot run."""
    name, of = claim["metadata"]["name"], claim.get("spec") or {}
    told = claim.get("said", "")
    if missing := re.search(r'storageclass\S* "([^"]+)" not found', told):
        return Message("ClaimClassMissing", {"claim": name, "name": missing.group(1)})
    if waits := re.search(r"by the external provisioner '([^']+)'", told):
        return Message("ClaimProvisionerSilent", {"claim": name, "provisioner": waits.group(1)})
    if told:
        return Message("ClaimPending", {"claim": name, "why": quote_kubernetes(told)})
    storage = of.get("storageClassName")
    if not storage:
        return Message("ClaimWithoutClass", {"claim": name})
    return Message("ClaimOfClassUnbound", {"claim": name, "name": storage})


def _node_selector(_found: re.Match[str], asked: PodContext) -> Message:
    if not asked.selector:
        return Message("LabelMissing")
    labels = ", ".join(f"{key}={value}" for key, value in sorted(asked.selector.items()))
    return Message("LabelsMissing", {"labels": labels})


def _node_closed(found: re.Match[str], _asked: PodContext) -> Message:
    return Message("NodesClosed", {"count": int(found.group(1))})


def _node_lost(found: re.Match[str], _asked: PodContext) -> Message:
    return Message("NodesLost", {"count": int(found.group(1))})


def _node_reserved(found: re.Match[str], _asked: PodContext) -> Message:
    taint = found.group(2) if found.lastindex and found.lastindex > 1 else ""
    more: Clause = Message("InBrackets", {"detail": taint}) if taint else ""
    return Message("NodesReserved", {"count": int(found.group(1)), "more": more})


UNSCHEDULABLE_RULES: tuple[ProblemRule, ...] = (
    (
        r'persistentvolumeclaim "([^"]+)" not found',
        FOR_GOOD,
        lambda m, _a: Message("ClaimMissing", {"claim": m.group(1)}),
    ),
    (
        r'persistentvolumeclaim "([^"]+)" is being deleted',
        FOR_GOOD,
        lambda m, _a: Message("ClaimDeleted", {"claim": m.group(1)}),
    ),
    (r"unbound immediate PersistentVolumeClaims", BY_SOMEBODY, lambda _m, a: _unbound_claims(a)),
    (r"available persistent volumes to bind", BY_SOMEBODY, lambda _m, a: _unbound_claims(a)),
    (
        r"ReadWriteOncePod access mode already in-use",
        BY_SOMEBODY,
        lambda _m, a: Message("ClaimForOnePod", {"claims": _claims_of_mode(a, "ReadWriteOncePod")}),
    ),
    (
        r"PersistentVolume's node affinity|volume node affinity conflict",
        BY_SOMEBODY,
        lambda _m, a: Message("ClaimOnOneNode", {"claims": _claims_of_mode(a, "ReadWriteOnce")}),
    ),
    (r"exceed max volume count", BY_ITSELF, lambda _m, _a: Message("TooManyVolumes")),
    (r"Too many pods", BY_ITSELF, lambda _m, _a: Message("TooManyPods")),
    (r"free ports", BY_ITSELF, lambda _m, _a: Message("PortInUse")),
    (r"Pod's node affinity|node selector|node\(s\) didn't match Pod", BY_SOMEBODY, _node_selector),
    (r"^(\d+) node\(s\) (?:were unschedulable|had untolerated taint.*unschedulable)", BY_ITSELF,
     _node_closed),
    (r"^(\d+) node\(s\) had untolerated taint.*(?:not-ready|unreachable)", BY_ITSELF, _node_lost),
    (r"^(\d+) node\(s\) had untolerated taint(?:\(s\)| \{([^}]*)\})", BY_ITSELF, _node_reserved),
)  # fmt: skip


def _claims_of_mode(asked: PodContext, mode: str) -> list[str | Message]:
    """Return the claims with this access mode; all claims if none is known to have it."""
    modes = {n: (c.get("spec") or {}).get("accessModes") or () for n, c in asked.claims.items()}
    return [*([n for n, m in modes.items() if mode in m] or sorted(asked.claims))]


# Container waiting: for a pod that has a node but does not run, the container's state and the pod's
# events say why.
# Ref: https://kubernetes.io/docs/concepts/containers/images/#imagepullbackoff

STARTING_REASONS = {"ContainerCreating", "PodInitializing", ""}
_FAULT_OF_IMAGE = re.compile(
    r"executable file|\bexec:? \"?[^ :]+: |chdir to cwd|unable to find user|not a directory"
    r"|init was OOM-killed"
)
_TRANSIENT = re.compile(r"resource temporarily unavailable|text file busy|cannot allocate memory")
_BACK_OFF = re.compile(r'^Back-off pulling image "[^"]*"(?:: \w+: )?')


def is_fault_of_image(words: str) -> bool:
    """Return whether the runtime refused a container because of its image or spec. Such a container
    would fail in the same way on another node or at another try.
    """
    return bool(_FAULT_OF_IMAGE.search(words)) and not _TRANSIENT.search(words)


def container_waiting_problem(reason: str, words: str, asked: PodContext) -> PodProblem | None:
    """Return the problem of a waiting container; None if its state is an ordinary step of its
    start.
    """
    if reason in STARTING_REASONS:
        return None
    if "Image" in reason or reason == "RegistryUnavailable":
        body = _BACK_OFF.sub("", words)
        found = first_match(IMAGE_RULES, f"{reason}: {body}", asked, reason) or PodProblem(
            BY_SOMEBODY,
            Message(
                "ImageNotFetched", {"image": asked.image, "why": shorten_message(body) or reason}
            ),
            reason,
        )
        return replace(found, words=shorten_message(body).rpartition(": ")[2])
    return first_match(WAITING_RULES, words, asked, reason) or PodProblem(
        BY_SOMEBODY, quote_kubernetes(f"{reason}: {words}"), reason
    )


def event_problem(events: Sequence[Object], asked: PodContext) -> PodProblem | None:
    """Return the problem in the newest event that explains why the pod waits; None if no event
    does.
    """
    for event in sorted(events, key=event_time, reverse=True):
        reason, words = event.get("reason", ""), event.get("message", "")
        if event.get("type") == "Warning" and reason != "Failed":
            told = first_match(EVENT_RULES, words, asked, reason)
            return told or PodProblem(BY_SOMEBODY, quote_kubernetes(words), reason)
        if reason == "Pulling":
            text = Message("ImageFetching", {"image": asked.image})
            return PodProblem(GOES_ON, text, reason)
        if reason in ("Pulled", "Created", "Started"):
            return None
    return None


def are_about_claims(events: Sequence[Object]) -> bool:
    """Return whether an event of the pod says that its claim is in use by another node."""
    return any("Multi-Attach" in event.get("message", "") for event in events)


def event_time(event: Object) -> str:
    """Return the time at which an event last happened, as text that sorts by time."""
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event.get("firstTimestamp")
        or ""
    )


def _private_image(_found: re.Match[str], asked: PodContext) -> Message:
    if asked.pull_secrets:
        return Message(
            "ImageSecretRefused", {"image": asked.image, "secrets": list(asked.pull_secrets)}
        )
    return Message("ImagePrivate", {"image": asked.image})


IMAGE_RULES: tuple[ProblemRule, ...] = (
    (
        r"InvalidImageName",
        FOR_GOOD,
        lambda _m, a: Message("ImageNameInvalid", {"image": a.image}),
    ),
    (
        r"ErrImageNeverPull",
        FOR_GOOD,
        lambda _m, a: Message("ImageNotOnNode", {"image": a.image}),
    ),
    (
        r"401|403 Forbidden|[Uu]nauthorized|pull access denied|authentication required|denied:",
        FOR_GOOD,
        _private_image,
    ),
    (
        r"no match for platform",
        FOR_GOOD,
        lambda _m, a: Message("ImageOtherProcessor", {"image": a.image}),
    ),
    (
        r"no space left on device",
        BY_SOMEBODY,
        lambda _m, a: Message("ImageDiskFull", {"image": a.image}),
    ),
    (
        r"not found|manifest unknown|NotFound",
        FOR_GOOD,
        lambda _m, a: Message("ImageNotFound", {"image": a.image}),
    ),
    (
        r"no such host|lookup (\S+)|dial tcp|i/o timeout|connection refused|x509|TLS",
        BY_SOMEBODY,
        lambda m, a: Message(
            "RegistryUnreachable", {"image": a.image, "why": shorten_message(m.string[m.start() :])}
        ),
    ),
)
WAITING_RULES: tuple[ProblemRule, ...] = (
    (
        r'(secret|configmap) "([^"]+)" not found',
        FOR_GOOD,
        lambda m, _a: Message("ObjectMissing", {"kind": m.group(1), "name": m.group(2)}),
    ),
    (
        r"couldn't find key (\S+) in (\w+) (\S+)",
        FOR_GOOD,
        lambda m, _a: Message(
            "KeyMissing",
            {"key": m.group(1), "kind": m.group(2).lower(), "name": m.group(3).rpartition("/")[2]},
        ),
    ),
    (
        r'exec: "([^"]+)": (?:executable file not found|stat|no such file)',
        FOR_GOOD,
        lambda m, a: Message("ImageLacksCommand", {"image": a.image, "command": m.group(1)}),
    ),
    (
        r"image has non-numeric user|container has runAsNonRoot",
        FOR_GOOD,
        lambda _m, a: Message("ImageRunsAsRoot", {"image": a.image}),
    ),
)
EVENT_RULES: tuple[ProblemRule, ...] = (
    (
        r"Multi-Attach error",
        BY_SOMEBODY,
        lambda _m, a: Message(
            "ClaimInUse", {"claims": _claims_of_mode(a, "ReadWriteOnce") or [Message("Unnamed")]}
        ),
    ),
    (
        r"[Uu]nable to retrieve some image pull secrets \(([^)]*)\)",
        FOR_GOOD,
        lambda m, _a: Message("SecretMissing", {"name": m.group(1)}),
    ),
    *WAITING_RULES,
    (
        r"driver name (\S+) not found in the list of registered CSI drivers",
        BY_SOMEBODY,
        lambda m, _a: Message("DriverMissing", {"driver": m.group(1)}),
    ),
    (
        r"volume \"?([\w.-]+)\"?.*?: (.*)",
        BY_SOMEBODY,
        lambda m, _a: Message(
            "VolumeNotMounted", {"volume": m.group(1), "why": shorten_message(m.group(2))}
        ),
    ),
    (
        r"[Ff]ailed to create pod sandbox",
        BY_ITSELF,
        lambda m, _a: Message(
            "NetworkNotReady", {"why": shorten_message(m.string.rpartition(": ")[2])}
        ),
    ),
    (
        r"[Nn]ode is not ready|NodeNotReady",
        BY_SOMEBODY,
        lambda _m, a: Message("NodeNotReady", {"node": a.node}),
    ),
)


# Failed create: a Job's FailedCreate events say why it cannot create its pods.
# Ref: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/

FAILED_CREATE = "FailedCreate"
_BEFORE_REASON = re.compile(r'^Error creating: (?:pods "[^"]*" is forbidden: )?')


def failed_create_problem(words: str, asked: PodContext) -> PodProblem:
    """Return the problem in the message of a FailedCreate event."""
    body = _BEFORE_REASON.sub("", words)
    return first_match(FAILED_CREATE_RULES, body, asked, FAILED_CREATE) or PodProblem(
        BY_SOMEBODY, quote_kubernetes(body), FAILED_CREATE
    )


def _pairs(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _format_quantity(key: str, amount: str) -> str:
    try:
        return resource_amounts.format_amount(key, parse_quantity(amount))
    except ValueError:
        return f"{amount} {key}"


def _quota_exceeded(found: re.Match[str], asked: PodContext) -> Message:
    """Return a clause that explains an exceeded quota. The message of Kubernetes is such as
    `exceeded quota: small, requested: a=1,b=2, used: a=3,b=4, limited: a=3,b=5`.
    """
    name, requested, used, limited = found.groups()
    each, taken, hard = (_pairs(text) for text in (requested, used, limited))
    told: list[str | Message] = [
        Message(
            "QuotaTaken",
            {
                "used": _format_quantity(key, taken.get(key, "0")),
                "limit": _format_quantity(key, hard[key]),
                "task": asked.task_type,
                "each": _format_quantity(key, each.get(key, "0")),
            },
        )
        for key in hard
    ]
    return Message("QuotaUsedUp", {"name": name, "told": told})


def _quota_unstated(found: re.Match[str], asked: PodContext) -> Message:
    name, said = found.groups()
    options = [
        asked.option(key, example)
        for key, example in (("cpu", "1"), ("memory", "1Gi"))
        if re.search(rf"\b{key}\b", said)
    ]
    keys = list(dict.fromkeys(part.split(" for:")[0].strip() for part in said.split(";")))
    return Message("QuotaNeedsRequests", {"name": name, "keys": keys, "use": _use(options)})


_BOUND = re.compile(
    r"(maximum|minimum) (\S+) usage per (?:Container|Pod) is ([^,\s\]]+), but (?:limit|request) is "
    r"([^,\s\].]+(?:\.\d+)?)"
)


def _limit_range(found: re.Match[str], asked: PodContext) -> Message:
    """Return all violated bounds of a LimitRange, each with the option to change."""
    parts: list[str | Message] = []
    options = []
    for kind, name, bound, has in _BOUND.findall(found.string):
        values = {"bound": _format_quantity(name, bound), "has": _format_quantity(name, has)}
        parts.append(Message("TaskTooLarge" if kind == "maximum" else "TaskTooSmall", values))
        if name in ("cpu", "memory"):
            options.append(asked.option(name, bound))
    return Message("BoundsBroken", {"parts": parts, "use": _use(options)})


FAILED_CREATE_RULES: tuple[ProblemRule, ...] = (
    (
        r"exceeded quota: (\S+), requested: (.*), used: (.*), limited: (\S*)",
        BY_ITSELF,
        _quota_exceeded,
    ),
    (r"failed quota: (\S+): must specify (.*)", FOR_GOOD, _quota_unstated),
    (_BOUND.pattern, FOR_GOOD, _limit_range),
    (
        r"(\S+) max limit to request ratio per \w+ is ([^,\s]+)",
        FOR_GOOD,
        lambda m, a: Message(
            "LimitRatio",
            {"name": m.group(1), "ratio": m.group(2), "option": a.option(m.group(1), "")},
        ),
    ),
    (
        r'failed calling webhook "([^"]+)".*?: ((?:service|no endpoints|dial|context|Post).*)',
        BY_SOMEBODY,
        lambda m, _a: Message(
            "WebhookSilent",
            {"name": m.group(1), "why": m.group(2).rpartition(": ")[2] or m.group(2)},
        ),
    ),
    (
        r'admission webhook "([^"]+)" denied the request: (.*)',
        FOR_GOOD,
        lambda m, _a: Message(
            "WebhookRefused", {"name": m.group(1), "why": m.group(2).rstrip(".")}
        ),
    ),
    (
        r'violates PodSecurity "([^"]+)": (.*)',
        FOR_GOOD,
        lambda m, _a: Message("PodSecurityRefused", {"level": m.group(1), "why": m.group(2)}),
    ),
    (
        r"no PriorityClass with name (\S+) was found",
        FOR_GOOD,
        lambda m, _a: Message("PriorityClassMissing", {"name": m.group(1)}),
    ),
    (
        r"error looking up service account (\S+?)/(\S+):",
        FOR_GOOD,
        lambda m, _a: Message(
            "ServiceAccountMissing", {"name": m.group(2), "namespace": m.group(1)}
        ),
    ),
    (
        r"because it is being terminated",
        FOR_GOOD,
        lambda _m, _a: Message("NamespaceDeleted"),
    ),
)
