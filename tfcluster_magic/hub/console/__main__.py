"""`python -m tfcluster_magic.hub.console`: the console on this machine, started by the hub.

Promises to listen on loopback alone, and to end with the hub that started it, however that ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from jupyterhub.utils import url_path_join
from tornado.httpclient import AsyncHTTPClient, HTTPClientError
from tornado.httpserver import HTTPServer

from ...errors import BackendUnavailable
from ...i18n import _
from ...paths import private
from .. import allowances
from .audit import FILE, AuditLog
from .handlers import MOST_BYTES
from .here import Here
from .routes import Console, application
from .service import OWNER, STATE
from .site import SiteHere

LOOK = 1.0
"""Seconds between two looks whether the hub is there, where no signal tells that it is gone."""


async def users() -> Iterable[str]:
    """The names of every user of the hub. Raises BackendUnavailable."""
    api, token = os.environ["JUPYTERHUB_API_URL"], os.environ["JUPYTERHUB_API_TOKEN"]
    names: list[str] = []
    while True:
        try:
            answer = await AsyncHTTPClient().fetch(
                f"{api}/users?limit=200&offset={len(names)}",
                headers={"Authorization": f"token {token}"},
                request_timeout=5,
            )
        except (HTTPClientError, OSError) as error:
            text = _("the hub does not say who its users are: {why}").format(why=error)
            raise BackendUnavailable(text) from None
        found = json.loads(answer.body)
        names += [user["name"] for user in found]
        if len(found) < 200:
            return names


async def serve() -> None:
    """Serve until the hub ends."""
    hub = os.getppid()
    state = private(Path(os.environ[STATE]))
    base = os.environ.get("JUPYTERHUB_BASE_URL", "/")
    world = Here(os.environ[OWNER], users)
    policy = os.environ.get(allowances.VARIABLE)
    console = Console(
        world=world,
        audit=AuditLog(state / FILE),
        prefix=os.environ["JUPYTERHUB_SERVICE_PREFIX"],
        hub=url_path_join(base, "hub/"),
        site=SiteHere(allowances.Allowances(state, Path(policy) if policy else None)),
    )
    where = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
    server = HTTPServer(application(console), xheaders=True, max_body_size=MOST_BYTES)
    server.listen(where.port or 80, where.hostname or "127.0.0.1")
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    asked = asyncio.ensure_future(ended.wait())
    while os.getppid() == hub and not asked.done():
        await asyncio.wait([asked], timeout=LOOK)
        await world.rest()
    server.stop()
    await world.close()


if __name__ == "__main__":
    asyncio.run(serve())
