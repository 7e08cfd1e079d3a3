"""The choice of the backend.

An explicit choice (`--backend`, the configuration, TFCLUSTER_BACKEND) is used first. Else a pod
whose namespace the operator serves uses Kubernetes, and all other processes use this machine. A pod
that has no right to ask whether the operator serves its namespace gets an error, because its runs
were perhaps meant for Kubernetes. The existence of a kubeconfig never decides, because almost every
laptop has one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BackendUnavailable
from ..i18n import _
from ..kube.api import access
from .base import Backend

if TYPE_CHECKING:
    from .kubernetes.backend import KubernetesBackend

AUTO = "auto"
BACKENDS = ("local", "kubernetes", AUTO)
VARIABLE = "TFCLUSTER_BACKEND"


def make_backend(name: str, folders: Mapping[str, Path], context: str, namespace: str) -> Backend:
    """Return the backend of this name.

    Args:
        name: one of `BACKENDS`.
        folders: `state_dir`, `data_dir` and `log_dir` of the local backend; those that are missing
            are taken from the environment.
        context: a context of the kubeconfig; "" for the current one.
        namespace: the namespace on Kubernetes; "" for the namespace of the context.

    Raises:
        BackendUnavailable: TFCLUSTER_BACKEND names an unknown backend.
        NotAllowed: this pod may not ask whether the operator serves its namespace.
    """
    if name == AUTO:
        name = os.environ.get(VARIABLE) or AUTO
    if name not in BACKENDS:
        raise BackendUnavailable(
            _("{variable} is {name}, and there is no such backend: use {known}").format(
                variable=VARIABLE, name=name, known=", ".join(BACKENDS)
            )
        )
    if name == "kubernetes":
        return _kubernetes(context, namespace)
    if name == AUTO and access.in_pod():
        found = None
        # a pod without the Kubernetes package was not meant to use Kubernetes
        with suppress(BackendUnavailable):
            found = _kubernetes(context, namespace)
        if found is not None and found.serves():
            return found
    from .local.backend import LocalBackend

    return LocalBackend(**folders)


def means_kubernetes(name: str) -> bool:
    """Return whether `name` is the Kubernetes backend. If `name` is `auto`, return whether the
    variable TFCLUSTER_BACKEND names the Kubernetes backend.
    """
    return "kubernetes" in (name, os.environ.get(VARIABLE) if name == AUTO else "")


def _kubernetes(context: str, namespace: str) -> KubernetesBackend:
    try:
        from .kubernetes.backend import KubernetesBackend
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith(__package__.partition(".")[0]):
            raise
        raise access.client_not_installed() from None
    return KubernetesBackend(context, namespace)
