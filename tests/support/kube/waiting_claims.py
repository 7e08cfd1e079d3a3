"""Causes of a task's wait for its claims, and the class `Cause`, which describes any cause."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kubenode.commands import wait_until
from support.kube.kubectl import Kubectl, Object

HOST = "kubernetes.io/hostname"
RUN = "digits-1"
LABELS = {"app.kubernetes.io/managed-by": "tfcluster-operator", "tfcluster.dev/name": RUN}
Said = Callable[[Object], bool]


@dataclass(frozen=True)
class Cause:
    """How to produce one cause: the pod, its other objects, and Kubernetes' message."""

    said: Said
    """Returns whether the recorded objects show the cause yet."""
    pod: Object = field(default_factory=dict)
    container: Object = field(default_factory=dict)
    command: tuple[str, ...] = ()
    beside: tuple[Object, ...] = ()
    count: int = 1
    restricted: bool = False
    seconds: float = 60
    image: str = ""
    later: Callable[[Kubectl], object] | None = None


def job_says(*words: str) -> Said:
    """Return a check that an event of the Job contains all the words."""
    return lambda seen: any(
        all(word in event["message"] for word in words)
        for job_ in seen["jobs"]
        for event in seen["events"].get(job_["metadata"]["uid"], ())
    )


def pod_says(*words: str) -> Said:
    """Return a check that a condition, a state or an event of a pod contains all the words."""
    return lambda seen: any(
        all(
            word in json.dumps([pod["status"], seen["events"].get(pod["metadata"]["uid"])])
            for word in words
        )
        for pod in seen["pods"]
    )


def claim(name: str, mode: str = "ReadWriteMany", **more: Any) -> Object:
    """Return a claim."""
    asked = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}, **more}
    metadata = {"name": name}
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": asked,
    }  # fmt: skip


def mounting(**source: Any) -> Object:
    """Return the part of a pod that mounts one volume."""
    return {"volumes": [{"name": "v0", **source}]}


def of_claim(name: str) -> Object:
    """Return the part of a pod that mounts a claim."""
    return mounting(persistentVolumeClaim={"claimName": name})


APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"labelSelector": {"matchLabels": {"tfcluster.dev/name": RUN}},
     "topologyKey": "kubernetes.io/hostname"}
]}}  # fmt: skip
MOUNT = {"volumeMounts": [{"name": "v0", "mountPath": "/more"}]}


def claim_causes() -> dict[str, Cause]:
    """Return every cause that lies in a claim, by its name."""
    unscheduled = pod_says("Unschedulable", "nodes are available")
    return {
        "claim-missing": Cause(
            pod_says("not found"), pod=of_claim("data"), container=MOUNT, count=2
        ),
        "claim-unbound-no-class": Cause(
            pod_says("unbound"), pod=of_claim("data"), container=MOUNT,
            beside=(claim("data", storageClassName="no-such-class"),),
        ),
        "claim-unbound-no-provisioner": Cause(
            lambda seen: "ExternalProvisioning" in json.dumps(seen["events"]),
            pod=of_claim("data"), container=MOUNT, seconds=90,
            beside=(
                {
                    "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
                    "metadata": {"name": "explain-nobody"}, "provisioner": "example.org/nobody",
                    "volumeBindingMode": "WaitForFirstConsumer",
                },
                claim("data", storageClassName="explain-nobody"),
            ),
        ),
        "claim-one-pod-only": Cause(
            unscheduled, pod=of_claim("data"), container=MOUNT, count=2,
            beside=(
                {
                    "apiVersion": "v1", "kind": "PersistentVolume",
                    "metadata": {"name": "explain-one"},
                    "spec": {
                        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOncePod"],
                        "storageClassName": "", "hostPath": {"path": "/tmp"},
                        "claimRef": {"namespace": "explain-claim-one-pod-only", "name": "data"},
                    },
                },
                claim("data", "ReadWriteOncePod", storageClassName="", volumeName="explain-one"),
            ),
        ),
        "claim-on-another-node": Cause(
            unscheduled, pod={**of_claim("data"), "nodeSelector": {HOST: "node-1"}},
            container=MOUNT,
            beside=(
                {
                    "apiVersion": "v1", "kind": "PersistentVolume",
                    "metadata": {"name": "explain-local"},
                    "spec": {
                        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                        "storageClassName": "", "local": {"path": "/tmp"},
                        "claimRef": {"namespace": "explain-claim-on-another-node", "name": "data"},
                        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                            {"key": HOST, "operator": "In", "values": ["node-2"]}
                        ]}]}},
                    },
                },
                claim("data", "ReadWriteOnce", storageClassName="", volumeName="explain-local"),
            ),
        ),
        "claim-mounted-elsewhere": Cause(
            pod_says("Multi-Attach"), pod={**of_claim("data"), "affinity": APART}, container=MOUNT,
            count=2, seconds=90,
            later=_attach,
            beside=(
                {
                    "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
                    "metadata": {"name": "disks.example.org"}, "spec": {"attachRequired": True},
                },
                {
                    "apiVersion": "v1", "kind": "PersistentVolume",
                    "metadata": {"name": "explain-disk"},
                    "spec": {
                        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                        "storageClassName": "",
                        "csi": {"driver": "disks.example.org", "volumeHandle": "disk-1"},
                        "claimRef": {
                            "namespace": "explain-claim-mounted-elsewhere", "name": "data"
                        },
                    },
                },
                claim("data", "ReadWriteOnce", storageClassName="", volumeName="explain-disk"),
            ),
        ),
    }  # fmt: skip


def _attach(kube: Kubectl) -> None:
    """Attach the disk to the node that requested it first, as the disk's driver does."""

    def attachments() -> list[Object]:
        return list(json.loads(kube("get", "volumeattachments", "-o", "json"))["items"])

    wait_until(attachments, "the disk is asked for", seconds=90)
    name = attachments()[0]["metadata"]["name"]
    patch = json.dumps({"status": {"attached": True}})
    kube("patch", "volumeattachment", name, "--subresource=status", "--type=merge", "-p", patch)
