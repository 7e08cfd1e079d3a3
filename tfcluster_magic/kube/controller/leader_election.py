"""Leader election by a Lease: one controller of its kind acts at a time, and clients see it.

This process stops acting before anybody else may begin: it counts from the moment at which it
*sent* its last renewal, and gives up after `DEADLINE`, five seconds before the Lease is free. What
a write that hangs in the network could still do is refused when somebody else wrote. A process that
ends in order frees the Lease, and one that is started again under the same identity (a container in
its pod) takes up its own. Times of others are never compared with ours for that: a Lease is free
when we saw it unchanged for as long as it lasts.

Every signed-in account may read the operator's Lease, and sees by its age whether the operator
answers: one older than `SILENT_AFTER` has no operator behind it. The API server alone gives its
age: it notes the time of each write in the object (managedFields) and that of its own answer. The
clocks of this machine and of the operator's are not used.

Ref: https://kubernetes.io/docs/concepts/architecture/leases/
Ref: https://kubernetes.io/docs/reference/using-api/server-side-apply/#managed-fields
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone

from ..api.client import Api, ApiError, Object, path
from ..api.decoding import epoch_seconds

OPERATOR_NAMESPACE, OPERATOR_LEASE = "tfcluster-system", "tfcluster-operator"
"""Namespace and name of the Lease, unless the operator publishes another place."""
LEASE_KEY = "lease"
"""Key under which the operator publishes that place beside the options: `namespace/name`."""
SILENT_AFTER = 15.0
"""Age in seconds at which no holder of the Lease acts any more: ten, and a margin for clocks."""
AGE_SECONDS = 3.0


def silence_of_holder(api: Api, where: str) -> float | None:
    """Return for how long the operator has not answered; 0 while it does, None if unknown.

    Raises ApiError when the API server does not answer or the Lease may not be read.
    """
    lease, now = api.dated(path("leases", *where.split("/", 1)), seconds=AGE_SECONDS)
    written = [at for at in map(_write_time, lease["metadata"].get("managedFields") or ()) if at]
    if now is None or not written:
        return None
    age = now - max(written)
    return age if age > SILENT_AFTER else 0.0


def lease_place(published: Object) -> tuple[str, bool]:
    """Return where the Lease is, `namespace/name`, and whether the operator says so.

    `published` is the ConfigMap of a tenant's namespace.
    """
    said = str((published.get("data") or {}).get(LEASE_KEY, ""))
    namespace, _slash, name = said.partition("/")
    valid = bool(namespace and name) and "/" not in name
    return (said, True) if valid else (f"{OPERATOR_NAMESPACE}/{OPERATOR_LEASE}", False)


def _write_time(entry: Object) -> float | None:
    """Return when somebody last wrote the fields of this entry of managedFields."""
    return epoch_seconds(entry.get("time"))


# The election.

LEASE_SECONDS = 15
"""Seconds for which the Lease is its holder's, from each renewal."""
DEADLINE = 10.0
"""Seconds after which a holder that could not renew the Lease gives it up; `SILENT_AFTER`
relies on it.
"""
RENEW_SECONDS = 2.0
"""Seconds between renewals, and between looks at somebody else's Lease."""
ANSWER_SECONDS = 4.0
"""Seconds for one call: two tries fit before it has to be given up."""

log = logging.getLogger(__name__)


class Leader:
    """This process' part in the election.

    Args:
        api: the connection.
        namespace: where the Lease is.
        identity: of this process; a restarted container has the one that it had.
        lost: called when it must not act any more; it has to end the process.
        name: of the Lease; without one, the operator's.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        identity: str,
        lost: Callable[[], None],
        *,
        name: str = OPERATOR_LEASE,
    ) -> None:
        self._api, self._namespace, self.identity = api, namespace, identity
        self._name = name
        self._lost = lost
        self._renewed = float("-inf")
        self.unwatched = 0.0
        """Seconds for which nobody led before this process did, by both machines' clocks."""
        self._seen: tuple[object, ...] = ()
        self._seen_at = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def leads(self) -> bool:
        """Whether this process may act at this moment."""
        return time.monotonic() < self._renewed + DEADLINE

    @property
    def alive(self) -> bool:
        """Whether the Lease is looked after; also before it is ours, and after a `release`."""
        begun = self._thread.ident is not None
        return not begun or self._ending.is_set() or self._thread.is_alive()

    def acquire(self) -> bool:
        """Wait until the Lease is ours; False when it was told to end before."""
        waits = False
        while not self._ending.is_set():
            try:
                if self._try():
                    log.info("leading as %s", self.identity)
                    self._thread.start()
                    return True
                if not waits:
                    holder = self._seen[0] if self._seen else "another process"
                    log.info("%s leads; waiting until it has ended", holder)
                waits = True
            except Exception as error:  # noqa: BLE001 - nobody else would ever try again
                log.warning("the Lease cannot be had: %s", _error_text(error))
            self._ending.wait(RENEW_SECONDS / 2)
        return False

    def release(self) -> None:
        """Lead no more, and let the next one begin at once."""
        self._ending.set()
        led = self.leads()
        if self._thread.is_alive():
            self._thread.join(timeout=DEADLINE)
        self._renewed = float("-inf")
        if led:
            try:
                lease = self._api.get(self._where(), seconds=ANSWER_SECONDS)
                if lease["spec"].get("holderIdentity") == self.identity:
                    lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                    self._api.replace(self._where(), lease, seconds=ANSWER_SECONDS)
            except ApiError as error:
                log.warning("the Lease is left to end by itself: %s", error.message)

    def _keep(self) -> None:
        """Renew it; the process ends where that does not work in time."""
        while not self._ending.wait(RENEW_SECONDS):
            try:
                ours = self._try()
            except Exception as error:  # noqa: BLE001 - whatever it is, nothing was renewed
                log.warning("the Lease is not renewed: %s", _error_text(error))
                ours = self.leads()
            if not ours or not self.leads():
                log.error("another process may lead now: this one ends")
                self._renewed = float("-inf")
                self._lost()
                return

    def _try(self) -> bool:
        """Make, take or renew it, if it is ours or free. Raises ApiError."""
        sent = time.monotonic()
        try:
            lease = self._api.get(self._where(), seconds=ANSWER_SECONDS)
        except ApiError as error:
            if not error.gone:
                raise
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": self._spec({}),
            }
            self._api.create(path("leases", self._namespace), lease, seconds=ANSWER_SECONDS)
        else:
            if not self._is_free(lease):
                return False
            before = epoch_seconds((lease.get("spec") or {}).get("renewTime"))
            lease["spec"] = self._spec(lease.get("spec") or {})
            try:
                self._api.replace(self._where(), lease, seconds=ANSWER_SECONDS)
            except ApiError as error:
                if error.status == 409:  # somebody was faster
                    return False
                raise
            if before is not None and self._renewed == float("-inf"):
                self.unwatched = max(0.0, time.time() - before)
        self._renewed = sent
        return True

    def _is_free(self, lease: Object) -> bool:
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity")
        if not holder or holder == self.identity:
            return True
        seen = (holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, time.monotonic()
        return time.monotonic() > self._seen_at + float(
            spec.get("leaseDurationSeconds") or LEASE_SECONDS
        )

    def _spec(self, before: Object) -> Object:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        same = before.get("holderIdentity") == self.identity
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": LEASE_SECONDS,
            "acquireTime": before.get("acquireTime", now) if same else now,
            "renewTime": now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (not same),
        }

    def _where(self) -> str:
        return path("leases", self._namespace, self._name)


def local_identity() -> str:
    """An identity for a process that is in no pod."""
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"


def _error_text(error: Exception) -> str:
    if isinstance(error, ApiError):
        return error.message or error.reason or str(error.status)
    return f"{type(error).__name__}: {error}"
