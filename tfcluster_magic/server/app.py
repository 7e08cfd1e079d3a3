"""The extension as Jupyter Server loads it: its routes, its settings, its end."""

from __future__ import annotations

from typing import Any

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.utils import url_path_join
from traitlets import Bool

from . import launching, openapi, proxy, runs, settings_language
from .service import Service

API = "tfcluster/api"
# The first that fits answers.
ROUTES = (*launching.ROUTES, *proxy.ROUTES, *runs.ROUTES, *openapi.ROUTES)


class TFClusterApp(ExtensionApp):
    """TFCluster in Jupyter Server; `c.ClusterManager` says where clusters are."""

    name = "tfcluster"
    load_other_extensions = True

    clusters_are_activity = Bool(
        False,
        help="Whether a server with running clusters counts as active, so that an idle culler "
        "leaves it. Between-graph runs do not need it: they outlive the server.",
    ).tag(config=True)

    def initialize_settings(self) -> None:
        """Make what the routes share."""
        self.settings["tfcluster"] = Service(self.serverapp, self.clusters_are_activity)
        settings_language.provide()

    def initialize_handlers(self) -> None:
        """Routes, below the server's base_url."""
        self.handlers.extend((url_path_join("/", API, path), handler) for path, handler in ROUTES)
        self.handlers.extend((url_path_join("/", path), page) for path, page in proxy.PAGES)

    async def _start_jupyter_server_extension(self, _serverapp: Any) -> None:
        """Begin to watch, now that the loop runs."""
        self.settings["tfcluster"].start()

    async def stop_extension(self) -> None:
        """Give back what this server holds."""
        await self.settings["tfcluster"].stop()
