"""Limits of a user's account, of what a user can make the operator do, and of a task's pod."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from kubenode.commands import wait_until
from kubenode.errors import NodeError
from kubenode.images import REGISTRY
from kubenode.registry import PRIVATE
from support.kube.kubectl import Kubectl, Object
from support.kube.operator import Tenant, spec_of
from support.kube.under_test import UnderTest
from support.kube.waiting_causes import ACCESS_SECRET
from support.kube.workloads import pod

from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.spec import (
    DataClaim,
    Mode,
    Pods,
    Replicas,
    ReplicaSet,
    Resources,
    SecretUse,
    Spec,
    Volume,
)

USER = "alice"
AS_USER = f"--as={USER}"
LOOK = """
import os, socket, time
for line in open("/proc/self/status"):
    if line.startswith(("Uid", "Cap", "NoNewPrivs", "Seccomp:")):
        print(*line.split())
print("token", os.path.exists("/var/run/secrets/kubernetes.io"))
print("services", sorted(name for name in os.environ if name.endswith("_SERVICE_HOST")))
try:
    socket.create_connection(("kubernetes.default", 443), timeout=3)
    print("api reached")
except OSError as error:
    print("api", type(error).__name__)
print("looked", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def alices(new_tenant: Callable[[], Tenant]) -> Tenant:
    """A user's namespace, with Secrets that the user may not read."""
    tenant = new_tenant()
    tenant.let(USER)
    secret: Object = {"apiVersion": "v1", "kind": "Secret", "stringData": {"KEY": "hush"}}
    labelled = {"name": "mine", "labels": {"tfcluster.dev/for-tasks": "true"}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "admin"}}
    tenant.kubectl.apply(
        account,
        {**secret, "metadata": {"name": "theirs"}},
        {**secret, "metadata": labelled},
    )
    options = "configmap/tfcluster-options"
    tenant.kubectl("wait", "--for=create", options, "--timeout=180s", seconds=200)
    return tenant


def refused(tenant: Tenant, *words: str, stdin: str = "") -> str:
    """Run kubectl as the user, which must fail; return the error."""
    try:
        said = tenant.kubectl(AS_USER, *words, stdin=stdin)
    except NodeError as error:
        return str(error)
    raise AssertionError(f"kubectl {words} as the user succeeded: {said}")


def test_what_a_user_tries_is_forbidden(alices: Tenant) -> None:
    """A user can create no pod, Job, token or binding, read no Secret and no other namespace, and
    not write the status of runs. The test impersonates the user.
    """
    made = json.dumps(pod("mine", alices.image))
    alices.kubectl.apply(pod("there", alices.image))
    for words, stdin in (
        (("create", "-f", "-"), made),
        (("create", "job", "x", f"--image={alices.image}"), ""),
        (("get", "secrets"), ""),
        (("get", "secret", "mine"), ""),
        (("create", "token", "admin"), ""),
        (("create", "rolebinding", "x", "--clusterrole=admin", f"--user={USER}"), ""),
        (("exec", "there", "--", "id"), ""),
        (("attach", "there"), ""),
        (("debug", "there", f"--image={alices.image}"), ""),
        (("delete", "pod", "there"), ""),
        (("get", "configmaps"), ""),
        (("get", "tfclusters", "-n", "default"), ""),
        (("get", "pods", "--all-namespaces"), ""),
        (("get", "nodes"), ""),
    ):
        assert "forbidden" in refused(alices, *words, stdin=stdin), words
    assert "tfcluster-options" in alices.kubectl(
        AS_USER, "get", "configmap", "tfcluster-options", "-o", "name"
    )


def launch(tenant: Tenant, name: str, spec: Spec | Object, *options: str) -> None:
    """Create a run as the user."""
    cluster, _dash, run = name.rpartition("-")
    body = custom_resource.write(cluster, int(run), spec) if isinstance(spec, Spec) else spec
    tenant.kubectl(AS_USER, "create", *options, "-f", "-", stdin=json.dumps(body))


SMALL = ReplicaSet(worker=Replicas(count=1, resources=Resources(memory="1Gi")))
FORBIDDEN = {
    "a secret as variables": Pods(secrets=(SecretUse(name="theirs"),)),
    "a secret as files": Pods(secrets=(SecretUse(name="theirs", path="/mnt/keys"),)),
    "a secret for the registry": Pods(image_pull_secrets=("theirs",)),
    "a labelled secret for the registry": Pods(image_pull_secrets=("mine",)),
    "the token of an account": Pods(secrets=(SecretUse(name="admin-token"),)),
    "a claim that is not there": Pods(volumes=(Volume(claim="theirs", path="/mnt/x"),)),
    "a storage class that is not there": Pods(
        data_claim=DataClaim(size="1Gi", storage_class="host-path")
    ),
    "an annotation": Pods(annotations={"container.apparmor.security.beta.kubernetes.io/a": "b"}),
}


def test_the_operator_refuses_forbidden_options(alices: Tenant, tmp_path: Any) -> None:
    """A run with a forbidden Secret, claim, storage class or annotation is Failed with the reason,
    and no objects are created for it.
    """
    program = tmp_path / "p.py"
    program.write_text("print(1)\n")
    names = {f"tries{index}-1": what for index, what in enumerate(FORBIDDEN)}
    for name, what in names.items():
        launch(alices, name, spec_of(program, replicas=SMALL, pods=FORBIDDEN[what]))
    for name, what in names.items():
        status = alices.phase(name, "Failed", seconds=90)
        assert "the launch was refused" in status["message"], what
        assert alices.left_of(name) == [f"tfcluster/{name}"], what


SMUGGLED: dict[str, Any] = {
    "serviceAccountName": "admin",
    "serviceAccount": "admin",
    "automountServiceAccountToken": True,
    "nodeName": "node-1",
    "nodeSelector": {"a": "b"},
    "hostNetwork": True,
    "hostPID": True,
    "hostIPC": True,
    "privileged": True,
    "securityContext": {"runAsUser": 0, "privileged": True},
    "priorityClassName": "system-node-critical",
    "tolerations": [{"operator": "Exists"}],
    "volumes": [{"name": "x", "hostPath": {"path": "/"}}],
    "initContainers": [{"name": "x", "image": "x"}],
    "hostPath": {"path": "/"},
}
PLACES = ((), ("pods",), ("replicas", "worker"), ("replicas", "worker", "resources"), ("program",))


def test_no_field_can_be_smuggled_in(alices: Tenant, tmp_path: Any) -> None:
    """A service account, node, host path or privilege anywhere in a spec is refused, and the
    message names the field. If the client turns validation off by `--validate=ignore`, the API
    server drops these fields, and the run's pods have none of them.
    """
    program = tmp_path / "look.py"
    program.write_text(LOOK)
    plain = custom_resource.write("look", 1, spec_of(program, replicas=SMALL))
    whole: Object = json.loads(json.dumps(plain))
    for place in PLACES:
        body: Object = json.loads(json.dumps(plain))
        for content in (body, whole):
            found = content["spec"]
            for step in place:
                found = found.setdefault(step, {})
            found.update(
                {k: v for k, v in SMUGGLED.items() if (place, k) != (("pods",), "volumes")}
            )
        with pytest.raises(NodeError) as error:
            launch(alices, "look-1", body, "--validate=strict")
        for field in SMUGGLED:
            where = ".".join(("spec", *place, field))
            if where != "spec.pods.volumes":
                assert f'unknown field "{where}"' in str(error.value), where
    launch(alices, "look-1", whole, "--validate=ignore")
    alices.phase("look-1", "Running", seconds=90)
    (task,) = alices.pods("look-1")
    spec = task["spec"]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("default", False)
    kinds = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}
    assert kinds <= {"configMap", "emptyDir", "persistentVolumeClaim"}
    for field in ("hostNetwork", "hostPID", "hostIPC", "nodeSelector", "initContainers"):
        assert not spec.get(field), field
    assert spec.get("priorityClassName") != "system-node-critical"
    name = task["metadata"]["name"]
    wait_until(lambda: "looked" in alices.kubectl.logs(name), "its program has printed", seconds=60)
    said = alices.kubectl.logs(name)
    assert "Uid: 1000 1000 1000 1000" in said
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert f"{capabilities}: 0000000000000000" in said, said
    assert "NoNewPrivs: 1" in said
    assert "Seccomp: 2" in said
    assert "token False" in said
    assert "api reached" not in said
    assert "api " in said
    body = json.dumps({"spec": {"stop": {"reason": "over", "by": USER}}})
    alices.kubectl(AS_USER, "patch", "tfcluster", "look-1", "--type=merge", "-p", body)


@pytest.mark.needs("registry")
def test_a_nodes_cache_gives_nobody_a_private_image(
    alices: Tenant, cluster: UnderTest, new_namespace: Callable[[], Kubectl]
) -> None:
    """A run with a private image and no Secret cannot use the image, even if another user's pull
    left it on the node.
    """
    private = cluster.busybox.replace(REGISTRY, PRIVATE)
    owners = new_namespace()
    pulls = pod("owner", private)
    pulls["spec"]["imagePullSecrets"] = [{"name": "access"}]
    owners.apply(ACCESS_SECRET, pulls)
    owners.running("owner")
    launch(alices, "stolen-1", Spec(mode=Mode.IN_GRAPH, replicas=SMALL, image=private))
    told = alices.wait("stolen-1", lambda s: "is private" in s.get("message", ""), "it is refused")
    assert private in told["message"]
    (task,) = alices.pods("stolen-1")
    (state,) = task["status"]["containerStatuses"]
    assert not state.get("started") and not state["state"].get("running")
    alices.kubectl(AS_USER, "delete", "tfcluster", "stolen-1")


def test_a_run_cannot_be_changed_into_another(alices: Tenant, tmp_path: Any) -> None:
    """A user can stop or delete a run, but not change its image or its status."""
    program = tmp_path / "p.py"
    program.write_text("import time\ntime.sleep(600)\n")
    launch(alices, "kept-1", spec_of(program, replicas=SMALL))

    def patched(content: Object, *options: str) -> str:
        words = ("patch", "tfcluster", "kept-1", "--type=merge", "-p", json.dumps(content))
        return refused(alices, *words, *options)

    assert "only spec.stop" in patched({"spec": {"image": "docker.io/miner"}})
    assert "forbidden" in patched({"status": {"phase": "Succeeded"}}, "--subresource=status")
    alices.kubectl(AS_USER, "delete", "tfcluster", "kept-1")
