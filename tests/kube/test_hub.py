"""The hub on Kubernetes, from the ingress controller to a cluster launched in a notebook."""

from __future__ import annotations

import base64
import copy
import json
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from kubenode import paths
from kubenode.commands import wait_until
from support.hub.visitor import Visitor
from support.kube.hub import PASSWORD, Hub
from support.kube.hub_installation import PREFIX, bring_secrets, reapply, rendered
from support.kube.kubectl import Object
from support.kube.tls import Entrance, Secure
from support.kube.under_test import UnderTest

pytestmark = pytest.mark.needs("ingress", "gateway", "rwx", "network-policy", "registry")

UPLOAD = 60 << 20
ROUTED, BY_ROUTE = "route.test", {"X-Came-By": "HTTPRoute"}
"""A host name of the HTTPRoute, and a header that the route adds to its answers. The Ingress
answers for any host name, without this header.
"""
MAGIC = """
%load_ext tfcluster_magic
open("hello.py", "w").write("import os; print('TASK', os.environ['TFCLUSTER_TASK'])")
launched = %tfcluster launch --workers 2 --worker-cpu 0.01 --worker-memory 256Mi hello.py
launched.wait(240)
print("PHASE", launched.status.phase.value, launched.logs())
"""
LONG = """
program = "import os, time\\nwhile not os.path.exists('/log/end'): time.sleep(0.1)"
open("long.py", "w").write(program)
launched = %tfcluster launch --name long --workers 1 --worker-cpu 0.01 --worker-memory 256Mi long.py
"""
SHELL = """
!tfcluster list -o json
!env | cut -d= -f1 | sort | tr '\\n' ' '
!id -u; ls -ld /data /log /home/jovyan; touch /data/mine /log/mine
"""


@pytest.fixture(scope="module")
def alice(hub: Hub) -> Visitor:
    """A signed-in user whose notebook answers."""
    alice = hub.newcomer("alice")
    alice.spawn()
    return alice


def test_a_new_user_gets_jupyterlab(hub: Hub, alice: Visitor) -> None:
    """With an invite link a new user sets a password, signs in, and gets JupyterLab below the
    base_url.

    The notebook's pod runs in the user's own namespace and passes Pod Security "restricted".
    """
    own = alice.servers()[""]["url"]
    assert own == f"{PREFIX}user/{alice.name}/"
    inside = hub.namespace(alice.name)
    (pod,) = inside.every("pod", "tfcluster.dev/notebook=true")
    assert pod["spec"]["serviceAccountName"] == "notebook"
    assert pod["spec"]["priorityClassName"] == "tfcluster-notebook"
    labels = hub.kubectl.get("namespace", inside.namespace)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert "JupyterLab" in alice.get(f"user/{alice.name}/lab").text


def test_a_notebook_launches_a_cluster(alice: Visitor) -> None:
    """`%tfcluster launch` in a notebook of the hub runs a Between-Graph cluster to its end and
    shows its output.
    """
    said = alice.run(f"user/{alice.name}", MAGIC)
    assert "PHASE Succeeded" in said, said
    assert "TASK worker-0" in said
    assert "TASK worker-1" in said


def test_a_notebook_has_its_volumes_and_no_secret_of_the_hub(alice: Visitor) -> None:
    """A notebook can write to its workspace, /data and /log as uid 1000, and `tfcluster` works in
    its shell. Of the hub's secrets it gets only its own token.
    """
    said = alice.run(f"user/{alice.name}", SHELL)
    assert "1000\n" in said.replace("\r", ""), said
    assert "cannot touch" not in said
    assert "JUPYTERHUB_API_TOKEN" in said
    for word in ("CONFIGPROXY_AUTH_TOKEN", "JPY_COOKIE_SECRET", "JUPYTERHUB_CRYPT_KEY"):
        assert word not in said


def test_a_large_file_is_uploaded(alice: Visitor) -> None:
    """One request uploads 60 MiB through ingress controller and proxy into the workspace."""
    content = base64.b64encode(b"\0" * UPLOAD).decode()
    body = {"type": "file", "format": "base64", "content": content}
    answer = alice.ask("PUT", f"user/{alice.name}/api/contents/large.bin", json=body)
    assert answer.status_code == 201, answer.text[:500]
    assert answer.json()["size"] == UPLOAD


def test_anothers_server_is_refused(hub: Hub, alice: Visitor) -> None:
    """Another signed-in user reaches neither the pages nor the API of a user's server."""
    bob = hub.newcomer("bob")
    assert bob.get(f"user/{alice.name}/lab").status_code in {403, 404}
    assert bob.ask("GET", f"user/{alice.name}/api/kernels").status_code in {403, 404}


@pytest.fixture(scope="module")
def entrance(cluster: UnderTest) -> Entrance:
    """The ingress controller's TLS port."""
    assert cluster.own
    return Entrance(cluster.own, "hub")


@pytest.fixture(scope="module")
def route(cluster: UnderTest, tmp_path_factory: pytest.TempPathFactory) -> Object:
    """The HTTPRoute of k8s/overlays/hub-httproute for one host; it adds BY_ROUTE to its answers."""
    every = yaml.safe_load_all(rendered(cluster, tmp_path_factory.mktemp("route"), "httproute"))
    (found,) = [dict(each) for each in every if each["kind"] == "HTTPRoute"]
    found["spec"]["hostnames"] = [ROUTED]
    said = {"set": [{"name": name, "value": value} for name, value in BY_ROUTE.items()]}
    mark = {"type": "ResponseHeaderModifier", "responseHeaderModifier": said}
    found["spec"]["rules"][0]["filters"] = [mark]
    return found


def at(route: Object, listener: str, **more: Any) -> Object:
    """Return a copy of the route, attached to one listener of the Gateway; `more` are fields that
    replace those of its only rule.
    """
    made: Object = copy.deepcopy(route)
    made["metadata"]["name"] = f"hub-{listener}"
    made["spec"]["parentRefs"] = [{"name": "hub", "sectionName": listener}]
    made["spec"]["rules"][0] |= more
    return made


def test_an_http_route_leads_to_the_hub(hub: Hub, route: Object) -> None:
    """The HTTPRoute of k8s/overlays/hub-httproute leads to the hub, and does not cut off the
    base_url of paths.
    """
    hub.kubectl.apply(route)

    def answers() -> bool:
        head = {"Host": ROUTED}
        found = requests.get(hub.url("hub/login"), headers=head, timeout=5, allow_redirects=False)
        right = found.status_code == 200 and f'action="{PREFIX}hub/login' in found.text
        return right and BY_ROUTE.items() <= found.headers.items()

    try:
        wait_until(answers, "the HTTPRoute leads to the hub", seconds=60)
    finally:
        hub.kubectl.delete("httproute", "hub")


def test_an_http_route_has_its_gateways_certificate(
    cluster: UnderTest, hub: Hub, route: Object, entrance: Entrance
) -> None:
    """On a TLS listener the HTTPRoute answers with the Gateway's certificate; a route on the plain
    listener redirects browsers to https.
    """
    certificate = entrance.secret(hub.kubectl, "gateway-tls", ROUTED)
    tls = {"certificateRefs": [{"name": "gateway-tls"}]}
    listeners = [
        {"name": "https", "port": 443, "protocol": "HTTPS", "tls": tls},
        {"name": "http", "port": 80, "protocol": "HTTP"},
    ]
    head = {"apiVersion": route["apiVersion"], "kind": "Gateway", "metadata": {"name": "hub"}}
    kind = cluster.description.gateway_class
    gateway = {**head, "spec": {"gatewayClassName": kind, "listeners": listeners}}
    to_https = {"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}}
    sends_on = at(route, "http", filters=[to_https], backendRefs=[])
    hub.kubectl.apply(gateway, at(route, "https"), sends_on)
    visitor = Secure(f"https://{ROUTED}{PREFIX}", entrance)
    visitor.finds(ROUTED, entrance)

    def is_sent_on() -> bool:
        head, where = {"Host": ROUTED}, hub.url("hub/login")
        answer = requests.get(where, headers=head, timeout=5, allow_redirects=False)
        return answer.headers.get("Location") == f"https://{ROUTED}{PREFIX}hub/login"

    try:
        by_route = f"{ROUTED} answers over TLS"
        wait_until(lambda: visitor.answers("hub/login", **BY_ROUTE), by_route, seconds=60)
        assert entrance.shown(ROUTED) == certificate
        wait_until(is_sent_on, "a request without TLS is redirected", seconds=60)
    finally:
        hub.kubectl("delete", "httproute/hub-https", "httproute/hub-http")
        hub.kubectl.delete("gateway", "hub")


def test_tls_by_a_secret(cluster: UnderTest, hub: Hub, alice: Visitor, entrance: Entrance) -> None:
    """With `tls` in the Ingress, users sign in over https with the certificate of the Secret.
    JupyterLab answers, a kernel's websocket opens, and session cookies are marked Secure.
    """
    host = "localhost"
    certificate = entrance.secret(hub.kubectl, "hub-tls", host)
    file = paths.ROOT / "k8s" / "overlays" / "hub-ingress" / "ingress.yaml"
    made = yaml.safe_load(file.read_text())
    made["metadata"]["name"] = "hub-with-tls"  # the Ingress `hub` serves other tests
    made["spec"]["ingressClassName"] = cluster.description.ingress_class
    made["spec"]["tls"] = [{"hosts": [host], "secretName": "hub-tls"}]
    (rule,) = made["spec"]["rules"]
    rule["host"], rule["http"]["paths"][0]["path"] = host, PREFIX
    hub.kubectl.apply(made)
    visitor = Secure(f"https://{host}:{entrance.door}{PREFIX}", entrance)
    try:
        wait_until(lambda: visitor.answers("hub/login"), f"{host} answers over TLS", seconds=60)
        assert entrance.shown(host) == certificate
        visitor.sign_in(alice.name, PASSWORD)
        own = f"user/{alice.name}"
        assert "JupyterLab" in visitor.get(f"{own}/lab").text
        assert visitor.run(own, "print(6 * 7)") == "42\n"
        # JupyterHub's _xsrf cookies may go over plain HTTP: alone, they grant nothing.
        cookies = [each for each in visitor.session.cookies if each.name != "_xsrf"]
        named = {each.name for each in cookies}
        assert {
            "jupyterhub-hub-login",
            "jupyterhub-session-id",
            f"jupyterhub-user-{alice.name}",
        } <= named
        assert [each.name for each in cookies if not each.secure] == []
    finally:
        hub.kubectl.delete("ingress", "hub-with-tls")


def test_secrets_in_use_are_kept(cluster: UnderTest, hub: Hub) -> None:
    """The command that creates the hub's Secrets keeps the Secrets that the cluster has."""
    before = hub.kubectl.get("secret", "tfcluster-hub-tokens")["data"]
    said = bring_secrets(cluster)
    assert "kept proxy, cookie, crypt, tenancy, console" in said
    assert hub.kubectl.get("secret", "tfcluster-hub-tokens")["data"] == before


def test_an_idle_notebook_ends_and_its_cluster_goes_on(hub: Hub, alice: Visitor) -> None:
    """An unused notebook ends after the group's idle time in the policy, and its cluster continues
    until it succeeds. A running cluster does not count as use.
    """
    inside = hub.namespace(alice.name)
    said = alice.run(f"user/{alice.name}", LONG)

    def phase() -> str:
        return str((inside.get("tfcluster", "long-1").get("status") or {}).get("phase"))

    wait_until(lambda: phase() == "Running", f"the cluster runs: {said}", seconds=120)
    hub.api("POST", "groups/brief")  # the policy's idle time of this group is a few seconds
    assert hub.api("POST", "groups/brief/users", {"users": [alice.name]}).status_code == 200
    wait_until(lambda: hub.server(alice.name) is None, "the notebook is ended", seconds=120)
    assert f"Culling server {alice.name}" in hub.log()
    assert inside.every("pod", "tfcluster.dev/notebook=true") == []
    assert phase() == "Running"
    (task,) = inside.every("pod", "tfcluster.dev/name=long-1")
    inside.exec(task["metadata"]["name"], "touch", "/log/end")
    wait_until(lambda: phase() == "Succeeded", "the cluster goes on to its end", seconds=120)
    hub.api("DELETE", "groups/brief")


def test_a_removed_user_is_marked(hub: Hub, alice: Visitor) -> None:
    """A deleted user's namespace is marked as removed and keeps its data; a new user of that name
    gets it back.
    """
    user = alice.name
    hub.stop(user)
    assert hub.api("DELETE", f"users/{user}").status_code == 204
    name = hub.namespace(user).namespace
    found = hub.kubectl.get("namespace", name)["metadata"]
    assert "tfcluster.dev/removed" in found["annotations"], json.dumps(found)
    assert "tfcluster.dev/removed-data" not in found["annotations"]
    assert hub.api("POST", f"users/{user}").status_code == 201
    hub.spawn(user)
    hub.ready(user)
    found = hub.kubectl.get("namespace", name)["metadata"]
    assert "tfcluster.dev/removed" not in found["annotations"]
    hub.stop(user)


@pytest.mark.long  # test_hub_openid.py always tests the path "/"
@pytest.mark.parametrize("prefix", ["/", "/a/b/"])
def test_the_base_url_can_be_any_path(
    cluster: UnderTest, hub: Hub, tmp_path: Path, prefix: str
) -> None:
    """The hub answers below `/` and below a path of two levels. One setting of the overlay selects
    the path.
    """
    hub.alone()
    try:
        reapply(cluster, rendered(cluster, tmp_path, prefix=prefix))
        hub.wait_until_healthy(prefix, seconds=90)
        page = requests.get(hub.url("hub/login", prefix), timeout=10).text
        assert f'href="{prefix}hub/' in page
    finally:
        reapply(cluster, rendered(cluster, tmp_path))
        hub.wait_until_healthy()
