"""Whether the operator answers, as its Lease tells everybody who is signed in to the cluster.

The operator renews its Lease every two seconds and ends itself when it could not for ten, so a
Lease that is older than `SILENT` has nobody behind it. Its age is told by the API server alone,
which notes the moment of each write in the object (managedFields) and that of its own answer: what
the clocks of this machine and of the operator's show is compared with neither.

Ref: https://kubernetes.io/docs/reference/using-api/server-side-apply/#managed-fields
"""

from __future__ import annotations

from .api import Api, Object, path
from .ends import seconds

SYSTEM, LEASE = "tfcluster-system", "tfcluster-operator"
"""Where the Lease is, unless the operator says something else, and its name."""
PUBLISHED = "lease"
"""What the operator says about that beside the options: `namespace/name`."""
SILENT = 15.0
"""Seconds after which a Lease has no holder that acts: ten, and what clocks are read in."""
SOON = 3.0


def silent_for(api: Api, where: str) -> float | None:
    """For how many seconds the operator has not answered; 0 while it does, None: nobody can tell.

    Raises ApiError when the API server does not answer or the Lease may not be read.
    """
    lease, now = api.dated(path("leases", *where.split("/", 1)), seconds=SOON)
    written = [at for at in map(_written, lease["metadata"].get("managedFields") or ()) if at]
    if now is None or not written:
        return None
    age = now - max(written)
    return age if age > SILENT else 0.0


def place(published: Object) -> str:
    """Where the Lease is, `namespace/name`, by the ConfigMap of a tenant's namespace."""
    said = str((published.get("data") or {}).get(PUBLISHED, ""))
    namespace, _slash, name = said.partition("/")
    return said if namespace and name and "/" not in name else f"{SYSTEM}/{LEASE}"


def _written(entry: Object) -> float | None:
    """When somebody last wrote what this entry of managedFields is about."""
    return seconds(entry.get("time"))
