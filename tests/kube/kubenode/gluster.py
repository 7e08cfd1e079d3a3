"""A GlusterFS volume for shared claims: three replicas on loop-mounted XFS, mounted by FUSE.

Everything runs in the nodes' own namespaces and ends with them. The volume has Gluster's defaults,
and the mount has the option that k8s/storage/glusterfs/README.md tells administrators to set. This
module does not depend on Kubernetes: k8s/storage makes claims from folders on the mount.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from .commands import wait_until
from .node import Node

VOLUME = "tfcluster"
BRICKS = (1, 2, 3)
BRICK_BYTES = 4 << 30  # a sparse file: it takes only the disk space written
MOUNT = PurePosixPath("/var/lib/tfcluster/gluster")
CLAIMS = MOUNT / "claims"  # this path is also in k8s/storage/glusterfs/config.json
# `entry-timeout=0` avoids ESTALE errors for replaced files.
MOUNT_OPTIONS = "log-level=WARNING,entry-timeout=0"

GEO_REPLICATION = "/usr/lib/x86_64-linux-gnu/glusterfs/gsyncd"
"""An unused program, whose removal makes glusterd start four seconds faster: glusterd asks it ten
times for its configuration.
"""

MAKE_BRICK = """
truncate --size="$2" "$1.img"
mkfs.xfs -q "$1.img"
mkdir -p "$3"
mount -o loop "$1.img" "$3"
mkdir "$3/data"
"""


def start(node: Node) -> None:
    """Serve the volume from `node`, and mount it there.

    Raises:
        NodeError: a daemon ended, or the volume did not answer in time.
    """
    for number in BRICKS:
        image = node.folder / f"brick-{number}"
        node.run(["sh", "-ec", MAKE_BRICK, "sh", image, str(BRICK_BYTES), brick(number).parent])
    log_to_state_folder(node)
    node.run(["rm", "-f", GEO_REPLICATION])
    node.start("glusterd", ["glusterd", "--no-daemon", "--log-level=WARNING"])
    node.ready("glusterd", ["gluster", "--mode=script", "pool", "list"])
    sources = [f"{node.ip}:{brick(number)}" for number in BRICKS]
    volume(
        node, "create", "replica", str(len(BRICKS)), *sources, "force"
    )  # `force` is needed because all replicas are on one server
    volume(node, "start")
    wait_for_bricks(node)
    mount(node, node)


def mount(node: Node, server: Node, where: PurePosixPath = MOUNT) -> None:
    """On `node`, mount the volume that `server` serves; return when a write to it succeeds."""
    log_to_state_folder(node)
    source = f"{server.ip}:/{VOLUME}"
    node.run(["mkdir", "-p", where])
    node.run(["mount", "-t", "glusterfs", "-o", MOUNT_OPTIONS, source, where])
    wait_until(
        lambda: node.run(["mkdir", "-p", where / CLAIMS.name]) == "",
        f"a write to {where} on {node.name}",
        seconds=90,
    )


def brick(number: int) -> PurePosixPath:
    """Return the folder of a replica's files on the serving node."""
    return PurePosixPath(f"/srv/brick-{number}/data")


def volume(node: Node, verb: str, *words: str) -> str:
    """Run `gluster volume VERB VOLUME …` on the serving node."""
    return node.run(["gluster", "--mode=script", "volume", verb, VOLUME, *words], timeout=60)


def kill_brick(node: Node, number: int) -> None:
    """Kill the server of one replica. Its files stay, and are outdated from now on."""
    pid = online(node)[number]
    node.run(["kill", "-KILL", str(pid)])
    wait_until(lambda: number not in online(node), f"the end of brick {number}", seconds=90)


def revive_bricks(node: Node) -> None:
    """Start the server of every replica that is down, and heal the replica."""
    volume(node, "start", "force")
    wait_for_bricks(node)
    # The command is refused while the self-heal daemon starts or does not see the revived server
    # yet.
    wait_until(lambda: volume(node, "heal"), "the start of healing", seconds=60)


def online(node: Node) -> dict[int, int]:
    """Return the replicas with running servers, and the servers' process ids inside the node."""
    found = {}
    for line in volume(node, "status").replace("\n", " ").split("Brick ")[1:]:
        match = re.match(r"\S*/brick-\s*(\d)\s*/\s*data\s+\d+\s+\d+\s+Y\s+(\d+)", line)
        if match:
            found[int(match[1])] = int(match[2])
    return found


def wait_for_bricks(node: Node) -> None:
    """Wait until every replica's server is running."""
    wait_until(lambda: set(online(node)) == set(BRICKS), "every brick online", seconds=90)


def heal_info(node: Node) -> dict[int, int]:
    """Return the number of entries that each replica still has to heal. A replica that does not
    answer is missing.
    """
    text = volume(node, "heal", "info")
    return {
        int(number): int(count)
        for number, count in re.findall(
            r"/brick-(\d)/data\n(?:.*\n)*?Number of entries: (\d+)", text
        )
    }


def log_to_state_folder(node: Node) -> None:
    """Put Gluster's logs into the folder of the other servers' logs."""
    folder = node.log("gluster").with_suffix("")
    node.run(
        [
            "sh",
            "-c",
            'mkdir -p "$1" && rm -rf "$2" && ln -sn "$1" "$2"',
            "sh",
            folder,
            "/var/log/glusterfs",
        ]
    )
