"""Names: the pods of an Indexed Job find one another by a headless Service."""

from __future__ import annotations

from conftest import UnderTest
from kubectl import Kubectl
from kubenode.commands import wait_until
from workloads import WEB, fetch, job, service, spec

COUNT = 3
NEVER_READY = {"exec": {"command": ["false"]}}


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


def running(kube: Kubectl) -> int:
    """How many of the Job's pods run; none of them is ever ready."""
    return sum(each["status"]["phase"] == "Running" for each in kube.every("pod", "app=task"))
