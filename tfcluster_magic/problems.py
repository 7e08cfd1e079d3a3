"""An error as `application/problem+json` (RFC 9457), the same for every service that has routes."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from tornado.web import HTTPError

from .errors import InvalidRequest, TFClusterError

TYPE = "application/problem+json"
MOST_SHOWN = 100
"""Most characters that are shown of a value that JSON cannot represent."""


def problem(error: BaseException, internal_error: str = "") -> dict[str, Any]:
    """Return an error as a problem, with every single problem of a refused request.

    `internal_error` is the sentence for any error but a TFClusterError or HTTPError.
    """
    told: dict[str, Any] = {
        "type": "about:blank",
        "title": type(error).__name__,
        "status": getattr(error, "http_status", 500),
        "detail": str(error) or type(error).__name__,
    }
    if isinstance(error, HTTPError):
        told |= {"title": _phrase(error.status_code), "status": error.status_code}
        told["detail"] = error.log_message or error.reason or told["title"]
    elif not isinstance(error, TFClusterError):
        told |= {"title": _phrase(500), "detail": internal_error}
    if isinstance(error, InvalidRequest):
        told["problems"] = [
            {"field": p.field, "value": _plain(p.value), "allowed": p.allowed}
            for p in error.problems
        ]
    return told


def encoded(told: dict[str, Any]) -> str:
    """Encode a problem as JSON; raise ValueError rather than write invalid JSON."""
    return json.dumps(told, default=str, allow_nan=False)


def _plain(value: object) -> object:
    """Return a value as it was given, or as text if JSON cannot represent it."""
    try:
        json.dumps(value, default=str, allow_nan=False)
    except (ValueError, RecursionError):
        return ascii(value)[:MOST_SHOWN]
    return value


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"
