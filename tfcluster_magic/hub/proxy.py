"""JupyterHub's proxy, by whose paths hub and console know it: see `forwarded`.

It owns the secret segments of the routes to both. They stand in the proxy's memory alone, behind
its token, and no other target of the proxy is sent one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from jupyterhub.proxy import ConfigurableHTTPProxy
from tornado.httpserver import HTTPServer

from ..request_body import MOST_BYTES
from . import forwarded
from .console.service import SERVICE


class Proxy(ConfigurableHTTPProxy):
    """The configurable-http-proxy, which is given secret paths to the hub and the console."""

    def __init__(self, **words: Any) -> None:
        super().__init__(**words)
        # JupyterHub makes its server later, by the name of the class HTTPServer.
        HTTPServer.configure(
            forwarded.Server,
            route=forwarded.segment(self.auth_token),
            believed=forwarded.trusted(os.environ),
            # It reads a request before it knows who asks: 100 MB of each stranger, unless told.
            max_body_size=MOST_BYTES,
        )

    async def add_route(self, routespec: str, target: str, data: dict[str, Any]) -> None:
        """Have the proxy send on what begins with `routespec`."""
        await super().add_route(routespec, target + self._path(data), data)

    async def get_all_routes(self) -> dict[str, Any]:
        """Return the routes as JupyterHub gave them; one without its secret path is wrong."""
        routes: dict[str, Any] = await super().get_all_routes()
        for route in routes.values():
            path, target = self._path(route["data"]), str(route["target"])
            route["target"] = target.removesuffix(path) if target.endswith(path) else ""
        return routes

    def _path(self, data: Mapping[str, Any]) -> str:
        if data.get("hub"):
            return f"/{forwarded.segment(self.auth_token)}"
        service = self.app._service_map.get(data.get("service"))
        if service is not None and service.name == SERVICE:
            return f"/{forwarded.segment(service.api_token)}"
        return ""
