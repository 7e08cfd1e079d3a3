"""Build, start, show, enter and remove a Kubernetes cluster for tests: `python -m kubenode`."""

from __future__ import annotations

import argparse
import os
import sys

from . import build, kwok, paths, prepare, sandbox
from .cluster import OPTIONS, Cluster
from .errors import NodeError


def main() -> int:
    """Run one command; report every failure as one message, never as a traceback."""
    parser = words_of_the_command_line()
    asked = parser.parse_args()
    try:
        obey(asked, Cluster(), parser)
    except NodeError as error:
        print(f"kubenode: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(
            f"kubenode: {error}. Is the disk full, or {paths.cache()} not writable?",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("kubenode: interrupted; what was built stays for the next time", file=sys.stderr)
        return 130
    return 0


def obey(asked: argparse.Namespace, cluster: Cluster, parser: argparse.ArgumentParser) -> None:
    """Run the command.

    Raises:
        NodeError: the command failed.
    """
    match asked.command:
        case "build":
            if asked.modules:
                build.build(asked.modules)
            else:
                # so that an unsuitable machine is reported now, not after building for half an hour
                sandbox.check_machine()
                prepare.everything()
        case "up":
            options = [word for word in asked.options.split(",") if word]
            if unknown := set(options) - OPTIONS.keys():
                parser.error(f"--with knows {', '.join(OPTIONS)}, not {', '.join(unknown)}")
            cluster.up(asked.port, second=asked.second_node, options=options)
        case "lose":
            cluster.lose(asked.node)
        case "fake-nodes":
            kwok.fake_nodes(
                cluster.first, asked.count, asked.cpu, asked.memory, taint=not asked.without_taint
            )
        case "down":
            cluster.down()
        case "status":
            for node in cluster.nodes():
                print(f"{node.name} {node.ip}: {' '.join(node.servers())}")
        case "shell":
            enter(cluster, asked.words[1:] if asked.words[:1] == ["--"] else asked.words)


def words_of_the_command_line() -> argparse.ArgumentParser:
    """Return the parser of the commands and their options."""
    parser = argparse.ArgumentParser(prog="kubenode", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    builds = commands.add_parser(
        "build", help="build what is not in the cache: all, or some modules"
    )
    builds.add_argument("modules", nargs="*")
    up = commands.add_parser("up", help="start the cluster, unless it runs")
    up.add_argument(
        "--port", type=int, default=0, help="of the API server on 127.0.0.1 (default: a free one)"
    )
    up.add_argument(
        "--second-node", action="store_true", help="with another node, or bring it back"
    )
    up.add_argument(
        "--with", dest="options", default="", help=f"build and start, too: {','.join(OPTIONS)}"
    )
    commands.add_parser("lose", help="end a node as a power cut does").add_argument("node")
    fake = commands.add_parser("fake-nodes", help="let there be nodes that run nothing (kwok)")
    fake.add_argument("count", type=int)
    fake.add_argument("--cpu", default="8")
    fake.add_argument("--memory", default="32Gi")
    fake.add_argument("--without-taint", action="store_true", help="for pods that tolerate nothing")
    commands.add_parser("down", help="end the cluster and remove all of it")
    commands.add_parser("status", help="the nodes, and the servers that run on them")
    shell = commands.add_parser("shell", help="a shell, or a command, with kubectl and KUBECONFIG")
    shell.add_argument("words", nargs=argparse.REMAINDER)
    return parser


def enter(cluster: Cluster, words: list[str]) -> None:
    """Replace this process by a shell or a command that has kubectl and the cluster's
    kubeconfig.
    """
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
