"""Leader election by a Lease: one controller of a kind acts at a time.

A leader stops acting before anybody else may begin: it gives up `DEADLINE` seconds after *sending*
its last renewal, five seconds before the Lease is free. A delayed write is refused if another
process has written in the meantime. A process that ends normally releases the Lease. A process that
restarts with the same identity (a container in its pod) continues to hold the Lease. Clocks of
different machines are never compared: a Lease is free after a process has seen it unchanged for its
whole duration.

Every signed-in account may read the operator's Lease. If the Lease is older than `SILENT_AFTER`, no
operator is alive. Its age is the difference of two times by the API server's clock: the last write
(managedFields) and the answer.

Ref: https://kubernetes.io/docs/concepts/architecture/leases/ Ref:
https://kubernetes.io/docs/reference/using-api/server-side-apply/#managed-fields
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
"""Key in the published options: the place of the Lease, `namespace/name`, if it is not the default
place.
"""
SILENT_AFTER = 15.0
"""If a Lease is older than this many seconds, its holder has certainly stopped acting. The number
is DEADLINE and a margin.
"""
AGE_SECONDS = 3.0


def silence_of_holder(api: Api, where: str) -> float | None:
    """Return for how many seconds the operator has been silent; 0 if it is alive, None if unknown.

    Raises ApiError if the API server does not answer or the Lease may not be read.
    """
    lease, now = api.dated(path("leases", *where.split("/", 1)), seconds=AGE_SECONDS)
    written = [at for at in map(_write_time, lease["metadata"].get("managedFields") or ()) if at]
    if now is None or not written:
        return None
    age = now - max(written)
    return age if age > SILENT_AFTER else 0.0


def lease_place(published: Object) -> tuple[str, bool]:
    """Return the place of the Lease, `namespace/name`, and whether the operator published it.
    `published` is the ConfigMap of a tenant's namespace.
    """
    said = str((published.get("data") or {}).get(LEASE_KEY, ""))
    namespace, _slash, name = said.partition("/")
    valid = bool(namespace and name) and "/" not in name
    return (said, True) if valid else (f"{OPERATOR_NAMESPACE}/{OPERATOR_LEASE}", False)


def _write_time(entry: Object) -> float | None:
    """Return the time of the last write in this entry of managedFields."""
    return epoch_seconds(entry.get("time"))


LEASE_SECONDS = 15
"""Seconds for which the Lease belongs to its holder after each renewal."""
DEADLINE = 10.0
"""Seconds without a renewal after which a holder gives the Lease up; `SILENT_AFTER` relies on
it.
"""
RENEW_SECONDS = 2.0
"""Seconds between renewals, and between checks of another holder's Lease."""
ANSWER_SECONDS = 4.0
"""Timeout of one call: two calls fit before the Lease must be given up."""

log = logging.getLogger(__name__)


class Leader:
    """This process as a candidate in the election.

    Args:
        api: the connection to the API server.
        namespace: the namespace of the Lease.
        identity: the identity of this process; a restarted container keeps it.
        lost: called when the process must stop acting; the function must end the process.
        name: the name of the Lease; by default the operator's.
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
        """Seconds between the previous leader's last renewal, by that leader's clock, and the
        acquisition by this process, by its own clock.
        """
        self._seen: tuple[object, ...] = ()
        self._seen_at = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def leads(self) -> bool:
        """Return whether this process may act at this moment."""
        return time.monotonic() < self._renewed + DEADLINE

    @property
    def alive(self) -> bool:
        """Whether the renewing thread works. Before the Lease is acquired and after `release`, the
        value is always true.
        """
        begun = self._thread.ident is not None
        return not begun or self._ending.is_set() or self._thread.is_alive()

    def acquire(self) -> bool:
        """Wait for the Lease and return True; return False if `release` was called in the
        meantime.
        """
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
            except Exception as error:  # noqa: BLE001 - only this loop tries again
                log.warning("the Lease cannot be had: %s", _error_text(error))
            self._ending.wait(RENEW_SECONDS / 2)
        return False

    def release(self) -> None:
        """Stop leading, and let the next process begin at once."""
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
        """Renew the Lease; call `lost` if that fails for too long."""
        while not self._ending.wait(RENEW_SECONDS):
            try:
                ours = self._try()
            except Exception as error:  # noqa: BLE001 - the Lease is then not renewed
                log.warning("the Lease is not renewed: %s", _error_text(error))
                ours = self.leads()
            if not ours or not self.leads():
                log.error("another process may lead now: this one ends")
                self._renewed = float("-inf")
                self._lost()
                return

    def _try(self) -> bool:
        """Create the Lease if it is missing, take it if it is free, or renew it if it is ours.
        Return whether this process now holds the Lease. Raises ApiError.
        """
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
                if error.status == 409:  # another process was faster
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
    """Return an identity for a process outside of pods."""
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"


def _error_text(error: Exception) -> str:
    if isinstance(error, ApiError):
        return error.message or error.reason or str(error.status)
    return f"{type(error).__name__}: {error}"
