"""Every route of the extension, walked, and an authorizer that lets nobody change anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from jupyter_server.auth import Authorizer, User
from jupyter_server.base.handlers import JupyterHandler

PARTS = ("digits-1", "0123456789abcdef")
"""What may stand for the parts of a path that vary."""


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


class ReadOnly(Authorizer):
    """Lets everybody look, and do nothing to clusters."""

    def is_authorized(
        self, handler: JupyterHandler, user: User, action: str, resource: str
    ) -> bool:
        return resource != "tfcluster" or action == "read"


def routes(web_app: Any) -> Iterator[tuple[str, type]]:
    """Every route of the extension as the server has it: its pattern and its handler."""
    for group in web_app.default_router.rules:
        for rule in group.target.rules:
            handler = rule.target
            if isinstance(handler, type) and handler.__module__.startswith("tfcluster_magic."):
                yield rule.matcher.regex.pattern, handler


def ways(web_app: Any) -> list[tuple[str, str, Any]]:
    """Every path with every method that its handler has, and the function that answers."""
    found = []
    for pattern, handler in routes(web_app):
        path = example(pattern)
        for method in METHODS:
            function = getattr(handler, method.lower())
            if not function.__qualname__.startswith("RequestHandler."):
                found.append((method, path, function))
    return found


def example(pattern: str) -> str:
    """A path that the route takes."""
    path = pattern.rstrip("$")
    while group := re.search(r"\((?:\?:)?([^()]*)\)\??", path):
        given = next((p for p in (*PARTS, group[1]) if re.fullmatch(group[1], p)), None)
        assert given is not None, f"give PARTS something for {group[1]} of {pattern}"
        path = path[: group.start()] + given + path[group.end() :]
    path = path.replace("\\", "")
    assert re.fullmatch(pattern, path), f"{path} is not {pattern}"
    return path
