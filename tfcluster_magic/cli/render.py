"""The command `render`: prints a run or a planned launch as documents or Kubernetes manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from ..backends.base import Preflight
from ..backends.selection import means_kubernetes
from ..errors import TFClusterError, UsageError
from ..i18n import _
from ..kube.objects import custom_resource
from ..kube.objects.manifests import ManifestLayout, render_template
from ..kube.objects.manifests import render_manifests as laid_out
from ..kube.objects.policy import Policy, load_policy
from ..launch.planning import plan_launch, request_launch
from ..output.documents import to_yaml
from ..program import snapshots
from ..spec import Spec, TFCluster
from . import grammar
from .terminal import Terminal


def planned_cluster(*words: Any, **options: Any) -> TFCluster:
    """Return the run that `ClusterManager.launch` would make from the same arguments, as run number
    1. Nothing is launched.

    Raises:
        InvalidRequest: the request is wrong; every problem is named.
    """
    with snapshots.scratch_folder() as folder:
        return plan_launch(request_launch(folder, *words, **options), 1, Preflight()).cluster


def cluster_manifests(cluster: TFCluster, layout: str, template: str, policy: Policy) -> str:
    """Return the manifests of a run.

    Args:
        cluster: an existing or a planned run.
        layout: `native` or `per-task`; "" means `native` unless a template is given.
        template: the path of a Jinja template; "" for none.
        policy: the administrator's policy.

    Raises:
        InvalidRequest: a file cannot be used, or the run does not fit into a ConfigMap.
        TFClusterError: the program in the record was altered.
    """
    if template:
        return render_template(cluster, policy, Path(template).absolute())
    return laid_out(cluster, policy, ManifestLayout(layout or ManifestLayout.NATIVE))


def _policy_for(terminal: Terminal, spec: Spec, file: str) -> Policy:
    """Return the policy from `file`, else the policy of the target namespace, else the defaults.
    Print what the namespace lacks for the objects of `spec`.

    Raises:
        InvalidRequest: the file cannot be used.
    """
    if file:
        return load_policy(file)
    place, why = None, _("no Kubernetes cluster is in use")
    try:
        place = terminal.manager.backend.kubectl_place(spec)
    except TFClusterError as error:
        why = str(error)
    if place is None:
        text = _(
            "the manifests use the default policy ({why}). In a hub's namespace, "
            "quota and claims need that namespace's policy: name the administrator's "
            "file with `--policy FILE`, or run this command in that namespace with "
            "`--backend kubernetes`"
        )
        terminal.note(text.format(why=why))
        return Policy()
    text = _("the manifests use the policy of namespace {namespace}")
    terminal.note(text.format(namespace=place.namespace))
    for missing in place.missing:
        terminal.note(
            _("not possible in {namespace}: {why}").format(namespace=place.namespace, why=missing)
        )
    return place.policy


TFCLUSTER = "tfcluster"
LAYOUTS = (TFCLUSTER, "native", "per-task")


@click.command("render", cls=grammar.LaunchCommand)
@click.argument("target", metavar="[REF | PROGRAM]", required=False)
@grammar.launch_options
@click.option("--name", help="name of the cluster [from the program]")
@click.option("--sha256", help="checksum that a program from a URL must have")
@click.option("-f", "--file", type=click.Path(), help="cluster file in YAML; options override it")
@grammar.config_option
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    help="for Kubernetes: print the TFCluster, the operator's objects, or a Service and a "
    "Job for each task [native]",
)
@click.option("--template", type=click.Path(), help="for Kubernetes: a Jinja template of your own")
@click.option(
    "--policy",
    type=click.Path(),
    help="for Kubernetes: the administrator's policy file [the namespace's policy, else defaults]",
)
@grammar.backend_option
@click.pass_context
def render_command(ctx: click.Context, /, **words: Any) -> None:
    """Print the record of REF, or of a launch with these options, and how each task is started.

    The output is YAML: the TFCluster, then one document for each task with its command, environment
    and TF_CONFIG. Nothing is created. A port that is not known yet is
    shown as a placeholder.

    On Kubernetes, or with --layout or --template, the output is manifests for `kubectl apply`;
    --backend kubernetes prints them even without a cluster. With --layout tfcluster, the manifest
    is one TFCluster for the operator, which you can keep in a file and change.

    \b
    Examples:
      tfcluster render train.py --workers 4 --ps 2
      tfcluster render --layout tfcluster train.py --workers 4 > train.yaml
      tfcluster render --layout per-task train.py --ps 1 | kubectl apply -f -
    """  # noqa: D301 - click interprets \b
    terminal: Terminal = ctx.obj
    target = words.pop("target")
    asked = {key: words.pop(key) for key in ("name", "sha256", "file", "config")}
    asked |= {"arguments": grammar.program_arguments(ctx) or (), "cell": terminal.cell}
    paper = {key: words.pop(key) or "" for key in ("layout", "template", "policy")}
    if paper["layout"] and paper["template"]:
        raise UsageError(_("--template replaces the layout: leave out --layout"))
    if paper["layout"] == TFCLUSTER and paper["policy"]:
        raise UsageError(
            _("the operator applies its own policy to a TFCluster: leave out --policy")
        )
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
        if paper["layout"] == TFCLUSTER:
            head = cluster.metadata
            number = head.run if planned else manager.backend.next_number(head.cluster)
            spec = replace(cluster.spec, stop=None)
            terminal.emit(to_yaml(custom_resource.write_by_hand(head.cluster, number, spec)))
            return
        policy = _policy_for(terminal, cluster.spec, paper["policy"])
        terminal.emit(cluster_manifests(cluster, paper["layout"], paper["template"], policy))
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
