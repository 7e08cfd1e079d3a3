"""The console's routes: its pages, and one API for the pages and the command line.

Every change, and every reading of a program's output, is in the audit log before it happens.
`ROUTES` lists patterns below the service's prefix and their handlers.
"""

from __future__ import annotations

import secrets
from typing import Any

from jupyterhub.utils import url_path_join
from tornado.web import Application, RequestHandler, StaticFileHandler

from ...shared_settings import PAGES as HUB_PAGES
from ..service import PAGES as SITE_PAGES
from . import archives, clusters, reports, schedules, users
from .base import PAGES, Callback, Console, NoSuchPath

ROUTES: tuple[tuple[str, type[RequestHandler]], ...] = (
    *clusters.HANDLERS,
    *schedules.HANDLERS,
    *users.HANDLERS,
    *archives.HANDLERS,
    *reports.HOURS_HANDLERS,
    *reports.STORAGE_HANDLERS,
    *reports.AUDIT_HANDLERS,
)


def application(console: Console) -> Application:
    """Return the application with all routes below the prefix."""
    console.bar = [(title, console.prefix + path) for title, path in SITE_PAGES]
    shared = {"console": console}
    routes: list[tuple[Any, ...]] = [(path, handler, shared) for path, handler in ROUTES]
    routes += [
        ("oauth_callback", Callback),
        (r"static/(look\.css)", StaticFileHandler, {"path": str(HUB_PAGES)}),
        (r"static/([a-z-]+\.(?:js|css))", StaticFileHandler, {"path": str(PAGES)}),
    ]
    below = [(url_path_join(console.prefix, path), *rest) for path, *rest in routes]
    return Application(
        below,
        cookie_secret=secrets.token_bytes(32),
        default_handler_class=NoSuchPath,
        default_handler_args=shared,
    )
