"""`render`: a run, or a launch that is only planned, as documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..backends.selection import means_kubernetes
from ..errors import UsageError
from ..i18n import _
from ..spec import TFCluster
from . import grammar, rendering
from .terminal import Terminal

LAYOUTS = ("native", "per-task")


@click.command("render", cls=grammar.LaunchCommand)
@click.argument("target", metavar="[REF | PROGRAM]", required=False)
@grammar.launch_options
@click.option("--name", help="name of the cluster [from the program]")
@click.option("--sha256", help="checksum that a program from a URL must have")
@click.option("-f", "--file", type=click.Path(), help="cluster file in YAML; options go before it")
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
    asked |= {"arguments": grammar.arguments_of(ctx) or (), "cell": terminal.cell}
    paper = {key: words.pop(key) or "" for key in ("layout", "template", "policy")}
    if paper["layout"] and paper["template"]:
        raise UsageError(_("--template is a layout of your own: leave out --layout"))
    options, manager = grammar.given(words), terminal.manager
    planned = bool(
        target is None or "://" in target or Path(target).exists() or options or asked["file"]
    )
    on_paper = any(paper.values()) or means_kubernetes(manager.backend_name)
    if on_paper or not manager.backend.is_here:
        cluster = (
            rendering.planned(program=target, **asked, **options)
            if planned
            else manager.status(target)
        )
        _note_large(terminal, cluster)
        terminal.emit(rendering.manifests(cluster, **paper))
        return
    cluster = (
        manager.plan(program=target, **asked, **options).cluster
        if planned
        else manager.status(target)
    )
    terminal.emit(manager.render(cluster))


def _note_large(terminal: Terminal, cluster: TFCluster) -> None:
    program = cluster.spec.program
    if program is not None and program.files is None:
        terminal.note(
            _(
                "the program is too large for a manifest: the tasks look for it in their "
                "workspace, in .tfcluster/code/{sha256}"
            ).format(sha256=program.sha256)
        )
