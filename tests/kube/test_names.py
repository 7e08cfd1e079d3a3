"""Names: the pods of an Indexed Job find one another by a headless Service, and DNS grows."""

from __future__ import annotations

import json

import yaml
from conftest import UnderTest
from kubectl import Kubectl
from kubenode import paths
from kubenode.commands import wait_until
from workloads import WEB, fetch, job, service, spec

COUNT = 3
NEVER_READY = {"exec": {"command": ["false"]}}
DNS_AUTOSCALER = paths.ROOT / "k8s" / "overlays" / "dns-autoscaler"


def test_pods_of_a_job_have_names_before_they_are_ready(cluster: UnderTest, kube: Kubectl) -> None:
    """A headless Service that publishes unready pods names every pod of an Indexed Job."""
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


def test_dns_grows_with_the_nodes(cluster: UnderTest) -> None:
    """The API server takes k8s/overlays/dns-autoscaler, which has one CoreDNS for ten nodes."""
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
    data = every["ConfigMap"]["data"]  # the program takes one mode alone
    assert {mode: json.loads(text) for mode, text in data.items()} == {
        "linear": {"nodesPerReplica": 10, "min": 1, "max": 50}
    }
    pod = every["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["serviceAccountName"] == every["ServiceAccount"]["metadata"]["name"]
    assert "--target=Deployment/coredns" in container["args"]
    assert f"--configmap={every['ConfigMap']['metadata']['name']}" in container["args"]


def running(kube: Kubectl) -> int:
    """How many of the Job's pods run; none of them is ever ready."""
    return sum(each["status"]["phase"] == "Running" for each in kube.every("pod", "app=task"))
