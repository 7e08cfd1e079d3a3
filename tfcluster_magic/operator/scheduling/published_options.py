"""Publication of launch options in the ConfigMap `tfcluster-options` of each tenant's namespace.

A change of the free resources is published within ten seconds, and unchanged options are not
written. Even a busy cluster causes few writes, because large free amounts are rounded to coarse
steps, and writes are spread over time. Clients need no right to read nodes or quotas.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from ...kube.api import labels
from ...kube.api.client import Api, ApiError, Object, path
from ...kube.controller.leader_election import LEASE_KEY, OPERATOR_LEASE, OPERATOR_NAMESPACE
from ...kube.controller.work_queue import BackgroundThread
from ...kube.hour_ledgers import HOURS_KEY
from ...kube.objects.notification_secret import POLICY_KEY, published_policy
from ...launch_checks.kubernetes import (
    FACTS_KEY,
    LIMITS_OF,
    admission_limits,
    launch_notes,
    resource_limits,
)
from ...quota.preflight import Limit, Options
from ..cluster_state import ClusterState, is_forbidden
from .snapshot import Snapshotter

OPTIONS = "options.json"
COMPONENT = {"app.kubernetes.io/component": labels.OPTIONS}
PERIOD = 4.0
"""Seconds between two passes over all namespaces."""
WRITES_A_SECOND = 50.0
ANEW = 600.0
"""Seconds after which all ConfigMaps are written again, which undoes changes by other clients."""
_STEPS = ((1 / 4, 8), (1 / 16, 32), (0.0, 128))
"""The sizes of the steps to which free amounts are rounded down. Each pair has a fraction of the
total amount, and the number of equal steps into which the total is divided. The pair that counts is
the first whose fraction is less than the free fraction of the total.
"""

log = logging.getLogger(__name__)


class OptionsPublisher(BackgroundThread):
    """Keeps the published options of every tenant's namespace up to date.

    Args:
        namespace: the only namespace to publish in; empty for all tenants' namespaces.
        enforced: whether NetworkPolicies are enforced; None if unknown.
        leads: returns whether this process is the leader, which alone may write.
        hours: returns, as JSON, the used hours and the budget of a namespace.
        home: the operator's own namespace, where its Lease is.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        snapshotter: Snapshotter,
        cluster_state: ClusterState,
        enforced: Callable[[], bool | None],
        leads: Callable[[], bool],
        hours: Callable[[str], str] = lambda _namespace: "",
        home: str = OPERATOR_NAMESPACE,
    ) -> None:
        self._hours, self._lease = hours, f"{home}/{OPERATOR_LEASE}"
        self._api, self._namespace = api, namespace
        self._snapshotter, self._cluster_state = snapshotter, cluster_state
        self._enforced, self._leads = enforced, leads
        super().__init__("options")
        self._written: dict[tuple[str, str], Mapping[str, str]] = {}
        self._refused: dict[str, str] = {}
        """By namespace: the reason, already logged, why its options were not written."""
        self._anew = 0.0
        self.writes = 0

    def _run(self) -> None:
        while not self._enough.wait(PERIOD if self._snapshotter.settled else 0.1):
            if not self._snapshotter.settled or not self._leads():
                continue
            try:
                self.publish()
            except Exception:  # this thread must survive: the next pass may succeed
                log.exception("the options cannot be published")

    def publish(self) -> None:
        """Write the options that changed."""
        if time.monotonic() > self._anew:
            self._written, self._anew = {}, time.monotonic() + ANEW
        for namespace, uid in self._namespaces():
            content = self._content(namespace)
            if content == self._written.get((namespace, uid)) or self._enough.is_set():
                continue
            if self._write(namespace, content):
                self._written[namespace, uid] = content
            self._enough.wait(1 / WRITES_A_SECOND)

    def _namespaces(self) -> list[tuple[str, str]]:
        if self._namespace:
            return [(self._namespace, "")]
        if is_forbidden(self._cluster_state.tenants):
            return []
        found = [each["metadata"] for each in self._cluster_state.tenants.every()]
        return sorted((h["name"], h["uid"]) for h in found if not h.get("deletionTimestamp"))

    def _content(self, namespace: str) -> dict[str, str]:
        policy = self._snapshotter.policy
        offer = replace(self._snapshotter.published(namespace), enforced=self._enforced())
        now = self._snapshotter.offer(namespace)
        cpu, memory, gpu = (
            coarse_limit(each) for each in resource_limits(now.place, policy.gpu_resource)
        )
        options = Options(
            backend="kubernetes",
            cpu=cpu,
            memory=memory,
            gpu=gpu,
            max_tasks=policy.max_tasks,
            images=(policy.default_image, *(i for i in policy.images if not set(i) & {*"*?["})),
            data_dir=policy.data_path if policy.data_claim else "",
            log_dir=policy.log_path if policy.log_claim else "",
            notes=launch_notes(offer),
            grafana_url=policy.monitoring.grafana_url,
        )
        said = {key: _text(value) for key, value in ((OPTIONS, options), (FACTS_KEY, offer))}
        return {
            **said,
            **admission_limits(offer),
            LIMITS_OF: said[FACTS_KEY],
            HOURS_KEY: self._hours(namespace),
            LEASE_KEY: self._lease,
            POLICY_KEY: published_policy(policy.notifications),
        }

    def _write(self, namespace: str, content: Mapping[str, str]) -> bool:
        marks = {"app.kubernetes.io/managed-by": "tfcluster-operator", **COMPONENT}
        body: Object = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": labels.OPTIONS, "labels": marks},
            "data": dict(content),
        }
        where = path("configmaps", namespace)
        try:
            try:
                self._api.merge(f"{where}/{labels.OPTIONS}", body)
            except ApiError as error:
                if not error.gone:
                    raise
                self._api.create(where, body)
        except ApiError as error:
            if error.status == 403:
                self._cluster_state.note_write(namespace, forbidden=True)
            if str(error) != self._refused.get(namespace):
                log.warning("%s: its options cannot be written: %s", namespace, error)
            self._refused[namespace] = str(error)
            return False
        self._refused.pop(namespace, None)
        # This write shows that the operator may write in this namespace, so the next launch need
        # not ask the API for this right.
        self._cluster_state.note_write(namespace, forbidden=False)
        self.writes += 1
        return True


def coarse_limit(limit: Limit) -> Limit:
    """Return the limit with `free` rounded down to a step, which is coarser if more is free."""
    total, free = limit.total, limit.free
    if not 0 < free < total:
        return replace(limit, free=max(0.0, min(free, total)))
    steps = next(steps for part, steps in _STEPS if free > total * part)
    return replace(limit, free=math.floor(free / total * steps) * total / steps)


def _text(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()
