"""`python -m tfcluster_magic.hub.console`: runs the console, on one machine or on Kubernetes.

On one machine, the hub starts this process. It listens on loopback only, and ends when the hub ends
or is killed. If TFCLUSTER_HUB is `on_kubernetes`, it runs in a separate pod with a port for probes
(`on_kubernetes.serve_pod`).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path

from jupyterhub.utils import url_path_join
from tornado.httpclient import AsyncHTTPClient, HTTPClientError
from tornado.httpserver import HTTPServer

from ...errors import BackendUnavailable
from ...i18n import _
from ...paths import private
from ...web import MOST_BYTES
from .. import user_limits
from ..audit import FILE, AuditLog
from ..proxy import ForwardedServer, secret_segment
from ..shared_settings import trusted_networks
from ..user_limits import LocalSitePolicy, NoSitePolicy, SitePolicy
from . import service
from .archives import FOLDER, Archives
from .routes import application
from .routes.base import Console
from .sites.base import Site
from .sites.local import LocalSite

LOOK = 1.0
"""Seconds between two checks whether the hub still runs, because a killed hub sends no signal."""


async def users() -> Iterable[str]:
    """Return the names of all users of the hub. Raises BackendUnavailable."""
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
            text = _("the users of the hub cannot be read: {why}").format(why=error)
            raise BackendUnavailable(text) from None
        found = json.loads(answer.body)
        names += [user["name"] for user in found]
        if len(found) < 200:
            return names


def server(site: Site, state: Path, policy: SitePolicy | None = None) -> HTTPServer:
    """Return the console's HTTP server, whose audit log is in the folder `state`."""
    console = Console(
        site=site,
        audit=AuditLog(state / FILE),
        prefix=os.environ["JUPYTERHUB_SERVICE_PREFIX"],
        hub=url_path_join(os.environ["JUPYTERHUB_BASE_URL"], "hub/"),
        site_policy=policy or NoSitePolicy(),
        archives=Archives(Path(os.environ.get(service.ARCHIVES) or state / FOLDER), site.pack),
    )
    return ForwardedServer(
        application(console),
        max_body_size=MOST_BYTES,
        route=secret_segment(os.environ["JUPYTERHUB_API_TOKEN"]),
        believed=trusted_networks(os.environ),
    )


def asked_to_end() -> asyncio.Future[bool]:
    """Return a future that is done after SIGTERM or SIGINT."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    return asyncio.ensure_future(ended.wait())


async def serve() -> None:
    """Run the console of this machine until the hub ends. Raises OSError if the port is taken."""
    hub = os.getppid()
    site = LocalSite(os.environ[service.OWNER], users)
    state = private(Path(os.environ[service.STATE]))
    file = os.environ.get(user_limits.VARIABLE)
    policy = LocalSitePolicy(user_limits.Allowances(state, Path(file) if file else None))
    answers = server(site, state, policy)
    # The hub has bound this port too, so that no other account can take it (see `service._hold`).
    answers.listen(int(os.environ[service.PORT]), service.LOOPBACK, reuse_port=True)
    asked = asked_to_end()
    while os.getppid() == hub and not asked.done():
        await asyncio.wait([asked], timeout=LOOK)
        await site.rest()
    answers.stop()
    await site.close()


def main() -> None:
    """Run the console until it is asked to end."""
    service.run_as_service(os.environ)
    if os.environ.get("TFCLUSTER_HUB") == "on_kubernetes":
        from .on_kubernetes import serve_pod  # the Kubernetes client is optional

        asyncio.run(serve_pod(server, users, asked_to_end))
    else:
        asyncio.run(serve())


if __name__ == "__main__":
    main()
