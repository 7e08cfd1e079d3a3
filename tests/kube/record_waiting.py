"""Record the objects and messages by which Kubernetes shows each cause of a task's wait or end.

`python tests/kube/record_waiting.py [CAUSE…]` writes tests/data/waiting/<cause>.json from the node
of `make kube-up` (with `--second-node`): pods, Jobs, their events, nodes and claims, without fields
that depend on the machine. Run it after a change of the Kubernetes version, and read what differs.
"""

from __future__ import annotations

import copy
import json
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from kubenode import build
from kubenode.cluster import Cluster
from kubenode.commands import wait_until
from kubenode.errors import NodeError
from support.kube import cluster_description as clusters
from support.kube.kubectl import Kubectl, Object, condition
from support.kube.waiting_causes import causes
from support.kube.waiting_claims import LABELS, RUN, Cause
from support.kube.workloads import job, spec
from support.project import DATA

OUT = DATA / "waiting"
NAMESPACE = "ada"
CLUSTER_WIDE = (
    "ValidatingWebhookConfiguration",
    "StorageClass",
    "CSIDriver",
    "PersistentVolume",
)


def seen_now(kube: Kubectl) -> Object:
    """Return all objects that may show why a task of the namespace waits or has ended."""

    def every(kind: str) -> list[Object]:
        return list(json.loads(kube("get", kind, "-o", "json"))["items"])

    events: dict[str, list[Object]] = {}
    for event in every("events"):
        events.setdefault(event["involvedObject"].get("uid", ""), []).append(event)
    return {
        "pods": every("pods"), "jobs": every("jobs"), "events": events, "nodes": every("nodes"),
        "claims": every("pvc"),
    }  # fmt: skip


KEPT = {
    "metadata": ("name", "uid", "labels", "annotations", "creationTimestamp", "deletionTimestamp",
                 "ownerReferences"),
    "event": ("type", "reason", "message", "count", "firstTimestamp", "lastTimestamp", "eventTime",
              "series", "reportingComponent"),
    "pod": ("nodeName", "nodeSelector", "containers", "volumes", "imagePullSecrets", "hostname",
            "priorityClassName", "serviceAccountName"),
    "job": ("completions", "parallelism", "suspend", "completionMode"),
    "node": ("taints", "unschedulable"),
    "claim": ("accessModes", "resources", "storageClassName", "volumeName"),
}  # fmt: skip


def trimmed(seen: Object) -> Object:
    """Return only the fields that show the cause, and none that depends on the machine."""

    def some(source: Object, keys: tuple[str, ...]) -> Object:
        return {key: source[key] for key in keys if key in source}

    def of(kind: str, each: Object) -> Object:
        status = copy.deepcopy(each.get("status", {}))
        for gone in ("images", "nodeInfo", "addresses", "daemonEndpoints", "volumesInUse",
                     "runtimeHandlers", "features", "config", "podIP", "podIPs", "hostIP",
                     "hostIPs", "volumesAttached", "observedGeneration"):  # fmt: skip
            status.pop(gone, None)
        for state in status.get("containerStatuses", ()):
            for gone in ("containerID", "imageID", "volumeMounts", "user", "allocatedResources"):
                state.pop(gone, None)
        metadata = some(each["metadata"], KEPT["metadata"])
        metadata.get("annotations", {}).pop("kubectl.kubernetes.io/last-applied-configuration", 0)
        if kind == "node":
            metadata = some(metadata, ("name",))
            ready = [some(c, ("type", "status", "reason")) for c in status["conditions"]]
            status = {
                "allocatable": some(status["allocatable"], ("cpu", "memory", "pods")),
                "conditions": [c for c in ready if c["type"] == "Ready"],
            }
        kept = some(each["spec"], KEPT[kind])
        if "containers" in kept:
            named = ("name", "image", "resources")
            kept["containers"] = [some(container, named) for container in kept["containers"]]
        return {"metadata": metadata, "spec": kept, "status": status}

    return {
        "pods": [of("pod", each) for each in seen["pods"]],
        "jobs": [of("job", each) for each in seen["jobs"]],
        "events": {
            uid: [some(event, KEPT["event"]) for event in events]
            for uid, events in seen["events"].items()
        },
        "nodes": [of("node", each) for each in seen["nodes"]],
        "claims": [of("claim", each) for each in seen["claims"]],
    }


def record(kube: Kubectl, busybox: str, name: str, cause: Cause) -> str:
    """Produce one cause, record it, and remove it."""
    namespace = f"explain-{name}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"} if cause.restricted else {}
    kube.apply(
        {
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": namespace, "labels": labels},
        }
    )  # fmt: skip
    inside = kube.within(namespace)
    inside.wait_until_furnished()
    template = spec(cause.image or busybox, *cause.command, **cause.container)
    template |= cause.pod
    template["containers"][0]["name"] = "tensorflow"
    if cause.beside:
        inside.apply(*cause.beside)
    if any(each["kind"] in ("ResourceQuota", "LimitRange") for each in cause.beside):
        time.sleep(2)  # nothing reports when the new quota or limit takes effect
    made = job(f"{RUN}-worker", template, cause.count, backoffLimit=100)
    more = {**LABELS, "tfcluster.dev/task-type": "worker"}
    made["metadata"]["labels"] = more
    made["spec"]["template"]["metadata"]["labels"] |= more
    inside.apply(made)
    if cause.later:
        wait_until(
            lambda: any(p["spec"].get("nodeName") for p in seen_now(inside)["pods"]),
            f"{name}: a pod has a node", seconds=60,
        )  # fmt: skip
        if name != "claim-mounted-elsewhere":
            wait_until(
                lambda: any(condition(p, "Ready") == "True" for p in seen_now(inside)["pods"]),
                f"{name}: a pod runs", seconds=60,
            )  # fmt: skip
        cause.later(inside)
    seen: Object = {}

    def is_said() -> bool:
        seen.clear()
        seen.update(seen_now(inside))
        return cause.said(seen)

    try:
        wait_until(is_said, name, seconds=cause.seconds, every=0.5)
        text = json.dumps(trimmed(seen), sort_keys=True, indent=1)
        text = text.replace(namespace, NAMESPACE)
        text = re.sub(r"explain-(\w+)", r"\1", text)
        (OUT / f"{name}.json").write_text(text + "\n")
        return f"{name}: recorded"
    finally:
        for each in cause.beside:
            if each["kind"] in CLUSTER_WIDE:
                kube("delete", each["kind"], each["metadata"]["name"], "--wait=false")
        kube("delete", "namespace", namespace, "--wait=false")


def main() -> int:
    """Record the requested causes in parallel. Causes that stop a node come last."""
    own = Cluster()
    busybox = clusters.described(own.state / "cluster.toml").images["busybox"]
    kube = Kubectl(build.binary("kubectl"), str(own.kubeconfig))
    every = causes(busybox)
    asked = sys.argv[1:] or [name for name in every if name != "node-lost"]
    OUT.mkdir(exist_ok=True)

    def one(name: str) -> str:
        try:
            return record(kube, busybox, name, every[name])
        except NodeError as error:
            return f"{name}: FAILED {str(error)[:600]}"

    with ThreadPoolExecutor(4) as pool:
        for line in pool.map(one, asked):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
