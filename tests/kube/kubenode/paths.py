"""Paths: one cache that outlives clones, and a state folder for each running cluster.

The cache holds what is slow to make and safe to share (binaries, Debian trees, images); deleting it
costs only time. A state folder belongs to one cluster and is deleted by `kube-down`.
"""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
KUBE = HERE.parent  # tests/kube
ROOT = KUBE.parent.parent  # the clone
MODULES = KUBE / "modules"  # a folder for each Go server, with its version


def cache() -> Path:
    """Return `$TFCLUSTER_KUBE_CACHE`, else `tfcluster-kube` in the user's cache folder (XDG Base
    Directory).
    """
    own = os.environ.get("TFCLUSTER_KUBE_CACHE")
    if own:
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tfcluster-kube"


def binaries() -> Path:
    """Return the folder of the built servers."""
    return cache() / "bin"


def state(name: str) -> Path:
    """Return the state folder of the cluster called `name`, with its servers' files and records."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "tfcluster-kube" / name


def default_name() -> str:
    """Return `$TFCLUSTER_KUBE_NAME`, else `kube`; several clusters may run side by side."""
    return os.environ.get("TFCLUSTER_KUBE_NAME") or "kube"
