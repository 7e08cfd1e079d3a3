"""A run as manifests for Kubernetes, from the words of a command: layout, template, policy.

Reads two files, the template and the policy; asks no cluster, and creates nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..backends.base import Preflight
from ..errors import InvalidRequest, Problem
from ..i18n import _
from ..kube.objects.manifests import Layout, by_template
from ..kube.objects.manifests import manifests as laid_out
from ..kube.objects.policy import Policy, parse
from ..launch.planning import foresee, request_launch
from ..program import workspace
from ..spec import TFCluster


def planned(*words: Any, **options: Any) -> TFCluster:
    """The first run of its name that `ClusterManager.launch` with the same words would make.

    Raises:
        InvalidRequest: something is wrong with what was asked for; all of it is named.
    """
    with workspace.scratch() as folder:
        return foresee(request_launch(folder, *words, **options), (), Preflight()).cluster


def manifests(cluster: TFCluster, layout: str, template: str, policy: str) -> str:
    """The manifests of a run.

    Args:
        cluster: a run, or one that is only planned.
        layout: of `Layout`; "" for native, or with a template.
        template: a file in Jinja's language; "" for our own.
        policy: the administrator's file; "" for the defaults.

    Raises:
        InvalidRequest: a file cannot be used, or the run does not fit into a ConfigMap.
        TFClusterError: the program in the record was altered.
    """
    decided = _policy(policy)
    if template:
        return by_template(cluster, decided, Path(template).absolute())
    return laid_out(cluster, decided, Layout(layout or Layout.NATIVE))


def _policy(file: str) -> Policy:
    if not file:
        return Policy()
    try:
        return parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or _("it is not UTF-8 text")
        headline = _("the policy cannot be used")
        raise InvalidRequest([Problem("--policy", file, why)], headline) from None
