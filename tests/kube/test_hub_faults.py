"""Faults around the hub on Kubernetes: users are told the cause, and the hub recovers. An upgrade
of the hub, and a restore of its lost state, interrupt nobody's work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from kubenode.commands import wait_until
from support.hub.visitor import Visitor
from support.kube import doc_commands as documented
from support.kube import hub_continuity as hub_standing
from support.kube.hub import PASSWORD, Hub
from support.kube.hub_continuity import Standing
from support.kube.hub_installation import MISSING, STATE, disk, own_disk, rendered
from support.kube.under_test import UnderTest

from tfcluster_magic.hub.spawning.namespace_creation import PROVISIONED, Tenant

pytestmark = pytest.mark.needs("ingress", "rwx", "network-policy", "registry")


@pytest.fixture(scope="module")
def carol(hub: Hub) -> Visitor:
    """A signed-in user whose notebook answers."""
    carol = hub.newcomer("carol")
    carol.spawn()
    return carol


@pytest.fixture(scope="module")
def standing(hub: Hub, carol: Visitor) -> Standing:
    """Carol's work: a kernel, and a running cluster."""
    return hub_standing.begin(hub, carol)


def test_a_spawn_in_trouble_says_why(hub: Hub) -> None:
    """As soon as Kubernetes knows why a server cannot start, the progress page says so.

    One server asks for a size that no node has. The other server asks for a missing image; the hub
    gives up its start, and tells the user what to do.
    """
    large, lost = hub.new_user("large"), hub.new_user("lost")
    hub.spawn(large, profile="huge")
    hub.spawn(lost, profile="small", image="lost")
    with ThreadPoolExecutor(2) as both:
        waits = both.submit(hub.told, large, lambda said: "no node has" in said)
        fails = both.submit(hub.told, lost)
    assert "no node has 512 CPU and 4Ti of memory free" in waits.result()[-1]
    assert "smaller size" in waits.result()[-1]
    said = fails.result()
    why = f"there is no image {MISSING}: check its name and tag."
    assert any(each.startswith(f"Your server is waiting: {why}") for each in said), said
    verdict = f"Your server did not start: {why} Choose another image, or ask the administrator."
    assert verdict in said[-1]
    inside = hub.namespace(lost)
    wait_until(lambda: not inside.every("pod"), "the pod that failed is gone", seconds=90)
    hub.namespace(large)("delete", "pod", "--all", "--wait=false")


def test_a_size_or_image_that_is_not_granted_is_refused(hub: Hub) -> None:
    """A size or an image that the policy does not grant is refused, even if a user sends it
    directly.
    """
    user = hub.new_user("greedy")
    for options in ({"profile": "enormous"}, {"profile": "small", "image": "evil.example/root"}):
        hub.spawn(user, **options)
        said = hub.told(user)[-1]
        assert "Choose one of:" in said, said
    assert hub.namespace(user).every("pod") == []


def test_a_namespace_of_somebody_else_is_never_taken(hub: Hub) -> None:
    """If a user's namespace name is taken by someone else's namespace, the spawn fails with that
    reason, and nothing in that namespace changes.
    """
    user = hub.new_user("squatted")
    name = hub.namespace(user).namespace
    hub.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    before = hub.kubectl.get("namespace", name)["metadata"]
    hub.spawn(user)
    said = hub.told(user)[-1]
    assert f"The namespace {name} exists, but is not yours" in said
    after = hub.kubectl.get("namespace", name)["metadata"]
    assert after["labels"] == before["labels"]
    assert "tfcluster.dev/user" not in (after.get("annotations") or {})
    assert hub.namespace(user).every("pod") == []
    hub.kubectl("delete", "namespace", name, "--wait=false")


def test_a_new_proxy_gets_its_routes(hub: Hub, carol: Visitor) -> None:
    """After the proxy's pod is killed, pages answer again without a new sign-in.

    The hub recognises the proxy by the secret path to which it sends requests, and then logs the
    client's address instead of the proxy's. The new proxy uses this path from its first request on,
    even before it has its routes.
    """
    hub.alone()
    _kill(hub, "tfcluster-proxy")
    mark = uuid4().hex

    def answers() -> bool:
        return carol.get("hub/login", params={"mark": mark}).ok and _status(carol) == 200

    _wait_for(answers, "the notebook answers through the new proxy", 60)

    def logged() -> list[str]:
        return [line for line in hub.log().splitlines() if f"mark={mark}" in line]

    # the kubelet may show a line of a log later than the hub writes it
    wait_until(logged, "the hub logs the request", seconds=30)
    came = logged()
    (pod,) = hub.kubectl.every("pod", "app=tfcluster-proxy")
    assert not [line for line in came if f"@{pod['status']['podIP']})" in line]


def test_a_killed_hub_agrees_with_the_cluster_afterwards(hub: Hub, carol: Visitor) -> None:
    """A hub that is killed while a notebook starts agrees with Kubernetes after its restart about
    which notebooks exist. It takes over the starting notebook; sessions and other notebooks
    continue.
    """
    hub.alone()
    user = hub.new_user("half")
    hub.spawn(user)
    inside = hub.namespace(user)
    wait_until(lambda: inside.every("pod"), "the pod was made", seconds=60, every=0.1)
    _kill(hub, "tfcluster-hub")
    hub.wait_until_healthy()

    def agrees() -> bool:
        server, pods = hub.server(user), inside.every("pod")
        return bool(server["ready"] and pods) if server else not pods

    _wait_for(agrees, "the hub and the cluster agree", 120)
    assert hub.server(user), "the notebook that was starting was not taken over"
    assert _status(carol) == 200
    hub.stop(user)


def test_nobody_notices_a_newer_hub(hub: Hub, standing: Standing) -> None:
    """When hub, proxy and tenancy are replaced, browsers stay signed in, and notebooks, kernels and
    clusters continue.
    """
    hub.alone()
    every = ("deployment/hub", "deployment/proxy", "deployment/tenancy")
    hub.kubectl("rollout", "restart", *every)
    for each in every:
        hub.kubectl("rollout", "status", each, "--timeout=120s", seconds=130)
    _wait_for(standing.is_unharmed, "her work is unharmed", 60)


def test_a_hub_that_lost_its_state_is_restored(
    hub: Hub, cluster: UnderTest, standing: Standing, tmp_path: Path
) -> None:
    """The commands of docs/how-to/hub-backup.md restore a hub that lost its volume and its Secrets.

    Users, passwords, admin rights, groups, sessions, running notebooks and namespaces are back.
    Changes after the backup are lost.
    """
    hub.alone()
    dora = hub.newcomer("dora", "--admin")
    assert hub.api("POST", "groups/vip").status_code == 201
    assert hub.api("POST", "groups/vip/users", {"users": [dora.name]}).status_code == 200
    theirs = _tenant(hub, dora.name)
    own = hub.namespace(standing.visitor.name).namespace
    hub.kubectl("label", "namespace", theirs, own, "tests=restored")
    save, bring = documented.commands("how-to/hub-backup.md", "On Kubernetes")
    documented.run(
        save, hub.kubectl, tmp_path, {"-l tfcluster.dev/hub=tfcluster-hub": "-l tests=restored"}
    )
    late = hub.new_user("late")

    hub.kubectl("delete", "namespace", theirs)
    _lose_state(hub, cluster)
    (tmp_path / "ours.yaml").write_text(rendered(cluster, tmp_path))
    ours = "--server-side --force-conflicts -f ours.yaml"
    replaced = {"-k k8s/overlays/hub-httproute --server-side": ours}
    documented.run(bring, hub.kubectl, tmp_path, replaced)

    hub.wait_until_healthy()
    assert hub.api("GET", f"users/{dora.name}").json()["groups"] == ["vip"]
    assert hub.api("GET", f"users/{late}").status_code == 404
    assert dora.get("hub/admin").status_code == 200
    again = Visitor(hub.url())
    again.session.trust_env = False
    again.sign_in(dora.name, PASSWORD)
    _wait_for(standing.is_unharmed, "her work is unharmed", 60)
    assert hub.server(standing.visitor.name)["ready"]
    _wait_for(lambda: _is_furnished(hub, theirs), "tenancy furnished the namespace", 60)
    hub.api("DELETE", "groups/vip")


def test_a_namespace_that_was_deleted_is_made_again(hub: Hub, carol: Visitor) -> None:
    """After an administrator deletes a user's namespace, the next spawn creates it again with its
    objects.
    """
    user = carol.name
    name = hub.namespace(user).namespace
    hub.kubectl("delete", "namespace", name, "--wait=false")
    wait_until(lambda: hub.server(user) is None, "the hub has noticed", seconds=90)
    hub.spawn(user)
    hub.ready(user)
    found = hub.kubectl.get("namespace", name)["metadata"]
    assert "tfcluster.dev/furnished" in found["annotations"]
    hub.stop(user)


def _status(visitor: Visitor) -> int:
    return visitor.get(f"user/{visitor.name}/api/status").status_code


def _tenant(hub: Hub, user: str) -> str:
    """Create a user's namespace as the hub does at the first notebook, and wait for its objects."""
    name = hub.namespace(user).namespace
    tenant = Tenant(name, user, hub.kubectl.namespace)
    head = {"name": name, "labels": tenant.labels, "annotations": tenant.annotations}
    hub.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": head})
    _wait_for(lambda: _is_furnished(hub, name), "tenancy furnished the namespace", 60)
    return name


def _is_furnished(hub: Hub, name: str) -> bool:
    return PROVISIONED in hub.kubectl.get("namespace", name)["metadata"]["annotations"]


def _lose_state(hub: Hub, cluster: UnderTest) -> None:
    """Delete the hub's volume and Secrets, and start it with an empty volume."""
    assert cluster.own
    hub.kubectl("scale", "deployment/hub", "--replicas=0")
    hub.kubectl("wait", "--for=delete", "pod", "-l", "app=tfcluster-hub", "--timeout=60s")
    hub.kubectl("delete", "pvc/hub-state", "pv/hub-state", "secret/tfcluster-hub-tokens")
    cluster.own.first.run(["rm", "-r", disk(STATE)])
    cluster.kubectl.apply(own_disk(cluster))


def _kill(hub: Hub, app: str) -> None:
    """Kill a pod without a grace period, and wait for its replacement."""
    (pod,) = hub.kubectl.every("pod", f"app={app}")
    hub.kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")
    uid = pod["metadata"]["uid"]

    def is_new() -> bool:
        found = hub.kubectl.every("pod", f"app={app}")
        return bool(found) and all(each["metadata"]["uid"] != uid for each in found)

    wait_until(is_new, f"a new pod of {app}", seconds=90)


def _wait_for(condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait for a condition that may raise errors meanwhile, and print how long it took."""

    def is_so() -> bool:
        try:
            return condition()
        except (OSError, KeyError, ValueError):
            return False

    began = time.monotonic()
    wait_until(is_so, what, seconds=seconds, every=0.3)
    print(f"{what}: {time.monotonic() - began:.1f} s")
