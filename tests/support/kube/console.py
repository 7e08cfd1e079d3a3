"""The admin console of the hub on Kubernetes, as a page and a token use it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import requests
from kubenode.commands import wait_until
from support.hub.visitor import Visitor
from support.kube.hub import Hub
from support.kube.kubectl import Object
from support.kube.tenant_namespaces import HOME

CONSOLE = f"system:serviceaccount:{HOME}:console"


STAYS = "import time\nprint('up', flush=True)\ntime.sleep(3600)\n"


class Console:
    """The console's API as a page calls it."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor = visitor
        self.opened = visitor.get("services/admin/")
        found = re.search(r'data-xsrf="([^"]*)"', self.opened.text)
        self.xsrf = found.group(1) if found else ""

    def ask(self, method: str, path: str, xsrf: str = "", **words: Any) -> requests.Response:
        """Send a request of the page's script."""
        headers = {"X-XSRFToken": xsrf or self.xsrf, "Sec-Fetch-Mode": "cors"}
        url = f"{self.visitor.url}services/admin/api/{path}"
        return self.visitor.session.request(method, url, headers=headers, timeout=120, **words)

    def rows(self, query: str = "") -> dict[str, Object]:
        """Return the rows of the table of clusters, by owner/name."""
        answer = self.ask("GET", f"clusters?{query}")
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert told["missed"] == [], told
        return {f"{one['owner']}/{one['name']}": one for one in told["items"]}

    def until(self, run: str, phase: str) -> Object:
        """Wait until a run is shown in this phase."""
        found: Object = {}

        def is_so() -> bool:
            found.update(self.rows(f"q={run.partition('/')[0]}").get(run) or {})
            return found.get("phase") == phase

        wait_until(is_so, f"{run} is shown as {phase}", seconds=180)
        return found


@pytest.fixture(scope="module")
def console(hub: Hub) -> Console:
    """Open the console in an administrator's browser."""
    return Console(hub.newcomer("admin", "--admin"))


def token(visitor: Visitor, scopes: list[str]) -> str:
    """Create a token on the hub's page for tokens."""
    body = {"note": "a test", "scopes": scopes}
    answer = visitor.ask("POST", f"hub/api/users/{visitor.name}/tokens", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])
