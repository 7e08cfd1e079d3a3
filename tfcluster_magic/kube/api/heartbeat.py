"""Whether the operator answers, by its Lease, which every signed-in account may read.

The operator renews its Lease every two seconds, and ends itself if it could not for ten, so that a
Lease older than `SILENT` has no operator behind it. The API server alone gives its age: it notes
the time of each write in the object (managedFields) and that of its own answer. The clocks of this
machine and of the operator's are not used.

Ref: https://kubernetes.io/docs/reference/using-api/server-side-apply/#managed-fields
"""

from __future__ import annotations

from .client import Api, Object, path
from .decoding import seconds

SYSTEM, LEASE = "tfcluster-system", "tfcluster-operator"
"""Namespace and name of the Lease, unless the operator publishes another place."""
PUBLISHED = "lease"
"""Key under which the operator publishes that place beside the options: `namespace/name`."""
SILENT = 15.0
"""Age in seconds at which no holder of the Lease acts any more: ten, and a margin for clocks."""
SOON = 3.0


def silent_for(api: Api, where: str) -> float | None:
    """Return for how long the operator has not answered; 0 while it does, None if unknown.

    Raises ApiError when the API server does not answer or the Lease may not be read.
    """
    lease, now = api.dated(path("leases", *where.split("/", 1)), seconds=SOON)
    written = [at for at in map(_written, lease["metadata"].get("managedFields") or ()) if at]
    if now is None or not written:
        return None
    age = now - max(written)
    return age if age > SILENT else 0.0


def place(published: Object) -> tuple[str, bool]:
    """Return where the Lease is, `namespace/name`, and whether the operator says so.

    `published` is the ConfigMap of a tenant's namespace.
    """
    said = str((published.get("data") or {}).get(PUBLISHED, ""))
    namespace, _slash, name = said.partition("/")
    valid = bool(namespace and name) and "/" not in name
    return (said, True) if valid else (f"{SYSTEM}/{LEASE}", False)


def _written(entry: Object) -> float | None:
    """Return when somebody last wrote the fields of this entry of managedFields."""
    return seconds(entry.get("time"))
