"""All routes of the extension, and an authorizer that allows no changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from jupyter_server.auth import Authorizer, User
from jupyter_server.base.handlers import JupyterHandler

PARTS = ("digits-1", "0123456789abcdef")
"""Values for the variable parts of a path."""


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


class ReadOnly(Authorizer):
    """An authorizer that lets users read but not change clusters."""

    def is_authorized(
        self, handler: JupyterHandler, user: User, action: str, resource: str
    ) -> bool:
        return resource != "tfcluster" or action == "read"


def routes(web_app: Any) -> Iterator[tuple[str, type]]:
    """Return every route of the extension in the server: its pattern and its handler."""
    for group in web_app.default_router.rules:
        for rule in group.target.rules:
            handler = rule.target
            if isinstance(handler, type) and handler.__module__.startswith("tfcluster_magic."):
                yield rule.matcher.regex.pattern, handler


def ways(web_app: Any) -> list[tuple[str, str, Any]]:
    """Return, for each route and method: the method, an example of a path, and the function that
    answers.
    """
    found = []
    for pattern, handler in routes(web_app):
        path = example(pattern)
        for method in METHODS:
            function = getattr(handler, method.lower())
            if not function.__qualname__.startswith("RequestHandler."):
                found.append((method, path, function))
    return found


def example(pattern: str) -> str:
    """Return a path that matches the route."""
    path = pattern.rstrip("$")
    while group := re.search(r"\((?:\?:)?([^()]*)\)\??", path):
        given = next((p for p in (*PARTS, group[1]) if re.fullmatch(group[1], p)), None)
        assert given is not None, f"give PARTS something for {group[1]} of {pattern}"
        path = path[: group.start()] + given + path[group.end() :]
    path = path.replace("\\", "")
    assert re.fullmatch(pattern, path), f"{path} is not {pattern}"
    return path
