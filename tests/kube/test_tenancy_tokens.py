"""The rights of stolen tokens of the hub's and tenancy's accounts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubenode.commands import NodeError
from kubernetes.client.configuration import Configuration
from kubernetes.config import load_kube_config
from support.kube.hub import Hub
from support.kube.kubectl import Kubectl, Object
from support.kube.tenant_namespaces import (
    HOME,
    HUB,
    TENANCY,
    Furnished,
    as_,
    move_in,
    namespace,
    of_user,
)
from support.kube.under_test import UnderTest

from tfcluster_magic.kube.api.client import Api, ApiError

pytestmark = pytest.mark.needs("rwx")


@pytest.fixture(scope="module")
def bob(hub: Hub) -> Iterator[Furnished]:
    """A tenant."""
    found = move_in(hub, hub.new_user("bob"))
    yield found
    hub.kubectl("delete", "namespace", found.name, "--wait=false", "--ignore-not-found")


def binding(role: str, account: str, where: str) -> Object:
    """Return a RoleBinding that grants a ClusterRole to a service account."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "attempt"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": where}],
    }


def created(kube: Kubectl, account: str, made: Object) -> str:
    """Create an object as an account; return the refusal, or "" if it worked."""
    try:
        kube("create", "-f", "-", as_(account), stdin=json.dumps(made))
    except NodeError as error:
        return str(error)
    return ""


def done(kube: Kubectl, account: str, *words: str) -> str:
    """Run kubectl as an account; return the refusal, or "" if it worked."""
    try:
        kube(*words, as_(account))
    except NodeError as error:
        return str(error)
    return ""


def test_the_hubs_token_reaches_tenants_and_nothing_else(
    cluster: UnderTest, hub: Hub, bob: Furnished, kube: Kubectl
) -> None:
    """The hub's token creates notebook pods only in namespaces that it made for tenants."""
    system, image = hub.kubectl.within("kube-system"), cluster.busybox
    elsewhere = "the hub may only touch pods in namespaces of its tenants"
    other = of_user(image, "other")
    other["spec"]["serviceAccountName"] = "default"  # every namespace has this account
    for where in (system, kube, hub.kubectl):
        assert elsewhere in created(where, HUB, other)
    assert "have the service account notebook" in created(bob.kubectl, HUB, other)
    stranger = of_user(image, "stranger")
    del stranger["metadata"]["labels"]["tfcluster.dev/notebook"]
    assert "may only make and end notebook pods" in created(bob.kubectl, HUB, stranger)
    names = "whose names begin with tfcluster-u-"
    assert names in created(kube, HUB, namespace("eve", "eve"))
    plain = namespace("eve")
    del plain["metadata"]["labels"]["tfcluster.dev/tenant"]
    assert "may only make tenants" in created(kube, HUB, plain)
    lax: Any = namespace("eve")
    lax["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "privileged"
    assert "may only make tenants" in created(kube, HUB, lax)
    own = "may give a new tenant only the labels and annotations that mark it"
    for key in ("pod-security.kubernetes.io/enforce-version", "example.org/mesh"):
        other: Any = namespace("eve")
        other["metadata"]["labels"][key] = "v1.0"
        assert own in created(kube, HUB, other), key
    for key in ("tfcluster.dev/budget", "scheduler.alpha.kubernetes.io/node-selector"):
        noted: Any = namespace("eve")
        noted["metadata"]["annotations"][key] = "{}"
        assert own in created(kube, HUB, noted), key
    loose = "may give a new tenant no finalizers and no owner"
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": "eve", "uid": "eve"}
    for field, value in (("finalizers", ["example.com/hold"]), ("ownerReferences", [owner])):
        tied: Any = namespace("eve")
        tied["metadata"][field] = value
        assert loose in created(kube, HUB, tied), field
    label = ["label", "namespace", "tfcluster.dev/tenant=true", "--overwrite"]
    assert names in done(kube, HUB, *label[:2], kube.namespace, *label[2:])
    only = "the hub may only mark a tenant's user as removed"
    enforce = "pod-security.kubernetes.io/enforce=privileged"
    assert only in done(kube, HUB, "label", "namespace", bob.name, enforce, "--overwrite")
    mark = "tfcluster.dev/furnished=0"
    assert only in done(kube, HUB, "annotate", "namespace", bob.name, mark, "--overwrite")
    for words in (
        ("get", "secrets"),
        ("create", "rolebinding", "a", "--clusterrole=tfcluster-user", "--user=eve"),
        ("delete", "namespace", bob.name),
    ):
        assert "cannot" in done(bob.kubectl, HUB, *words), words
    assert done(bob.kubectl, HUB, "auth", "can-i", "create", "pods", "--subresource=exec")


def test_tenancys_token_binds_the_tenant_roles_alone(
    cluster: UnderTest, bob: Furnished, kube: Kubectl
) -> None:
    """Tenancy's token can write only in tenants' namespaces, bind the tenant role only to the
    notebook's account, and read no Secret.
    """
    no_right = "is attempting to grant RBAC permissions not currently held"
    assert no_right in created(bob.kubectl, TENANCY, binding("tfcluster-hub", "notebook", bob.name))
    bound = "tenancy may only bind tfcluster-user to the tenant's notebook"
    assert bound in created(bob.kubectl, TENANCY, binding("tfcluster-user", "other", bob.name))
    assert bound in created(bob.kubectl, TENANCY, binding("tfcluster-user", "notebook", "eve"))
    for name in ("tfcluster-operator-tenant", "tfcluster-operator-secrets"):
        assert bound in created(bob.kubectl, TENANCY, binding(name, "notebook", bob.name)), name
        assert bound in created(bob.kubectl, TENANCY, binding(name, "operator", bob.name)), name
    for name in ("tfcluster-operator", "cluster-admin"):
        role = binding(name, "operator", "tfcluster-system")
        assert no_right in created(bob.kubectl, TENANCY, role), name
    inside = "tenancy may only write in namespaces that the hub made"
    role = binding("tfcluster-user", "notebook", kube.namespace)
    for where in (kube, kube.within("kube-system"), kube.within(HOME)):
        assert inside in created(where, TENANCY, {**role, "metadata": {"name": "attempt"}})
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine"}}
    bob.kubectl.apply({**secret, "stringData": {"key": "hidden"}})
    copies = "tenancy may only write its own copies of pull secrets"
    empty = ["patch", "secret", "mine", "--type=merge", "-p", "{}", "-o", "yaml"]
    said = done(bob.kubectl, TENANCY, *empty)
    assert copies in said or "cannot get" in said
    marked = '{"metadata": {"labels": {"app.kubernetes.io/managed-by": "tfcluster-tenancy"}}}'
    where = f"/api/v1/namespaces/{bob.name}/secrets/mine"
    assert copies in patched(bob.kubectl, TENANCY, where, marked)
    assert copies in patched(bob.kubectl, TENANCY, where, '{"data": {"more": "eA=="}}')
    assert "cannot" in done(bob.kubectl, TENANCY, "get", "secrets")
    assert "cannot" in created(bob.kubectl, TENANCY, of_user(cluster.busybox, "attempt"))
    removed = "may only delete namespaces of users who were removed"
    assert removed in done(kube, TENANCY, "delete", "namespace", bob.name)
    ours = "tenancy may only touch namespaces that the hub made for its users"
    assert ours in done(kube, TENANCY, "delete", "namespace", kube.namespace)
    only = "tenancy may only write its own annotations to a tenant's namespace"
    where = f"/api/v1/namespaces/{bob.name}"
    gone = '{"metadata": {"annotations": {"tfcluster.dev/removed": "now"}}}'
    assert only in patched(kube, TENANCY, where, gone)
    labels = '{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}'
    assert only in patched(kube, TENANCY, where, labels)
    tenant = '{"metadata": {"labels": {"tfcluster.dev/tenant": "true"}}}'
    assert ours in patched(kube, TENANCY, f"/api/v1/namespaces/{kube.namespace}", tenant)


def patched(kube: Kubectl, account: str, where: str, change: str) -> str:
    """Send a patch without the reads that kubectl would make first; return the refusal, or ""."""
    configuration = Configuration()
    load_kube_config(kube.kubeconfig, client_configuration=configuration)
    token = kube.within(HOME)("create", "token", account.rpartition(":")[2]).strip()
    configuration.cert_file = configuration.key_file = None
    configuration.api_key = {"authorization": f"Bearer {token}"}
    api = Api(configuration)
    try:
        api.merge(where, json.loads(change))
    except ApiError as error:
        return error.message
    finally:
        api.close()
    return ""
