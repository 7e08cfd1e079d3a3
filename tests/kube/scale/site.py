"""The site of a measurement: the project's own node with fake nodes, the operator as a process, and
namespaces.

The operator runs outside the cluster and serves all namespaces, so that its CPU time and memory are
those of one process. Pods have no claims, and no image is pulled, because fake nodes run nothing.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kubenode import build, kwok, paths
from kubenode.cluster import Cluster
from support.kube import cluster_description as clusters
from support.kube.kubectl import Kubectl
from support.kube.operator import SYSTEM
from support.kube.operator_modes import Process

from tfcluster_magic.kube.api import access
from tfcluster_magic.kube.api.client import Api, ApiError, Object, path
from tfcluster_magic.kube.objects import policy

from .api_watch import counting, until

NODES, CPU, MEMORY = 60, "32", "128Gi"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
COUNTED = (
    *("pods", "services", "endpoints", "endpointslices", "jobs", "deployments", "replicasets"),
    *("configmaps", "networkpolicies", "persistentvolumeclaims", "tfclusters"),
)
"""Objects of a launch that are counted; events are not."""


@dataclass
class Site:
    """The cluster, a client of its API, and the operator."""

    kubectl: Kubectl
    api: Api
    operator: Process
    policy: policy.Policy
    made: int = field(default=0, init=False)
    mark: str = field(default_factory=lambda: secrets.token_hex(3), init=False)

    @property
    def pid(self) -> int:
        """Process id of the operator."""
        assert self.operator.program is not None
        return self.operator.program.pid

    def cpu(self) -> float:
        """Return the CPU seconds that the operator has used."""
        return cpu_of(self.pid)

    def memory(self) -> float:
        """Return the operator's resident memory in MiB."""
        return memory_of(self.pid)

    def metric(self, name: str) -> float:
        """Return a value of the operator's metrics."""
        where = f"http://127.0.0.1:{self.operator.port}/metrics"
        with urllib.request.urlopen(where, timeout=10) as answer:
            text = answer.read().decode()
        return _value(text, f"tfcluster_{name}")

    def of_api_server(self, name: str) -> float:
        """Return a value of the API server's metrics."""
        return _value(self.kubectl("get", "--raw", "/metrics"), name)

    def new_name(self, what: str) -> str:
        """Return a name for a namespace that no earlier benchmark on this cluster has used.

        For half a minute after a namespace's deletion, the API server asks etcd about the namespace
        for every object created in a namespace of that name.
        """
        self.made += 1
        return f"scale-{what}-{self.mark}-{self.made}"

    def make_namespace(self, name: str) -> None:
        """Make a user's namespace without waiting until it can have pods."""
        metadata = {"name": name, "labels": {"tfcluster.dev/tenant": "true"}}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self.api.create(path("namespaces"), body)

    def wait_furnished(self, name: str) -> None:
        """Wait until a namespace has its service account and the operator's published options."""
        for what in (
            path("serviceaccounts", name, "default"),
            path("configmaps", name, "kube-root-ca.crt"),
            path("configmaps", name, "tfcluster-options"),
        ):
            until(partial(self.there, what), f"{what} is there")

    def there(self, where: str) -> bool:
        """Return whether an object exists."""
        try:
            self.api.get(where)
        except ApiError as error:
            if error.gone:
                return False
            raise
        return True

    def _is_gone(self, where: str) -> bool:
        return not self.there(where)

    @contextmanager
    def namespace(self, what: str) -> Iterator[str]:
        """Make a namespace for one launch; at the end wait until nothing of it is left."""
        name = self.new_name(what)
        self.make_namespace(name)
        try:
            self.wait_furnished(name)
            yield name
        finally:
            self.remove(name)

    def remove(self, *names: str) -> None:
        """Delete namespaces and wait until they are gone; first delete the objects that make pods.

        Ref: kubernetes.md, "To delete a namespace"
        """
        for name in names:
            for where in (path("tfclusters", name), path("jobs", name), DEPLOYMENTS.format(name)):
                until(partial(self._empty, where), f"{where} is empty")
        for name in names:
            with counting(self.api, name, fields="") as pods:
                pods.wait(0, f"{name} has no pods")
            self.api.delete(path("namespaces", "", name))
        for name in names:
            until(partial(self._is_gone, path("namespaces", "", name)), f"{name} is gone")

    def _empty(self, where: str) -> bool:
        try:
            self.api.delete(where)
        except ApiError as error:
            if not error.unanswered:  # deleting hundreds of objects may exceed a request's timeout
                raise
        return not self.api.every(where).items

    def objects(self, namespace: str) -> dict[str, int]:
        """Return the number of objects of each kind in a namespace, without objects that every
        namespace has.
        """
        text = self.kubectl.within(namespace)("get", ",".join(COUNTED), "-o", "json")
        found: dict[str, int] = {}
        for each in json.loads(text)["items"]:
            if each["metadata"]["name"] not in ("kube-root-ca.crt", "tfcluster-options"):
                found[each["kind"]] = found.get(each["kind"], 0) + 1
        return found


def _value(text: str, name: str) -> float:
    """Return the value of a metric that has no labels."""
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert found, text
    return float(found[1])


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process, including threads that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    assert found
    return int(found[1]) / 1024


@contextmanager
def ready() -> Iterator[Site]:
    """Start the site; at the end leave the cluster running only if it ran before."""
    own = Cluster()
    ran_before = bool(own.nodes())
    try:
        own.up(options=["kwok"])
        kwok.fake_nodes(own.first, NODES, CPU, MEMORY)
        with tempfile.TemporaryDirectory() as folder, _operated(own, Path(folder)) as site:
            yield site
    finally:
        if not ran_before:
            own.down()


@contextmanager
def _operated(own: Cluster, folder: Path) -> Iterator[Site]:
    kubectl = Kubectl(build.binary("kubectl"), str(own.kubeconfig))
    kubectl("apply", "-k", str(paths.ROOT / "k8s" / "crds"), "--server-side", "--force-conflicts")
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    kubectl.within(SYSTEM).wait_until_furnished()
    there = clusters.described(own.state / "cluster.toml")
    (folder / "policy.yaml").write_text(_policy(there))
    api, _namespace = _connect(own)
    decided = policy.parse_policy((folder / "policy.yaml").read_text())
    site = Site(kubectl, api, Process("", str(own.kubeconfig), folder), decided)
    site.operator.start()
    try:
        yield site
    finally:
        site.operator.stop()
        api.close()


def _connect(own: Cluster) -> tuple[Api, str]:
    os.environ["KUBECONFIG"] = str(own.kubeconfig)
    return access.connect()


def _policy(there: clusters.Description) -> str:
    said: Object = {
        "defaultImage": there.images["notebook"],
        "requireNetworkPolicy": False,  # fake nodes do not enforce policies
        "defaultCpu": 0.01,
        "dataClaim": "",
        "logClaim": "",
        "workspaceClaim": "",
        "nodeSelector": {"type": "kwok"},
        "tolerations": [{"key": kwok.KEY, "operator": "Exists"}],
    }
    return json.dumps(said)  # JSON is valid YAML
