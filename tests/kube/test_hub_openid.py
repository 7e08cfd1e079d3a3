"""Sign-in to the hub on Kubernetes at a real OpenID Connect provider, both behind TLS. A change of
the hub's settings takes half a minute, so the change that sets the provider also sets the prefix
`/`, which is thereby tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from kubenode.commands import succeeds, wait_until
from kubenode.node import Node
from support.hub import openid_provider as provider
from support.hub.openid_provider import Provider, fill_in, password
from support.kube.hub import Hub
from support.kube.hub_installation import reapply, rendered
from support.kube.kubectl import Kubectl, Object
from support.kube.tls import Entrance, Secure
from support.kube.under_test import UnderTest

pytestmark = pytest.mark.needs("ingress", "network-policy", "registry", "node-inside")
HOST, PREFIX = "localhost", "/"
PORT = 5556
"""Port of the provider on node-1."""
PEOPLE = {"mia": ["ml", "staff"], "eve": ["sales"]}
AUTHORITY = "provider.pem"
"""Key of the ConfigMap hub-config that holds the provider's CA certificate."""


class Behind(Provider):
    """The provider as a process of node-1, reached by browsers and pods through an Ingress."""

    def __init__(self, node: Node, host: str, callback: str) -> None:
        self.node = node
        folder = node.state / "provider"  # a folder that exists in the node too
        folder.mkdir(exist_ok=True)
        words = {"address": f"{node.ip}:{PORT}", "issuer": f"https://{host}/dex"}
        super().__init__(folder, PEOPLE, callback, **words)

    def command(self) -> list[str]:
        """Return the command that starts the provider, with a prefix to run it in the node."""
        return self.node.inside(super().command())

    def answers(self) -> bool:
        """Return whether the provider's port is open."""
        connect = ["bash", "-c", f"exec 3<>/dev/tcp/{self.node.ip}/{PORT}"]
        return succeeds(self.node.inside(connect), seconds=10)


@pytest.fixture
def entrance(cluster: UnderTest) -> Entrance:
    """The ingress controller's TLS port."""
    assert cluster.own
    return Entrance(cluster.own, "openid")


@pytest.fixture
def dex(cluster: UnderTest, kube: Kubectl, entrance: Entrance) -> Iterator[Behind]:
    """A provider that pods reach by its host name, through the ingress controller."""
    assert cluster.own
    provider.needs_dex()
    host = f"login.{kube.namespace}.svc"
    entrance.secret(kube, "login", host)
    node = cluster.own.first
    backend = {"service": {"name": "provider", "port": {"number": 80}}}
    paths = [{"path": "/dex", "pathType": "Prefix", "backend": backend}]
    kube.apply(
        *leads("login", 443, node.ip, 443),
        *leads("provider", 80, node.ip, PORT),
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {"name": "login"},
            "spec": {
                "ingressClassName": cluster.description.ingress_class,
                "tls": [{"hosts": [host], "secretName": "login"}],
                "rules": [{"host": host, "http": {"paths": paths}}],
            },
        },
    )
    made = Behind(node, host, f"https://{HOST}:{entrance.door}{PREFIX}hub/oauth_callback")
    try:
        made.start()
        browser = comes(entrance, made)
        description = f"{made.issuer}/.well-known/openid-configuration"

        def described() -> bool:
            try:
                return browser.session.get(description, timeout=10).status_code == 200
            except requests.RequestException:
                # the controller still uses its default certificate, and has not read the Secret
                return False

        wait_until(described, "the provider describes itself behind TLS", seconds=90)
        yield made
    finally:
        made.stop()


def leads(name: str, port: int, address: str, target: int) -> list[Object]:
    """Return a Service, with its endpoint, for an address that is not a pod's."""
    metadata = {"name": name, "labels": {"kubernetes.io/service-name": name}}
    head = {"metadata": metadata, "addressType": "IPv4", "ports": [{"port": target}]}
    ends = {"endpoints": [{"addresses": [address], "conditions": {"ready": True}}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}}
    return [
        {**service, "spec": {"ports": [{"port": port}]}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", **head, **ends},
    ]


def comes(entrance: Entrance, dex: Behind) -> Secure:
    """Return a browser without cookies."""
    browser = Secure(f"https://{HOST}:{entrance.door}{PREFIX}", entrance)
    browser.finds(urlsplit(dex.issuer).netloc, entrance)
    return browser


def signs_in(entrance: Entrance, dex: Behind, name: str) -> tuple[Secure, requests.Response]:
    """Sign in at the provider; return the browser and the hub's last answer."""
    browser = comes(entrance, dex)
    page = browser.get("hub/oauth_login", params={"next": f"{PREFIX}hub/home"})
    assert page.url.startswith(f"{dex.issuer}/auth"), f"{page.url} {page.text}"
    back = fill_in(browser.session, page, name, password(name))
    return browser, browser.session.get(back, timeout=60)


def test_sign_in_at_a_provider(
    cluster: UnderTest, hub: Hub, dex: Behind, entrance: Entrance, tmp_path: Path
) -> None:
    """Users sign in, through the ingress controller, at the provider that is set in the ConfigMap
    `hub-settings`, with the client secret from the Secret `hub-sign-in`.

    The groups in the provider's claim become groups of the hub, and get what the hub's policy
    grants to them. A user in no allowed group is refused, and so is a request without TLS.
    """
    words = {
        "TFCLUSTER_HUB_SIGN_IN": "oidc",
        "OIDC_ISSUER": dex.issuer,
        "OIDC_CLIENT_ID": "hub",
        "OIDC_USERNAME_CLAIM": "name",
        "OIDC_ALLOWED_GROUPS": "ml,research",
        "OIDC_CA_FILE": f"/etc/jupyterhub/{AUTHORITY}",
    }
    only_tls = {"traefik.ingress.kubernetes.io/router.entrypoints": "websecure"}
    tls = [{"hosts": [HOST], "secretName": "hub-tls"}]
    text = rendered(
        cluster,
        tmp_path / "openid",
        prefix=PREFIX,
        settings=[f"{word}={value}" for word, value in words.items()],
        files={AUTHORITY: entrance.authority.read_text()},
        ingress=[
            {"op": "add", "path": "/metadata/annotations", "value": only_tls},
            {"op": "add", "path": "/spec/rules/0/host", "value": HOST},
            {"op": "add", "path": "/spec/tls", "value": tls},
        ],
    )
    hub.alone()
    entrance.secret(hub.kubectl, "hub-tls", HOST)
    secret = f"--from-literal=OIDC_CLIENT_SECRET={provider.SECRET}"
    hub.kubectl("create", "secret", "generic", "hub-sign-in", secret)
    try:
        reapply(cluster, text)
        visitor = comes(entrance, dex)
        wait_until(lambda: visitor.answers("hub/login"), "the hub answers over TLS", seconds=60)
        mia, home = signs_in(entrance, dex, "mia")
        assert urlsplit(home.url).path == f"{PREFIX}hub/home", home.url
        assert f'href="{PREFIX}hub/' in home.text
        known = mia.ask("GET", "hub/api/user").json()
        assert (known["name"], sorted(known["groups"])) == ("mia", ["ml", "staff"])
        assert "Large, of the group ml" in mia.get("hub/spawn").text
        eve, refusal = signs_in(entrance, dex, "eve")
        assert refusal.status_code == 403
        assert "Ask an administrator to add you" in refusal.text
        assert eve.ask("GET", "hub/api/user").status_code == 403
        named = requests.get(hub.url("hub/login", PREFIX), headers={"Host": HOST}, timeout=10)
        assert named.status_code == 404
    finally:
        hub.kubectl.delete("secret", "hub-sign-in")
        reapply(cluster, rendered(cluster, tmp_path / "accounts"))
        hub.wait_until_healthy()
        hub.api("DELETE", "users/mia")
