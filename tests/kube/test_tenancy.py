"""Tenancy on a real cluster: the objects of a user's namespace, and the network between its pods.
The installed tenancy service sets up two tenants, which all tests share.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
import yaml
from kubenode.commands import NodeError, wait_until
from kubenode.images import REGISTRY
from kubenode.registry import PRIVATE
from support.kube.hub import Hub
from support.kube.kubectl import Object
from support.kube.operator import SMALL, Tenant
from support.kube.operator_modes import Installed
from support.kube.tenant_namespaces import HOME, HUB, Furnished, as_, move_in, of_user
from support.kube.under_test import UnderTest
from support.kube.waiting_causes import ACCESS_SECRET
from support.kube.workloads import pod

from tfcluster_magic.kube.api.labels import OPTIONS
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.spec import Mode, Replicas, ReplicaSet, Spec

pytestmark = pytest.mark.needs("network-policy", "rwx")
GROUP = "tests-of-tenancy"
QUOTA = {
    "priority": 1,
    "quota": {"pods": 3, "memory": "8Gi"},
    "imagePullSecrets": ["registry"],
}


def write_policy(hub: Hub, group: Object | None) -> None:
    """Set the grants of the tests' group; the rest of the policy stays."""
    found = hub.kubectl.get("configmap", "tfcluster-hub-policy")
    said = yaml.safe_load(found["data"]["policy.yaml"])
    said.setdefault("groups", {}).pop(GROUP, None)
    if group is not None:
        said["groups"][GROUP] = group
    change = {"data": {"policy.yaml": yaml.safe_dump(said)}}
    words = ["patch", "configmap", "tfcluster-hub-policy", "--type=merge", "-p"]
    hub.kubectl(*words, json.dumps(change))


@pytest.fixture(scope="module")
def alice(hub: Hub) -> Iterator[Furnished]:
    """A user in the tests' group, whose quota allows three pods of tasks."""
    hub.kubectl.apply({**ACCESS_SECRET, "metadata": {"name": "registry"}})
    write_policy(hub, QUOTA)
    user = hub.new_user("alice")
    hub.api("POST", f"groups/{GROUP}")
    hub.api("POST", f"groups/{GROUP}/users", {"users": [user]})
    found = move_in(hub, user)
    yield found
    write_policy(hub, None)
    hub.kubectl.delete("secret", "registry")
    hub.api("DELETE", f"groups/{GROUP}")
    found.kubectl("delete", "tfclusters", "--all", "--wait=false")
    hub.kubectl("delete", "namespace", found.name, "--wait=false")


@pytest.fixture(scope="module")
def bob(hub: Hub) -> Iterator[Furnished]:
    """Another user, who is removed at the end."""
    found = move_in(hub, hub.new_user("bob"))
    yield found
    hub.kubectl("delete", "namespace", found.name, "--wait=false", "--ignore-not-found")


@pytest.fixture(scope="module")
def notebooks(cluster: UnderTest, alice: Furnished, bob: Furnished) -> tuple[Object, Object]:
    """A running notebook pod of each user, created with the hub's account."""
    for each in (alice, bob):
        made = json.dumps(of_user(cluster.busybox))
        each.kubectl("create", "-f", "-", as_(HUB), stdin=made)
    return alice.kubectl.running("notebook"), bob.kubectl.running("notebook")


@pytest.fixture(scope="module")
def run(alice: Furnished, installed: Installed | None, cluster: UnderTest) -> Object:
    """A task of a running cluster in Alice's namespace."""
    assert installed is not None
    tenant = Tenant(alice.kubectl, installed, cluster.description.images["notebook"])
    workers = ReplicaSet(worker=Replicas(count=1, resources=SMALL))
    tenant.launch("digits-1", Spec(mode=Mode.IN_GRAPH, replicas=workers))
    tenant.phase("digits-1", "Running")
    (task,) = tenant.pods("digits-1")
    return task


def test_a_new_user_has_everything(alice: Furnished, bob: Furnished) -> None:
    """Tenancy creates all objects in the new namespace of a user, and reports no problem."""
    print(f"furnished in {alice.seconds:.1f} s and {bob.seconds:.1f} s")
    assert "trouble" not in alice.marks()
    hard = alice.kubectl.get("resourcequota", "tasks")["spec"]["hard"]
    assert hard == {"pods": "3", "requests.memory": "8Gi"}


@pytest.mark.parametrize("what", ["rolebinding/tfcluster-user", "networkpolicy/default-deny"])
def test_what_is_deleted_by_hand_comes_back(bob: Furnished, what: str) -> None:
    """A deleted object of a tenant is created again within seconds."""
    kind, name = what.split("/")
    was = bob.kubectl.get(kind, name)
    bob.kubectl.delete(kind, name)

    def is_back() -> bool:
        try:
            return bool(bob.kubectl.get(kind, name)["metadata"]["uid"] != was["metadata"]["uid"])
        except NodeError:
            return False

    wait_until(is_back, f"{what} is back", seconds=90, every=0.1)


def test_what_is_altered_by_hand_is_put_right(bob: Furnished) -> None:
    """A NetworkPolicy that somebody opened is closed again."""
    change = {"spec": {"ingress": [{}]}}
    words = ["patch", "networkpolicy", "default-deny", "--type=merge", "-p", json.dumps(change)]
    bob.kubectl(*words)

    def is_closed() -> bool:
        return "ingress" not in bob.kubectl.get("networkpolicy", "default-deny")["spec"]

    wait_until(is_closed, "it is closed", seconds=90, every=0.1)


def test_a_changed_policy_is_live_within_ten_seconds(hub: Hub, alice: Furnished) -> None:
    """A changed quota reaches the namespace without a restart; a mistake is reported and changes
    nothing.
    """

    def pods() -> str:
        return str(alice.kubectl.get("resourcequota", "tasks")["spec"]["hard"]["pods"])

    write_policy(hub, {**QUOTA, "quota": {"pods": 4}})
    wait_until(lambda: pods() == "4", "the quota has changed", seconds=90, every=0.1)
    write_policy(hub, {**QUOTA, "quota": {"pods": "many"}})

    def mistake() -> str:
        return str(hub.kubectl.get("configmap", "tfcluster-hub-accepted")["data"]["error"])

    wait_until(
        lambda: f"groups.{GROUP}.quota.pods" in mistake(), "the mistake is reported", seconds=90
    )
    assert mistake().startswith("line ")
    assert pods() == "4"
    write_policy(hub, QUOTA)
    wait_until(lambda: pods() == "3" and not mistake(), "the quota is back", seconds=90)


def test_a_notebook_has_the_rights_of_a_user_and_no_others(alice: Furnished) -> None:
    """The notebook's account can launch runs and read logs and options, but only in its own
    namespace.
    """
    account = as_(f"system:serviceaccount:{alice.name}:notebook")

    def may(*words: str) -> bool:
        try:
            return alice.kubectl("auth", "can-i", *words, account).strip() == "yes"
        except NodeError:
            return False

    assert may("create", "tfclusters")
    assert may("get", "pods", "--subresource=log")
    assert may("get", "configmaps/tfcluster-options")
    for words in (
        ("create", "pods"),
        ("get", "secrets"),
        ("create", "pods", "--subresource=exec"),
        ("delete", "persistentvolumeclaims"),
        ("patch", "resourcequotas"),
        ("list", "tfclusters", "--all-namespaces"),
    ):
        assert not may(*words), words


def test_pods_must_be_restricted_and_of_a_class(cluster: UnderTest, bob: Furnished) -> None:
    """Pod Security refuses a privileged pod, and the quota refuses a pod that is neither a notebook
    nor a task.
    """
    privileged = pod("privileged", cluster.busybox)
    privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    assert "violates PodSecurity" in bob.kubectl.refused(privileged)
    assert "exceeded quota: others" in bob.kubectl.refused(pod("other", cluster.busybox))


def test_a_run_fits_in_its_quota_beside_the_notebook(
    alice: Furnished, notebooks: tuple[Object, Object], run: Object
) -> None:
    """The quota counts tasks but not the notebook, and refuses a run that can never fit; the
    message has the limit.
    """
    used = alice.kubectl.get("resourcequota", "tasks")["status"]["used"]
    assert used["pods"] == "1"
    assert run["spec"]["priorityClassName"] == "tfcluster-task"

    def published() -> bool:
        return bool(alice.kubectl.get("configmap", OPTIONS)["data"].get("run.tasks") == "3")

    wait_until(published, "the limit of tasks is published", seconds=90)
    workers = ReplicaSet(worker=Replicas(count=5, resources=SMALL))
    large = custom_resource.write("large", 1, Spec(mode=Mode.IN_GRAPH, replicas=workers))
    assert "it has 5 tasks, and ResourceQuota tasks allows 3 pods" in alice.kubectl.refused(large)


def test_pods_reach_only_the_pods_they_need(
    hub: Hub,
    alice: Furnished,
    bob: Furnished,
    notebooks: tuple[Object, Object],
    run: Object,
) -> None:
    """A notebook reaches its task, the hub and the API; the proxy reaches the notebook; and a task
    reaches its client. The network policies allow no other connection.
    """
    own, _others = (each["status"]["podIP"] for each in notebooks)
    task = run["status"]["podIP"]

    def from_notebook(who: Furnished, address: str, port: int) -> bool:
        connect = f"timeout 5 nc -w2 {address} {port} </dev/null"
        return who.kubectl.succeeds("notebook", "sh", "-c", connect)

    def from_task(port: int) -> bool:
        code = f"import socket; socket.create_connection(({own!r}, {port}), 2)"
        return alice.kubectl.succeeds(run["metadata"]["name"], "python3", "-c", code)

    def from_proxy(port: int) -> bool:
        code = (
            f"const s=require('net').connect({port},'{own}',()=>process.exit(0));"
            "s.on('error',()=>process.exit(1));setTimeout(()=>process.exit(1),2000)"
        )
        return hub.kubectl.succeeds("deploy/proxy", "node", "-e", code)

    api = alice.kubectl.within("default").get("service", "kubernetes")["spec"]["clusterIP"]
    allowed: list[tuple[str, Callable[[], bool]]] = [
        ("the notebook reaches its task", lambda: from_notebook(alice, task, 2222)),
        ("the task reaches its client", lambda: from_task(2230)),
        ("the proxy reaches the notebook", lambda: from_proxy(8888)),
        ("the notebook reaches the hub", lambda: from_notebook(alice, f"hub.{HOME}", 8081)),
        ("the notebook reaches the API", lambda: from_notebook(alice, api, 443)),
    ]
    for what, reaches in allowed:
        wait_until(reaches, what, seconds=90)
    assert not from_notebook(bob, own, 8888)
    assert not from_notebook(bob, own, 2230)
    assert not from_notebook(bob, task, 2222)
    assert not from_task(8888)
    assert not from_proxy(2230)
    assert not from_notebook(alice, f"proxy-api.{HOME}", 8001)


def test_a_private_image_is_pulled_by_the_policys_secret(
    cluster: UnderTest, alice: Furnished, bob: Furnished, run: Object
) -> None:
    """Pods of the notebook's account and of tasks pull a private image with the Secret that the
    policy names for their group.

    No pod names the Secret. A user outside the group is refused the image.
    """
    private = cluster.busybox.replace(REGISTRY, PRIVATE)

    def pulls(account: str) -> Object:
        made = of_user(private, f"pulls-{account}")
        made["spec"] |= {"serviceAccountName": account, "priorityClassName": "tfcluster-task"}
        # pull always, because the node may have the image already
        made["spec"]["containers"][0]["imagePullPolicy"] = "Always"
        return made

    def is_refused(found: Object) -> bool:
        (state,) = (found.get("status") or {}).get("containerStatuses") or [{}]
        reason = ((state.get("state") or {}).get("waiting") or {}).get("reason")
        return reason in {"ErrImagePull", "ImagePullBackOff"}

    accounts = ("notebook", run["spec"].get("serviceAccountName", "default"))
    alice.kubectl.apply(*(pulls(account) for account in accounts))
    bob.kubectl.apply(pulls("notebook"))
    for account in accounts:
        alice.kubectl.running(f"pulls-{account}", seconds=120)
    bob.kubectl.wait("pod", "pulls-notebook", is_refused, "the image is refused", 120)
    assert "401" in bob.kubectl.events("pulls-notebook")
    for account in accounts:
        alice.kubectl.delete("pod", f"pulls-{account}", "--wait=false")


def test_the_data_of_a_removed_user_stays_until_it_is_deleted(hub: Hub, bob: Furnished) -> None:
    """A removed user loses all rights at once, but the data only when the hub requests its
    deletion.
    """
    bob.annotate("removed=2026-01-01T00:00:00Z")

    def bound() -> bool:
        every = json.loads(bob.kubectl("get", "rolebindings", "-o", "json"))["items"]
        return "tfcluster-user" in [each["metadata"]["name"] for each in every]

    wait_until(lambda: not bound(), "the rights are gone", seconds=90, every=0.1)
    assert len(bob.kubectl.every("pvc")) == 3
    bob.annotate("removed-data=true")

    def is_going() -> bool:
        try:
            return "deletionTimestamp" in bob.kubectl.get("namespace", bob.name)["metadata"]
        except NodeError:
            return True

    wait_until(is_going, "the namespace is deleted", seconds=90)
