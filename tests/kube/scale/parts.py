"""The cost of each part of a task's pod for the API server, measured by leaving the part out.

The unit is the memory that the API server allocates until the pods are running. Half the cost of
600 tasks is the API server's work, which is proportional to this memory. Seconds are no unit for
this, because on a shared machine they vary by half within minutes. A part that is left out here may
still be needed.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping

from kubenode.commands import say

from benchmarks.rows import Row, compared
from tfcluster_magic.kube.api.client import Object, path

from .api_watch import counting
from .site import Site
from .variants import bare, by_hand

PODS = 200
ALLOCATED = "go_memstats_alloc_bytes_total"


def parts(site: Site, rounds: int) -> list[Row]:
    """Compare a Job of the operator's pods with the same Job without one part, for each part in
    turn.
    """
    whole = _job(site)
    jobs = {"bare": bare(PODS), "whole": whole}
    for name, without in PARTS.items():
        jobs[name] = copy.deepcopy(whole)
        without(jobs[name]["spec"]["template"])
    values: Mapping[str, list[float]] = defaultdict(list)
    _cost(site, whole)  # not measured: this includes one-time work
    for number in range(1, rounds + 1):
        for name, job in jobs.items():
            values[name].append(_cost(site, job))
        told = {name: round(each[-1]) for name, each in values.items()}
        say(f"round {number}: KiB for each pod: {told}")
    note = "KiB that the API server allocates for a pod until it runs"
    rows = [compared("scale_pod_to_bare", "KiB", values["whole"], values["bare"], note=note)]
    return rows + [
        compared(f"scale_pod_without_{name}", "KiB", values[name], values["whole"])
        for name in PARTS
    ]


def _job(site: Site) -> Object:
    return next(
        found
        for found in by_hand(site, PODS, 1)
        if found["kind"] == "Job" and found["spec"]["completions"] == PODS
    )


def _cost(site: Site, job: Object) -> float:
    with site.namespace("parts") as namespace, counting(site.api, namespace) as pods:
        before = site.of_api_server(ALLOCATED)
        site.api.create(path("jobs", namespace), job)
        pods.wait(PODS, "all pods run")
        return (site.of_api_server(ALLOCATED) - before) / PODS / 1024


def _of_pod(key: str) -> Callable[[Object], None]:
    def without(template: Object) -> None:
        template["spec"].pop(key)

    return without


def _of_container(key: str) -> Callable[[Object], None]:
    def without(template: Object) -> None:
        for container in template["spec"]["containers"]:
            container.pop(key)

    return without


def _volumes(template: Object) -> None:
    _of_pod("volumes")(template)
    _of_container("volumeMounts")(template)


def _log(template: Object) -> None:
    spec = template["spec"]
    spec["volumes"] = [each for each in spec["volumes"] if each["name"] != "log"]
    for container in spec["containers"]:
        mounts = container["volumeMounts"]
        container["volumeMounts"] = [each for each in mounts if each["name"] != "log"]


def _items(template: Object) -> None:
    for volume in template["spec"]["volumes"]:
        volume.get("configMap", {}).pop("items", None)


def _labels(template: Object) -> None:
    template["metadata"]["labels"] = {"app": "bare"}


PARTS: Mapping[str, Callable[[Object], None]] = {
    "labels": _labels,
    "affinity": _of_pod("affinity"),
    "dns": _of_pod("dnsConfig"),
    "subdomain": _of_pod("subdomain"),
    "volumes": _volumes,
    "log": _log,
    "items": _items,
    "env": _of_container("env"),
    "resources": _of_container("resources"),
    "probe": _of_container("startupProbe"),
}
"""For each part, the function that leaves it out."""
