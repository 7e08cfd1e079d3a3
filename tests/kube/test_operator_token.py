"""The rights of a stolen operator token, and how a namespace admits the operator."""

from __future__ import annotations

import copy
import json
import shlex
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kubenode.commands import wait_until
from kubenode.errors import NodeError
from support.kube import tenants, workloads
from support.kube.kubectl import Kubectl, Object
from support.kube.operator import SYSTEM, Tenant, spec_of, tenancy
from support.kube.operator_modes import Installed
from support.kube.under_test import UnderTest

from tfcluster_magic.kube.api.client import ApiError, path
from tfcluster_magic.kube.api.labels import OPERATOR, OPERATOR_ROLE
from tfcluster_magic.kube.objects import custom_resource, network_policy, run_objects
from tfcluster_magic.kube.objects.network_policy import DEFAULT_DNS, DnsResolver
from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.spec import Pods, Program, Spec, Volume

pytestmark = pytest.mark.needs("node-inside", "rwx")

RUN = "tried-1"
NO_RIGHT = "cannot"
LABELS = "the operator may only touch objects with the labels of a run"
DENIED = "denied request"
"""Part of the API server's message if an admission policy refuses a request. It is used where two
policies refuse the request, because the message may name either of them.
"""
OPEN = "may only write in namespaces labelled tfcluster.dev/tenant=true"
HOME = "may only write its Lease, its ledgers and its check"
WAITS = "import time\ntime.sleep(600)\n"


@pytest.fixture(scope="module")
def thief(
    cluster: UnderTest, installed: Installed | None, tmp_path_factory: pytest.TempPathFactory
) -> Kubectl:
    """A kubectl with a token of the installed operator's account."""
    assert installed, "these tests are about the installed operator"
    home, account = OPERATOR
    where = tmp_path_factory.mktemp("thief") / "kubeconfig"
    config = tenants.kubeconfig(cluster.kubectl.within(home), where, account=account)
    return replace(cluster.kubectl, kubeconfig=str(config))


@pytest.fixture(scope="module")
def alices(new_tenant: Callable[[], Tenant], tmp_path_factory: pytest.TempPathFactory) -> Tenant:
    """A tenant with a running run, a run that cannot start, and objects that belong to no run."""
    tenant = new_tenant()
    program = tmp_path_factory.mktemp("program") / "waits.py"
    program.write_text(WAITS)
    tenant.launch("waits-1", spec_of(program, ps=1))
    tenant.launch(RUN, _impossible(program))
    foreign = workloads.job("foreign", workloads.spec(tenant.image), suspend=True)
    selector = {"app": "foreign"}
    service: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "foreign"},
        "spec": {"selector": selector, "ports": [{"port": 80}]},
    }
    plain = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "foreign"}}
    tenant.kubectl.apply(foreign, service, plain, workloads.pod("foreign", tenant.image))
    tenant.phase(RUN, "Failed")
    tenant.phase("waits-1", "Running")
    return tenant


def _impossible(program: Path) -> Spec:
    nowhere = Pods(volumes=(Volume(claim="nowhere", path="/mnt/x"),))
    return spec_of(program, ps=1, pods=nowhere)


@pytest.fixture(scope="module")
def parts(alices: Tenant) -> dict[str, Object]:
    """The objects that the operator would create for the run that cannot start, by kind."""
    found = custom_resource.read(alices.kubectl.get("tfcluster", RUN))
    policy = Policy(priority_class="tfcluster-task", data_claim="data", log_claim="log")
    made = run_objects.objects_of_run(found, policy, namespace=alices.name)
    return {each["kind"]: each for each in made}


def created(thief: Kubectl, namespace: str, made: Object) -> str:
    """Create an object as the thief in a dry run; return the refusal, or "" if accepted."""
    body = copy.deepcopy(made)
    body["metadata"].pop("namespace", None)
    return done(thief, namespace, "create", "--dry-run=server", "-f", "-", stdin=json.dumps(body))


def done(thief: Kubectl, namespace: str, *words: str, stdin: str = "") -> str:
    """Run a command as the thief; return the refusal, or "" if it worked."""
    try:
        thief.within(namespace)(*words, stdin=stdin)
    except NodeError as error:
        return str(error)
    return ""


def test_nothing_foreign_is_read_or_touched(
    thief: Kubectl, alices: Tenant, kube: Kubectl, parts: dict[str, Object]
) -> None:
    """Outside of tenants' namespaces the token creates no Job and reads no log, ConfigMap, event or
    Secret. In a tenant's namespace it changes no Service, ConfigMap, Job or pod of others.
    """
    kube.apply(workloads.pod("foreign", alices.image))
    for where in ("kube-system", "default", SYSTEM, kube.namespace):
        for kind in ("Job", "Service", "ConfigMap", "NetworkPolicy"):
            if (where, kind) not in ((SYSTEM, "ConfigMap"), (SYSTEM, "NetworkPolicy")):
                assert NO_RIGHT in created(thief, where, parts[kind]), (where, kind)
        for words in (("get", "secrets"), ("get", "secret", "x"), ("get", "events")):
            assert NO_RIGHT in done(thief, where, *words), (where, words)
    assert NO_RIGHT in done(thief, kube.namespace, "logs", "foreign")
    for where in ("kube-system", kube.namespace):
        assert NO_RIGHT in done(thief, where, "get", "configmap", "kube-root-ca.crt")
    assert NO_RIGHT in done(thief, "default", "delete", "service", "kubernetes", "--wait=false")
    for words in (
        ("get", "configmaps"),
        ("get", "secret", "x"),
        ("exec", "foreign", "--", "id"),
        ("create", "token", "default"),
        ("create", "rolebinding", "x", "--clusterrole=cluster-admin", "--user=eve"),
        ("create", "serviceaccount", "x"),
        ("label", "namespace", kube.namespace, "tfcluster.dev/tenant=true"),
        ("delete", "namespace", kube.namespace),
    ):
        assert NO_RIGHT in done(thief, alices.name, *words), words
    assert NO_RIGHT in created(thief, alices.name, workloads.pod("mine", alices.image))
    for kind in ("service", "configmap", "job"):
        said = done(thief, alices.name, "delete", kind, "foreign", "--wait=false")
        assert LABELS in said, (kind, said)
    resume = ("patch", "job", "foreign", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    assert DENIED in done(thief, alices.name, *resume)
    for where in (alices.name, kube.namespace):
        with pytest.raises(ApiError, match="the status of pods that have the labels of a run"):
            thief.api.merge(
                path("pods", where, "foreign", "status"), {"status": {"phase": "Failed"}}
            )
    assert done(thief, alices.name, "delete", "tfcluster", RUN, "--dry-run=server") == ""
    over = "delete the record when it is over"
    assert over in done(thief, alices.name, "delete", "tfcluster", "waits-1", "--wait=false")
    stop = ("patch", "tfcluster", "waits-1", "--type=merge", "-p", '{"spec": {"stop": {}}}')
    assert "and stop a run of a schedule" in done(thief, alices.name, *stop)
    made = custom_resource.write("sneaky", 1, Spec(program=Program(inline="print()")))
    marks = {"tfcluster.dev/schedule": "other", "tfcluster.dev/schedule-uid": "x"}
    for labels in ({}, marks):
        made["metadata"]["labels"] = labels
        with pytest.raises(ApiError, match="may only create runs of schedules"):
            thief.api.create(path("tfclusters", alices.name), made)


def _pod(job: Object) -> Any:
    return job["spec"]["template"]["spec"]


def _container(job: Object) -> Any:
    return _pod(job)["containers"][0]


def _label_both(job: Object, marks: dict[str, str]) -> None:
    for each in (job, job["spec"]["template"]):
        each["metadata"]["labels"].update(marks)


SECRET_KEY = {"name": "K", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}
CONFIG_KEY = {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}
GREATEST = {"privileged": True, "allowPrivilegeEscalation": True}
ACCOUNT, NODE = "no account of their own and no token", "share nothing with their node"
ONE, MOUNTS = "one container without root and privileges", "and nothing of their node"
OWNED, HOOKS = "is owned by the TFCluster that its labels name", "has no hooks"
SHAPES: dict[str, tuple[str, Callable[[Object], object]]] = {
    "an account": (ACCOUNT, lambda j: _pod(j).update(serviceAccountName="admin")),
    "a token": (ACCOUNT, lambda j: _pod(j).pop("automountServiceAccountToken")),
    "the node's network": (NODE, lambda j: _pod(j).update(hostNetwork=True)),
    "the node's processes": (NODE, lambda j: _pod(j).update(hostPID=True)),
    "a node": (NODE, lambda j: _pod(j).update(nodeName="node-1")),
    "a priority": (NODE, lambda j: _pod(j).update(priorityClassName="system-node-critical")),
    "privileges": (ONE, lambda j: _container(j)["securityContext"].update(GREATEST)),
    "capabilities": (ONE, lambda j: _container(j)["securityContext"].pop("capabilities")),
    "root": (ONE, lambda j: _pod(j)["securityContext"].pop("runAsNonRoot")),
    "another container": (
        ONE,
        lambda j: _pod(j).update(initContainers=[{**_container(j), "name": "x"}]),
    ),
    "a folder of the node": (
        MOUNTS,
        lambda j: _pod(j)["volumes"].append({"name": "x", "hostPath": {"path": "/"}}),
    ),
    "somebody's ConfigMap": (
        MOUNTS,
        lambda j: _pod(j)["volumes"].append({"name": "x", "configMap": {"name": "foreign"}}),
    ),
    "a key of a ConfigMap": (MOUNTS, lambda j: _container(j).update(env=[CONFIG_KEY])),
    "a hook": (
        HOOKS,
        lambda j: _container(j).update(lifecycle={"preStop": {"sleep": {"seconds": 1}}}),
    ),
    "a port of the node": (
        HOOKS,
        lambda j: _container(j).update(ports=[{"containerPort": 80, "hostPort": 80}]),
    ),
    "somebody's labels": (
        DENIED,
        lambda j: j["metadata"]["labels"].update({"app.kubernetes.io/managed-by": "thief"}),
    ),
    "no owner": (OWNED, lambda j: j["metadata"].pop("ownerReferences")),
    "another run's": (OWNED, lambda j: j["metadata"]["ownerReferences"][0].update(uid="other")),
    "another name": ("is named after its run", lambda j: j["metadata"].update(name="tried-1-x")),
    "a notebook's label": (
        "have its labels and no other",
        lambda j: j["spec"]["template"]["metadata"]["labels"].update(
            {"tfcluster.dev/notebook": "true"}
        ),
    ),
    "a notebook's label, on the Job as well": (
        "have its labels and no other",
        lambda j: _label_both(j, {"tfcluster.dev/notebook": "true"}),
    ),
    "an archive's label, on the Job as well": (
        "have its labels and no other",
        lambda j: _label_both(j, {"tfcluster.dev/archive": "true"}),
    ),
    "a label that looks like Kubernetes' own": (
        "have its labels and no other",
        lambda j: _label_both(j, {"example.com/job-name": "x"}),
    ),
    "another value of a label": (
        "have its labels and no other",
        lambda j: j["spec"]["template"]["metadata"]["labels"].update(
            {"app.kubernetes.io/name": "other"}
        ),
    ),
    "a label of the Job alone": (
        "has the labels of tasks and no other",
        lambda j: j["metadata"]["labels"].update({"tfcluster.dev/archive": "true"}),
    ),
    "a finalizer": ("has no finalizers", lambda j: j["metadata"].update(finalizers=["a.b/c"])),
}


def test_only_jobs_of_a_run_are_created(
    thief: Kubectl, alices: Tenant, parts: dict[str, Object]
) -> None:
    """In a tenant's namespace the token can only create Jobs of an existing run. It can create no
    Job with an account, a token, privileges, access to the node, or files of others.
    """
    assert created(thief, alices.name, parts["Job"]) == ""
    of_secret = copy.deepcopy(parts["Job"])
    _container(of_secret)["env"].append(SECRET_KEY)
    assert created(thief, alices.name, of_secret) == ""
    for what, (words, change) in SHAPES.items():
        other = copy.deepcopy(parts["Job"])
        change(other)
        assert words in created(thief, alices.name, other), what
    patch = ("patch", "job", "waits-1-worker", "--dry-run=server", "--type=merge", "-p")
    for field in ("parallelism", "backoffLimit", "activeDeadlineSeconds"):
        said = done(thief, alices.name, *patch, json.dumps({"spec": {field: 9}}))
        assert "may only suspend or resume a Job" in said, field
    said = done(thief, alices.name, *patch, '{"spec": {"ttlSecondsAfterFinished": null}}')
    assert "may only suspend or resume a Job" in said
    stopped = {"metadata": {"annotations": {"a": "b"}}, "spec": {"suspend": True}}
    assert done(thief, alices.name, *patch, json.dumps(stopped)) == ""


def test_only_the_status_of_a_tasks_pod_is_written(thief: Kubectl, alices: Tenant) -> None:
    """The token can write the phase and the conditions of a run's pods, but neither their labels,
    annotations, finalizers nor addresses.
    """
    (pod,) = [
        each["metadata"]["name"]
        for each in alices.kubectl.every("pod")
        if each["metadata"]["name"].startswith("waits-1-worker-")
    ]
    where = path("pods", alices.name, pod, "status")
    for change in (
        {"metadata": {"labels": {"tfcluster.dev/notebook": "true"}}},
        {"metadata": {"labels": {"tfcluster.dev/task-type": None}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"metadata": {"finalizers": ["a.b/c"]}},
        {"status": {"podIP": "10.9.8.7", "podIPs": [{"ip": "10.9.8.7"}]}},
    ):
        with pytest.raises(ApiError, match="neither labels, annotations, finalizers nor addresses"):
            thief.api.merge(where, change, dryRun="All")
    disowned = {"metadata": {"labels": {"app.kubernetes.io/managed-by": "thief"}}}
    with pytest.raises(ApiError, match="the status of pods that have the labels of a run"):
        thief.api.merge(where, disowned, dryRun="All")
    thief.api.merge(where, {"status": {"phase": "Failed"}}, dryRun="All")


def test_images_are_those_that_an_administrator_names(
    thief: Kubectl, alices: Tenant, parts: dict[str, Object], cluster: UnderTest
) -> None:
    """If the ConfigMap tfcluster-images has patterns, the image of a run's Job must fully match one
    of them. The operator's account cannot write that ConfigMap.
    """
    other = copy.deepcopy(parts["Job"])
    _container(other)["image"] = "quarantine.example.com/registry.example.com/team/a"
    allowed = copy.deepcopy(parts["Job"])
    _container(allowed)["image"] = "registry.example.com/team/a"
    # The second pattern allows other tests' images.
    patterns = "registry\\.example\\.com/team/[^/]+\n[^q].*\n"
    images: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "tfcluster-images"},
        "data": {"images": patterns},
    }
    assert HOME in created(thief, SYSTEM, images)
    assert created(thief, alices.name, other) == ""
    system = cluster.kubectl.within(SYSTEM)
    system.apply(images)
    try:
        refused = "has no pattern for this image"
        wait_until(
            lambda: refused in created(thief, alices.name, other), "patterns apply", seconds=60
        )
        assert created(thief, alices.name, allowed) == ""
    finally:
        system.delete("configmap", "tfcluster-images")


def _enters(policy: Object, *peers: Object) -> None:
    policy["spec"]["ingress"].append({"from": list(peers)})


def _leaves(policy: Object, *peers: Object, port: int = 0) -> None:
    ports = {"ports": [{"port": port, "protocol": "TCP"}]} if port else {}
    policy["spec"]["egress"].append({"to": list(peers), **ports})


def _block(cidr: str, *excepted: str) -> Object:
    return {"ipBlock": {"cidr": cidr, **({"except": list(excepted)} if excepted else {})}}


FOREIGN = {"podSelector": {"matchLabels": {"app": "foreign"}}}
ANYBODYS = {"podSelector": {}, "namespaceSelector": {}}
DNS_PODS = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
    "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
}
IN, OUT = "lets in the pods of its run and notebooks", "networks without closed addresses"
OTHERS: dict[str, tuple[str, str, Callable[[Object], object]]] = {
    "an address": ("Service", "no address of its own", lambda o: o["spec"].pop("clusterIP")),
    "a port of all nodes": (
        "Service",
        "no address of its own",
        lambda o: o["spec"].update(type="NodePort", clusterIP=""),
    ),
    "somebody's pods": (
        "Service",
        "names the pods of its run",
        lambda o: o["spec"].update(selector={"app": "foreign"}),
    ),
    "a policy for all pods": (
        "NetworkPolicy",
        "about the pods of its run alone",
        lambda o: o["spec"].update(podSelector={}),
    ),
    "a way in for all": ("NetworkPolicy", IN, lambda o: o["spec"]["ingress"].append({})),
    "a way in for somebody's pods": ("NetworkPolicy", IN, lambda o: _enters(o, FOREIGN)),
    "a way in for its namespace": (
        "NetworkPolicy",
        IN,
        lambda o: o["spec"]["ingress"][0]["from"].append({"podSelector": {}}),
    ),
    "a way in for any namespace": (
        "NetworkPolicy",
        IN,
        lambda o: o["spec"]["ingress"][0]["from"][1].update(namespaceSelector={}),
    ),
    "a way in for a network": ("NetworkPolicy", IN, lambda o: _enters(o, _block("10.0.0.0/8"))),
    "a way out to all": ("NetworkPolicy", OUT, lambda o: o["spec"]["egress"].append({})),
    "a way out to somebody's pods": ("NetworkPolicy", OUT, lambda o: _leaves(o, FOREIGN)),
    "a way out to any namespace": ("NetworkPolicy", OUT, lambda o: _leaves(o, ANYBODYS, port=53)),
    "all ports of DNS servers": ("NetworkPolicy", OUT, lambda o: _leaves(o, DNS_PODS)),
    "all networks": ("NetworkPolicy", OUT, lambda o: _leaves(o, _block("0.0.0.0/0"))),
    "all networks of the new family": ("NetworkPolicy", OUT, lambda o: _leaves(o, _block("::/0"))),
    "all networks but one address": (
        "NetworkPolicy",
        OUT,
        lambda o: _leaves(o, _block("0.0.0.0/0", "169.254.169.254/32")),
    ),
    "a part of what stays closed": (
        "NetworkPolicy",
        OUT,
        lambda o: _leaves(o, _block("169.254.169.0/24", "169.254.169.0/25"), port=53),
    ),
    "a metadata service": (
        "NetworkPolicy",
        OUT,
        lambda o: _leaves(o, _block("169.254.169.254/32"), port=80),
    ),
    "another name": (
        "ConfigMap",
        "has the name of its run",
        lambda o: o["metadata"].update(name="x"),
    ),
    "no owner": ("ConfigMap", OWNED, lambda o: o["metadata"].pop("ownerReferences")),
}


def _every_network_policy(made: Object) -> list[Object]:
    """Return a run's NetworkPolicies for every kind of DNS server and grant, in both modes."""
    openshift = DnsResolver(namespace="openshift-dns", pods="a.b/c=default,d=", port=5353)
    dns = (
        *(*DEFAULT_DNS, openshift),
        *(DnsResolver(network=each) for each in ("169.254.20.10", "fe80::53", "0.0.0.0/0")),
        DnsResolver(network="10.1.2.3", port=5353),
    )
    grants = ("0.0.0.0/0", "::/0", "10.0.0.0/8", "169.0.0.0/8", "64:ff9b::/96", "2001:db8::1")
    selector = made["spec"]["podSelector"]["matchLabels"]
    head = {k: v for k, v in made["metadata"].items() if k != "namespace"}
    return [
        network_policy.task_network_policy(
            head, selector, in_graph=in_graph, dns=servers, egress=egress
        )
        for in_graph, servers, egress in ((True, dns, grants), (False, DEFAULT_DNS, ()))
    ]


def test_only_objects_of_a_run_are_created(
    thief: Kubectl, alices: Tenant, parts: dict[str, Object]
) -> None:
    """The token creates Services, NetworkPolicies and ConfigMaps only for the pods of their own
    run, and only new, empty claims.
    """
    for kind in ("Service", "NetworkPolicy", "ConfigMap"):
        assert created(thief, alices.name, parts[kind]) == "", kind
    for what, (kind, words, change) in OTHERS.items():
        other = copy.deepcopy(parts[kind])
        change(other)
        assert words in created(thief, alices.name, other), what
    for policy in _every_network_policy(parts["NetworkPolicy"]):
        assert created(thief, alices.name, policy) == "", policy["spec"]
    claim: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {**parts["Service"]["metadata"], "name": f"{RUN}-data"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }
    assert created(thief, alices.name, claim) == ""
    claim["spec"]["volumeName"] = "somebodys"
    assert "a new and empty one" in created(thief, alices.name, claim)


def test_a_binding_alone_opens_no_namespace(
    cluster: UnderTest, thief: Kubectl, kube: Kubectl, parts: dict[str, Object]
) -> None:
    """The token creates nothing in a namespace without the tenant label, even if the operator's
    role is bound there. The same is true for a namespace of the cluster itself, even with the label
    and the binding.
    """
    names = (kube.namespace, f"kube-tests-{uuid.uuid4().hex[:8]}")
    marks = {"tfcluster.dev/tenant": "true", "tfcluster-tests": "true"}
    head = {"name": names[1], "labels": marks}
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": head})
    try:
        for name in names:
            bind(cluster.kubectl.within(name))
            assert OPEN in created(thief, name, parts["Job"]), name
    finally:
        cluster.kubectl("delete", "namespace", names[1], "--wait=false")


def bind(inside: Kubectl) -> None:
    """Bind the operator's role in a namespace."""
    account = "--serviceaccount={}:{}".format(*OPERATOR)
    role = f"--clusterrole={OPERATOR_ROLE}"
    inside("create", "rolebinding", OPERATOR_ROLE, role, account)


def test_the_operators_namespace_gives_no_more_rights(thief: Kubectl, cluster: UnderTest) -> None:
    """In the operator's own namespace the token can change neither the operator's policy nor the
    Lease of another service. It can create no pod with a secret or a token, and no NetworkPolicy
    that opens the network.
    """
    system = cluster.kubectl.within(SYSTEM)
    policy = next(
        each
        for each in system.every("configmap")
        if each["metadata"]["name"].startswith("tfcluster-policy")
    )
    policy["data"] = {"policy.yaml": "{}"}
    with pytest.raises(ApiError, match=HOME):
        thief.api.replace(path("configmaps", SYSTEM, policy["metadata"]["name"]), policy)
    lease: Object = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "tfcluster-tenancy"},
        "spec": {},
    }
    assert HOME in created(thief, SYSTEM, lease)
    assert HOME in created(thief, SYSTEM, workloads.pod("mine", cluster.busybox))
    check = workloads.pod("mine", cluster.busybox)
    check["metadata"]["labels"] = {"app.kubernetes.io/component": "tfcluster-enforcement"}
    assert created(thief, SYSTEM, check) == ""
    with_secret = copy.deepcopy(check)
    with_secret["spec"]["volumes"] = [{"name": "x", "secret": {"secretName": "x"}}]
    with_token = copy.deepcopy(check)
    del with_token["spec"]["automountServiceAccountToken"]
    for each in (with_secret, with_token):
        assert "no token, no volumes and no secrets" in created(thief, SYSTEM, each)
    opens: Object = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "opens", "labels": check["metadata"]["labels"]},
        "spec": {"podSelector": {}, "egress": [{}], "policyTypes": ["Egress"]},
    }
    assert "lets its own pods talk to one another" in created(thief, SYSTEM, opens)


def test_a_namespace_opts_in_by_one_command(
    cluster: UnderTest, installed: Installed | None, tmp_path: Path
) -> None:
    """In a namespace that has not admitted the operator, a run is Queued without objects, and its
    status shows the command that admits it. After that command the run succeeds.
    """
    assert installed
    name = f"team-{uuid.uuid4().hex[:8]}"
    parts = tenancy(name, cluster.description.storage_class)
    del parts[0]["metadata"]["labels"]["tfcluster.dev/tenant"]
    parts = [each for each in parts if each["metadata"]["name"] != OPERATOR_ROLE]
    cluster.kubectl.apply(*parts)
    inside = cluster.kubectl.within(name)
    inside.wait_until_furnished()
    team = Tenant(inside, installed, cluster.description.images["notebook"])
    program = tmp_path / "brief.py"
    program.write_text("print(1)\n")
    try:
        team.launch("brief-1", spec_of(program))
        told = team.wait("brief-1", lambda s: "kubectl" in s.get("message", ""), "it says how")
        print(told["message"])
        assert told["phase"] == "Queued"
        assert team.left_of("brief-1") == ["tfcluster/brief-1"]
        command = told["message"].split("`")[1]
        for each in command.split(" && "):
            inside(*shlex.split(each)[1:])
        team.phase("brief-1", "Succeeded")
        told = inside.get("configmap", "tfcluster-options")
        assert "offer.json" in told["data"]
    finally:
        cluster.kubectl("delete", "tfclusters", "--all", "-n", name, "--wait=false")
        cluster.kubectl("delete", "namespace", name, "--wait=false")
