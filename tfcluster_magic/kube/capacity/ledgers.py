"""Hours on Kubernetes: where the ledgers of users lie, and what a user is told of theirs. Pure.

The ledger of a namespace is a ConfigMap in the operator's own namespace, where no user has rights;
what its user is told stands beside the options, in the user's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ...quota import ledger
from ...quota.budgets import Budget, real
from ...quota.ledger import Account, Ledger, Run
from ...spec import TFCluster, Usage
from ..api import labels
from ..objects import custom_resource

Object = dict[str, Any]

HOURS = "hours.json"
"""Key of the ConfigMap `labels.OPTIONS`: an `Account` of runs that are over."""
LEDGER = "ledger.json"
COMPONENT = "tfcluster-hours"
SELECTOR = f"app.kubernetes.io/component={COMPONENT}"
OF = f"{labels.GROUP}/namespace"
"""Annotation of a ledger: the namespace that it is of."""


def name(namespace: str) -> str:
    """The ConfigMap with a namespace's ledger."""
    return f"{COMPONENT}-{namespace}"


def write(namespace: str, user: str, kept: Ledger) -> Object:
    """A ledger as an object."""
    marks = {
        "app.kubernetes.io/managed-by": "tfcluster-operator",
        "app.kubernetes.io/component": COMPONENT,
    }
    notes = {OF: namespace, labels.USER: user}
    text = msgspec.json.encode(kept, order="deterministic").decode()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name(namespace), "labels": marks, "annotations": notes},
        "data": {LEDGER: text},
    }


def read(found: Object) -> tuple[str, str, Ledger]:
    """Namespace, user and ledger of an object. Raises msgspec.MsgspecError, KeyError."""
    notes = found["metadata"].get("annotations") or {}
    kept = ledger.LEDGER.decode(found["data"][LEDGER])
    return str(notes[OF]), str(notes.get(labels.USER) or notes[OF]), kept


def run_of(found: Object, group: str) -> Run | None:
    """A run as the ledger needs it, also one whose spec nobody can read; None: it held nothing."""
    told = found.get("status") or {}
    try:
        held = msgspec.convert(told.get("usage"), Usage | None)
    except msgspec.ValidationError:
        held = custom_resource.status(found).usage  # of another release
    if held is None:
        return None
    cluster, _run = custom_resource.split(found["metadata"]["name"])
    return Run(
        cluster=cluster,
        usage=held,
        until=told.get("releasedAt"),
        gpus=_gpus(found.get("spec") or {}),
        group=group,
    )


def _gpus(spec: Object) -> dict[str, int]:
    """Those of one task by type; of what nobody can read, none."""
    try:
        asked = msgspec.convert(spec.get("replicas") or {}, dict[str, _Each | None])
    except msgspec.ValidationError:
        return {}
    return {t: each.resources.gpu for t, each in asked.items() if each and each.resources.gpu}


class _Asked(msgspec.Struct, frozen=True):
    gpu: int = 0


class _Each(msgspec.Struct, frozen=True):
    resources: _Asked = _Asked()


def budget_of(marks: Mapping[str, str]) -> Budget | None:
    """What the annotations of a namespace say; None: no budget, or none that can be read."""
    said = marks.get(labels.BUDGET)
    if not said:
        return None
    try:
        return real(msgspec.json.decode(said, type=Budget))
    except msgspec.MsgspecError:
        return None


def bounds(told: str) -> bool:
    """Whether what the operator told has a budget."""
    return account(told, (), 0.0).budget is not None


def account(told: str, known: Iterable[TFCluster], now: float) -> Account:
    """What a user has held until `now`, by what the operator told and by the runs on record that
    have not given everything back: the others are in what it told.
    """
    try:
        said = ledger.ACCOUNT.decode(told) if told else Account()
    except msgspec.MsgspecError:  # of another release
        return Account()
    runs = (
        run
        for cluster in known
        if cluster.status.released_at is None
        and (run := ledger.run_of(cluster, said.group)) is not None
    )
    return msgspec.structs.replace(said, days=ledger.with_runs(said.days, runs, now))
