"""Deletion of records and namespaces while finalizers keep the records."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from kubenode.commands import wait_until
from kubenode.errors import NodeError
from support.kube.kubectl import Object
from support.kube.operator import Tenant, spec_of
from support.kube.tenants import rights, user_rules

from tfcluster_magic.hub.tenancy import provisioning
from tfcluster_magic.kube.api import access
from tfcluster_magic.spec import Lifecycle

USER = "alice"
HOLD = "example.com/hold"
CONTROLLER = (
    "--as=system:serviceaccount:kube-system:tests",
    "--as-group=system:serviceaccounts:kube-system",
    "--as-group=system:masters",
)
"""An account that may set finalizers; admission refuses finalizers of users."""
WAITS = "import time\ntime.sleep(600)\n"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "tfcluster-options"}

pytestmark = pytest.mark.hostile


@pytest.fixture(scope="module")
def alices(new_tenant: Callable[[], Tenant]) -> Tenant:
    """A user's namespace in which the administrator gave the user more rights than usual."""
    tenant = new_tenant()
    tenant.let(USER)
    more = [
        {"apiGroups": [""], "resources": ["configmaps", "pods", "pods/status"], "verbs": ["*"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]},
    ]
    tenant.kubectl.apply(*rights([*user_rules(), *more], tenant.name))
    return tenant


@pytest.fixture
def waits(tmp_path: Any) -> Any:
    """A program that waits until it is stopped."""
    file = tmp_path / "waits.py"
    file.write_text(WAITS)
    return file


def hold(tenant: Tenant, name: str, *finalizers: str) -> None:
    """Set finalizers on a record, as users could before admission refused them."""
    body = json.dumps({"metadata": {"finalizers": list(finalizers) or None}})
    tenant.kubectl("patch", "tfcluster", name, "--type=merge", "-p", body, *CONTROLLER)


def tasks_gone(tenant: Tenant, name: str) -> None:
    wait_until(lambda: not tenant.pods(name), f"{name} has no pods", seconds=120, every=0.5)


WAYS = ("background", "foreground", "orphan")


@pytest.fixture(scope="module")
def kept(alices: Tenant, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start one run for each way to delete, each with a record that a finalizer keeps."""
    file = tmp_path_factory.mktemp("program") / "waits.py"
    file.write_text(WAITS)
    for how in WAYS:
        alices.launch(f"kept-{how}-1", spec_of(file, lifecycle=Lifecycle(grace=1)))
    for how in WAYS:
        alices.phase(f"kept-{how}-1", "Running")
        hold(alices, f"kept-{how}-1", HOLD)


@pytest.mark.parametrize("how", WAYS)
def test_a_finalizer_keeps_no_task(alices: Tenant, kept: None, how: str) -> None:
    """Deleting a run ends its tasks at once, even if a finalizer keeps its record. The message
    names the finalizer, and the record is deleted once the finalizer is removed.
    """
    name = f"kept-{how}-1"
    alices.kubectl("delete", "tfcluster", name, f"--cascade={how}", "--wait=false")
    status = alices.wait(name, lambda s: s.get("releasedAt"), "its resources are released")
    assert (status["phase"], status["reason"]) == ("Stopped", "StopRequested")
    assert HOLD in status["message"]
    tasks_gone(alices, name)
    jobs = f"tfcluster.dev/name={name}"
    wait_until(lambda: not alices.kubectl.every("job", jobs), f"{name} has no Jobs", seconds=90)
    hold(alices, name)
    alices.kubectl.gone("tfcluster", name)


def test_a_record_goes_after_its_tasks(alices: Tenant, waits: Any) -> None:
    """`kubectl delete --cascade=foreground` ends tasks and record, and the next run starts."""
    alices.launch("after-1", spec_of(waits, ps=1, lifecycle=Lifecycle(grace=1)))
    alices.phase("after-1", "Running")
    alices.kubectl("delete", "tfcluster", "after-1", "--cascade=foreground", "--timeout=120s")
    wait_until(lambda: not alices.left_of("after-1"), "nothing is left", seconds=120, every=1.0)
    alices.launch("after-2", spec_of(waits, lifecycle=Lifecycle(grace=1)))
    alices.phase("after-2", "Running")
    alices.kubectl("delete", "tfcluster", "after-2", f"--as={USER}")
    tasks_gone(alices, "after-2")


def test_users_set_no_finalizer_or_owner_on_a_record(alices: Tenant, waits: Any) -> None:
    """A user can set no finalizer and no owner on a TFCluster, new or existing, but may remove
    both. The message says why. The garbage collector's own finalizers are refused too.
    """
    alices.launch("tied-1", spec_of(waits, lifecycle=Lifecycle(grace=1)))
    uid = alices.kubectl.get("configmap", OWNER["name"])["metadata"]["uid"]

    def patch(*words: str, **metadata: Any) -> str:
        body = json.dumps({"metadata": metadata})
        try:
            alices.kubectl("patch", "tfcluster", "tied-1", "--type=merge", "-p", body, *words)
        except NodeError as error:
            return str(error)
        return ""

    def is_on() -> bool:
        return "may have no finalizers of your own" in patch(f"--as={USER}", finalizers=[HOLD])

    wait_until(is_on, "admission refuses a finalizer", seconds=60)
    for finalizer in (
        "kubernetes.io/hold",
        "tfcluster.dev/hold",
        "batch.kubernetes.io/job-tracking",
        "foregroundDeletion",
        "orphan",
    ):
        assert "no finalizers of your own" in patch(f"--as={USER}", finalizers=[finalizer])
    # An administrator is refused too.
    assert "no finalizers of your own" in patch(finalizers=[HOLD])
    for more in ({}, {"blockOwnerDeletion": True}, {"controller": True}):
        owner = {**OWNER, "uid": uid, **more}
        assert "may have no owner" in patch(f"--as={USER}", ownerReferences=[owner])
    made = {"apiVersion": "tfcluster.dev/v1beta1", "kind": "TFCluster"}
    head = {"name": "tied-2", "namespace": alices.name, "finalizers": [HOLD]}
    said = alices.kubectl.refused({**made, "metadata": head, "spec": {"mode": "InGraph"}})
    assert "no finalizers of your own" in said
    hold(alices, "tied-1", HOLD, "example.com/other")
    # a record that has finalizers can still be changed and deleted
    assert patch(f"--as={USER}", labels={"mine": "too"}) == ""
    assert patch(f"--as={USER}", finalizers=None) == ""
    alices.kubectl("delete", "tfcluster", "tied-1", f"--as={USER}", "--cascade=orphan")
    tasks_gone(alices, "tied-1")


def test_tenants_set_no_finalizer_or_owner_on_other_objects(alices: Tenant) -> None:
    """Accounts in a user's namespace can set neither finalizers nor owners on other objects.

    This holds even if an administrator lets them write these objects. Controllers of other
    namespaces can set both.
    """
    account = f"--as=system:serviceaccount:{alices.name}:notebook"
    uid = alices.kubectl.get("configmap", OWNER["name"])["metadata"]["uid"]

    def make(name: str, *words: str, **metadata: Any) -> str:
        head = {"name": name, "namespace": alices.name, **metadata}
        found = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": head}
        try:
            alices.kubectl("create", "-f", "-", *words, stdin=json.dumps(found))
        except NodeError as error:
            return str(error)
        return ""

    def is_on() -> bool:
        return "Kubernetes' own" in make("kept", account, "--dry-run=server", finalizers=[HOLD])

    wait_until(is_on, "admission refuses a finalizer", seconds=60)
    owners = [{**OWNER, "uid": uid, "blockOwnerDeletion": True}]
    assert "only controllers" in make("owned", account, ownerReferences=owners)
    assert "Kubernetes' own" in make("left", account, finalizers=["orphan"])
    assert make("plain", account) == ""
    tight = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod = {"name": "busy", "image": "none.invalid/none", "securityContext": tight}
    who = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    head = {"name": "busy", "namespace": alices.name}
    spec = {"schedulerName": "nobody", "securityContext": who, "containers": [pod]}
    alices.kubectl.apply({"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec})
    held = ("patch", "pod", "busy", "--subresource=status", account, "-p")
    with pytest.raises(NodeError, match="Kubernetes' own"):
        alices.kubectl(*held, json.dumps({"metadata": {"finalizers": [HOLD]}}))
    alices.kubectl(*held, '{"status": {"message": "none"}}')
    alices.kubectl("delete", "pod", "busy", "--wait=false")
    for how in ("foreground", "orphan"):
        assert make(how, account) == ""
        alices.kubectl("delete", "configmap", how, f"--cascade={how}", account, "--timeout=60s")
    elsewhere = (
        "--as=system:serviceaccount:labs:controller",
        "--as-group=system:serviceaccounts:labs",
        "--as-group=system:serviceaccounts",
        "--as-group=system:authenticated",
    )
    # RBAC refuses this, not the policy.
    assert "forbidden" in make("theirs", *elsewhere, finalizers=[HOLD]).lower()
    assert "Kubernetes' own" not in make("theirs", *elsewhere, finalizers=[HOLD])


def test_a_removed_namespace_goes(
    new_tenant: Callable[[], Tenant], waits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removed user's namespace disappears even if its runs, running or deleted, have
    finalizers.
    """
    tenant = new_tenant()
    for name in ("held-1", "over-1"):
        tenant.launch(name, spec_of(waits, lifecycle=Lifecycle(grace=1)))
        hold(tenant, name, HOLD)
    tenant.phase("held-1", "Running")
    tenant.kubectl("delete", "tfcluster", "over-1", "--wait=false")
    monkeypatch.setenv("KUBECONFIG", tenant.kubectl.kubeconfig)
    api, _namespace = access.connect()
    found: Object = json.loads(tenant.kubectl("get", "namespace", tenant.name, "-o", "json"))
    wait_until(
        lambda: provisioning.delete_tenant(api, found) is None,
        "everything in it is deleted",
        seconds=180,
        every=1.0,
    )
    tenant.kubectl.gone("namespace", tenant.name, seconds=180)
    api.close()
