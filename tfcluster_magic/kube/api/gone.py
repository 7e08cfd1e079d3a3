"""Reading and deleting what may be gone already, without treating that as an error.

An object that is deleted while it has finalizers stays, with a deletionTimestamp, until the last of
them is taken away.
Ref: https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .client import Api, ApiError, Object

COLLECTOR = ("foregroundDeletion", "orphan")
"""The finalizers of the garbage collector, which removes them by itself."""


def is_deleted(found: Mapping[str, Any]) -> bool:
    """Return whether somebody has deleted the object, which may stay for its finalizers."""
    return bool(found["metadata"].get("deletionTimestamp"))


def keepers(found: Mapping[str, Any]) -> list[str]:
    """Return the finalizers of an object that Kubernetes does not remove by itself."""
    return [each for each in found["metadata"].get("finalizers") or () if each not in COLLECTOR]


def find(api: Api, where: str) -> Object | None:
    """One object; None when there is none. Raises ApiError."""
    try:
        return api.get(where)
    except ApiError as error:
        if error.gone:
            return None
        raise


def discard(api: Api, where: str, uid: str) -> None:
    """Delete the object of this uid; its name may have gone to another one, which stays.

    Raises ApiError.
    """
    try:
        api.delete(where, uid=uid)
    except ApiError as error:
        if not error.gone and error.status != 409:  # 409: another object has its name by now
            raise
