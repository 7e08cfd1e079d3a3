"""`render`: a run, or a launch that is only planned, as documents or Kubernetes manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..backends.base import Preflight
from ..backends.selection import means_kubernetes
from ..errors import InvalidRequest, Problem, UsageError
from ..i18n import _
from ..kube.objects.manifests import ManifestLayout, render_template
from ..kube.objects.manifests import render_manifests as laid_out
from ..kube.objects.policy import Policy, parse_policy
from ..launch.planning import plan_launch, request_launch
from ..program import snapshots
from ..spec import TFCluster
from . import grammar
from .terminal import Terminal


def planned_cluster(*words: Any, **options: Any) -> TFCluster:
    """The first run of its name that `ClusterManager.launch` with the same words would make.

    Raises:
        InvalidRequest: something is wrong with what was asked for; all of it is named.
    """
    with snapshots.scratch_folder() as folder:
        return plan_launch(request_launch(folder, *words, **options), 1, Preflight()).cluster


def cluster_manifests(cluster: TFCluster, layout: str, template: str, policy: str) -> str:
    """The manifests of a run.

    Args:
        cluster: a run, or one that is only planned.
        layout: `native` or `per-task`; "" for native, or with a template.
        template: a file in Jinja's language; "" for our own.
        policy: the administrator's file; "" for the defaults.

    Raises:
        InvalidRequest: a file cannot be used, or the run does not fit into a ConfigMap.
        TFClusterError: the program in the record was altered.
    """
    decided = _read_policy(policy)
    if template:
        return render_template(cluster, decided, Path(template).absolute())
    return laid_out(cluster, decided, ManifestLayout(layout or ManifestLayout.NATIVE))


def _read_policy(file: str) -> Policy:
    if not file:
        return Policy()
    try:
        return parse_policy(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or _("it is not UTF-8 text")
        headline = _("the policy cannot be used")
        raise InvalidRequest([Problem("--policy", file, why)], headline) from None


LAYOUTS = ("native", "per-task")


@click.command("render", cls=grammar.LaunchCommand)
@click.argument("target", metavar="[REF | PROGRAM]", required=False)
@grammar.launch_options
@click.option("--name", help="name of the cluster [from the program]")
@click.option("--sha256", help="checksum that a program from a URL must have")
@click.option("-f", "--file", type=click.Path(), help="cluster file in YAML; options override it")
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    help="for Kubernetes: as the operator makes it, or a Service and a Job for each task [native]",
)
@click.option("--template", type=click.Path(), help="for Kubernetes: a Jinja template of your own")
@click.option(
    "--policy", type=click.Path(), help="for Kubernetes: the administrator's file [defaults]"
)
@grammar.backend_option
@click.pass_context
def render_command(ctx: click.Context, /, **words: Any) -> None:
    """Print the record of REF, or of a launch with these options, and each task as it is run.

    The output is YAML: the TFCluster, then one document for each task with its command,
    environment and TF_CONFIG. Nothing is created. A port that is not known yet is a word.

    Where clusters run on Kubernetes, or with --layout or --template, the output is manifests for
    `kubectl apply`; --backend kubernetes prints them without a cluster.

    \b
    Examples:
      tfcluster render train.py --workers 4 --ps 2
      tfcluster render --layout per-task train.py --ps 1 | kubectl apply -f -
    """  # noqa: D301 - click reads \b
    terminal: Terminal = ctx.obj
    target = words.pop("target")
    asked = {key: words.pop(key) for key in ("name", "sha256", "file")}
    asked |= {"arguments": grammar.program_arguments(ctx) or (), "cell": terminal.cell}
    paper = {key: words.pop(key) or "" for key in ("layout", "template", "policy")}
    if paper["layout"] and paper["template"]:
        raise UsageError(_("--template is a layout of your own: leave out --layout"))
    options, manager = grammar.given_options(words), terminal.manager
    planned = bool(
        target is None or "://" in target or Path(target).exists() or options or asked["file"]
    )
    on_paper = any(paper.values()) or means_kubernetes(manager.backend_name)
    if on_paper or not manager.backend.is_here:
        cluster = (
            planned_cluster(program=target, **asked, **options)
            if planned
            else manager.status(target)
        )
        _note_large(terminal, cluster)
        terminal.emit(cluster_manifests(cluster, **paper))
        return
    cluster = (
        manager.plan(program=target, **asked, **options).cluster
        if planned
        else manager.status(target)
    )
    terminal.emit(manager.render(cluster))


def _note_large(terminal: Terminal, cluster: TFCluster) -> None:
    program = cluster.spec.program
    if program is not None and program.is_stored:
        terminal.note(
            _(
                "the program is too large for a manifest: the tasks look for it in their "
                "workspace, in .tfcluster/code/{sha256}"
            ).format(sha256=program.sha256)
        )
