"""The operator under test, and namespaces of users as the hub makes them.

`operator` installs the custom resource and the operator from `k8s/`, in the image of this clone,
once for all tests. With TFCLUSTER_KUBE_OPERATOR=process it runs as a process next to the tests, one
for each tenant's namespace: for a shared cluster, and for work on the operator itself.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from kubenode import images, paths, registry
from kubenode.commands import locked
from support.kube.operator_modes import Installed, Process
from support.kube.tenants import user_rules
from support.kube.turns import OPERATOR, folder_of_all
from support.kube.workloads import claim

from tfcluster_magic import program
from tfcluster_magic.kube.api import labels
from tfcluster_magic.kube.api.labels import OPERATOR as ACCOUNT
from tfcluster_magic.kube.api.labels import OPERATOR_ROLE
from tfcluster_magic.kube.objects import custom_resource, notification_secret
from tfcluster_magic.kube.objects.network_policy import DnsResolver, dns_rules
from tfcluster_magic.spec import Replicas, ReplicaSet, Resources, Spec, Status, resource_form

if TYPE_CHECKING:
    from support.kube.kubectl import Kubectl, Object
    from support.kube.under_test import UnderTest

VARIABLE = "TFCLUSTER_KUBE_OPERATOR"
SYSTEM = "tfcluster-system"
GRAFANA = "https://grafana.example.com/"
CLAIMS = ("data", "log", "workspace")
OF_RUNS = ("pod", "job", "service", "configmap", "networkpolicy", "pvc", "endpointslice")
"""The kinds of a run's objects."""
SMALL = Resources(memory="1Gi")  # with a limit of cores each start of Python would take seconds


@dataclass
class Tenant:
    """A user's namespace, with its operator."""

    kubectl: Kubectl
    operator: Process | Installed
    image: str
    users: dict[str, str] = field(default_factory=dict)
    """The test module that launched each run. No other module may use the name, because a later run
    of this name would find the output of the earlier one.
    """

    @property
    def name(self) -> str:
        """The namespace."""
        return self.kubectl.namespace

    def let(self, user: str) -> None:
        """Give an account the rights of this namespace's owner."""
        head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}
        group = "rbac.authorization.k8s.io"
        role = {"apiGroup": group, "kind": "Role", "name": "tfcluster-user"}
        subject = {"apiGroup": group, "kind": "User", "name": user}
        self.kubectl.apply(
            {**head, "metadata": {"name": user}, "roleRef": role, "subjects": [subject]}
        )

    def launch(self, name: str, spec: Spec) -> None:
        """POST a run with a name such as `digits-1`, as a client does. No other test module may use
        its name.
        """
        module = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
        other = self.users.setdefault(name, module)
        assert other == module, f"{other} launches {name} in this namespace, too: rename one"
        cluster, _dash, run = name.rpartition("-")
        self.kubectl(
            "create", "-f", "-", stdin=json.dumps(custom_resource.write(cluster, int(run), spec))
        )

    def status(self, name: str) -> Object:
        """Return the status of a run, with keys in snake_case."""
        return _status(self.kubectl.get("tfcluster", name))

    def wait(
        self, name: str, condition: Callable[[Object], object], what: str, seconds: float = 240
    ) -> Object:
        """Wait until a condition holds for a run's status, and return the status."""
        found = self.kubectl.wait(
            "tfcluster", name, lambda run: condition(_status(run)), what, seconds
        )
        return _status(found)

    def phase(self, name: str, phase: str, seconds: float = 240) -> Object:
        """Wait until a run is in this phase, and return its status. Another final phase is an
        error.
        """
        final = {"Succeeded", "Failed", "Stopped"}
        status = self.wait(name, lambda s: s.get("phase") in {phase, *final}, phase, seconds)
        assert status["phase"] == phase, status
        return status

    def pods(self, name: str, task_type: str = "") -> list[Object]:
        """Return the pods of a run."""
        more = f",tfcluster.dev/task-type={task_type}" if task_type else ""
        return list(self.kubectl.every("pod", f"tfcluster.dev/name={name}{more}"))

    def left_of(self, name: str) -> list[str]:
        """Return all objects of a run in the namespace, as kind/name."""
        chosen = f"tfcluster.dev/name={name}"
        owned = ((kind, each) for kind in OF_RUNS for each in self.kubectl.every(kind, chosen))
        found = [f"{kind}/{each['metadata']['name']}" for kind, each in owned]
        runs = [run["metadata"]["name"] for run in self.kubectl.every("tfcluster")]
        return found + [f"tfcluster/{run}" for run in runs if run == name]


def _status(run: Object) -> Object:
    return resource_form.read(Status, run.get("status") or {})


def spec_of(
    source: str | Path, *arguments: str, workers: int = 1, ps: int = 0, **more: Any
) -> Spec:
    """Return a spec for a program of this clone, with small tasks."""
    taken, _warnings = program.snapshot(
        str(source), arguments=arguments, workspace=Path("/nonexistent"), cwd=paths.ROOT
    )
    replicas = ReplicaSet(
        worker=Replicas(count=workers, resources=SMALL), ps=Replicas(count=ps, resources=SMALL)
    )
    return Spec(program=taken, **{"replicas": replicas, **more})


def install(cluster: UnderTest, image: str, folder: Path) -> None:
    """Apply `k8s/overlays/test` with this image of the operator and the tests' policy."""
    copy = folder / "k8s"
    shutil.copytree(paths.ROOT / "k8s", copy)
    test = copy / "overlays" / "test" / "kustomization.yaml"
    overlay = yaml.safe_load(test.read_text())
    name, _colon, tag = image.rpartition(":")
    overlay["patches"] = dns_patches(cluster)
    overlay["images"] = [{"name": "tfcluster/operator", "newName": name, "newTag": tag}]
    test.write_text(yaml.safe_dump(overlay))
    (copy / "base" / "policy.yaml").write_text(policy(cluster))
    cluster.kubectl("apply", "-k", str(test.parent), "--server-side", "--force-conflicts")
    system = cluster.kubectl.within(SYSTEM)
    for name in ("operator", "notifier"):
        system("rollout", "status", f"deployment/{name}", "--timeout=120s", seconds=150)


def policy(cluster: UnderTest, **more: Any) -> str:
    """Return the policy for tasks on the tests' cluster; `more` are further fields."""
    said = {
        "defaultImage": cluster.description.images["notebook"],
        "defaultCpu": 0.01,
        "priorityClass": "tfcluster-task",
        "annotations": ["tests.tfcluster.dev/*"],
        "storageClass": cluster.description.storage_class,
        # An operator that runs as a process would check enforcement in each tenant's namespace,
        # which takes most of a minute.
        "requireNetworkPolicy": "network-policy" in cluster.description.can and not as_processes(),
        **dns(cluster),
        # In the tests, notifications go to pods, whose addresses are private.
        "notifications": {"privateNetworks": ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]},
        "monitoring": {"grafanaUrl": GRAFANA},
        # The node may also have Volcano, but only test_gangs.py uses it.
        "gang": False if "volcano" in cluster.description.can else "auto",
        **more,
    }
    return yaml.safe_dump(said)


def dns(cluster: UnderTest) -> Object:
    """Return the key `dns` of an operator's policy. On the project's own node its value is the
    address of the DNS server, as for a node-local cache. On another cluster the key is left out,
    and the default selects the DNS pods that most clusters have.
    """
    return {"dns": [{"network": cluster.own.first.ip}]} if cluster.own else {}


def dns_patches(cluster: UnderTest) -> list[Object]:
    """Return the patches by which an overlay's NetworkPolicy `dns` allows the DNS server of the
    project's own node; other clusters need none.
    """
    if not cluster.own:
        return []
    servers = [DnsResolver(network=cluster.own.first.ip)]
    said = {"op": "replace", "path": "/spec/egress", "value": dns_rules(servers)}
    return [{"target": {"kind": "NetworkPolicy", "name": "dns"}, "patch": json.dumps([said])}]


def tenancy(name: str, storage_class: str) -> list[Object]:
    """Return the objects of a user's namespace."""
    marks = {
        "pod-security.kubernetes.io/enforce": "restricted",
        "tfcluster.dev/tenant": "true",
        "tfcluster-tests": "true",
    }
    claims = [
        {**claim(each, storage_class, "100Mi"), "metadata": {"name": each, "namespace": name}}
        for each in CLAIMS
    ]
    group, (home, account) = "rbac.authorization.k8s.io", ACCOUNT
    role = {"apiVersion": f"{group}/v1", "kind": "Role"}
    bindings = [
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": each, "namespace": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": each},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": home}],
        }
        for each in (OPERATOR_ROLE, "tfcluster-operator-secrets")
    ]
    denied = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "default-deny", "namespace": name},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    }
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": marks}},
        *claims,
        {
            **notification_secret.empty_secret({}),
            "metadata": {"name": labels.NOTIFICATIONS, "namespace": name},
        },
        {**role, "rules": user_rules(), "metadata": {"name": "tfcluster-user", "namespace": name}},
        *bindings,
        denied,
    ]


@pytest.fixture(scope="session")
def installed(
    cluster: UnderTest, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Installed | None:
    """The operator for all namespaces; None if each namespace has an operator process."""
    if not as_processes():
        assert cluster.own, "the operator's image can be pushed only to the project's own node"
        folder = folder_of_all(request.config)
        with locked(folder / "install.lock", waiting_for="it installs the operator"):
            if not (done := folder / "installed").exists():
                image = images.build("operator")
                registry.push(image, cluster.own.first)
                install(cluster, image.reference, tmp_path_factory.mktemp("install"))
                done.touch()
        return Installed(cluster.kubectl.within(SYSTEM), request.config.stash[OPERATOR])
    crds, base = paths.ROOT / "k8s" / "crds", paths.ROOT / "k8s" / "base"
    cluster.kubectl("apply", "-k", str(crds), "--server-side", "--force-conflicts")
    for each in ("priority.yaml", "admission.yaml"):
        cluster.kubectl("apply", "-f", str(base / each), "--server-side", "--force-conflicts")
    return None


def as_processes() -> bool:
    """Return whether the operator runs outside the cluster. The environment variable for this is
    read on import, before tests clear variables.
    """
    return _AS_PROCESSES


_AS_PROCESSES = os.environ.get(VARIABLE) == "process"


@pytest.fixture(scope="session")
def new_tenant(
    cluster: UnderTest, installed: Installed | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Tenant]]:
    """Return a function that creates users' namespaces with an operator; remove them without
    waiting.
    """
    made: list[Tenant] = []

    def make() -> Tenant:
        name = f"tenant-{uuid.uuid4().hex[:8]}"
        cluster.kubectl.apply(*tenancy(name, cluster.description.storage_class))
        inside = cluster.kubectl.within(name)
        inside.wait_until_furnished()
        operator: Process | Installed
        if installed is None:
            folder = tmp_path_factory.mktemp("operator")
            (folder / "policy.yaml").write_text(policy(cluster))
            operator = Process(name, inside.kubeconfig, folder)
            operator.start()
        else:
            operator = installed
        made.append(Tenant(inside, operator, cluster.description.images["notebook"]))
        return made[-1]

    yield make
    for tenant in made:
        # Delete the runs first; otherwise the namespace stays Terminating. Kubernetes deletes its
        # Jobs only after its pods, and a Job that counts failures by index keeps a failed pod until
        # it may create the next one.
        tenant.kubectl("delete", "tfclusters", "--all", "--wait=false")
        if isinstance(tenant.operator, Process):
            tenant.operator.stop()
    if made:
        names = [t.name for t in made]
        cluster.kubectl("delete", "namespace", *names, "--wait=false", "--ignore-not-found")


@pytest.fixture(scope="session")
def tenant(new_tenant: Callable[[], Tenant]) -> Tenant:
    """A user's namespace that several tests share; each test uses its own names of runs."""
    return new_tenant()
