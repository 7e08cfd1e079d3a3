"""JupyterHub's proxy, which hub and console recognize by its paths: see `common`.

It owns the secret path segments of the routes to both. They exist only in the proxy's memory,
behind its token, and no other target of the proxy receives one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from jupyterhub.proxy import ConfigurableHTTPProxy
from tornado.httpserver import HTTPServer

from ..web import MOST_BYTES
from . import common
from .console.service import SERVICE


class Proxy(ConfigurableHTTPProxy):
    """The configurable-http-proxy, given secret paths to the hub and the console."""

    def __init__(self, **words: Any) -> None:
        super().__init__(**words)
        # JupyterHub makes its server later, from the class of the name HTTPServer.
        HTTPServer.configure(
            common.ForwardedServer,
            route=common.secret_segment(self.auth_token),
            believed=common.trusted_networks(os.environ),
            # The hub reads a body before it knows who sends it: Tornado would keep 100 MB of each.
            max_body_size=MOST_BYTES,
        )

    async def add_route(self, routespec: str, target: str, data: dict[str, Any]) -> None:
        """Route addresses below `routespec` to `target`, by its secret path if it has one."""
        await super().add_route(routespec, target + self._path(data), data)

    async def get_all_routes(self) -> dict[str, Any]:
        """Return the routes as JupyterHub set them; one without its secret path is wrong."""
        routes: dict[str, Any] = await super().get_all_routes()
        for route in routes.values():
            path, target = self._path(route["data"]), str(route["target"])
            route["target"] = target.removesuffix(path) if target.endswith(path) else ""
        return routes

    def _path(self, data: Mapping[str, Any]) -> str:
        if data.get("hub"):
            return f"/{common.secret_segment(self.auth_token)}"
        service = self.app._service_map.get(data.get("service"))
        if service is not None and service.name == SERVICE:
            return f"/{common.secret_segment(service.api_token)}"
        return ""
