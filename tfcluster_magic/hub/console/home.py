"""A user's clusters on the hub's home page, whether or not their notebook runs.

The hub asks the console, which reads the records under the user's account. The hub sends a key that
the console accepts only for this request, which reads the clusters of one user. The browser does
not get the key. If the records cannot be read, the page says so.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

import msgspec
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.utils import url_path_join
from tornado import web
from tornado.httpclient import AsyncHTTPClient, HTTPClientError

from ...errors import BackendUnavailable
from ...i18n import _
from ...lifecycle.messages import shown
from ...output.report import task_count
from ...spec import TaskType, conversion
from .service import KEY
from .sites.base import SiteRun, UserRuns

WITHIN = 15.0
"""Timeout in seconds of a request to the console, which may have to start a reader."""


class ClustersOfUser(BaseHandler):
    """The part of the home page that lists the clusters of the signed-in user."""

    def initialize(self, console: str, key: str) -> None:
        """Store the console's address, and the key by which it recognises the hub."""
        self._console, self._key = console, key

    @web.authenticated
    async def get(self) -> None:
        """Answer with a fragment of HTML; not cached."""
        user, trouble = self.current_user, ""
        try:
            found = await self._ask(user.name)
        except BackendUnavailable as error:
            found, trouble = UserRuns(), str(error)
            self.log.warning(
                "Cannot show the clusters of %s on the home page: %s", user.name, error
            )
        if found.missed:
            trouble = _("Not all of your clusters can be read now: {why}.").format(
                why="; ".join(found.missed)
            )
        self.set_header("Cache-Control", "no-store")
        self.set_header("Content-Type", "text/html; charset=UTF-8")
        self.finish(
            await self.render_template(
                "clusters.html",
                active=[_item(row) for row in found.active],
                ended=[_item(row) for row in found.ended],
                ended_count=found.ended_count,
                trouble=trouble,
                server_active=user.spawner.active,
                lab=url_path_join(user.server_url(""), "lab"),
            )
        )

    async def _ask(self, name: str) -> UserRuns:
        """Return the user's runs from the console. Raises BackendUnavailable."""
        try:
            answer = await AsyncHTTPClient().fetch(
                f"{self._console}api/home/{quote(name, safe='')}",
                headers={KEY: self._key},
                request_timeout=WITHIN,
                follow_redirects=False,
            )
            return conversion.decode(answer.body, UserRuns)
        except (HTTPClientError, OSError, msgspec.MsgspecError) as error:
            self.log.warning("The console does not answer: %s", error)
            raise BackendUnavailable(
                _("Your clusters cannot be read now. They go on; see the sidebar of the notebook.")
            ) from None


def _item(row: SiteRun) -> dict[str, Any]:
    at = row.created_at if row.active or row.finished_at is None else row.finished_at
    return {
        "name": row.name,
        "phase": row.phase,
        "message": shown(row).split("`"),  # every second part is a command, which was in backticks
        "since": datetime.fromtimestamp(at, timezone.utc).isoformat(),
        "tasks": ", ".join(_tasks(kind, count) for kind, count in row.tasks.items()),
    }


def _tasks(kind: str, count: int) -> str:
    try:
        return task_count(TaskType(kind), count)
    except ValueError:  # a task type of a newer version
        return f"{count} {kind}"
