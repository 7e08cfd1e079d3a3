"""Where everything lies: one cache that outlives clones, and one state folder for each running
cluster.

The cache holds what is slow to make and safe to share (binaries, Debian trees, images); removing it
costs time and nothing else. A state folder belongs to one cluster and goes with `kube-down`.
"""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
KUBE = HERE.parent  # tests/kube
ROOT = KUBE.parent.parent  # the clone
MODULES = KUBE / "modules"  # every Go server, and its version


def cache() -> Path:
    """`$TFCLUSTER_KUBE_CACHE`, else `tfcluster-kube` in the user's cache folder (XDG Base
    Directory).
    """
    own = os.environ.get("TFCLUSTER_KUBE_CACHE")
    if own:
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tfcluster-kube"


def binaries() -> Path:
    """Where the built servers lie."""
    return cache() / "bin"


def state(name: str) -> Path:
    """The folder of the cluster called `name`: what its servers write and what is known of it."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "tfcluster-kube" / name


def default_name() -> str:
    """`$TFCLUSTER_KUBE_NAME`, else `kube`: clusters of several names may run side by side."""
    return os.environ.get("TFCLUSTER_KUBE_NAME") or "kube"
