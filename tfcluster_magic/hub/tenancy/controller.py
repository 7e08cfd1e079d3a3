"""The control loop of tenancy, with a work queue of namespaces (`kube.controller.work_queue`).

It provisions only namespaces that have the hub's tenant label and the name derived from their user.
For a new namespace, it first reads the user's groups, because a claim cannot change its class
later. An unchanged tenant causes no request. A problem is written into an annotation of the
namespace as one sentence. Each reconciliation reads the current state, so a restart loses nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ...i18n import _
from ...kube.api import labels
from ...kube.api.client import Api, ApiError, path
from ...kube.api.informer import Informer, backoff_seconds
from ...kube.api.resource_amounts import parse_quantity
from ...kube.controller.work_queue import KeyedWorkers
from ...kube.objects import notification_secret
from ...spec.quantities import format_bytes
from ...spec.record_size import RECORD_BYTES
from . import namespace_objects, provisioning
from .caches import TenancyCaches
from .entitlement_sources import AcceptedPolicy, Membership, OverridesFollower
from .entitlements import Entitlement, task_classes
from .namespace_objects import (
    ACCOUNT,
    HUB,
    MANAGED_BY,
    MANAGER,
    TenantContext,
    namespace_annotations,
    tenant_objects,
)
from .overrides import entitled
from .provisioning import PullSecrets

Object = dict[str, Any]


@dataclass(frozen=True)
class RecordsLoad:
    """Bytes of etcd that the TFClusters of all users may take, and the budget for them."""

    users: int = 0
    unbounded: int = 0
    """Number of users without a limit in the policy (`quota.records: null`)."""
    most: int = 0
    budget: int = 0

    def warning(self) -> str:
        """Return a warning in English for the log and the ConfigMap; empty if the TFClusters of all
        users fit into the budget.
        """
        if self.unbounded:
            return (
                f"{self.unbounded} of {self.users} users may have any number of TFClusters, which "
                "can fill etcd: set quota.records in the policy"
            )
        if self.most <= self.budget:
            return ""
        return (
            f"the TFClusters of {self.users} users may take {format_bytes(self.most)} of etcd "
            f"({format_bytes(RECORD_BYTES)} each), which is more than etcdBudget "
            f"({format_bytes(self.budget)}): lower quota.records, or raise etcdBudget, at most to "
            "a quarter of etcd's --quota-backend-bytes"
        )


RESYNC = 600.0
"""Seconds after which an unchanged tenant is reconciled again."""
SOON = 15.0
"""Seconds after which a tenant with a problem is reconciled again."""
PROVISIONED, TROUBLE = f"{labels.GROUP}/furnished", f"{labels.GROUP}/trouble"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}

log = logging.getLogger(__name__)


class Tenancy:
    """All tenants of one hub.

    Args:
        api: the connection to the API server.
        home: the hub's namespace.
        prefix: prefix of tenants' namespaces.
        hub: URL and token of the hub's API; if the URL is empty, there are no groups.
        leads: returns whether this process is the leader, which alone may change objects.
    """

    def __init__(
        self, api: Api, home: str, prefix: str, hub: tuple[str, str], leads: Callable[[], bool]
    ) -> None:
        self._api, self._home, self._prefix, self._leads = api, home, prefix, leads
        self.turns: KeyedWorkers[str] = KeyedWorkers(self._look, leads, self._tell)
        self.caches = TenancyCaches(api, home, self.turns.work.add, self._wake_all)
        self.accepted = AcceptedPolicy(api, home, self._policy_changed)
        self.membership = Membership(*hub, self._user_changed)
        self.overriding = OverridesFollower(api, home, self._user_changed)
        self._pulling = PullSecrets(api, home)
        self._new: dict[str, float] = {}
        """When each unprovisioned namespace was first seen, in monotonic seconds."""
        self.records = RecordsLoad()
        self._enough = threading.Event()
        self._begun = False
        self._keeper = threading.Thread(target=self._keep, name="policy", daemon=True)
        self._published = threading.Event()

    def follow(self) -> None:
        """Start the watches. Raises ApiError."""
        self.accepted.recall()
        for informer in self._own:
            informer.start()
        self.caches.start()

    def begin(self) -> None:
        """Start the threads, and reconcile every tenant once."""
        self.membership.start()
        self._wake_all()
        self._keeper.start()
        self.turns.start()
        self._begun = True

    def end(self, seconds: float = 5.0) -> None:
        """Stop all threads; wait up to `seconds` for running reconciliations."""
        self._enough.set()
        self._published.set()
        self.membership.stop()
        for informer in self._own:
            informer.stop()
        self.caches.stop()
        self.turns.stop(seconds)

    @property
    def _own(self) -> tuple[Informer, ...]:
        return (self.accepted.informer, self.overriding.informer)

    @property
    def synced(self) -> bool:
        """Whether every cache has its first list of objects."""
        return self.caches.synced and all(each.synced.is_set() for each in self._own)

    @property
    def alive(self) -> bool:
        """Whether all threads are running."""
        acts = self.turns.alive and self._keeper.is_alive() and self.membership.alive
        seen = self.caches.alive and all(each.alive for each in self._own)
        return (acts or not self._begun) and seen

    @property
    def problems(self) -> list[str]:
        """The reasons why the caches are not current."""
        informers = (*self.caches.all, *self._own)
        found = [(each.where, each.problem) for each in informers]
        return [f"{where}: {problem.message}" for where, problem in found if problem is not None]

    # -- triggers ----------------------------------------------------------------------------------

    def _wake_all(self) -> None:
        for found in self.caches.namespaces.every():
            self.turns.work.add(found["metadata"]["name"])

    def _policy_changed(self) -> None:
        self._published.set()
        self._wake_all()

    def _user_changed(self, user: str) -> None:
        self.turns.work.add(namespace_objects.namespace_of_user(user, self._prefix))

    def _keep(self) -> None:
        """Until `end` is called, publish the policy in force, and watch for changed pull secrets
        and for expired overrides.
        """
        digests: dict[str, str] = {}
        while not self._enough.is_set():
            self._published.wait(1.0)
            self._published.clear()
            self.overriding.look(time.time())
            if not self._leads() or not self.accepted.informer.synced.is_set():
                continue
            self._weigh_records()
            try:
                self.accepted.publish()
                digests = self._look_at_secrets(digests)
            except Exception as error:  # noqa: BLE001 - this thread must go on publishing
                log.warning("the policy cannot be published: %s", error)
                self._enough.wait(backoff_seconds(3))

    def _weigh_records(self) -> None:
        """Compare the space in etcd that all users' TFClusters may take with the budget for it."""
        users = [
            (each["metadata"].get("annotations") or {}).get(labels.USER, "")
            for each in self.caches.namespaces.every()
        ]
        counts = [self._entitled(user).grant.quota.records for user in users if user]
        self.records = RecordsLoad(
            users=len(counts),
            unbounded=counts.count(None),
            most=sum(count or 0 for count in counts) * RECORD_BYTES,
            budget=int(parse_quantity(self.accepted.policy.etcd_budget)),
        )
        warning = self.records.warning()
        if warning != self.accepted.warning:
            self.accepted.warning = warning
            log.warning("%s", warning or "TFClusters of all users fit etcdBudget again")

    def _look_at_secrets(self, before: dict[str, str]) -> dict[str, str]:
        policy = self.accepted.policy
        every = (policy.default, *policy.grants.values())
        named = {name for grant in every for name in grant.image_pull_secrets}
        now = {name: self._pulling.digest(name) for name in sorted(named)}
        if any(before.get(name) not in (None, digest) for name, digest in now.items()):
            self._wake_all()
        return now

    # -- reconciliation ----------------------------------------------------------------------------

    def _tell(self, name: str, error: Exception) -> None:
        if isinstance(error, ApiError):
            log.warning("%s: %s", name, error.message or error.reason)
        else:
            log.error("%s: the turn failed", name, exc_info=error)

    def _look(self, name: str) -> float | None:
        found = self.caches.namespaces.get("", name)
        if found is None:
            self._new.pop(name, None)
            return None
        head = found["metadata"]
        notes, removed = head.get("annotations") or {}, provisioning.is_removed(found)
        if head.get("deletionTimestamp"):
            self._mark(found, "", [provisioning.deletion_message(found)])
            return SOON if provisioning.discard_runs(self._api, name) else None
        user = notes.get(labels.USER, "")
        if not user or namespace_objects.namespace_of_user(user, self._prefix) != name:
            self._mark(found, "", [self._not_its_name(user)])
            return None
        if notes.get(PROVISIONED) or removed:
            self._new.pop(name, None)
        elif rest := self.membership.ask(self._new.setdefault(name, time.monotonic())):
            return rest
        problems, digest, waits = self._provision(found, user)
        self._mark(found, None if removed else digest, problems, self._of_group(user))
        if removed:
            policy = self.accepted.policy
            reason = _("user {user} was removed from the hub").format(user=user)
            provisioning.suspend_schedules(self._api, name, reason)
            if provisioning.loses_data(found, by_default=policy.on_removal == "delete"):
                return provisioning.delete_tenant(self._api, found)
            provisioning.stop_runs(self._api, name, reason)
        if problems or waits:
            return SOON if problems else 2.0
        return RESYNC * random.uniform(0.8, 1.2)

    def _provision(self, found: Object, user: str) -> tuple[list[str], str, bool]:
        """Provision a namespace. Return the problems, the digest of the wanted objects (empty if
        some are missing), and whether to check again soon.
        """
        head = found["metadata"]
        name, policy = head["name"], self.accepted.policy
        removed = provisioning.is_removed(found)
        entitlement = self._entitled(user)
        place = TenantContext(
            home=self._home,
            servers=self.caches.servers(),
            gpu_resource=policy.gpu_resource,
            dns=policy.dns,
            operator_secrets=policy.operator_secrets,
            task_classes=task_classes(policy),
        )
        wanted = tenant_objects(entitlement, place, namespace=name, removed=removed)
        there = self.caches.there(name)
        problems = self._give_secrets(head, entitlement, there)
        secret = notification_secret.empty_secret({MANAGED_BY: MANAGER, HUB: self._home})
        # The Secret is neither read nor watched, so nobody notices if it is missing. It is created
        # again when the digest changes, as after an upgrade.
        digest = _digest([*wanted, secret])
        if not removed and (head.get("annotations") or {}).get(PROVISIONED) != digest:
            problems += provisioning.make_secret(self._api, name, secret)
        certain = self.membership.known
        classes = {each["metadata"]["name"] for each in self.caches.classes.every()}
        problems += provisioning.provision(self._api, name, wanted, there, classes, certain=certain)
        there = self.caches.there(name)
        complete = not problems and provisioning.is_complete(wanted, there)
        late, waits = provisioning.claim_problems(self._api, name, there, self.caches.classes)
        return problems + late, digest if complete else "", waits or not complete

    def _give_secrets(
        self, head: Object, entitlement: Entitlement, there: provisioning.There
    ) -> list[str]:
        account = there.get(("ServiceAccount", ACCOUNT)) or {}
        before = frozenset(each["name"] for each in account.get("imagePullSecrets") or ())
        secrets = entitlement.grant.image_pull_secrets
        if not self.membership.known:
            before = frozenset()
        try:
            return self._pulling.give(head["name"], head["uid"], secrets, before)
        except ApiError as error:
            if error.unanswered:
                raise
            text = _("pull secrets cannot be copied: {why}")
            return [text.format(why=error.message or error.reason)]

    def _of_group(self, user: str) -> dict[str, str | None]:
        """Return the annotations for the user's group; empty while the groups are unknown."""
        if not self.membership.known:
            return {}
        return namespace_annotations(self._entitled(user))

    def _entitled(self, user: str) -> Entitlement:
        groups, override = self.membership.of(user), self.overriding.of(user)
        return entitled(self.accepted.policy, groups, override, time.time())

    def _not_its_name(self, user: str) -> str:
        if not user:
            return _("the namespace does not name its user (annotation {key})").format(
                key=labels.USER
            )
        text = _("the namespace names {user} as its user, but the namespace of {user} is {name}")
        return text.format(user=user, name=namespace_objects.namespace_of_user(user, self._prefix))

    def _mark(
        self,
        found: Object,
        digest: str | None,
        problems: list[str],
        of_group: Mapping[str, str | None] = MappingProxyType({}),
    ) -> None:
        """Write the problems and the state into annotations of the namespace if they have changed.

        `digest` is the digest of the objects that were provisioned. If it is empty, the digest on
        the namespace stays. If it is None, the digest on the namespace is removed, so that a
        returning user waits for their rights.
        """
        head = found["metadata"]
        annotations, there = head.get("annotations") or {}, head.get("labels") or {}
        notes = {**of_group, TROUBLE: problems[0][:500] if problems else None}
        if digest != "":
            notes[PROVISIONED] = digest
        notes = {key: value for key, value in notes.items() if annotations.get(key) != value}
        change: Object = {"annotations": notes} if notes else {}
        if any(there.get(key) != value for key, value in RESTRICTED.items()):
            change["labels"] = RESTRICTED
        if change:
            self._api.merge(path("namespaces", "", head["name"]), {"metadata": change})


def _digest(wanted: list[Object]) -> str:
    return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:16]
