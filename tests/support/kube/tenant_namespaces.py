"""Users' namespaces that the hub creates and tenancy provisions, and requests by their accounts."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from kubenode.commands import wait_until
from support.kube.hub import Hub
from support.kube.kubectl import Kubectl, Object
from support.kube.tenants import notebook

HOME = "tfcluster-hub"
HUB, TENANCY = (f"system:serviceaccount:{HOME}:{name}" for name in ("hub", "tenancy"))
LISTEN = "for port in 8888 2230; do nc -ll -p $port -e true & done; exec sleep 86400"


@dataclass
class Furnished:
    """A user and their namespace."""

    user: str
    kubectl: Kubectl
    seconds: float

    @property
    def name(self) -> str:
        """The namespace."""
        return self.kubectl.namespace

    def marks(self) -> dict[str, str]:
        """Return the annotations of the namespace without their prefix: `furnished` is
        `tfcluster.dev/furnished`.
        """
        found = self.kubectl.get("namespace", self.name)["metadata"]["annotations"]
        return {key.rpartition("/")[2]: value for key, value in found.items()}

    def annotate(self, *marks: str) -> None:
        """Write annotations as the hub does."""
        words = [f"tfcluster.dev/{mark}" for mark in marks]
        self.kubectl("annotate", "namespace", self.name, *words, as_(HUB))


def as_(account: str) -> str:
    """Return kubectl's option for acting as another account."""
    return f"--as={account}"


def namespace(user: str, name: str = "") -> Object:
    """Return a user's namespace as the hub creates it."""
    labels = {
        "tfcluster.dev/tenant": "true",
        "tfcluster.dev/hub": HOME,
        "pod-security.kubernetes.io/enforce": "restricted",
    }
    marks = {"tfcluster.dev/user": user}
    head = {"name": name or f"tfcluster-u-{user}", "labels": labels, "annotations": marks}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": head}


def move_in(hub: Hub, user: str) -> Furnished:
    """Create a user, and wait until tenancy has provisioned the namespace and claims are bound."""
    hub.kubectl("create", "-f", "-", as_(HUB), stdin=json.dumps(namespace(user)))
    began = time.monotonic()
    found = Furnished(user, hub.kubectl.within(f"tfcluster-u-{user}"), 0.0)
    is_furnished = f"{found.name} is furnished"
    wait_until(lambda: "furnished" in found.marks(), is_furnished, seconds=120, every=0.1)
    found.seconds = time.monotonic() - began

    def are_bound() -> bool:
        every = found.kubectl.every("pvc")
        return [(each.get("status") or {}).get("phase") for each in every] == ["Bound"] * 3

    wait_until(are_bound, f"claims of {found.name} are bound", seconds=120, every=0.1)
    return found


def of_user(image: str, name: str = "notebook") -> Object:
    """Return a notebook pod as the hub creates it; instead of Jupyter, it has a process that only
    listens.
    """
    made = notebook(image, name)
    made["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "kubespawner"
    made["spec"]["priorityClassName"] = "tfcluster-notebook"
    made["spec"]["containers"][0]["command"] = ["sh", "-c", LISTEN]
    return made
