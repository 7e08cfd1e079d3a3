"""The server extension: the verbs as routes under `<base_url>tfcluster`, and changes pushed.

Jupyter Server finds it by `etc/jupyter/jupyter_server_config.d/tfcluster_magic.json`. It stands
beside the command line and the magic and, like them, knows nothing but the manager.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """See https://jupyter-server.readthedocs.io/en/latest/developers/extensions.html."""
    from .app import TFClusterApp

    return [{"module": "tfcluster_magic.server", "app": TFClusterApp}]
