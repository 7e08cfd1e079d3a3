"""TFCluster: distributed TensorFlow from a notebook, on one machine or on Kubernetes.

    from tfcluster_magic import ClusterManager      in Python
    %load_ext tfcluster_magic                       in a notebook

Importing this package imports nothing else; each name is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .runs.handle import Cluster
    from .runs.manager import ClusterManager

__all__ = ["Cluster", "ClusterManager", "load_ipython_extension", "unload_ipython_extension"]
__version__ = "0.1.0"

_LAZY = {"Cluster": "runs.handle", "ClusterManager": "runs.manager"}


def load_ipython_extension(shell: Any) -> None:
    """Register `%tfcluster` and `%%tfcluster` in an IPython shell."""
    from .notebook.magic import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics."""
    from .notebook.magic import unload

    unload(shell)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
