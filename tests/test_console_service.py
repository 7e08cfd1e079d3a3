"""How the hub is told of its console: whatever else the configuration says."""

from __future__ import annotations

from pathlib import Path

import pytest
from jupyterhub.app import JupyterHub
from traitlets.config import Config

from tfcluster_magic.hub.console import service


@pytest.mark.parametrize("set_before", [{}, {"own_passwords": True}])
def test_the_console_is_added_to_what_is_set_already(set_before: dict[str, bool]) -> None:
    """With accounts of the hub's own there are words for its pages already, without none."""
    c = Config()
    if set_before:
        c.JupyterHub.template_vars = dict(set_before)
    service.configure(c, port=8002, owner="ada", state=Path("/nowhere"))
    hub = JupyterHub(config=c)

    assert hub.template_vars == {**set_before, "console": "services/admin/"}
    assert [(one["name"], one["url"]) for one in hub.services] == [
        ("admin", "http://127.0.0.1:8002")
    ]
    assert all(role["scopes"] == service.SCOPES for role in hub.load_roles)


def test_without_a_port_there_is_no_console() -> None:
    """Neither the service nor a link to it."""
    c = Config()
    service.configure(c, port=0, owner="ada", state=Path("/nowhere"))

    assert not c
