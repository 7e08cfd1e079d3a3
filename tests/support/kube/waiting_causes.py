"""Every cause of a task's wait or end: how to produce it, and Kubernetes' message."""

from __future__ import annotations

import base64
import json
from typing import Any

from kubenode import registry
from kubenode.cluster import Cluster
from support.kube.kubectl import Kubectl, Object, condition
from support.kube.waiting_claims import (
    MOUNT,
    RUN,
    Cause,
    claim_causes,
    job_says,
    mounting,
    pod_says,
)


def container(requests: Object, limits: Object | None = None) -> Object:
    """Return the resources of a container."""
    return {"resources": {"requests": requests, "limits": limits or {}}}


def quota(**hard: str) -> Object:
    """Return a ResourceQuota."""
    named = {key.replace("_", "."): value for key, value in hard.items()}
    return {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"},
        "spec": {"hard": named},
    }  # fmt: skip


def limit_range(**rules: Any) -> Object:
    """Return a LimitRange for containers."""
    return {
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "sizes"},
        "spec": {"limits": [{"type": "Container", **rules}]},
    }  # fmt: skip


def webhook(namespace: str) -> Object:
    """Return an admission webhook whose server is down, for pods of one namespace only."""
    where = {"service": {"name": "nobody", "namespace": namespace, "path": "/"}}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [
            {
                "name": "pods.policy.example.org",
                "clientConfig": where,
                "rules": [
                    {
                        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 2,
            }
        ],
    }  # fmt: skip


def evict(kube: Kubectl, pod: str) -> None:
    """Evict a pod by the API, as `kubectl drain` does."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    where = f"/api/v1/namespaces/{kube.namespace}/pods/{pod}/eviction"
    kube("create", "--raw", where, "-f", "-", stdin=json.dumps(body))


def _evict(kube: Kubectl) -> None:
    pod = kube.every("pod", f"tfcluster.dev/name={RUN}")[0]
    evict(kube, pod["metadata"]["name"])


ACCESS = base64.b64encode(
    json.dumps(
        {"auths": {registry.PRIVATE: {"username": registry.USER, "password": registry.PASSWORD}}}
    ).encode()
).decode()
ACCESS_SECRET = {
    "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "access"},
    "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": ACCESS},
}  # fmt: skip
WRONG_SECRET = {
    **ACCESS_SECRET,
    "data": {
        ".dockerconfigjson": base64.b64encode(
            json.dumps(
                {"auths": {registry.PRIVATE: {"username": "tester", "password": "x"}}}
            ).encode()
        ).decode()
    },
}
SIZE = container({"cpu": "1", "memory": "64Mi"}, {"cpu": "2", "memory": "64Mi"})
HOG = "head -c 200m /dev/zero | tail"
FILL = "dd if=/dev/zero of=/more/x bs=1M count=40; sleep 300"
SLOWLY = ("sh", "-c", "trap '' TERM; sleep 300")


def causes(busybox: str) -> dict[str, Cause]:
    """Return every cause by its name."""
    unscheduled = pod_says("Unschedulable", "nodes are available")
    pulls = pod_says("ImagePullBackOff", "Failed to pull")
    private = busybox.replace("registry:5000", registry.PRIVATE)
    return {
        "no-cpu": Cause(unscheduled, container=container({"cpu": "64"}), count=3),
        "no-memory": Cause(unscheduled, container=container({"memory": "900Gi"})),
        "no-cpu-and-memory": Cause(
            unscheduled, container=container({"cpu": "3", "memory": "900Gi"})
        ),
        "no-gpu": Cause(
            unscheduled,
            container=container({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1"}),
            count=2,
        ),
        "no-node-selected": Cause(unscheduled, pod={"nodeSelector": {"pool": "gpu"}}),
        "quota": Cause(
            job_says("exceeded quota"), container=SIZE, count=3, beside=(quota(requests_cpu="2"),)
        ),
        "quota-count": Cause(job_says("exceeded quota"), count=3, beside=(quota(pods="1"),)),
        "quota-unstated": Cause(
            job_says("failed quota"), beside=(quota(limits_memory="1Gi", requests_cpu="1"),)
        ),
        "limit-range": Cause(
            job_says("maximum cpu usage"),
            container=SIZE,
            beside=(limit_range(max={"cpu": "1", "memory": "32Mi"}),),
        ),
        "image-missing": Cause(pulls, image="registry:5000/nothing:1", count=2),
        "image-tag-missing": Cause(pulls, image="registry:5000/busybox:no-such-tag"),
        "image-no-registry": Cause(pulls, image="registry.invalid/team/train:1"),
        "image-name-wrong": Cause(pod_says("InvalidImageName"), image="Registry//Train:1:2"),
        "image-private": Cause(pulls, image=private),
        "image-private-wrong-password": Cause(
            pulls, image=private, pod={"imagePullSecrets": [{"name": "access"}]},
            beside=(WRONG_SECRET,),
        ),
        "image-private-secret-missing": Cause(
            pulls, image=private, pod={"imagePullSecrets": [{"name": "access"}]}
        ),
        "image-never": Cause(
            pod_says("ErrImageNeverPull"), image="registry:5000/nothing:2",
            container={"imagePullPolicy": "Never"},
        ),
        **claim_causes(),
        "secret-missing": Cause(
            pod_says("CreateContainerConfigError"),
            container={"envFrom": [{"secretRef": {"name": "keys"}}]},
        ),
        "secret-file-missing": Cause(
            pod_says("FailedMount"), pod=mounting(secret={"secretName": "keys"}), container=MOUNT
        ),
        "no-such-command": Cause(pod_says("StartError"), command=("no-such-python", "task.py")),
        "oom": Cause(
            pod_says("OOMKilled"), command=("sh", "-c", HOG),
            container=container({"memory": "32Mi"}, {"memory": "32Mi"}),
        ),
        "evicted-storage": Cause(
            pod_says('"reason": "Evicted"', '"Failed"'), command=("sh", "-c", FILL), seconds=150,
            pod=mounting(emptyDir={"sizeLimit": "10Mi"}), container=MOUNT,
        ),
        "evicted-by-api": Cause(
            pod_says("EvictionByEvictionAPI"), command=SLOWLY, later=_evict,
            pod={"terminationGracePeriodSeconds": 15},
        ),
        "webhook-down": Cause(
            job_says("failed calling webhook"), beside=(webhook("explain-webhook-down"),)
        ),
        "pod-security": Cause(
            job_says("violates PodSecurity"), restricted=True, pod={"hostNetwork": True}
        ),
        "priority-class-missing": Cause(
            job_says("PriorityClass"), pod={"priorityClassName": "no-such-class"}
        ),
        "service-account-missing": Cause(
            job_says("service account"), pod={"serviceAccountName": "nobody"}
        ),
        "running": Cause(lambda seen: all(condition(p, "Ready") == "True" for p in seen["pods"])
                         and bool(seen["pods"])),
        "node-lost": Cause(
            pod_says("DeletionByTaintManager"), pod={
                "nodeSelector": {"kubernetes.io/hostname": "node-2"},
                "tolerations": [
                    {"key": key, "operator": "Exists", "effect": "NoExecute",
                     "tolerationSeconds": 5}
                    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
                ],
            },
            seconds=150, later=lambda _: Cluster().lose("node-2"),
        ),
    }  # fmt: skip
