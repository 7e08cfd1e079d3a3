"""The routes of the console: the pages, and the one API behind pages and command line.

Promises that whatever changes something, or shows what a program printed, is in the audit log
before it happens. Each area is a module with a list `HANDLERS` of (pattern below the service's
prefix, handler); a page among them has its place in the bar, in the order of `AREAS`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

from jupyterhub.utils import url_path_join
from tornado.web import Application, RequestHandler, StaticFileHandler

from ..archives import Archives
from ..audit import AuditLog
from ..class_import import Importing
from ..hub_users import HubUsers
from ..sites.base import World
from ..sites.looks import Looks
from ..sites.site import Nowhere, Site
from ..stored import Stored
from . import archives, audit_routes, clusters, site, storage_routes, users
from .base import Callback, Nothing
from .page import PAGES, Page

AREAS = (clusters, users, archives, site, storage_routes, audit_routes)


@dataclass
class Console:
    """What the routes share. `bar` is title and address of each page."""

    world: World
    audit: AuditLog
    prefix: str
    hub: str
    site: Site = field(default_factory=Nowhere)
    archives: Archives | None = None
    started: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        self.looks = Looks(self.world)
        self.people = HubUsers()
        self.importing = Importing()
        self.stored = Stored(self.world)
        self.bar = [
            (one.title, self.prefix + path) for path, one in _all() if issubclass(one, Page)
        ]


def application(console: Console) -> Application:
    """All routes below the prefix."""
    shared = {"console": console}
    routes: list[tuple[Any, ...]] = [(path, handler, shared) for path, handler in _all()]
    routes += [
        ("oauth_callback", Callback),
        (r"static/([a-z-]+\.(?:js|css))", StaticFileHandler, {"path": str(PAGES)}),
    ]
    below = [(url_path_join(console.prefix, path), *rest) for path, *rest in routes]
    return Application(
        below,
        cookie_secret=secrets.token_bytes(32),
        default_handler_class=Nothing,
        default_handler_args=shared,
    )


def _all() -> list[tuple[str, type[RequestHandler]]]:
    return [row for area in AREAS for row in area.HANDLERS]
