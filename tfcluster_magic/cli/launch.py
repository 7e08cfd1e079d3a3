"""The commands `launch`, `rerun` and `import`: start a run, and wait for it if asked."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..errors import InvalidRequest, PreflightRefused, Problem, TFClusterError, UsageError
from ..i18n import _
from ..lifecycle.messages import shown_inferred
from ..output.documents import cluster_yaml, document, json_text, to_yaml
from ..runs.manager import Until
from ..spec import Mode, TFCluster
from . import grammar
from .logs import follow_output
from .runs import wait_and_report, yes_option
from .terminal import Terminal

if TYPE_CHECKING:
    from ..launch.planning import Plan
    from ..launch.tfjob import ImportedJob, Remark


def _wait_options(command: grammar.F) -> grammar.F:
    """Add the options that say whether and how long to wait."""
    for option in (
        grammar.backend_option,
        grammar.output_option(),
        click.option("--timeout", type=grammar.Duration(), help="stop waiting after this long"),
        click.option("--follow", is_flag=True, help="show the tasks' output and wait for the end"),
        click.option(
            "--wait",
            is_flag=True,
            help="wait for the end (in-graph: until all servers accept connections); "
            "fail if the run fails",
        ),
        click.option("--dry-run", is_flag=True, help="show what would be launched; create nothing"),
    ):
        command = option(command)
    return command


@click.command("launch", cls=grammar.LaunchCommand)
@click.argument("program", required=False, type=click.Path())
@grammar.launch_options
@click.option("--name", help="name of the cluster [from the program]")
@click.option("--sha256", help="checksum that a program from a URL must have")
@click.option("-f", "--file", type=click.Path(), help="cluster file in YAML; options override it")
@grammar.config_option
@_wait_options
@click.pass_context
def launch_command(ctx: click.Context, /, **words: Any) -> TFCluster | None:
    """Launch a cluster that runs PROGRAM: a file, a folder with run.sh, a project, or a URL.

    The program's own arguments follow ` -- `. In a notebook, %%tfcluster launch runs the rest of
    the cell. With --mode in-graph there is no program: TensorFlow servers wait for this notebook.

    \b
    Examples:
      tfcluster launch train.py
      tfcluster launch --workers 4 --ps 2 train.py -- --epochs 3
      tfcluster launch digits/ --config quick
      tfcluster launch --mode in-graph --workers 2 --ps 1
    """  # noqa: D301 - click interprets \b
    terminal: Terminal = ctx.obj
    stay = {key: words.pop(key) for key in ("wait", "follow", "timeout", "form", "dry_run")}
    _check_wait_options(stay)
    asked = {
        "arguments": grammar.program_arguments(ctx) or (),
        "cell": terminal.cell,
        **{key: words.pop(key) for key in ("program", "name", "sha256", "file", "config")},
        **grammar.given_options(words),
    }
    if stay["dry_run"]:
        plan = terminal.manager.plan(**asked)
        with _options_named(asked["file"], asked):
            _show_plan(terminal, plan, stay["form"])
        return None
    with _options_named(asked["file"], asked):
        launched = terminal.manager.launch(**asked)
    return _report_and_wait(terminal, launched, **stay)


@contextmanager
def _options_named(file: str | None, asked: Mapping[str, object]) -> Iterator[None]:
    """Within this context, change the error of a refused launch: each problem names the option that
    the user typed instead of the field of the spec. `asked` has the typed options by key. Problems
    of a launch from `file` keep the fields.
    """
    try:
        yield
    except PreflightRefused as error:
        if file is not None:
            raise
        from ..launch.options import option_of

        named = [replace(each, field=option_of(str(each.field), asked)) for each in error.problems]
        raise type(error)(named) from None


@click.command("rerun", cls=grammar.LaunchCommand)
@grammar.ref_argument()
@grammar.launch_options
@click.option("--name", help="name of the new cluster [that of REF]")
@click.option(
    "--resume",
    is_flag=True,
    help="start from the checkpoints of REF, which is stopped first if it is active",
)
@click.option(
    "--advised",
    is_flag=True,
    help="change options as `tfcluster top` advises; the changes are shown first",
)
@yes_option
@_wait_options
@click.pass_context
def rerun_command(ctx: click.Context, /, **words: Any) -> TFCluster | None:
    """Launch the program of REF again, with the same snapshot and options except those that you
    give.

    Arguments after ` -- ` replace the program's arguments.

    \b
    Examples:
      tfcluster rerun digits --workers 6 --resume
      tfcluster rerun digits --advised
    """  # noqa: D301 - click interprets \b
    terminal: Terminal = ctx.obj
    stay = {key: words.pop(key) for key in ("wait", "follow", "timeout", "form", "dry_run")}
    _check_wait_options(stay)
    advised, yes = words.pop("advised"), words.pop("yes")
    asked = {
        "arguments": grammar.program_arguments(ctx),
        **{key: words.pop(key) for key in ("ref", "name", "resume")},
        **grammar.given_options(words),
    }
    if advised and not _take_advice(terminal, asked, yes or stay["dry_run"]):
        terminal.note(_("nothing was launched"))
        return None
    if stay["dry_run"]:
        plan = terminal.manager.plan_rerun(**asked)
        with _options_named(None, asked):
            _show_plan(terminal, plan, stay["form"])
        return None
    with _options_named(None, asked):
        launched = terminal.manager.rerun(**asked, on_stop=_StopNote(terminal))
    return _report_and_wait(terminal, launched, **stay)


def _take_advice(terminal: Terminal, asked: dict[str, Any], yes: bool) -> bool:
    """Show what the advice would change, add its options to `asked`, and return whether the user
    agrees.
    """
    from ..usage.advice import change_lines

    cluster = terminal.manager.status(asked["ref"])
    options = terminal.manager.advised_options(cluster)
    options = {key: value for key, value in options.items() if asked.get(key) is None}
    for line in change_lines(cluster.spec, options):
        terminal.note(line)
    asked["ref"] = cluster.metadata.name
    asked |= options
    action = _("launch {name} again with these changes").format(name=cluster.metadata.name)
    return terminal.confirm(action, yes)


class _StopNote:
    """A note, shown once, that an active run is stopped before the new run resumes it."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal, self._said = terminal, False

    def __call__(self, cluster: TFCluster) -> None:
        if not self._said:
            text = _("{name} is active: it is stopped, and the new run resumes it")
            self._terminal.note(text.format(name=cluster.metadata.name))
        self._said = True


def _check_wait_options(stay: dict[str, Any]) -> None:
    if stay["follow"] and stay["form"] != "table":
        raise UsageError(
            _("--follow prints the tasks' output, so it cannot be used with -o json|yaml|name")
        )
    if stay["dry_run"] and (stay["follow"] or stay["wait"]):
        raise UsageError(
            _("--dry-run creates no run, so it cannot be used with --wait or --follow")
        )
    if stay["timeout"] is not None and not (stay["follow"] or stay["wait"]):
        raise UsageError(
            _("--timeout needs --wait or --follow; to limit the run itself, use `--max-duration`")
        )


def _show_plan(terminal: Terminal, plan: Plan, form: str) -> None:
    """Show what would be created. Raise the error if the launch would be refused."""
    for text in (*plan.preflight.told, *shown_inferred(plan.cluster.status)):
        terminal.note(text)
    for warning in plan.cluster.status.warnings:
        terminal.note(_("warning: {warning}").format(warning=warning))
    if form == "table":
        terminal.note(_("nothing was created; a launch would create:"))
        terminal.emit(cluster_yaml(plan.cluster))
    else:
        terminal.emit(document(plan.cluster, form))
    plan.check()


def _report_and_wait(
    terminal: Terminal,
    cluster: TFCluster,
    *,
    wait: bool,
    follow: bool,
    timeout: float | None,
    form: str,
    dry_run: bool,
) -> TFCluster:
    """Report a new run, and wait for it as long as the user asked."""
    assert not dry_run
    name = cluster.metadata.name
    if form == "table":
        terminal.launched(cluster)
    elif not wait:
        terminal.emit(document(cluster, form))
        for text in shown_inferred(cluster.status):
            terminal.note(text)
        for warning in cluster.status.warnings:
            terminal.note(_("warning: {warning}").format(warning=warning))
    if not (wait or follow):
        return cluster
    deadline = None if timeout is None else time.monotonic() + timeout
    with terminal.detaching(name):
        if follow:
            follow_output(terminal, cluster, deadline=deadline)
        ready = cluster.spec.mode is Mode.IN_GRAPH and not follow
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        until = Until.READY if ready else Until.END
        return wait_and_report(terminal, name, until, left, form, quiet=follow)


# `import`: convert the resources of another operator.

_FORMS = ("yaml", "json", "name")


@click.command("import", cls=grammar.LaunchCommand)
@click.argument("file", type=click.Path())
@click.option("--name", help="name of the cluster [the TFJob's]")
@click.option(
    "--launch",
    "launches",
    is_flag=True,
    help="launch it, unless the program may need a field that is not carried over",
)
@click.option(
    "-o",
    "--output",
    "form",
    metavar="yaml|json|name|FILE",
    type=click.Path(),
    help="output format [yaml], or an output file",
)
@grammar.backend_option
@click.pass_context
def import_command(
    ctx: click.Context, /, file: str, name: str | None, launches: bool, form: str | None
) -> TFCluster | None:
    """Print the Kubeflow TFJobs (kubeflow.org/v1) of FILE as TFClusters; `-` is standard input.

    `kubectl apply` and `tfcluster launch -f` take the output. Fields that are not carried over are
    listed with their path in FILE and the reason. If a TFJob runs the default command of its image,
    give that command after ` -- `.

    \b
    Examples:
      tfcluster import mnist.yaml > mnist.tfcluster.yaml
      tfcluster import mnist.yaml --launch
      kubectl get tfjob mnist -o yaml | tfcluster import - -- python /opt/train.py
    """  # noqa: D301 - click interprets \b
    from ..launch.tfjob import read_tfjobs

    terminal: Terminal = ctx.obj
    if launches and form is not None and form not in _FORMS:
        raise UsageError(_("--launch writes no file: use either --launch or -o FILE"))
    jobs, others = read_tfjobs(file, grammar.program_arguments(ctx) or (), name)
    for job in jobs:
        for remark in sorted(job.remarks, key=lambda remark: not remark.needed):
            terminal.note(_("{name}: {what}").format(name=job.name, what=remark))
    for remark in others:
        terminal.note(_("{name}: {what}").format(name=remark.path, what=remark.why))
    if launches:
        return _launch_imported(terminal, jobs, form)
    _emit_imported(terminal, jobs, others, form or "yaml")
    return None


def _launch_imported(
    terminal: Terminal, jobs: Sequence[ImportedJob], form: str | None
) -> TFCluster | None:
    """Launch all jobs. If a program may need something of its TFJob that the import does not carry
    over, launch none and raise InvalidRequest.
    """
    from ..launch.cluster_file import ClusterFile

    if needed := [Problem(r.path, r.value, r.why) for job in jobs for r in job.needed]:
        text = _("write it with `-o FILE`, edit that file, and run `tfcluster launch -f FILE`")
        terminal.note(terminal.words(text))
        raise InvalidRequest(needed)
    launched = None
    for job in jobs:
        launched = terminal.manager.launch(
            file=ClusterFile(job.name, msgspec.to_builtins(job.spec))
        )
        if form is None:
            terminal.launched(launched)
        else:
            terminal.emit(document(launched, form))
    return launched


def _emit_imported(
    terminal: Terminal, jobs: Sequence[ImportedJob], others: Sequence[Remark], form: str
) -> None:
    from ..kube.objects import custom_resource

    made = [custom_resource.write_by_hand(job.name, 1, job.spec) for job in jobs]
    if form == "json":
        told = [
            {"tfcluster": each, "notCarriedOver": [_remark(r) for r in job.remarks]}
            for each, job in zip(made, jobs, strict=True)
        ]
        terminal.emit(json_text({"jobs": told, "others": [_remark(each) for each in others]}))
    elif form == "name":
        terminal.emit("\n".join(job.name for job in jobs))
    else:
        text = "\n---\n".join(map(to_yaml, made))
        if form == "yaml":
            terminal.emit(text)
            return
        try:
            Path(form).write_text(f"{text}\n", encoding="utf-8")
        except OSError as error:
            why = _("{file} cannot be written: {why}").format(file=form, why=error.strerror)
            raise TFClusterError(why) from None


def _remark(remark: Remark) -> dict[str, object]:
    return {
        "path": remark.path,
        "value": remark.value,
        "why": remark.why,
        "needed": remark.needed,
    }
