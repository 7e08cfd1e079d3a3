"""The server extension: REST routes for clusters below `<base_url>tfcluster/api`, and pushed
events.

Jupyter Server finds it by `etc/jupyter/jupyter_server_config.d/tfcluster_magic.json`. Like the
command line and the magic, it uses clusters only through `ClusterManager`.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Return the extension for Jupyter Server.

    See https://jupyter-server.readthedocs.io/en/latest/developers/extensions.html.
    """
    from .app import TFClusterApp

    return [{"module": "tfcluster_magic.server", "app": TFClusterApp}]
