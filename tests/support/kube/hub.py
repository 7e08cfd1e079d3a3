"""The hub under test, from k8s/overlays/hub-ingress with this clone's images, and its users.

`hub` installs it once for all processes of a test run. `Hub.newcomer` is a user with a browser's
cookies, `Hub.api` an administrator's script. A test that ends or restarts the hub or its proxy
takes the exclusive lock (`Hub.alone`).
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import requests
from kubenode.commands import locked, wait_until
from kubespawner.slugs import safe_slug
from support.hub.visitor import Visitor
from support.kube.hub_installation import (
    ARCHIVES,
    AUDIT,
    NAMESPACE,
    PREFIX,
    STATE,
    TOKEN,
    apply,
    bring_secrets,
    own_disk,
    rendered,
)
from support.kube.operator_modes import Installed
from support.kube.turns import HUB, Turn, folder_of_all

if TYPE_CHECKING:
    from support.kube.kubectl import Kubectl, Object
    from support.kube.under_test import UnderTest

PASSWORD = "four words of a tester"


@dataclass
class Hub:
    """The hub as a Deployment, and an administrator's actions on it."""

    kubectl: Kubectl
    address: str
    turn: Turn

    def url(self, where: str = "", prefix: str = PREFIX) -> str:
        """Return the URL of a path below the base_url, through the ingress controller."""
        return f"{self.address}{prefix}{where}"

    def api(self, method: str, where: str, body: object = None) -> requests.Response:
        """Call the hub's API as an administrator's script does."""
        with requests.Session() as session:
            session.trust_env = False
            return session.request(
                method,
                self.url(f"hub/api/{where}"),
                json=body,
                headers={"Authorization": f"token {TOKEN}"},
                timeout=60,
            )

    def new_user(self, prefix: str = "user") -> str:
        """Create a user of the hub without a namespace."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        assert self.api("POST", f"users/{name}").status_code == 201
        return name

    def invited(self, prefix: str = "user", *words: str) -> tuple[str, str]:
        """Invite a user; return the user's name, and the code in the administrator's link."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        said = self.commanded("accounts", "invite", name, *words)
        return name, said.strip().rpartition("code=")[2]

    def newcomer(self, prefix: str = "user", *words: str) -> Visitor:
        """Return a new user who opened an administrator's link, set a password and signed in."""
        name, code = self.invited(prefix, *words)
        visitor = Visitor(self.url())
        visitor.session.trust_env = False  # this machine's proxies cannot reach the cluster
        assert visitor.get(f"hub/set-password?code={code}").status_code == 200
        typed = {"code": code, "password": PASSWORD, "again": PASSWORD}
        answer = visitor.session.post(
            self.url("hub/set-password"), data={**typed, "_xsrf": visitor.xsrf("hub/set-password")}
        )
        assert answer.status_code == 200, answer.text
        visitor.sign_in(name, PASSWORD)
        return visitor

    def namespace(self, user: str) -> Kubectl:
        """Return the namespace of a user."""
        return self.kubectl.within(f"tfcluster-u-{safe_slug(user, max_length=48)}")

    def spawn(self, user: str, **options: str) -> float:
        """Request a server; return the time of the request (time.monotonic)."""
        began = time.monotonic()
        answer = self.api("POST", f"users/{user}/server", options or None)
        assert answer.status_code in (201, 202), answer.text
        return began

    def server(self, user: str) -> Object | None:
        """Return the server of a user from the hub's API; None if there is none."""
        found: Object = self.api("GET", f"users/{user}").json()
        server: Object | None = found["servers"].get("")
        return server

    def ready(self, user: str, seconds: float = 180) -> float:
        """Wait until the server of a user is ready; return the time."""

        def is_so() -> bool:
            server = self.server(user)
            if server and server["ready"]:
                return True
            assert server, f"{user} has no server: {self.told(user)}\n{self.log()[-6000:]}"
            return False

        wait_until(is_so, f"the server of {user} is ready", seconds=seconds, every=0.2)
        return time.monotonic()

    def told(self, user: str, until: Callable[[str], bool] | None = None) -> list[str]:
        """Return the messages of the progress page, up to its end or to a given message."""
        said = []
        with requests.Session() as session:
            session.trust_env = False
            where = self.url(f"hub/api/users/{user}/server/progress")
            head = {"Authorization": f"token {TOKEN}"}
            with session.get(where, headers=head, stream=True, timeout=200) as answer:
                for line in answer.iter_lines():
                    if line.startswith(b"data:"):
                        said.append(json.loads(line[5:])["message"])
                        if until and until(said[-1]):
                            break
        return said

    def stop(self, user: str) -> None:
        """Stop a server and wait until it has stopped."""
        self.api("DELETE", f"users/{user}/server")
        wait_until(lambda: self.server(user) is None, f"the server of {user} stops", seconds=60)

    def commanded(self, *words: str) -> str:
        """Run a command of `python -m tfcluster_magic.hub` in the hub's pod; return its output."""
        command = ("python", "-m", "tfcluster_magic.hub", *words)
        return self.kubectl("exec", "deploy/hub", "--", *command)

    def alone(self) -> None:
        """Wait until no other test uses the hub, and block new ones until this test ends."""
        self.turn.alone()

    def is_healthy(self, prefix: str = PREFIX) -> bool:
        """Return whether the hub's health page answers below a base_url."""
        try:
            with requests.Session() as session:
                session.trust_env = False
                answer = session.get(self.url("hub/health", prefix), timeout=5)
        except requests.RequestException:
            return False
        return answer.status_code == 200

    def wait_until_healthy(self, prefix: str = PREFIX, seconds: float = 120) -> None:
        """Wait for the health page."""
        what = f"the hub answers at {self.url('', prefix)}"
        wait_until(lambda: self.is_healthy(prefix), what, seconds=seconds, every=0.2)

    def log(self) -> str:
        """Return the hub's log."""
        return self.kubectl("logs", "deploy/hub", "--tail=-1")


@pytest.fixture(scope="session")
def hub(
    cluster: UnderTest,
    installed: Installed | None,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Hub:
    """The hub, below /tf/ of the ingress controller; installed once for all processes."""
    folder = folder_of_all(request.config)
    with locked(folder / "install-hub.lock", waiting_for="it installs the hub"):
        if not (done := folder / "hub-installed").exists():
            text = rendered(cluster, tmp_path_factory.mktemp("hub"))
            head = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            claims = (STATE, AUDIT, ARCHIVES) if cluster.own else ()
            disks = [own_disk(cluster, each) for each in claims]
            cluster.kubectl.apply(head, *disks)
            bring_secrets(cluster)
            apply(cluster, text)
            done.touch()
    found = Hub(
        cluster.kubectl.within(NAMESPACE),
        cluster.description.ingress_address,
        request.config.stash[HUB],
    )
    found.wait_until_healthy()
    return found
