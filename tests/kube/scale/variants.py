"""The compared ways to create 600 pods. Each way is a list of POSTs; `measure` sends them, and ends
the pods.

All use one connection and one call after the other, so that only the work of the API server and its
controllers differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from kubenode import kwok, paths
from support.kube import training_operator, workloads
from support.kube.operator import spec_of

from tfcluster_magic.kube.api.client import Object, path
from tfcluster_magic.kube.objects import custom_resource, manifests
from tfcluster_magic.kube.objects.manifests import objects_per_task
from tfcluster_magic.spec import Spec, TFCluster

from .api_watch import counting, phases, until
from .site import DEPLOYMENTS, Site

PS, WORKERS = 100, 500
TASKS = PS + WORKERS
RUN = "scale-1"
PROGRAM = paths.ROOT / "examples" / "between_graph.py"
TOLERATIONS = [{"key": kwok.KEY, "operator": "Exists"}]
_COLLECTIONS = {
    "ConfigMap": "configmaps",
    "Service": "services",
    "NetworkPolicy": "networkpolicies",
    "Job": "jobs",
    "TFCluster": "tfclusters",
}
_OTHERS = {
    "Deployment": DEPLOYMENTS,
    "TFJob": training_operator.TFJOBS,
}
Measured = dict[str, float]
_Way = TypeVar("_Way")


@dataclass(frozen=True)
class Way:
    """A way to create the pods: the bodies of its POSTs."""

    name: str
    posts: Callable[[Site], Sequence[Object]]
    ends: bool = True
    """Whether to end the pods too, and measure the time that this takes."""


@cache
def spec(workers: int, ps: int) -> Spec:
    """Return options of tasks that request few resources."""
    return spec_of(PROGRAM, workers=workers, ps=ps)


def record(run: str = RUN, workers: int = WORKERS, ps: int = PS) -> Object:
    """Return the record of a run, which a launch sends to the API server."""
    cluster, _dash, number = run.rpartition("-")
    return custom_resource.write(cluster, int(number), spec(workers, ps))


def bare(count: int) -> Object:
    """Return one Indexed Job of `count` pods."""
    return workloads.job("bare", on_fakes(), count)


def on_fakes() -> Object:
    """Return a pod's spec for fake nodes, without requests."""
    template = workloads.spec("registry:5000/nothing:1")
    return {**template, "nodeSelector": {"type": "kwok"}, "tolerations": TOLERATIONS}


def by_hand(site: Site, workers: int = WORKERS, ps: int = PS) -> Sequence[Object]:
    """Return the objects that the operator would create for a run, to create them without it."""
    return manifests.native_objects(_on_paper(workers, ps), site.policy)


def _per_task(site: Site) -> Sequence[Object]:
    return objects_per_task(_on_paper(WORKERS, PS), site.policy, namespace="")


def _on_paper(workers: int, ps: int) -> TFCluster:
    return manifests.without_identity(custom_resource.read(record(RUN, workers, ps)))


BARE = Way("bare_job", lambda _site: [bare(TASKS)])
BY_HAND = Way("by_hand", by_hand)
PER_TASK = Way("per_task", _per_task, ends=False)
TFCLUSTER = Way("tfcluster", lambda _site: [record()])
WAYS = (BARE, TFCLUSTER, BY_HAND, PER_TASK)


def in_turn(ways: Sequence[_Way], number: int) -> Sequence[_Way]:
    """Return the ways in the order of this round, which rotates so that each way comes first once.

    The order matters: the deletion of thousands of objects slows down the next measurement, and a
    shared machine is slow for minutes at a time.
    """
    first = number % len(ways)
    return [*ways[first:], *ways[:first]]


def where(found: Object, namespace: str) -> str:
    """Return the API's path of the collection in which an object is created."""
    if found["kind"] in _OTHERS:
        return _OTHERS[found["kind"]].format(namespace)
    return path(_COLLECTIONS[found["kind"]], namespace)


def measure(site: Site, way: Way, count: int = TASKS) -> Measured:
    """Launch, wait until all pods are running, and end them; return times and counts."""
    with site.namespace(way.name.replace("_", "-")) as namespace:
        posts = way.posts(site)
        with counting(site.api, namespace) as pods, phases(site.api, namespace) as told:
            writes, cpu = site.metric("status_writes_total"), site.cpu()
            began = time.monotonic()
            for each in posts:
                site.api.create(where(each, namespace), each)
            posted = time.monotonic()
            measured = {"calls": len(posts), "posted": posted - began}
            measured["running"] = pods.wait(count, way.name) - began
            if way is TFCLUSTER:
                measured["told"] = told.wait((namespace, RUN), "Running") - began
                measured["writes"] = site.metric("status_writes_total") - writes
                measured["cpu"] = site.cpu() - cpu
        measured |= _objects(site, namespace)
        if way.ends:
            measured["ended"] = _end(site, posts, namespace)
    return measured


def _objects(site: Site, namespace: str) -> Measured:
    found = site.objects(namespace)
    aside = found.get("Pod", 0) + found.get("EndpointSlice", 0)
    return {"objects": sum(found.values()), "beside": sum(found.values()) - aside}


def _end(site: Site, posts: Sequence[Object], namespace: str) -> float:
    """Stop or delete what was created; return the seconds until no pod and no Job is left."""
    with (
        counting(site.api, namespace, fields="") as pods,
        phases(site.api, namespace) as told,
    ):
        began = time.monotonic()
        if posts[0]["kind"] == "TFCluster":
            run = path("tfclusters", namespace, RUN)
            site.api.merge(run, {"spec": {"stop": {"reason": "measured"}}})
            told.wait((namespace, RUN), "released")
            site.api.delete(run)
            told.wait_gone()
        else:
            for each in posts:
                site.api.delete(f"{where(each, namespace)}/{each['metadata']['name']}")
        pods.wait(0, "all tasks have ended")
        jobs = path("jobs", namespace)
        return until(lambda: not site.api.every(jobs).items, "its Jobs are gone") - began
