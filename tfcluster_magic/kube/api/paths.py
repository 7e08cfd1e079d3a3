"""Where objects lie in the API of Kubernetes. Pure."""

from __future__ import annotations

GROUPS = {
    "tfclusters": "/apis/tfcluster.dev/v1alpha1",
    "jobs": "/apis/batch/v1",
    "networkpolicies": "/apis/networking.k8s.io/v1",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
    "endpointslices": "/apis/discovery.k8s.io/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "storageclasses": "/apis/storage.k8s.io/v1",
    "podgroups": "/apis/scheduling.volcano.sh/v1beta1",
    "queues": "/apis/scheduling.volcano.sh/v1beta1",
    "customresourcedefinitions": "/apis/apiextensions.k8s.io/v1",
    "selfsubjectaccessreviews": "/apis/authorization.k8s.io/v1",
}
"""Where a resource lives; what is not here is of the core group."""


def path(resource: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The path of a resource, of one object, or of a part of it.

    `path("pods", "alice", "digits-2-ps-0", "log")`; without a namespace it is cluster-wide.
    """
    parts = [GROUPS.get(resource, "/api/v1")]
    if namespace and resource != "namespaces":
        parts += ["namespaces", namespace]
    parts += [resource, name, subresource]
    return "/".join(filter(None, parts))
