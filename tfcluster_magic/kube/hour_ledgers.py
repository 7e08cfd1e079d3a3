"""CPU- and GPU-hours on Kubernetes: the objects with users' ledgers and published totals. Pure.

The ledger of a namespace is a ConfigMap in the operator's own namespace, where no user has rights.
The user's totals (`HoursAccount`) are published in the user's own namespace, in the ConfigMap with
the launch options.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ..quota import ledger
from ..quota.budgets import Budget, effective_budget
from ..quota.ledger import AccountedRun, HoursAccount, Ledger
from ..spec import TFCluster, conversion
from .api import labels
from .api.decoding import epoch_seconds
from .objects import custom_resource

Object = dict[str, Any]

HOURS_KEY = "hours.json"
"""Key of a `HoursAccount` of finished runs in the ConfigMap `labels.OPTIONS`."""
LEDGER_KEY = "ledger.json"
COMPONENT = "tfcluster-hours"
LEDGER_SELECTOR = f"app.kubernetes.io/component={COMPONENT}"
LEDGER_NAMESPACE = f"{labels.GROUP}/namespace"
"""Annotation of a ledger: the namespace that it belongs to."""


def ledger_name(namespace: str) -> str:
    """Return the name of the ConfigMap with a namespace's ledger."""
    return f"{COMPONENT}-{namespace}"


def write_ledger(namespace: str, user: str, kept: Ledger) -> Object:
    """Return the ConfigMap that stores the ledger of a namespace and its user."""
    marks = {
        "app.kubernetes.io/managed-by": "tfcluster-operator",
        "app.kubernetes.io/component": COMPONENT,
    }
    notes = {LEDGER_NAMESPACE: namespace, labels.USER: user}
    text = msgspec.json.encode(kept, order="deterministic").decode()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": ledger_name(namespace), "labels": marks, "annotations": notes},
        "data": {LEDGER_KEY: text},
    }


def read_ledger(found: Object) -> tuple[str, str, Ledger]:
    """Return the namespace, the user and the ledger that a ConfigMap stores. Raises
    msgspec.MsgspecError or KeyError.
    """
    notes = found["metadata"].get("annotations") or {}
    kept = ledger.LEDGER_DECODER.decode(found["data"][LEDGER_KEY])
    return (
        str(notes[LEDGER_NAMESPACE]),
        str(notes.get(labels.USER) or notes[LEDGER_NAMESPACE]),
        kept,
    )


def accounted_run_of(found: Object, group: str) -> AccountedRun | None:
    """Return a run in the form that the ledger needs, even if the run's spec is invalid; None if
    the run used nothing.
    """
    held = custom_resource.usage_of(found)
    if held is None:
        return None
    cluster, run = custom_resource.split_name(found["metadata"]["name"])
    return AccountedRun(
        cluster=cluster,
        run=run,
        usage=held,
        until=epoch_seconds((found.get("status") or {}).get("releasedTime")),
        gpus=_gpus(found.get("spec") or {}),
        group=group,
    )


def _gpus(spec: Object) -> dict[str, int]:
    """Return the GPUs of one task by task type; empty if the spec is unreadable."""
    try:
        asked = conversion.convert(spec.get("replicas") or {}, dict[str, _ReplicaResources | None])
    except msgspec.ValidationError:
        return {}
    return {t: each.resources.gpu for t, each in asked.items() if each and each.resources.gpu}


class _GpuRequest(msgspec.Struct, frozen=True):
    gpu: int = 0


class _ReplicaResources(msgspec.Struct, frozen=True):
    resources: _GpuRequest = _GpuRequest()


def budget_of(marks: Mapping[str, str]) -> Budget | None:
    """Return the budget in a namespace's annotations; None if there is none or it is unreadable."""
    said = marks.get(labels.BUDGET)
    if not said:
        return None
    try:
        return effective_budget(conversion.decode(said, Budget))
    except msgspec.MsgspecError:
        return None


def last_numbers(told: str) -> Mapping[str, int] | None:
    """Return the highest run number of each cluster name, which the operator publishes with the
    user's hours (`told`); None if it published no run numbers.
    """
    return read_account(told, (), 0.0).numbers


def has_budget(told: str) -> bool:
    """Return whether the published hours contain a budget."""
    return read_account(told, (), 0.0).budget is not None


def read_account(told: str, known: Iterable[TFCluster], now: float) -> HoursAccount:
    """Return a user's hours until `now`. To the published hours of finished runs, add the hours of
    the `known` runs that still use resources.
    """
    try:
        said = ledger.ACCOUNT_DECODER.decode(told) if told else HoursAccount()
    except msgspec.MsgspecError:  # written by another release
        return HoursAccount()
    runs = (
        run
        for cluster in known
        if cluster.status.released_at is None
        and (run := ledger.accounted_run(cluster, said.group)) is not None
    )
    return msgspec.structs.replace(said, days=ledger.add_runs(said.days, runs, now))
