"""The type of the fixture `cluster`, which is the cluster under test."""

from __future__ import annotations

from dataclasses import dataclass

from kubenode.cluster import Cluster
from support.kube.cluster_description import Description
from support.kube.kubectl import Kubectl


@dataclass(frozen=True)
class UnderTest:
    """The cluster under test. `own` is the project's node, None on a user's cluster."""

    kubectl: Kubectl
    description: Description
    own: Cluster | None

    @property
    def busybox(self) -> str:
        """The image with a shell and small tools."""
        return self.description.images["busybox"]
