"""Reading and deleting what may be gone already: that is an answer, and no error."""

from __future__ import annotations

from .api import Api, ApiError, Object


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
