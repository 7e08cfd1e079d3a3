"""The cluster that tests run on, as fixtures give it."""

from __future__ import annotations

from dataclasses import dataclass

from clusters import Description
from kubectl import Kubectl
from kubenode.cluster import Cluster


@dataclass(frozen=True)
class UnderTest:
    """The cluster under test; `own` is our node, None on a person's cluster."""

    kubectl: Kubectl
    description: Description
    own: Cluster | None

    @property
    def busybox(self) -> str:
        """The image with a shell and small tools."""
        return self.description.images["busybox"]
