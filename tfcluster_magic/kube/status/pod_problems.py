"""Problems of pods that do not run: Kubernetes' messages (unschedulable, container waiting, failed
create) as sentences for people. Pure.

Each of the three has a table: a pattern over Kubernetes' words, how telling it is, and the text.
Words that no table knows are shortened and passed on, never dropped. A text names the numbers (what
is requested, what there is), the image, claim or secret, and the option that changes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...i18n import _, ngettext
from ...spec.quantities import format_bytes
from ..api import resource_amounts
from ..api.resource_amounts import Amounts, parse_quantity

Object = Mapping[str, Any]

MOST_WORDS = 300
FOR_GOOD, BY_SOMEBODY, BY_ITSELF, GOES_ON = range(4)
"""How telling: it never starts like this; somebody has to act; it waits for room; it is on its way.
"""
_TIDIED = re.compile(
    r"rpc error: code = \w+ desc = |failed to create (?:containerd|shim) task: |"
    r"OCI runtime create failed: |runc create failed: |: unknown$"
)


@dataclass(frozen=True)
class PodContext:
    """What the sentence is about: a task type, what one such task asks for, and where."""

    task_type: str = "worker"
    amounts: Amounts = field(default_factory=dict)
    nodes: Sequence[Amounts] = ()
    """What each node has in all for pods."""
    free: Sequence[Amounts] | None = None
    """What each has left, where that is known."""
    selector: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, Object] = field(default_factory=dict)
    """The claims of the pod that are known, by name."""
    image: str = ""
    pull_secrets: Sequence[str] = ()
    node: str = ""

    def option(self, name: str, value: str) -> str:
        """`--worker-cpu 2`."""
        return f"--{self.task_type}-{name} {value}".rstrip()


@dataclass(frozen=True)
class PodProblem:
    """Why, without whom it concerns and without a full stop; `reason` is Kubernetes' own word."""

    rank: int
    text: str
    reason: str = ""


ProblemRule = tuple[str, int, Callable[[re.Match[str], PodContext], str]]


def first_match(
    rules: Sequence[ProblemRule], words: str, asked: PodContext, reason: str
) -> PodProblem | None:
    """The clause of the first rule whose pattern is in the words."""
    for pattern, rank, clause in rules:
        if match := re.search(pattern, words):
            return PodProblem(rank, clause(match, asked), reason)
    return None


def quote_kubernetes(words: str) -> str:
    """Words that no rule knows."""
    return _("Kubernetes says: {words}").format(words=shorten_message(words))


def shorten_message(words: str) -> str:
    """Kubernetes' words in one line, without the names of its layers."""
    line = _TIDIED.sub("", " ".join(words.split()))
    return (line[: MOST_WORDS - 1] + "…" if len(line) > MOST_WORDS else line).rstrip(".")


# Unschedulable: why no node takes a pod. The scheduler's condition lists one reason for each group
# of nodes; the most telling is told first, and at most three.
# Ref: https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/#filter

MOST_PARTS = 3
UNSCHEDULABLE = "Unschedulable"
_AFTER_REASONS = re.compile(r"\.? (?:no new claims to deallocate|preemption: |not found$).*$")
_NODES = re.compile(r"nodes are (?:un)?available: ")
_GANG = re.compile(r"in gang unschedulable|minAvailable|pod group")
"""Volcano's words; of some tasks it names what nodes lack, as Kubernetes' scheduler does."""
_COUNTED = re.compile(r", (?=\d+ )")


def unschedulable_problem(words: str, asked: PodContext) -> PodProblem:
    """The scheduler's whole message, `0/3 nodes are available: 2 Insufficient cpu, …`."""
    of_nodes = _NODES.split(words, maxsplit=1)
    if len(of_nodes) == 1 and _GANG.search(words):
        return PodProblem(
            BY_ITSELF, _("there is no room for all tasks together yet"), UNSCHEDULABLE
        )
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
    texts = list(dict.fromkeys(each.text for each in found))[:MOST_PARTS]
    return PodProblem(found[0].rank, _("; ").join(texts), UNSCHEDULABLE)


def _too_small(names: list[str], asked: PodContext) -> tuple[int, str]:
    """No node has enough of these resources: for good when none ever had."""
    wanted = {name: asked.amounts.get(name, 0.0) for name in names}
    most = {name: max((n.get(name, 0.0) for n in asked.nodes), default=0.0) for name in names}
    over = [name for name in names if wanted[name] > most[name]]
    what = _(" and ").join(_amount(name, wanted[name]) for name in names)
    if not asked.nodes:
        return BY_ITSELF, _("no node has {what} free").format(what=what)
    if over:
        has = _(", ").join(_has(name, most[name]) for name in over)
        needs = _(" and ").join(_amount(name, wanted[name]) for name in over)
        text = _("no node has {what}; the largest has {has}").format(what=needs, has=has)
        return FOR_GOOD, text + _fewer(over, most, asked)
    free = {name: max((n.get(name, 0.0) for n in asked.free or ()), default=0.0) for name in names}
    # An operator of one namespace does not see who else uses a node.
    if asked.free is not None and any(free[name] < wanted[name] for name in names):
        has = _(", ").join(_has(name, free[name]) for name in names)
        text = _("no node has {what} free; the largest has {has} free").format(what=what, has=has)
        return BY_ITSELF, text + _fewer(names, free, asked)
    return BY_ITSELF, _(
        "no node has {what} free, others use it: it starts when they end, or ask for less"
    ).format(what=what)


def _amount(name: str, amount: float) -> str:
    """`4 CPU`, `8Gi of memory`; a name alone when nothing is known to be asked for."""
    if not amount:
        return name
    told = resource_amounts.format_amount(name, amount)
    return _("{amount} of memory").format(amount=told) if name == "memory" else told


def _has(name: str, amount: float) -> str:
    return resource_amounts.format_amount(name, amount) if amount else _("none")


def _fewer(names: list[str], most: dict[str, float], asked: PodContext) -> str:
    """`: use --worker-cpu 2`, where something is left that could be used."""
    options = []
    for name in names:
        if name == "cpu" and most[name] >= 0.1:
            options.append(asked.option("cpu", f"{int(most[name] * 10) / 10:g}"))
        elif name == "memory" and most[name] >= 2**26:
            options.append(asked.option("memory", format_bytes(int(most[name] // 2**20) * 2**20)))
        elif name.endswith("/gpu"):
            options.append(asked.option("gpu", f"{most[name]:g}"))
    return _(": use {options}").format(options=" ".join(options)) if options else ""


def _unbound_claims(asked: PodContext) -> str:
    waiting = [
        n for n, c in asked.claims.items() if (c.get("status") or {}).get("phase") != "Bound"
    ]
    if not waiting:
        return _("a claim of it has no volume yet")
    return _(". ").join(unbound_claim_text(asked.claims[name]) for name in sorted(waiting))


def unbound_claim_text(claim: Object) -> str:
    """Why a claim that exists holds a pod up."""
    name, of = claim["metadata"]["name"], claim.get("spec") or {}
    told = claim.get("said", "")
    if missing := re.search(r'storageclass\S* "([^"]+)" not found', told):
        return _(
            "the claim {claim} asks for the storage class {name}, which does not exist: "
            "make the claim again with a class of `kubectl get storageclass`"
        ).format(claim=name, name=missing.group(1))
    if waits := re.search(r"by the external provisioner '([^']+)'", told):
        return _(
            "the claim {claim} has no volume yet: {provisioner}, which makes it, has not done so; "
            "ask the administrator whether it runs"
        ).format(claim=name, provisioner=waits.group(1))
    if told:
        return _("the claim {claim} has no volume yet: {why}").format(
            claim=name, why=quote_kubernetes(told)
        )
    storage = of.get("storageClassName")
    if not storage:
        return _(
            "the claim {claim} has no volume and names no storage class: make it again with one"
        ).format(claim=name)
    return _("the claim {claim} has no volume of the class {name} yet").format(
        claim=name, name=storage
    )


def _node_selector(_found: re.Match[str], asked: PodContext) -> str:
    if not asked.selector:
        return _("no node has the labels that it asks for: ask the administrator")
    labels = ", ".join(f"{key}={value}" for key, value in sorted(asked.selector.items()))
    return _(
        "no free node has the label {labels}, which it must have here: ask the administrator"
    ).format(labels=labels)


def _node_closed(found: re.Match[str], _asked: PodContext) -> str:
    count = int(found.group(1))
    return ngettext(
        "{count} node is closed to new pods", "{count} nodes are closed to new pods", count
    ).format(count=count)


def _node_lost(found: re.Match[str], _asked: PodContext) -> str:
    count = int(found.group(1))
    text = ngettext("{count} node does not answer", "{count} nodes do not answer", count)
    return text.format(count=count)


def _node_reserved(found: re.Match[str], _asked: PodContext) -> str:
    count = int(found.group(1))
    text = ngettext(
        "{count} node is reserved for others", "{count} nodes are reserved for others", count
    ).format(count=count)
    taint = found.group(2) if found.lastindex and found.lastindex > 1 else ""
    return f"{text} ({taint})" if taint else text


UNSCHEDULABLE_RULES: tuple[ProblemRule, ...] = (
    (
        r'persistentvolumeclaim "([^"]+)" not found',
        FOR_GOOD,
        lambda m, _a: _(
            "there is no claim {claim} in this namespace: make it, or name one that exists"
        ).format(claim=m.group(1)),
    ),
    (
        r'persistentvolumeclaim "([^"]+)" is being deleted',
        FOR_GOOD,
        lambda m, _a: _("the claim {claim} is being deleted").format(claim=m.group(1)),
    ),
    (r"unbound immediate PersistentVolumeClaims", BY_SOMEBODY, lambda _m, a: _unbound_claims(a)),
    (r"available persistent volumes to bind", BY_SOMEBODY, lambda _m, a: _unbound_claims(a)),
    (
        r"ReadWriteOncePod access mode already in-use",
        BY_SOMEBODY,
        lambda _m, a: _(
            "the claim {claims} serves one pod at a time (ReadWriteOncePod) and another uses it: "
            "use a claim that is ReadWriteMany"
        ).format(claims=_claims_of_mode(a, "ReadWriteOncePod")),
    ),
    (
        r"PersistentVolume's node affinity|volume node affinity conflict",
        BY_SOMEBODY,
        lambda _m, a: _(
            "the volume of the claim {claims} is on one node only, where no room is for it: "
            "use a claim that is ReadWriteMany"
        ).format(claims=_claims_of_mode(a, "ReadWriteOnce")),
    ),
    (r"exceed max volume count", BY_ITSELF, lambda _m, _a: _("no node can mount more volumes")),
    (r"Too many pods", BY_ITSELF, lambda _m, _a: _("every node holds as many pods as it may")),
    (r"free ports", BY_ITSELF, lambda _m, _a: _("its port is taken on every node")),
    (r"Pod's node affinity|node selector|node\(s\) didn't match Pod", BY_SOMEBODY, _node_selector),
    (r"^(\d+) node\(s\) (?:were unschedulable|had untolerated taint.*unschedulable)", BY_ITSELF,
     _node_closed),
    (r"^(\d+) node\(s\) had untolerated taint.*(?:not-ready|unreachable)", BY_ITSELF, _node_lost),
    (r"^(\d+) node\(s\) had untolerated taint(?:\(s\)| \{([^}]*)\})", BY_ITSELF, _node_reserved),
)  # fmt: skip


def _claims_of_mode(asked: PodContext, mode: str) -> str:
    """The claims of this mode; all when none is known to have it."""
    modes = {n: (c.get("spec") or {}).get("accessModes") or () for n, c in asked.claims.items()}
    return ", ".join([n for n, m in modes.items() if mode in m] or sorted(asked.claims))


# Container waiting: why a pod that has a node does not run, by its container's state and its
# events.
# Ref: https://kubernetes.io/docs/concepts/containers/images/#imagepullbackoff

STARTING_REASONS = {"ContainerCreating", "PodInitializing", ""}
_FAULT_OF_IMAGE = re.compile(
    r"executable file|\bexec:? \"?[^ :]+: |chdir to cwd|unable to find user|not a directory"
    r"|init was OOM-killed"
)
_TRANSIENT = re.compile(r"resource temporarily unavailable|text file busy|cannot allocate memory")
_BACK_OFF = re.compile(r'^Back-off pulling image "[^"]*"(?:: \w+: )?')


def is_fault_of_image(words: str) -> bool:
    """Whether a container runtime refused a container for what its image or spec says: another
    node or another try would say the same.
    """
    return bool(_FAULT_OF_IMAGE.search(words)) and not _TRANSIENT.search(words)


def container_waiting_problem(reason: str, words: str, asked: PodContext) -> PodProblem | None:
    """The clause of a container that waits; None while it may only need a moment."""
    if reason in STARTING_REASONS:
        return None
    if "Image" in reason or reason == "RegistryUnavailable":
        body = _BACK_OFF.sub("", words)
        return first_match(IMAGE_RULES, f"{reason}: {body}", asked, reason) or PodProblem(
            BY_SOMEBODY,
            _("the image {image} cannot be fetched: {why}").format(
                image=asked.image, why=shorten_message(body) or reason
            ),
            reason,
        )
    return first_match(WAITING_RULES, words, asked, reason) or PodProblem(
        BY_SOMEBODY, quote_kubernetes(f"{reason}: {words}"), reason
    )


def event_problem(events: Sequence[Object], asked: PodContext) -> PodProblem | None:
    """What the newest telling event of a pod says; None when none is."""
    for event in sorted(events, key=event_time, reverse=True):
        reason, words = event.get("reason", ""), event.get("message", "")
        if event.get("type") == "Warning" and reason != "Failed":
            told = first_match(EVENT_RULES, words, asked, reason)
            return told or PodProblem(BY_SOMEBODY, quote_kubernetes(words), reason)
        if reason == "Pulling":
            text = _("its image {image} is being fetched").format(image=asked.image)
            return PodProblem(GOES_ON, text, reason)
        if reason in ("Pulled", "Created", "Started"):
            return None
    return None


def are_about_claims(events: Sequence[Object]) -> bool:
    """Whether what happened to a pod is about how a claim may be used."""
    return any("Multi-Attach" in event.get("message", "") for event in events)


def event_time(event: Object) -> str:
    """When an event happened last; times of the API sort as text."""
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event.get("firstTimestamp")
        or ""
    )


def _private_image(_found: re.Match[str], asked: PodContext) -> str:
    if asked.pull_secrets:
        return _(
            "the registry does not give the image {image} to whom the secret {secrets} names: "
            "check that the secret exists and its user and password"
        ).format(image=asked.image, secrets=", ".join(asked.pull_secrets))
    return _(
        "the image {image} is private: name a secret that opens it with --image-pull-secret"
    ).format(image=asked.image)


IMAGE_RULES: tuple[ProblemRule, ...] = (
    (
        r"InvalidImageName",
        FOR_GOOD,
        lambda _m, a: _("{image!r} is no name of an image").format(image=a.image),
    ),
    (
        r"ErrImageNeverPull",
        FOR_GOOD,
        lambda _m, a: _("the node has no image {image} and may not fetch it").format(image=a.image),
    ),
    (
        r"401|403 Forbidden|[Uu]nauthorized|pull access denied|authentication required|denied:",
        FOR_GOOD,
        _private_image,
    ),
    (
        r"no match for platform",
        FOR_GOOD,
        lambda _m, a: _("the image {image} is not made for this node's processor").format(
            image=a.image
        ),
    ),
    (
        r"no space left on device",
        BY_SOMEBODY,
        lambda _m, a: _("the node's disk is full: the image {image} has no room").format(
            image=a.image
        ),
    ),
    (
        r"not found|manifest unknown|NotFound",
        FOR_GOOD,
        lambda _m, a: _("there is no image {image}: check its name and tag").format(image=a.image),
    ),
    (
        r"no such host|lookup (\S+)|dial tcp|i/o timeout|connection refused|x509|TLS",
        BY_SOMEBODY,
        lambda m, a: _("the node does not reach the registry of the image {image}: {why}").format(
            image=a.image, why=shorten_message(m.string[m.start() :])
        ),
    ),
)
WAITING_RULES: tuple[ProblemRule, ...] = (
    (
        r'(secret|configmap) "([^"]+)" not found',
        FOR_GOOD,
        lambda m, _a: _("there is no {kind} {name} in this namespace").format(
            kind=m.group(1), name=m.group(2)
        ),
    ),
    (
        r"couldn't find key (\S+) in (\w+) (\S+)",
        FOR_GOOD,
        lambda m, _a: _("the {kind} {name} has no key {key}").format(
            key=m.group(1), kind=m.group(2).lower(), name=m.group(3).rpartition("/")[2]
        ),
    ),
    (
        r'exec: "([^"]+)": (?:executable file not found|stat|no such file)',
        FOR_GOOD,
        lambda m, a: _("its image {image} has no {command}").format(
            image=a.image, command=m.group(1)
        ),
    ),
    (
        r"image has non-numeric user|container has runAsNonRoot",
        FOR_GOOD,
        lambda _m, a: _("the image {image} would run as root").format(image=a.image),
    ),
)
EVENT_RULES: tuple[ProblemRule, ...] = (
    (
        r"Multi-Attach error",
        BY_SOMEBODY,
        lambda _m, a: _(
            "its claim {claims} is in use on another node and serves one node at a time "
            "(ReadWriteOnce): use a claim that is ReadWriteMany"
        ).format(claims=", ".join(_read_write_once(a)) or _("(unnamed)")),
    ),
    (
        r"[Uu]nable to retrieve some image pull secrets \(([^)]*)\)",
        FOR_GOOD,
        lambda m, _a: _("there is no secret {name} in this namespace").format(name=m.group(1)),
    ),
    *WAITING_RULES,
    (
        r"driver name (\S+) not found in the list of registered CSI drivers",
        BY_SOMEBODY,
        lambda m, _a: _(
            "its node has no driver {driver}, which mounts its volume: ask the administrator"
        ).format(driver=m.group(1)),
    ),
    (
        r"volume \"?([\w.-]+)\"?.*?: (.*)",
        BY_SOMEBODY,
        lambda m, _a: _("its volume {volume} cannot be mounted: {why}").format(
            volume=m.group(1), why=shorten_message(m.group(2))
        ),
    ),
    (
        r"[Ff]ailed to create pod sandbox",
        BY_ITSELF,
        lambda m, _a: _("its node cannot make its network yet: {why}").format(
            why=shorten_message(m.string.rpartition(": ")[2])
        ),
    ),
    (
        r"[Nn]ode is not ready|NodeNotReady",
        BY_SOMEBODY,
        lambda _m, a: _("its node {node} does not answer").format(node=a.node),
    ),
)


def _read_write_once(asked: PodContext) -> list[str]:
    """The claims that one node at a time may use; all when none is known to be such."""
    modes = {n: (c.get("spec") or {}).get("accessModes") or () for n, c in asked.claims.items()}
    return [n for n, m in modes.items() if "ReadWriteOnce" in m] or sorted(asked.claims)


# Failed create: why a Job may not make its pods, by its FailedCreate events.
# Ref: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/

FAILED_CREATE = "FailedCreate"
_BEFORE_REASON = re.compile(r'^Error creating: (?:pods "[^"]*" is forbidden: )?')


def failed_create_problem(words: str, asked: PodContext) -> PodProblem:
    """The message of a FailedCreate event."""
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


def _quota_exceeded(found: re.Match[str], asked: PodContext) -> str:
    """`exceeded quota: small, requested: a=1,b=2, used: a=3,b=4, limited: a=3,b=5`."""
    name, requested, used, limited = found.groups()
    each, taken, hard = (_pairs(text) for text in (requested, used, limited))
    told = _(", ").join(
        _("{used} of {limit} is taken and a {task} needs {each}").format(
            used=_format_quantity(key, taken.get(key, "0")),
            limit=_format_quantity(key, hard[key]),
            task=asked.task_type,
            each=_format_quantity(key, each.get(key, "0")),
        )
        for key in hard
    )
    return _(
        "the quota {name} of this namespace is used up ({told}): "
        "end another run, or ask for fewer or smaller tasks"
    ).format(name=name, told=told)


def _quota_unstated(found: re.Match[str], asked: PodContext) -> str:
    name, said = found.groups()
    options = [
        asked.option(key, example)
        for key, example in (("cpu", "1"), ("memory", "1Gi"))
        if re.search(rf"\b{key}\b", said)
    ]
    keys = ", ".join(dict.fromkeys(part.split(" for:")[0].strip() for part in said.split(";")))
    text = _("the quota {name} wants every task to say {keys}").format(name=name, keys=keys)
    return text + (_(": use {options}").format(options=" ".join(options)) if options else "")


_BOUND = re.compile(
    r"(maximum|minimum) (\S+) usage per (?:Container|Pod) is ([^,\s\]]+), but (?:limit|request) is "
    r"([^,\s\].]+(?:\.\d+)?)"
)


def _limit_range(found: re.Match[str], asked: PodContext) -> str:
    """All bounds of a LimitRange that are broken, each with the option that keeps it."""
    parts, options = [], []
    for kind, name, bound, has in _BOUND.findall(found.string):
        text = (
            _("a task may use at most {bound} in this namespace, and {has} is asked for")
            if kind == "maximum"
            else _("a task must use at least {bound} in this namespace, and {has} is asked for")
        )
        parts.append(
            text.format(bound=_format_quantity(name, bound), has=_format_quantity(name, has))
        )
        if name in ("cpu", "memory"):
            options.append(asked.option(name, bound))
    use = _(": use {options}").format(options=" ".join(options)) if options else ""
    return _("; ").join(parts) + use


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
        lambda m, a: _(
            "the limit of {name} may be {ratio} times what is requested at most in this "
            "namespace: ask the administrator, or use a smaller {option}"
        ).format(name=m.group(1), ratio=m.group(2), option=a.option(m.group(1), "")),
    ),
    (
        r'failed calling webhook "([^"]+)".*?: ((?:service|no endpoints|dial|context|Post).*)',
        BY_SOMEBODY,
        lambda m, _a: _(
            "the admission webhook {name}, which has to agree to each pod, does not answer: "
            "it is tried again; ask the administrator ({why})"
        ).format(name=m.group(1), why=m.group(2).rpartition(": ")[2] or m.group(2)),
    ),
    (
        r'admission webhook "([^"]+)" denied the request: (.*)',
        FOR_GOOD,
        lambda m, _a: _("the admission webhook {name} refuses it: {why}").format(
            name=m.group(1), why=m.group(2).rstrip(".")
        ),
    ),
    (
        r'violates PodSecurity "([^"]+)": (.*)',
        FOR_GOOD,
        lambda m, _a: _(
            "Pod Security {level} of this namespace refuses its pod: {why}; ask the administrator"
        ).format(level=m.group(1), why=m.group(2)),
    ),
    (
        r"no PriorityClass with name (\S+) was found",
        FOR_GOOD,
        lambda m, _a: _(
            "there is no priority class {name}, which the administrator's policy names"
        ).format(name=m.group(1)),
    ),
    (
        r"error looking up service account (\S+?)/(\S+):",
        FOR_GOOD,
        lambda m, _a: _(
            "there is no service account {name} in the namespace {namespace}, which the "
            "administrator's policy names"
        ).format(name=m.group(2), namespace=m.group(1)),
    ),
    (
        r"because it is being terminated",
        FOR_GOOD,
        lambda _m, _a: _("this namespace is being deleted"),
    ),
)  # fmt: skip
