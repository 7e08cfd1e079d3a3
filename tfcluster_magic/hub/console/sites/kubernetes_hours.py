"""Hours of everyone on a Kubernetes cluster: the operator's ledgers, and what runs beside them.

Promises that a run counts from its ledger or from its record, never from both; and one list for
each question, of ledgers alone: runs are in the console's caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from ....i18n import _
from ....kube.api.client import Api, Object, path
from ....kube.capacity import ledgers
from ....quota import ledger
from ....quota.ledger import Days
from ...tenancy.objects import OPERATOR
from . import kubernetes_runs
from .base import Held, Missed


def held(
    api: Api,
    runs: Iterable[Object],
    users: Mapping[str, str],
    groups: Mapping[str, str],
    now: float,
) -> Held:
    """What everyone has held until `now`; `runs` as in the console's cache, `users` and `groups` by
    namespace. Raises ApiError.
    """
    found: dict[str, Days] = {}
    counted: set[str] = set()
    missed: list[Missed] = []
    where = path("configmaps", OPERATOR[0])
    for each in api.every(where, labelSelector=ledgers.SELECTOR).items:
        try:
            namespace, user, kept = ledgers.read(each)
        except (msgspec.MsgspecError, KeyError) as error:
            text = _("{name} cannot be read: {why}")
            name = each["metadata"]["name"]
            missed.append(Missed(owner="", detail=text.format(name=name, why=error)))
            continue
        owner = users.get(namespace) or (
            user if user != namespace else kubernetes_runs.owner({}, namespace)
        )
        found[owner] = ledger.together(found.get(owner, {}), kept.days)
        counted.update(kept.counted)
    for each in runs:
        run, head = each["hours"], each["metadata"]
        if run is not None and head["uid"] not in counted:
            owner = kubernetes_runs.owner(users, head["namespace"])
            run = replace(run, group=groups.get(head["namespace"], ""))
            found[owner] = ledger.added(found.get(owner, {}), run, now)
    return Held(users=found, missed=tuple(missed))
