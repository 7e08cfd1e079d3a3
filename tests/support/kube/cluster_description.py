"""The features of a cluster under test. Tests know them only from its description (TOML).

The project's own node writes its description when it starts; for another cluster you write one. An
unknown word is an error, because a misspelt one would skip tests silently.
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
    # Before Python 3.11, tomllib is the package tomli, which pytest installs there anyway.
    import tomli as tomllib

# Features that tests may need, each with the keys that a description must have for it.
ABILITIES: dict[str, tuple[str, ...]] = {
    "network-policy": (),  # NetworkPolicies are enforced
    "rwx": ("storage-class",),  # a claim that pods on several nodes write to
    "ingress": ("ingress-class", "ingress-address"),
    "gateway": ("gateway-class", "ingress-address"),
    "registry": (),  # images of this clone can be pushed to a registry of the nodes
    "quota": (),  # ResourceQuotas are enforced
    "node-inside": (),  # servers of the nodes can be stopped; only on the project's own node
    "two-nodes": (),  # pods run on more than one node
    "kwok": (),  # fake nodes exist; the project's node has them with `kubenode up --with kwok`
    "volcano": (),
    "metrics": (),  # metrics.k8s.io reports the use of pods
}
TEXTS = ("storage-class", "ingress-class", "gateway-class", "ingress-address")
IMAGES = ("busybox", "notebook")


@dataclass(frozen=True)
class Description:
    """The features of a cluster, and the names of its parts."""

    can: frozenset[str] = frozenset()
    storage_class: str = ""
    ingress_class: str = ""
    gateway_class: str = ""
    ingress_address: str = ""
    images: dict[str, str] = field(default_factory=dict)


def described(path: Path) -> Description:
    """Read a description.

    Raises:
        NodeError: the description cannot be read, has an unknown word, or lacks a required word.
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
    """Return the user's cluster, by KUBECONFIG and CLUSTER; None means the project's own node.

    Raises:
        NodeError: CLUSTER is set without KUBECONFIG, or is not a description.
    """
    kubeconfig, description = os.environ.get("KUBECONFIG", ""), os.environ.get("CLUSTER", "")
    if not description:
        return None  # a KUBECONFIG alone may lead anywhere and need not be meant for tests
    if not kubeconfig:
        raise NodeError(
            "CLUSTER is set, but KUBECONFIG is not. "
            "Do: make test-kube KUBECONFIG=/path CLUSTER=/path.toml"
        )
    return kubeconfig, described(Path(description))
