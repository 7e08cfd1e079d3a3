"""`python -m kubenode`: build, start, look at, enter and remove a Kubernetes cluster for tests."""

from __future__ import annotations

import argparse
import os
import sys

from . import build
from .cluster import Cluster
from .errors import NodeError


def main() -> int:
    """Run one command; every failure is one message, never a traceback."""
    parser = argparse.ArgumentParser(prog="kubenode", description=main.__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build what is not in the cache").add_argument(
        "modules", nargs="*"
    )
    up = commands.add_parser("up", help="start the cluster, unless it runs")
    up.add_argument(
        "--port", type=int, default=0, help="of the API server on 127.0.0.1 (default: a free one)"
    )
    commands.add_parser("down", help="end the cluster and remove all of it")
    commands.add_parser("status", help="the nodes, and the servers that run on them")
    shell = commands.add_parser("shell", help="a shell, or a command, with kubectl and KUBECONFIG")
    shell.add_argument("words", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    cluster = Cluster()
    try:
        match asked.command:
            case "build":
                build.build(asked.modules or None)
            case "up":
                cluster.up(asked.port)
            case "down":
                cluster.down()
            case "status":
                for node in cluster.nodes():
                    print(f"{node.name} {node.ip}: {' '.join(node.servers())}")
            case "shell":
                enter(cluster, [word for word in asked.words if word != "--"])
    except NodeError as error:
        print(f"kubenode: {error}", file=sys.stderr)
        return 1
    return 0


def enter(cluster: Cluster, words: list[str]) -> None:
    """Replace this process by a shell or a command that finds kubectl and the cluster."""
    if not cluster.kubeconfig.exists():
        raise NodeError(f"The cluster {cluster.name} does not run. Do: make kube-up")
    kubectl = build.binary("kubectl").parent
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig),
        "PATH": f"{kubectl}:{os.environ['PATH']}",
    }
    words = words or [os.environ.get("SHELL", "/bin/sh")]
    os.execvpe(words[0], words, environment)


if __name__ == "__main__":
    sys.exit(main())
