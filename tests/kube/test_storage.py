"""Shared claims of the StorageClass k8s/storage/glusterfs, and the safety of their files."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubenode import gluster
from kubenode.commands import wait_until
from kubenode.node import Node
from kubenode.paths import ROOT
from support.kube.kubectl import Kubectl, Object
from support.kube.under_test import UnderTest
from support.kube.workloads import USER, claim, pod

CLAIM = "shared"
LOST = 2  # the replica to kill
TEARDOWN = ROOT / "k8s" / "storage" / "glusterfs" / "teardown.sh"

# A script that writes files and their checksums one after the other.
WRITE = """
cd /data; number=0; more=50  # so many after it was told of the loss
while [ $more -gt 0 ]; do
  head -c 65536 /dev/urandom >"file$number" && sha256sum "file$number" >>sums || exit 1
  number=$((number + 1))
  [ ! -e /data/lost ] || more=$((more - 1))
done
"""

# A script that replaces a file by a rename, as TensorFlow does with the file `checkpoint`.
REPLACE = """
cd /data; number=0
while [ $number -lt 100 ]; do
  echo $number >new && mv new note || exit 1
  number=$((number + 1))
done
echo end >new && mv new note
"""
READ = 'while text=$(cat /data/note) && [ "$text" != end ]; do :; done; [ "$text" = end ]'


def using(found: Object, name: str = CLAIM, node: str = "") -> Object:
    """Return a pod with a claim at /data, on `node` unless it is empty."""
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
    found["spec"].update(volumes=[volume])
    if node:
        found["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    found["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return found


def has_ended(found: Object) -> bool:
    """Return whether a pod has ended."""
    return found["status"]["phase"] in {"Succeeded", "Failed"}


def folder(kube: Kubectl, name: str = CLAIM) -> Path:
    """Return the path of a claim's files, which is the same on every node."""
    bound = kube.wait("pvc", name, lambda it: it["status"]["phase"] == "Bound", "it is bound")
    return Path(kube.get("pv", bound["spec"]["volumeName"])["spec"]["hostPath"]["path"])


def own_node(cluster: UnderTest) -> Node:
    """Return the node that serves the volume."""
    assert cluster.own
    return cluster.own.first


def is_read(kube: Kubectl, name: str, text: str) -> None:
    """Wait until a pod reads this text in the file `note` of its claim. Shared storage may show a
    new text a second later.
    """
    wait_until(
        lambda: kube.exec(name, "sh", "-c", "cat /data/note || true") == text,
        f"{name} reads {text!r}",
        seconds=90,
    )


@pytest.mark.needs("rwx")
def test_a_claim_is_shared(cluster: UnderTest, kube: Kubectl) -> None:
    """Two pods read and change each other's files in a claim, both as the users' uid."""
    kube.apply(claim(CLAIM, cluster.description.storage_class, "1Gi"))
    for name in ("first", "second"):
        kube.apply(using(pod(name, cluster.busybox)))
    kube.running("first")
    kube.running("second")
    kube.exec("first", "sh", "-c", "echo hello >/data/note")
    is_read(kube, "second", "hello\n")
    kube.exec("second", "sh", "-c", "echo again >>/data/note")
    is_read(kube, "first", "hello\nagain\n")


@pytest.mark.needs("rwx", "two-nodes")
def test_a_claim_is_shared_between_nodes(cluster: UnderTest, kube: Kubectl) -> None:
    """A pod reads within seconds what a pod on another node wrote."""
    kube.apply(claim(CLAIM, cluster.description.storage_class, "1Gi"))
    nodes = [each["metadata"]["name"] for each in cluster.kubectl.every("nodes")][:2]
    for node in nodes:
        kube.apply(using(pod(node, cluster.busybox), node=node))
    for node in nodes:
        kube.running(node)
    kube.exec(nodes[0], "sh", "-c", "echo hello >/data/note")
    is_read(kube, nodes[1], "hello\n")


@pytest.mark.needs("rwx", "two-nodes")
def test_a_replaced_file_can_always_be_read(cluster: UnderTest, kube: Kubectl) -> None:
    """A file that one node replaces again and again is never missing or broken on another node."""
    kube.apply(claim(CLAIM, cluster.description.storage_class, "1Gi"))
    reading, writing = [each["metadata"]["name"] for each in cluster.kubectl.every("nodes")][:2]
    first = "until [ -e /data/note ]; do :; done; touch /data/reading; "
    kube.apply(using(pod("reader", cluster.busybox, "sh", "-c", first + READ), node=reading))
    begin = "echo begin >/data/note; until [ -e /data/reading ]; do :; done; "
    kube.apply(using(pod("writer", cluster.busybox, "sh", "-c", begin + REPLACE), node=writing))
    for name in ("writer", "reader"):
        kube.wait("pod", name, has_ended, "it has ended")
        assert kube.get("pod", name)["status"]["phase"] == "Succeeded", kube.logs(name)


@pytest.mark.needs("rwx", "node-inside")
def test_a_claim_belongs_to_the_users_group(cluster: UnderTest, kube: Kubectl) -> None:
    """A claim's folder and files belong to group 100, whatever primary group their writer has."""
    kube.apply(claim(CLAIM, cluster.description.storage_class, "1Gi"))
    asked = using(pod("user", cluster.busybox))
    asked["spec"]["securityContext"].update(runAsGroup=4242, supplementalGroups=[100])
    kube.apply(asked)
    kube.running("user")
    assert kube.exec("user", "stat", "-c", "%g %a", "/data") == "100 2775\n"
    kube.exec("user", "mkdir", "/data/made")
    assert kube.exec("user", "stat", "-c", "%u %g %A", "/data/made") == f"{USER} 100 drwxr-sr-x\n"


@pytest.mark.needs("rwx", "node-inside")
def test_a_deleted_claim_takes_its_own_folder(cluster: UnderTest, kube: Kubectl) -> None:
    """Deleting a claim removes its folder with private files in it, and no other folder."""
    kube.apply(*(claim(name, cluster.description.storage_class, "1Gi") for name in (CLAIM, "kept")))
    make = "mkdir -m 700 /data/private && echo hello >/data/private/note"
    for name in (CLAIM, "kept"):
        kube.apply(using(pod(name, cluster.busybox, "sh", "-c", make), name))
    folders = {name: folder(kube, name) for name in (CLAIM, "kept")}
    for name in folders:
        kube.wait("pod", name, lambda it: it["status"]["phase"] == "Succeeded", "it has written")
    kube.delete("pod", CLAIM)
    kube.delete("pvc", CLAIM)
    node = own_node(cluster)
    wait_until(
        lambda: folders[CLAIM].name not in node.run(["ls", gluster.CLAIMS]),
        f"the end of {folders[CLAIM]}",
        seconds=120,
    )
    assert node.run(["cat", folders["kept"] / "private" / "note"]) == "hello\n"


@pytest.mark.needs("rwx", "node-inside")
def test_files_outlive_a_lost_replica(
    cluster: UnderTest, kube: Kubectl, whole_volume: Node
) -> None:
    """Losing a replica during a write loses no file, and the healed replica has all files."""
    node = whole_volume
    kube.apply(claim(CLAIM, cluster.description.storage_class, "1Gi"))
    files = folder(kube)
    kube.apply(using(pod("writer", cluster.busybox, "sh", "-c", WRITE)))

    def written() -> int:
        return len(node.run(["sh", "-c", 'cat "$0"/sums 2>/dev/null || true', files]).splitlines())

    wait_until(lambda: written() > 5, "the first files", seconds=90)
    gluster.kill_brick(node, LOST)
    at_the_loss = written()
    node.run(["touch", files / "lost"])
    kube.wait("pod", "writer", lambda it: it["status"]["phase"] == "Succeeded", "it has written")
    assert written() >= at_the_loss + 50

    kube.apply(using(pod("reader", cluster.busybox)))
    kube.running("reader")
    kube.exec("reader", "sh", "-c", "cd /data && sha256sum -cs sums")
    assert sum(gluster.heal_info(node).values()) > 0

    gluster.revive_bricks(node)
    healed = dict.fromkeys(gluster.BRICKS, 0)
    wait_until(lambda: gluster.heal_info(node) == healed, "nothing left to heal", seconds=120)
    # Check the replica's own disk: through the volume, another replica might answer.
    on_brick = gluster.brick(LOST) / files.relative_to(gluster.MOUNT)
    node.run(["sh", "-c", 'cd "$0" && sha256sum --check --status sums', on_brick])
    assert len(node.run(["ls", on_brick]).splitlines()) == written() + len(("sums", "lost"))


@pytest.fixture
def whole_volume(cluster: UnderTest) -> Iterator[Node]:
    """The node that serves the volume; before and after the test, every replica of the volume is
    online.
    """
    node = own_node(cluster)
    gluster.revive_bricks(node)
    yield node
    gluster.revive_bricks(node)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("other/pvc-1_a_b", "does not lie directly in"),
        ("claims", "does not lie directly in"),
        ("claims/pvc-1_a_b/..", "does not lie directly in"),
        ("claims/pvc-1_a_b/inner", "does not lie directly in"),
        ("claims/backup", "is not called like a claim's folder"),
        ("claims/pvc-1_a_b", "nothing is mounted by FUSE"),
    ],
)
def test_teardown_refuses(tmp_path: Path, asked: str, words: str) -> None:
    """The provisioner's script deletes only a claim's folder on the mounted volume."""
    for name in ("other/pvc-1_a_b", "claims/pvc-1_a_b/inner", "claims/backup"):
        (tmp_path / name).mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    env = {
        "PATH": "/usr/bin:/bin",
        "CLAIMS": f"{tmp_path}/claims",
        "VOL_DIR": f"{tmp_path}/{asked}",
    }
    done = subprocess.run(["sh", TEARDOWN], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert words in done.stderr
    assert sorted(tmp_path.rglob("*")) == before
