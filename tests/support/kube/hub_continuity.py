"""A check that a user of the hub notices nothing while an administrator changes it.

`begin` starts a kernel with a variable, and a cluster that keeps running. `is_unharmed` checks both
with the cookies that the browser had at the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kubenode.commands import wait_until
from support.hub.visitor import Visitor
from support.kube.hub import Hub

CELL = """
%load_ext tfcluster_magic
open("steady.py", "w").write("import time\\nwhile True:\\n    time.sleep(1)")
run = %tfcluster launch --workers 1 --name steady --worker-cpu 0.01 --worker-memory 64Mi steady.py
kept = "as it was"
"""


@dataclass(frozen=True)
class Standing:
    """The state of a user's browser, kernel and pods before the change."""

    hub: Hub
    visitor: Visitor
    kernel: str
    pods: Mapping[str, str]
    """The uid and start count of each pod, by its name."""

    def is_unharmed(self) -> bool:
        """Return whether the browser is signed in, and its kernel and the same pods are running.

        Raises:
            AssertionError: a pod was replaced, or the kernel lost its state; waiting cannot help.
        """
        found = _pods(self.hub, self.visitor)
        assert found == self.pods, f"{found} instead of {self.pods}"
        own = f"user/{self.visitor.name}"
        if self.visitor.ask("GET", "hub/api/user").status_code != 200:
            return False
        if self.visitor.get(f"{own}/api/kernels/{self.kernel}").status_code != 200:
            return False
        said = self.visitor.execute(own, self.kernel, "print(kept, run.status.phase.value)")
        assert said == "as it was Running\n", said
        return True


def begin(hub: Hub, visitor: Visitor) -> Standing:
    """Start a kernel in the visitor's running notebook, and a cluster from it; wait until the
    cluster is running.
    """
    own = f"user/{visitor.name}"
    kernel = visitor.kernel(own)
    said = visitor.execute(own, kernel, CELL)
    inside = hub.namespace(visitor.name)

    def runs() -> bool:
        found = inside.every("tfcluster")
        assert found, said
        return any(each.get("status", {}).get("phase") == "Running" for each in found)

    wait_until(runs, "the cluster steady runs", seconds=120)
    return Standing(hub, visitor, kernel, _pods(hub, visitor))


def _pods(hub: Hub, visitor: Visitor) -> dict[str, str]:
    return {
        each["metadata"]["name"]: f"{each['metadata']['uid']} {_starts(each)}"
        for each in hub.namespace(visitor.name).every("pod")
    }


def _starts(pod: Mapping[str, object]) -> list[int]:
    found = pod["status"]["containerStatuses"]  # type: ignore[index]
    return [each["restartCount"] for each in found]
