"""Users in the admin console on Kubernetes: import of a class, and an override for one user."""

from __future__ import annotations

import time

import pytest
from kubenode.commands import NodeError, wait_until
from support.kube.console import Console, console
from support.kube.hub import Hub
from support.kube.tenant_namespaces import HOME, as_

from tfcluster_magic.hub.tenancy import namespace_objects
from tfcluster_magic.hub.tenancy.entitlement_sources import OVERRIDES_MAP

__all__ = ["console"]  # a fixture used by the tests below
pytestmark = pytest.mark.needs("ingress", "rwx", "network-policy", "registry")

CONSOLE = f"system:serviceaccount:{HOME}:console"


def test_a_class_has_its_namespaces_before_the_first_notebook(hub: Hub, console: Console) -> None:
    """An import makes accounts, groups and namespaces; an override raises one user's quota until it
    is ended.
    """
    user = f"class-{int(time.time())}"
    body = {"csv": f"name,group\n{user},pupils\nx/y,pupils\n"}
    done = console.ask("POST", "users/import", json=body).json()["lines"]
    again = console.ask("POST", "users/import", json=body).json()["lines"]
    assert [one["steps"] for one in done] == [["account", "group", "namespace"], []], done
    assert f"{console.visitor.url}hub/set-password?code=" in done[0]["link"]
    assert not done[1]["ok"] and not again[0]["steps"], again
    space = namespace_objects.namespace_of_user(user)
    kubectl = hub.kubectl.within(space)

    def cores() -> str:
        try:
            quota = kubectl.get("resourcequota", "tasks")
        except NodeError:  # the policy of the tests sets no quota
            return ""
        return str(quota["spec"]["hard"].get("requests.cpu", ""))

    def furnished() -> bool:
        head = hub.kubectl.get("namespace", space)["metadata"]
        return "tfcluster.dev/furnished" in head.get("annotations", {})

    try:
        wait_until(furnished, "the namespace is furnished", seconds=120)
        before = cores()
        more = {"until": time.time() + 600, "reason": "a thesis", "quota": {"cpu": 77}}
        set_ = console.ask("PUT", f"overrides/{user}", json=more)
        assert set_.status_code == 200, set_.text
        wait_until(lambda: cores() == "77", "the override is in force", seconds=90)
        row = console.ask("GET", f"users?q={user}").json()["items"][0]
        assert (row["groups"], row["allowed"]["cpu"]) == (["pupils"], 77)
        assert row["override"]["reason"] == "a thesis"
        assert console.ask("DELETE", f"overrides/{user}").status_code == 200
        wait_until(lambda: cores() == before, "the override has ended", seconds=90)
    finally:
        hub.kubectl("delete", "namespace", space, "--wait=false")


def test_the_console_writes_no_other_config_map(hub: Hub) -> None:
    """The console's account can change the overrides, but neither change nor create another
    ConfigMap.
    """
    as_console = as_(CONSOLE)
    hub.kubectl("patch", "configmap", OVERRIDES_MAP, "-p", "{}", as_console)
    for other in ("tfcluster-hub-policy", "tfcluster-hub-accepted"):
        with pytest.raises(NodeError, match="forbidden"):
            hub.kubectl("patch", "configmap", other, "-p", '{"data": {"a": "b"}}', as_console)
    with pytest.raises(NodeError, match="forbidden"):
        hub.kubectl("create", "configmap", "made", as_console)
