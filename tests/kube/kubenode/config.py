"""Files of `config/` with their `$names` filled in: configurations of servers, and lists with one
flag on each line.
"""

from __future__ import annotations

from string import Template

from . import paths
from .node import Node

CONFIG = paths.KUBE / "config"


def filled(file: str, node: Node, **more: str) -> str:
    """Return the text of a file of `config/` with the values of a node. The file may use $state,
    $folder, $pki, $node, $ip, $cgroup, and `more`.
    """
    values = {
        "state": str(node.state),
        "folder": str(node.folder),
        "pki": str(node.state / "pki"),
        "node": node.name,
        "ip": node.ip,
        "cgroup": node.cgroup,
    }
    return Template((CONFIG / file).read_text()).substitute(values, **more)


def flags(server: str, node: Node) -> list[str]:
    """Return a server's flags: the lines of `config/<server>.flags` without comments."""
    lines = filled(f"{server}.flags", node).splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
