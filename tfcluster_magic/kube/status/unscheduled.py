"""Why no node takes a pod: the scheduler's words as clauses. Pure.

Promises numbers (what is asked, what the largest node has) and the option that changes them. The
scheduler's condition lists one reason for each group of nodes; the most telling is told first, and
at most three.
Ref: https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/#filter
"""

from __future__ import annotations

import re

from ...i18n import _, ngettext
from ...spec.quantities import format_bytes
from ..api import wording
from .said import (
    BY_ITSELF,
    BY_SOMEBODY,
    FOR_GOOD,
    Asked,
    Clause,
    Object,
    Rule,
    first,
    kubernetes_says,
)

MOST = 3
REASON = "Unschedulable"
_AFTER = re.compile(r"\.? (?:no new claims to deallocate|preemption: |not found$).*$")
_NODES = re.compile(r"nodes are (?:un)?available: ")
_GANG = re.compile(r"in gang unschedulable|minAvailable|pod group")
"""Volcano's words; of some tasks it names what nodes lack, as Kubernetes' scheduler does."""
_COUNTED = re.compile(r", (?=\d+ )")


def clause(words: str, asked: Asked) -> Clause:
    """The scheduler's whole message, `0/3 nodes are available: 2 Insufficient cpu, …`."""
    of_nodes = _NODES.split(words, maxsplit=1)
    if len(of_nodes) == 1 and _GANG.search(words):
        return Clause(BY_ITSELF, _("there is no room for all tasks together yet"), REASON)
    body = _AFTER.sub("", of_nodes[-1]).rstrip(". ")
    parts = _COUNTED.split(body)
    found = []
    if short := [m.group(1) for p in parts if (m := re.search(r"Insufficient (\S+)", p))]:
        found.append(Clause(*_too_small(short, asked), REASON))
    found += [
        first(RULES, part, asked, REASON) or Clause(BY_SOMEBODY, kubernetes_says(part), REASON)
        for part in parts
        if "Insufficient" not in part
    ]
    found.sort(key=lambda each: each.rank)
    texts = list(dict.fromkeys(each.text for each in found))[:MOST]
    return Clause(found[0].rank, _("; ").join(texts), REASON)


def _too_small(names: list[str], asked: Asked) -> tuple[int, str]:
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
    told = wording.show(name, amount)
    return _("{amount} of memory").format(amount=told) if name == "memory" else told


def _has(name: str, amount: float) -> str:
    return wording.show(name, amount) if amount else _("none")


def _fewer(names: list[str], most: dict[str, float], asked: Asked) -> str:
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


def _unbound(asked: Asked) -> str:
    waiting = [
        n for n, c in asked.claims.items() if (c.get("status") or {}).get("phase") != "Bound"
    ]
    if not waiting:
        return _("a claim of it has no volume yet")
    return _(". ").join(unbound(asked.claims[name]) for name in sorted(waiting))


def unbound(claim: Object) -> str:
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
            claim=name, why=kubernetes_says(told)
        )
    storage = of.get("storageClassName")
    if not storage:
        return _(
            "the claim {claim} has no volume and names no storage class: make it again with one"
        ).format(claim=name)
    return _("the claim {claim} has no volume of the class {name} yet").format(
        claim=name, name=storage
    )


def _selected(_found: re.Match[str], asked: Asked) -> str:
    if not asked.selector:
        return _("no node has the labels that it asks for: ask the administrator")
    labels = ", ".join(f"{key}={value}" for key, value in sorted(asked.selector.items()))
    return _(
        "no free node has the label {labels}, which it must have here: ask the administrator"
    ).format(labels=labels)


def _closed(found: re.Match[str], _asked: Asked) -> str:
    count = int(found.group(1))
    return ngettext(
        "{count} node is closed to new pods", "{count} nodes are closed to new pods", count
    ).format(count=count)


def _lost(found: re.Match[str], _asked: Asked) -> str:
    count = int(found.group(1))
    text = ngettext("{count} node does not answer", "{count} nodes do not answer", count)
    return text.format(count=count)


def _reserved(found: re.Match[str], _asked: Asked) -> str:
    count = int(found.group(1))
    text = ngettext(
        "{count} node is reserved for others", "{count} nodes are reserved for others", count
    ).format(count=count)
    taint = found.group(2) if found.lastindex and found.lastindex > 1 else ""
    return f"{text} ({taint})" if taint else text


RULES: tuple[Rule, ...] = (
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
    (r"unbound immediate PersistentVolumeClaims", BY_SOMEBODY, lambda _m, a: _unbound(a)),
    (r"available persistent volumes to bind", BY_SOMEBODY, lambda _m, a: _unbound(a)),
    (
        r"ReadWriteOncePod access mode already in-use",
        BY_SOMEBODY,
        lambda _m, a: _(
            "the claim {claims} serves one pod at a time (ReadWriteOncePod) and another uses it: "
            "use a claim that is ReadWriteMany"
        ).format(claims=_claims(a, "ReadWriteOncePod")),
    ),
    (
        r"PersistentVolume's node affinity|volume node affinity conflict",
        BY_SOMEBODY,
        lambda _m, a: _(
            "the volume of the claim {claims} is on one node only, where no room is for it: "
            "use a claim that is ReadWriteMany"
        ).format(claims=_claims(a, "ReadWriteOnce")),
    ),
    (r"exceed max volume count", BY_ITSELF, lambda _m, _a: _("no node can mount more volumes")),
    (r"Too many pods", BY_ITSELF, lambda _m, _a: _("every node holds as many pods as it may")),
    (r"free ports", BY_ITSELF, lambda _m, _a: _("its port is taken on every node")),
    (r"Pod's node affinity|node selector|node\(s\) didn't match Pod", BY_SOMEBODY, _selected),
    (r"^(\d+) node\(s\) (?:were unschedulable|had untolerated taint.*unschedulable)", BY_ITSELF,
     _closed),
    (r"^(\d+) node\(s\) had untolerated taint.*(?:not-ready|unreachable)", BY_ITSELF, _lost),
    (r"^(\d+) node\(s\) had untolerated taint(?:\(s\)| \{([^}]*)\})", BY_ITSELF, _reserved),
)  # fmt: skip


def _claims(asked: Asked, mode: str) -> str:
    """The claims of this mode; all when none is known to have it."""
    modes = {n: (c.get("spec") or {}).get("accessModes") or () for n, c in asked.claims.items()}
    return ", ".join([n for n, m in modes.items() if mode in m] or sorted(asked.claims))
