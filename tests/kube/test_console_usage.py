"""Measured usage in the admin console on Kubernetes: storage by kubelets, CPU by the metrics API.

An administrator must enable both: the console needs a right that it lacks by default, and the
cluster needs a server of `metrics.k8s.io` (WITH=metrics).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubenode.commands import wait_until
from support.kube import doc_commands as documented
from support.kube.console import Console, console, token
from support.kube.hub import Hub
from support.kube.hub_installation import OWN_DISK
from support.kube.kubectl import Object
from support.kube.operator import Tenant, spec_of
from support.kube.operator_modes import Installed
from support.kube.tenant_namespaces import Furnished, move_in, of_user
from support.kube.under_test import UnderTest

from tfcluster_magic.spec import Replicas, ReplicaSet, Resources

__all__ = ["console"]  # a fixture used by the tests below
pytestmark = pytest.mark.needs("ingress", "rwx", "network-policy", "registry", "node-inside")

MIB = 1 << 20
SIZE, WRITTEN = 50 * MIB, 42 * MIB
ENDS = "import time\nend = time.monotonic() + 150\nwhile time.monotonic() < end: {what}\n"
"""A program that lasts 150 s, longer than two measurements of the operator, which measures once a
minute.
"""


def volume(name: str, folder: str) -> Object:
    """Return a PersistentVolume on a file system of node-1, in the storage class of these tests."""
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "50Mi"},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": OWN_DISK,
            "local": {"path": folder},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        },
    }


@pytest.fixture
def filler(hub: Hub, cluster: UnderTest) -> Iterator[Furnished]:
    """A user whose claims each have their own file system, as with many storage classes."""
    assert cluster.own
    node, marker = cluster.own.first, uuid.uuid4().hex[:8]
    names = [f"measured-{marker}-{number}" for number in range(3)]
    folders = {name: f"/var/lib/tfcluster/{name}" for name in names}
    for folder in folders.values():
        node.run(["mkdir", "-p", folder])
        node.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0777", "none", folder])
    hub.kubectl.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": OWN_DISK},
            "provisioner": "kubernetes.io/no-provisioner",
        },
        *(volume(name, folder) for name, folder in folders.items()),
    )
    user = hub.new_user("filler")
    hub.api("POST", f"groups/{OWN_DISK}")
    hub.api("POST", f"groups/{OWN_DISK}/users", {"users": [user]})
    found = move_in(hub, user)
    yield found
    hub.api("DELETE", f"groups/{OWN_DISK}")
    hub.kubectl("delete", "namespace", found.name, "--wait=false")
    hub.kubectl("delete", "pv", *names, "--wait=false")
    hub.kubectl("delete", "storageclass", OWN_DISK)
    for folder in folders.values():
        node.run(["umount", "--lazy", folder])


def admin(hub: Hub, console: Console, *words: str) -> str:
    """Run `tfcluster admin WORDS` in an administrator's shell."""
    given = token(console.visitor, ["access:services!service=admin"])
    env = {**os.environ, "TFCLUSTER_HUB_URL": hub.url(), "TFCLUSTER_HUB_TOKEN": given}
    command = str(Path(sys.executable).with_name("tfcluster"))
    done = subprocess.run(
        [command, "admin", *words],
        env={**env, "NO_PROXY": "*", "TFCLUSTER_LANGUAGE": "en"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kubelets_measure_claims_for_a_console_that_may_ask_them(
    hub: Hub, console: Console, filler: Furnished, cluster: UnderTest, tmp_path: Path
) -> None:
    """The console shows how full a claim is once its account may ask kubelets.

    By default it may not, and the page says so. The documented commands grant the right and revoke
    it. The page and the command line show the same figures.
    """
    give, take = documented.commands("how-to/admin.md", "Storage")

    def log() -> Object:
        told = console.ask("GET", f"storage?owner={filler.user}").json()
        assert told["missed"] == [], told
        return {each["name"]: each for each in told["items"]}.get("log", {})

    def may_not() -> bool:
        found = log()
        return found.get("used", 0) is None and "may not read the kubelets" in found["note"]

    wait_until(may_not, "the claim is shown without a measurement", seconds=120)
    filler.kubectl.apply(of_user(cluster.busybox))
    filler.kubectl.running("notebook")
    fill = f"head -c {WRITTEN} /dev/urandom >/log/model"
    filler.kubectl.exec("notebook", "sh", "-c", fill)
    try:
        documented.run(give, hub.kubectl, tmp_path, {})
        wait_until(lambda: (log().get("used") or 0) >= WRITTEN, "it is measured", seconds=240)
        found = log()
        assert found["allowed"] == SIZE
        assert WRITTEN <= found["used"] < SIZE
        assert found["share"] >= 0.8 and found["note"] == ""
        said = json.loads(admin(hub, console, "storage", "--full", "-o", "json"))
        (row,) = [each for each in said["items"] if each["owner"] == filler.user]
        assert (row["name"], row["used"]) == ("log", found["used"])
        assert "42Mi" in admin(hub, console, "storage", "--full")
    finally:
        documented.run(take, hub.kubectl, tmp_path, {})
    wait_until(may_not, "the right is revoked", seconds=120)


@pytest.mark.needs("metrics")
def test_used_hours_are_shown_beside_requested_ones(
    hub: Hub, console: Console, installed: Installed, cluster: UnderTest, tmp_path: Path
) -> None:
    """The console shows the CPU hours used next to those requested, on the page and in a shell.

    The used hours come from `metrics.k8s.io`. A busy task uses nearly all of the requested hours, a
    sleeping task almost none.
    """
    user = move_in(hub, hub.new_user("works"))
    tenant = Tenant(user.kubectl, installed, cluster.description.images["notebook"])
    each = Replicas(count=1, resources=Resources(cpu=0.2, memory="256Mi"))
    for name, what in (("works", "pass"), ("sleeps", "time.sleep(1)")):
        (file := tmp_path / f"{name}.py").write_text(ENDS.format(what=what))
        tenant.launch(f"{name}-1", spec_of(file, replicas=ReplicaSet(worker=each)))
    for name in ("works", "sleeps"):
        tenant.phase(f"{name}-1", "Succeeded", seconds=420)

    def rows() -> dict[str, Object]:
        told = console.ask("GET", "hours?by=cluster").json()
        assert told["missed"] == [], told
        ours = (one for one in told["items"] if one["key"].startswith(f"{user.user}/"))
        return {one["key"].rpartition("/")[2]: one for one in ours}

    def is_told() -> bool:
        return [bool(one["measured"]) for one in rows().values()] == [True, True]

    wait_until(is_told, "the used hours are recorded", seconds=120)
    works, sleeps = rows()["works"], rows()["sleeps"]
    assert 0 < works["measured"] <= works["cpu"]
    assert 0.3 < works["used"] / works["measured"] < 1.3, works
    assert sleeps["used"] / sleeps["measured"] < 0.3, sleeps
    said = json.loads(admin(hub, console, "hours", "--by", "cluster", "-o", "json"))
    assert works in said["items"]
    hub.kubectl("delete", "namespace", user.name, "--wait=false")
