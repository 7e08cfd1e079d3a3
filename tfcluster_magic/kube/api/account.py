"""The pod in which this process runs, if it is one, as its service account's files tell.

Promises to import nothing heavy: every command asks this before it knows where clusters run.
Ref: https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
"""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import BackendUnavailable
from ...i18n import _

FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def in_pod() -> bool:
    """Whether this process runs in a pod that may talk to the API server."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and (FOLDER / "token").is_file()


def namespace() -> str:
    """The namespace of this pod; empty outside of pods."""
    try:
        return (FOLDER / "namespace").read_text().strip()
    except OSError:
        return ""


def not_installed() -> BackendUnavailable:
    """What to say where the official client is missing."""
    return BackendUnavailable(
        _(
            "Kubernetes needs a package that is not installed: "
            "`pip install 'tfcluster-magic[kubernetes]'`"
        )
    )
