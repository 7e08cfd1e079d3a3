"""DNS names of an Indexed Job's pods, negative caching, and the DNS autoscaler."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml
from kubenode import dns, paths
from kubenode.commands import wait_until
from kubenode.errors import NodeError
from scale import name_lookups, real
from support.kube.kubectl import Kubectl, Object
from support.kube.under_test import UnderTest
from support.kube.workloads import WEB, fetch, job, service, spec

from tfcluster_magic.kube.objects.pod_template import runtime_archive

COUNT = 3
NEVER_READY = {"exec": {"command": ["false"]}}
DNS_AUTOSCALER = paths.ROOT / "k8s" / "overlays" / "dns-autoscaler"


def test_pods_of_a_job_have_names_before_they_are_ready(cluster: UnderTest, kube: Kubectl) -> None:
    """A headless Service that publishes unready pods gives every pod of an Indexed Job a name."""
    template = spec(
        cluster.busybox,
        *("sh", "-c", f"hostname >/tmp/index.html; exec httpd -f -p {WEB} -h /tmp"),
        readinessProbe=NEVER_READY,
    )
    template["subdomain"] = "tasks"
    kube.apply(
        service("tasks", "task", WEB, clusterIP="None", publishNotReadyAddresses=True),
        job("task", template, COUNT),
    )
    wait_until(lambda: running(kube) == COUNT, "all its pods run", seconds=90)
    pods = kube.every("pod", "app=task")
    asking = pods[0]["metadata"]["name"]
    for index in range(COUNT):
        name = f"task-{index}"
        page = fetch(f"{name}.tasks")
        wait_until(lambda page=page: kube.succeeds(asking, *page), f"{name} answers", seconds=90)
        assert kube.exec(asking, *page).strip() == name


@pytest.fixture
def keeping(cluster: UnderTest) -> Iterator[str]:
    """The address of a CoreDNS that caches missing names for half a minute."""
    assert cluster.own
    with dns.caching(cluster.own.first):
        yield cluster.own.first.ip


def exists(kube: Kubectl, name: str, server: str) -> bool | None:
    """Return whether a DNS server has a name, as a task in the pod "asker" sees it; None if
    unknown.
    """
    said = f"nameserver {server}\nsearch {kube.namespace}.svc.cluster.local\n"
    packed = "/tmp/runtime.zip"
    asks = (
        f"import base64, sys\nopen({packed!r}, 'wb')"
        f".write(base64.b64decode({runtime_archive()!r}))\n"
        f"sys.path.insert(0, {packed!r})\nimport name_resolution as asked\n"
        f"asked.RESOLV_CONF, asked.DNS_PORT = '/tmp/resolv.conf', {dns.CACHING_PORT}\n"
        f"open(asked.RESOLV_CONF, 'w').write({said!r})\nprint(asked.name_exists({name!r}))"
    )
    heard = kube("exec", "-i", "asker", "--", "python3", "-", stdin=asks).strip()
    return {"True": True, "False": False}.get(heard)


@pytest.mark.needs("node-inside")
def test_a_name_that_was_asked_for_too_early_is_seen_at_once(
    cluster: UnderTest, kube: Kubectl, keeping: str
) -> None:
    """A task sees a new name at once, even if the server still answers other clients from its cache
    that the name is missing.
    """
    early = {
        "do": "early",
        "name": f"task-0.tasks.{kube.namespace}.svc.cluster.local",
        "servers": {"keeping": (keeping, dns.CACHING_PORT)},
    }
    template = spec(cluster.busybox)
    template["subdomain"] = "tasks"
    kube.apply(real.asker(cluster.description.images["notebook"]), job("task", template))
    kube.running("asker", real.IMAGE_PULL)
    wait_until(lambda: running(kube) == 1, "its pod runs", seconds=90)
    wait_until(lambda: exists(kube, "task-0.tasks", keeping) is False, "it answers", seconds=90)
    assert real.ask(kube, **early) == {"keeping": name_lookups.NO_NAME}
    kube.apply(service("tasks", "task", WEB, clusterIP="None", publishNotReadyAddresses=True))
    wait_until(lambda: exists(kube, "task-0.tasks", keeping), "the name is there", seconds=90)
    assert real.ask(kube, **early) == {"keeping": name_lookups.NO_NAME}


def test_dns_grows_with_the_nodes(cluster: UnderTest) -> None:
    """The API server accepts k8s/overlays/dns-autoscaler, which runs one CoreDNS for every ten
    nodes.
    """
    told = cluster.kubectl("kustomize", str(DNS_AUTOSCALER))
    made = cluster.kubectl("apply", "--dry-run=server", "-f", "-", "-o", "name", stdin=told)
    assert sorted(made.split()) == [
        "clusterrole.rbac.authorization.k8s.io/tfcluster-dns-autoscaler",
        "clusterrolebinding.rbac.authorization.k8s.io/tfcluster-dns-autoscaler",
        "configmap/dns-autoscaler",
        "deployment.apps/dns-autoscaler",
        "role.rbac.authorization.k8s.io/dns-autoscaler",
        "rolebinding.rbac.authorization.k8s.io/dns-autoscaler",
        "serviceaccount/dns-autoscaler",
    ]
    every = {each["kind"]: each for each in yaml.safe_load_all(told)}
    data = every["ConfigMap"]["data"]  # the autoscaler accepts one mode: linear or ladder
    assert {mode: json.loads(text) for mode, text in data.items()} == {
        "linear": {"nodesPerReplica": 10, "min": 1, "max": 50}
    }
    pod = every["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["serviceAccountName"] == every["ServiceAccount"]["metadata"]["name"]
    assert "--target=Deployment/coredns" in container["args"]
    assert f"--configmap={every['ConfigMap']['metadata']['name']}" in container["args"]


@pytest.mark.needs("node-inside")
def test_the_dns_autoscaler_has_the_rights_it_needs(cluster: UnderTest) -> None:
    """The autoscaler's account may count nodes, read its ConfigMap, and scale CoreDNS but no other
    Deployment.

    The test makes the autoscaler's API calls instead of running the autoscaler. The node's CoreDNS
    is not a Deployment, so a paused Deployment stands in for it.
    """
    told = list(yaml.safe_load_all(cluster.kubectl("kustomize", str(DNS_AUTOSCALER))))
    objects = [each for each in told if each["kind"] != "Deployment"]
    objects += [paused(name, spec(cluster.busybox)) for name in ("coredns", "other")]
    system = cluster.kubectl.within("kube-system")
    account = "--as=system:serviceaccount:kube-system:dns-autoscaler"
    where = "/apis/apps/v1/namespaces/kube-system/deployments/{}/scale"
    try:
        system.apply(*objects)
        assert system("get", account, "nodes", "-o", "name").split()
        found = json.loads(system("get", account, "configmap", "dns-autoscaler", "-o", "json"))
        assert found["data"]["linear"]
        scale = json.loads(system("get", account, "--raw", where.format("coredns")))
        scale["spec"]["replicas"] = 6
        replace = ("replace", account, "-f", "-", "--raw")
        system(*replace, where.format("coredns"), stdin=json.dumps(scale))
        found = json.loads(system("get", "deployment", "coredns", "-o", "json"))
        assert found["spec"]["replicas"] == 6
        with pytest.raises(NodeError, match=r"(?i)forbidden"):
            system("get", account, "--raw", where.format("other"))
    finally:
        system("delete", "--ignore-not-found", "-f", "-", stdin=yaml.safe_dump_all(objects))


def paused(name: str, template: Object) -> Object:
    """Return a paused Deployment, which creates no pods."""
    labels = {"app": name}
    pod = {**template, "restartPolicy": "Always"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "paused": True,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def running(kube: Kubectl) -> int:
    """Return how many of the Job's pods are running; none of them becomes ready."""
    return sum(each["status"]["phase"] == "Running" for each in kube.every("pod", "app=task"))
