"""What a cluster under test can do, as its description (TOML) says: tests know nothing else of it.

Our own node writes its description when it starts; for another cluster a person writes one. A word
that nobody reads is an error, because a misspelt one would leave tests out without a trace.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubenode.errors import NodeError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # what tomllib was called before; pytest needs it there too

# What tests may need, and what else the description must say then.
ABILITIES: dict[str, tuple[str, ...]] = {
    "network-policy": (),  # a NetworkPolicy is enforced
    "rwx": ("storage-class",),  # a claim that pods on several nodes write to
    "ingress": ("ingress-class", "ingress-address"),
    "gateway": ("gateway-class", "ingress-address"),
    "registry": (),  # images of this clone can be pushed to where the nodes pull from
    "quota": (),  # ResourceQuota is enforced
    "node-inside": (),  # servers of the nodes may be stopped and started: our own node alone
    "two-nodes": (),  # pods run on more than one node
    "kwok": (),  # fake nodes; it and the next two are options of our own node (kubenode up --with)
    "volcano": (),
    "metrics": (),  # metrics.k8s.io tells what pods use
}
TEXTS = ("storage-class", "ingress-class", "gateway-class", "ingress-address")
IMAGES = ("busybox", "notebook")


@dataclass(frozen=True)
class Description:
    """What a cluster can do, and how its parts are called."""

    can: frozenset[str] = frozenset()
    storage_class: str = ""
    ingress_class: str = ""
    gateway_class: str = ""
    ingress_address: str = ""
    images: dict[str, str] = field(default_factory=dict)


def described(path: Path) -> Description:
    """Read a description.

    Raises:
        NodeError: it cannot be read, or has a word that means nothing, or lacks one that is needed.
    """
    try:
        said: dict[str, Any] = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise NodeError(f"The cluster's description, {path}, cannot be read: {error}") from error
    problems = [*_unknown(said), *_missing(said)]
    if problems:
        raise NodeError(f"The cluster's description, {path}:\n  " + "\n  ".join(problems))
    texts = {name.replace("-", "_"): said[name] for name in TEXTS if name in said}
    return Description(can=frozenset(said.get("can", [])), images=said.get("images", {}), **texts)


def _unknown(said: dict[str, Any]) -> list[str]:
    def unknown(what: str, words: object, known: tuple[str, ...]) -> list[str]:
        if not isinstance(words, (list, dict)):
            return [f"{what} is not a list or a table"]
        found = sorted(str(word) for word in words if word not in known)
        return [f"{what} knows no {', '.join(found)}; it knows {', '.join(known)}"] if found else []

    return [
        *unknown("the description", said, ("can", *TEXTS, "images")),
        *unknown("can", said.get("can", []), tuple(ABILITIES)),
        *unknown("[images]", said.get("images", {}), IMAGES),
        *(f"{name} is not a text" for name in TEXTS if not isinstance(said.get(name, ""), str)),
    ]


def _missing(said: dict[str, Any]) -> list[str]:
    images, can = said.get("images"), said.get("can")
    named = images if isinstance(images, dict) else {}
    wanted = [
        f"can has {word!r}, so {name} must be there"
        for word in (can if isinstance(can, list) else [])
        for name in ABILITIES.get(word, ())
        if name not in said
    ]
    return wanted + [f"[images] must name an image {name}" for name in IMAGES if name not in named]


def chosen() -> tuple[str, Description] | None:
    """The cluster of a person, by KUBECONFIG and CLUSTER; None stands for our own node.

    Raises:
        NodeError: CLUSTER is there without KUBECONFIG, or is no description.
    """
    kubeconfig, description = os.environ.get("KUBECONFIG", ""), os.environ.get("CLUSTER", "")
    if not description:
        return None  # a KUBECONFIG alone may lead anywhere, and was not meant for tests
    if not kubeconfig:
        raise NodeError(
            "CLUSTER is set, but KUBECONFIG is not. "
            "Do: make test-kube KUBECONFIG=/path CLUSTER=/path.toml"
        )
    return kubeconfig, described(Path(description))
