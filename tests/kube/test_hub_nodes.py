"""The hub on two nodes: placement by policy, a missing storage class, shared data, a lost node, and
removal of a user with the data.

The tests share one user's notebook and depend on their order, because a pod's start takes seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from kubenode import gluster
from kubenode.commands import wait_until
from support.hub.visitor import Visitor
from support.kube.hub import Hub
from support.kube.hub_installation import reapply, rendered
from support.kube.kubectl import Object, is_ready
from support.kube.operator import SYSTEM
from support.kube.under_test import UnderTest

from tfcluster_magic.kube.api import labels
from tfcluster_magic.launch_checks import kubernetes as launch_facts

pytestmark = [
    pytest.mark.alone,
    pytest.mark.needs("two-nodes", "node-inside", "ingress", "rwx", "network-policy", "registry"),
]
POLICY, ACCEPTED = "tfcluster-hub-policy", "tfcluster-hub-accepted"
POOL, PEOPLE, WORK = "tests.tfcluster.dev/pool", "people", "work"
CLAIMS, MISSING = ("workspace", "data", "log"), "is-not-there"
GROUP, DIGITS, SHARED = "tests-of-nodes", "digits", "/mnt/digits"
READS = f"""
print("read", open("{SHARED}/words").read(), flush=True)
try:
    open("{SHARED}/more", "w")
except OSError as error:
    print(error, flush=True)
"""
LAUNCH = f"""
%load_ext tfcluster_magic
open("kept.txt", "w").write("as it was")
program = {READS!r}
exec(program)
open("reads.py", "w").write(program + "import time\\nwhile True:\\n    time.sleep(1)")
run = %tfcluster launch --workers 1 --name reads --worker-cpu 0.01 --worker-memory 64Mi reads.py
"""
Write = Callable[..., None]


def pool(name: str) -> Object:
    """Return the node selector and the tolerations for a pool of nodes. Policies and pods have them
    in the same form.
    """
    allowed = {"key": POOL, "operator": "Equal", "value": name, "effect": "NoSchedule"}
    return {"nodeSelector": {POOL: name}, "tolerations": [allowed]}


@contextmanager
def kept_for(cluster: UnderTest, node: str, name: str) -> Iterator[None]:
    """Add a node to a pool: only pods that tolerate the pool's taint may run on it."""
    cluster.kubectl("label", "node", node, f"{POOL}={name}")
    cluster.kubectl("taint", "node", node, f"{POOL}={name}:NoSchedule")
    try:
        yield
    finally:
        cluster.kubectl("label", "node", node, f"{POOL}-")
        cluster.kubectl("taint", "node", node, f"{POOL}-")


@pytest.fixture(scope="module")
def nodes(cluster: UnderTest) -> Iterator[tuple[str, str]]:
    """The first node, and the second node, which is reserved for notebooks."""
    assert cluster.own
    first, second = cluster.own.first.name, cluster.own.second.name
    with kept_for(cluster, second, PEOPLE):
        yield first, second


@pytest.fixture(scope="module")
def write(hub: Hub) -> Iterator[Write]:
    """Return a function that sets the storage class and the nodes of notebooks in the hub's
    policy.
    """
    before = hub.kubectl.get("configmap", POLICY)["data"]["policy.yaml"]

    def say(text: str) -> None:
        change = json.dumps({"data": {"policy.yaml": text}})
        hub.kubectl("patch", "configmap", POLICY, "--type=merge", "-p", change)

        def accepted() -> str:
            return str(hub.kubectl.get("configmap", ACCEPTED)["data"]["policy.yaml"])

        wait_until(lambda: accepted() == text, "the hub has accepted the policy", seconds=90)

    def write(storage_class: str, notebooks: str) -> None:
        said = yaml.safe_load(before)
        said["default"]["storage"]["class"] = storage_class
        said["placement"] = {"notebooks": pool(notebooks)}
        read = {"name": DIGITS, "path": SHARED, "volume": f"{DIGITS}-{{namespace}}"}
        said.setdefault("groups", {})[GROUP] = {"sharedData": [{**read, "size": "1Mi"}]}
        say(yaml.safe_dump(said))

    yield write
    say(before)


@pytest.fixture(scope="module")
def eva(cluster: UnderTest, hub: Hub) -> Iterator[Visitor]:
    """A user without a notebook, whose group reads the shared data `digits`."""
    found = hub.newcomer("eva")
    theirs = hub.namespace(found.name).namespace
    volume = digits(cluster, theirs)
    for where, body in ((GROUP, None), (f"{GROUP}/users", {"users": [found.name]})):
        hub.api("POST", f"groups/{where}", body).raise_for_status()
    yield found
    hub.api("DELETE", f"groups/{GROUP}")
    hub.kubectl("delete", "namespace", theirs, "--wait=false", "--ignore-not-found")
    hub.kubectl("delete", "pv", volume, "--wait=false")


def digits(cluster: UnderTest, namespace: str) -> str:
    """Make an administrator's volume for one tenant from a folder that every node has; return its
    name.
    """
    assert cluster.own
    where = gluster.MOUNT / DIGITS
    fill = f"mkdir -p {where} && echo one two >{where}/words && chmod -R a+rX {where}"
    cluster.own.first.run(["sh", "-ec", fill])
    name = f"{DIGITS}-{namespace}"
    spec = {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    spec |= {"persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": str(where)}}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
    cluster.kubectl.apply(volume | {"spec": spec})
    return name


@pytest.fixture(scope="module")
def notebook(cluster: UnderTest, nodes: tuple[str, str], write: Write, eva: Visitor) -> Visitor:
    """Eva, with a running notebook on a node for notebooks."""
    write(cluster.description.storage_class, PEOPLE)
    eva.spawn()
    return eva


@pytest.fixture(scope="module")
def run(
    cluster: UnderTest,
    hub: Hub,
    nodes: tuple[str, str],
    notebook: Visitor,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, Object]]:
    """The output of Eva's cell that launched a run, and the run's pod. The administrator's overlay
    places tasks, operator and hub on the first node, which is reserved for them.
    """
    first, _second = nodes
    try:
        with kept_for(cluster, first, WORK):
            _install(cluster, hub, tmp_path_factory.mktemp("placed"), pool(WORK))
            _offered(hub, notebook)
            said = notebook.run(f"user/{notebook.name}", LAUNCH)
            yield said, _task(hub, notebook, said)
    finally:
        _install(cluster, hub, tmp_path_factory.mktemp("anywhere"), {})


def test_a_notebook_waits_for_a_storage_class(
    cluster: UnderTest, hub: Hub, nodes: tuple[str, str], write: Write, eva: Visitor
) -> None:
    """A notebook whose claims name a missing storage class says so, and starts once the policy
    names another. The claims that waited for the missing class are replaced by new ones.
    """
    write(MISSING, PEOPLE)
    hub.spawn(eva.name)
    why = f"claims data, log, workspace request the storage class {MISSING}, which does not exist"
    said = hub.told(eva.name, lambda each: why in each)
    assert said[-1].startswith(f"Your server is waiting: the {why}: "), said
    assert "to set another one in the hub's policy (storage.class)" in said[-1]
    claims = [hub.namespace(eva.name).get("pvc", name) for name in CLAIMS]
    write(cluster.description.storage_class, PEOPLE)
    hub.ready(eva.name)
    for before in claims:
        claim = hub.namespace(eva.name).get("pvc", before["metadata"]["name"])
        assert claim["status"]["phase"] == "Bound"
        assert claim["metadata"]["uid"] != before["metadata"]["uid"]


def test_pods_run_where_the_policies_say(
    hub: Hub, nodes: tuple[str, str], notebook: Visitor, run: tuple[str, Object]
) -> None:
    """With a taint on every node, the hub's policy places notebooks, the operator's policy places
    tasks, and the overlay places hub, proxy and tenancy.
    """
    first, second = nodes
    assert _pod(hub, notebook)["spec"]["nodeName"] == second
    assert run[1]["spec"]["nodeName"] == first
    for name in ("hub", "proxy", "tenancy"):
        (pod,) = hub.kubectl.every("pod", f"app=tfcluster-{name}")
        assert pod["spec"]["nodeName"] == first


def test_shared_data_is_read_by_notebook_and_tasks(
    hub: Hub, notebook: Visitor, run: tuple[str, Object]
) -> None:
    """Shared data of the policy has the same path in a notebook and in its tasks, without an option
    of the launch, and is read-only in both.
    """
    said, task = run
    inside = hub.namespace(notebook.name)
    marks = inside.get("pvc", DIGITS)["metadata"]["annotations"]
    assert marks[labels.MOUNTED_AT] == SHARED
    refused = f"Read-only file system: '{SHARED}/more'"
    assert "read one two" in said
    assert refused in said
    log = [task["metadata"]["name"], "--tail=-1"]
    wait_until(lambda: refused in inside.logs(*log), "the task was refused, too", seconds=90)
    assert "read one two" in inside.logs(*log)


@pytest.fixture
def lose(cluster: UnderTest, nodes: tuple[str, str]) -> Iterator[Callable[[], None]]:
    """Return a function that takes the second node down. The node is back and ready after the
    test.
    """
    own = cluster.own
    assert own
    yield lambda: own.lose(own.second.name)
    own.up(second=True)
    cluster.kubectl.wait("node", own.second.name, is_ready, "it is ready again")


def test_a_notebook_on_a_lost_node_starts_elsewhere(
    cluster: UnderTest,
    hub: Hub,
    nodes: tuple[str, str],
    write: Write,
    notebook: Visitor,
    run: tuple[str, Object],
    lose: Callable[[], None],
) -> None:
    """The hub gives up a notebook whose node is lost, and the notebook's page says so. After a new
    start the notebook runs on another node with its files, and its cluster has continued.
    """
    (first, second), own = nodes, f"user/{notebook.name}"
    assert _pod(hub, notebook)["spec"]["nodeName"] == second
    # Notebooks may now start in the first node's pool.
    write(cluster.description.storage_class, WORK)
    lose()
    wait_until(lambda: hub.server(notebook.name) is None, "the hub gives it up", seconds=180)
    page = notebook.get(f"{own}/lab")
    assert page.status_code == 424
    assert f"because its node {second} does not answer" in page.text
    notebook.spawn()
    assert _pod(hub, notebook)["spec"]["nodeName"] == first
    assert notebook.run(own, "print(open('kept.txt').read())") == "as it was\n"
    task = hub.namespace(notebook.name).get("pod", run[1]["metadata"]["name"])
    assert (task["metadata"]["uid"], is_ready(task)) == (run[1]["metadata"]["uid"], True)


def test_a_user_is_removed_with_the_data(
    hub: Hub, notebook: Visitor, run: tuple[str, Object]
) -> None:
    """`accounts remove --with-data` ends the user's notebook and run, and deletes the account and
    the namespace with its claims.
    """
    inside = hub.namespace(notebook.name)
    for each in (_pod(hub, notebook), inside.get("pod", run[1]["metadata"]["name"])):
        assert is_ready(each)
    said = hub.commanded("accounts", "remove", notebook.name, "--with-data")
    assert f"{notebook.name} is removed." in said
    assert hub.api("GET", f"users/{notebook.name}").status_code == 404
    # the namespace is deleted after its claims
    hub.kubectl.gone("namespace", inside.namespace, seconds=120)


def _install(cluster: UnderTest, hub: Hub, folder: Path, where: Object) -> None:
    reapply(cluster, rendered(cluster, folder, pool=where))
    rollout = ("rollout", "status", "deployment/operator", "--timeout=120s")
    cluster.kubectl.within(SYSTEM)(*rollout, seconds=150)
    hub.wait_until_healthy()


def _offered(hub: Hub, visitor: Visitor) -> None:
    """Wait until the options that the operator publishes for launches include the nodes for tasks.
    Until then they include no node, because each node has a taint that tasks do not tolerate.
    """
    inside = hub.namespace(visitor.name)

    def is_so() -> bool:
        found = launch_facts.read_facts(
            inside.get("configmap", labels.OPTIONS)["data"][launch_facts.FACTS_KEY]
        )
        return found.policy.node_selector == {POOL: WORK} and bool(found.place.nodes)

    wait_until(is_so, "launches are offered the nodes for tasks", seconds=120)


def _pod(hub: Hub, visitor: Visitor) -> Object:
    (found,) = hub.namespace(visitor.name).every("pod", f"{labels.NOTEBOOK}=true")
    return found


def _task(hub: Hub, visitor: Visitor, said: str) -> Object:
    """Return the pod of Eva's run, once it is ready."""
    inside = hub.namespace(visitor.name)
    chosen = "tfcluster.dev/name=reads-1"
    wait_until(
        lambda: any(map(is_ready, inside.every("pod", chosen))), f"it runs: {said}", seconds=180
    )
    return inside.every("pod", chosen)[0]
