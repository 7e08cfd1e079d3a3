"""A hub whose admin console does not start."""

from __future__ import annotations

from pathlib import Path

from support.hub import ports
from support.hub.real_hub import RealHub

ENDS_AT_ONCE = """
services = {each["name"]: each for each in c.JupyterHub.services.get_value([])}
services["admin-process"]["command"], services["admin"]["timeout"] = ["false"], 1
"""


def test_a_console_that_does_not_come_up_keeps_no_hub_from_starting(tmp_path: Path) -> None:
    """Users can sign in, and the hub's log says that the console is missing."""
    environ = {"TFCLUSTER_HUB_CONSOLE_PORT": str(ports.free(1)[0])}
    hub = RealHub(tmp_path / "hub", ["ada"], environ, ENDS_AT_ONCE)
    try:
        hub.start()
        visitor = hub.visitor("ada")
        assert visitor.ask("GET", "hub/api/user").json()["name"] == "ada"
        assert "Cannot connect to external service admin at http://127.0.0.1:" in hub.tail(1000)
        assert visitor.get("services/admin/").status_code == 503
        part = visitor.ask("GET", "hub/home/clusters", headers={"Accept-Language": "zh-CN"})
        assert part.status_code == 200 and "现在无法读取您的集群" in part.text
    finally:
        hub.close()
