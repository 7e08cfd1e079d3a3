"""Which of the volumes of a namespace this process sees: a notebook pod of it mounts them where
tasks do, a laptop or a notebook of somebody else's namespace does not mount them at all.

Promises that a folder which happens to have the same path is never taken for one of the runs'. It
only looks; `here` is whether this process is in a pod of the runs' own namespace (`is_here`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ... import paths
from ...errors import InvalidRequest, Problem
from ...i18n import _
from ...kube.api import account
from ...kube.capacity.offer import Offer
from ...program.snapshots import INLINE_BYTES
from ...quota.storage import Volume
from ...spec import TFCluster
from .. import folder_sizes, run_names


def is_here(context: str, namespace: str) -> bool:
    """Whether runs of this namespace mount what this process mounts.

    A context or a kubeconfig may mean another cluster, which may have a namespace of that name.
    """
    own = not context and not os.environ.get("KUBECONFIG")
    return own and account.in_pod() and account.namespace() == namespace


def logs(here: bool, log_dir: str) -> Path | None:
    """The folder of all runs' output, where it is mounted here."""
    return Path(log_dir) if here and log_dir and os.path.isdir(log_dir) else None


def output(here: bool, cluster: TFCluster) -> Path | None:
    """The folder of a run's output, which may not exist, where its volume is mounted here."""
    path = cluster.status.paths.get("output", "")
    return Path(path) if path and logs(here, os.path.dirname(os.path.dirname(path))) else None


def unseen(here: bool, folder: str) -> str | None:
    """Why what lies in `folder` of the cluster's volumes cannot be read here; None when it can."""
    top = folder.strip(os.sep).partition(os.sep)[0]
    if here and top and os.path.isdir(os.sep + top):
        return None
    return _(
        "{folder} lies on a volume of the cluster that is not mounted here: "
        "do this in a notebook that runs in the cluster"
    ).format(folder=folder or "/log")


def workspace(here: bool) -> Path:
    """The folder of the user that tasks mount, too.

    Raises:
        InvalidRequest: tasks could not see what is put anywhere here.
    """
    if here:
        return Path.home()
    allowed = _(
        "it is larger than {limit} KiB, so it has to lie on the workspace volume, which only "
        "notebooks of the cluster mount: launch it there, or name it by its URL"
    ).format(limit=INLINE_BYTES // 1024)
    raise InvalidRequest([Problem("program", None, allowed)])


def next_run(here: bool, cluster: str, known: Sequence[TFCluster], log_dir: str) -> int:
    """The number of the next run; one whose logs are still there is not given again."""
    used = [c.metadata.run for c in known if c.metadata.cluster == cluster]
    root = logs(here, log_dir)
    kept = run_names.numbers(root / cluster) if root else ()
    return run_names.next_number({*used, *kept})


def filled(offer: Offer) -> list[Volume]:
    """How full the claims of the namespace are, of which this process mounts some where tasks do.

    It measures from inside: what kubelet knows of volumes nobody may ask who could not enter any
    pod, and of classes that are folders of a larger disk it knows nothing.
    """
    policy, claims = offer.policy, offer.names.claims or {}
    places = (
        ("workspace", policy.workspace_claim, policy.workspace_path),
        ("data", policy.data_claim, policy.data_path),
        ("log", policy.log_claim, policy.log_path),
    )
    there = [
        folder_sizes.Folder(name, Path(path), round(claims[claim].size), runs=name == "log")
        for name, claim, path in places
        if claim in claims and claims[claim].size and os.path.isdir(path)
    ]
    return folder_sizes.measure(there, paths.state_dir()) if there else []
