"""JupyterLab on this machine, connected to a cluster by a tenant's kubeconfig, as on a laptop.

It behaves like the Lab of the browser tests (`support.ui.lab_server`), so that those tests run on
it unchanged: a test's runs are deleted after the test, with their output. A laptop does not see the
output, so a pod of the tenant that mounts /log removes it.
"""

from __future__ import annotations

from pathlib import Path

from kubenode.commands import wait_until
from support.kube import tenants
from support.kube.operator import Tenant
from support.ui.lab_server import LabServer

from tfcluster_magic.runs.manager import ClusterManager, Until

KEEPER = "keeper"


class KubernetesLab(LabServer):
    """A Lab whose runs are a tenant's.

    Args:
        folder: the parent of all its folders.
        assets: folder of the built labextension.
        tenant: the namespace of the runs, to which `tenants.move_in` has added a user.
        kubeconfig: the user's kubeconfig; KUBECONFIG is its path.
    """

    def __init__(self, folder: Path, assets: Path, tenant: Tenant, kubeconfig: Path) -> None:
        super().__init__(folder, assets)
        self.tenant = tenant
        self.kubeconfig = kubeconfig
        self.manager = ClusterManager(backend_name="kubernetes", state_dir=str(self.state))

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a test Lab, with the variables of docs/how-to/kubernetes.md."""
        ours = {"TFCLUSTER_BACKEND": "kubernetes", "KUBECONFIG": str(self.kubeconfig)}
        return super().environment | ours

    def start(self) -> None:
        """Start the Lab after a pod of the tenant is running, so that the node has the images for
        the first task.
        """
        kube = self.tenant.kubectl
        if not kube("get", "pod", KEEPER, "--ignore-not-found", "-o", "name"):
            kube.apply(tenants.notebook(self.tenant.image, KEEPER))
            kube.running(KEEPER)
        super().start()

    def delete(self, name: str) -> None:
        """Delete a run with its output once it has ended."""
        self.manager.wait(name, 60, until=Until.RELEASED)
        self.manager.delete(name)
        wait_until(lambda: not self.tenant.left_of(name), f"{name} is gone", seconds=120)
        self._empty(name.rpartition("-")[0])

    def delete_all(self) -> None:
        """End and delete every run with its output."""
        kube = self.tenant.kubectl
        if not kube("get", "tfclusters", "-o", "name"):
            return
        kube("delete", "tfclusters", "--all")
        ours = "app.kubernetes.io/managed-by=tfcluster-operator"
        wait_until(lambda: not kube.every("pod", ours), "no task is left", seconds=120)
        self._empty("*")

    def _empty(self, what: str) -> None:
        self.tenant.kubectl.exec(KEEPER, "sh", "-c", f"rm -rf /log/{what}")
