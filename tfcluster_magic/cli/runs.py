"""The commands for existing runs, and `options` and `hours`. Runs are started in `launch.py`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec

from ..errors import UsageError
from ..i18n import _, ngettext
from ..output import documents, report, run_card
from ..output import usage as usage_output
from ..output.documents import document, to_yaml
from ..output.text import one_line
from ..quota import budgets, ledger
from ..quota.ledger import Grouping, HoursRow
from ..runs.manager import Until, newest
from ..spec import Mode, Phase, TFCluster
from . import grammar
from .group import Command
from .terminal import Terminal


@click.command("list", cls=Command)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("-a", "--all", "all_runs", is_flag=True, help="also list earlier runs of each name")
@click.option("--active", is_flag=True, help="only runs that have not ended")
@click.option(
    "--phase",
    type=click.Choice([p.value for p in Phase]),
    multiple=True,
    help="only runs in this phase; repeatable",
)
@click.option("--mode", type=click.Choice([m.value for m in Mode]), help="only runs of this mode")
@click.option(
    "--tag",
    "tags",
    multiple=True,
    help="only runs with this tag; if repeated, only runs with all of the tags",
)
@grammar.output_option()
@grammar.backend_option
@click.pass_obj
def list_command(
    terminal: Terminal,
    names: tuple[str, ...],
    all_runs: bool,
    active: bool,
    phase: tuple[str, ...],
    mode: str | None,
    tags: tuple[str, ...],
    form: str,
) -> None:
    """List the active runs and the newest run of each name, newest first; with --tag, every run
    with this tag.
    """
    everything = terminal.manager.list(names, all_runs=True)
    if names and not everything:
        terminal.manager.status(names[0])  # raises an error that suggests similar names
    clusters = [
        c
        for c in (everything if all_runs or tags else newest(everything))
        if (not active or c.active)
        and (not phase or c.status.phase.value in phase)
        and (mode is None or c.spec.mode.value == mode)
        and set(tags) <= set(c.metadata.tags)
    ]
    if form != "table":
        if clusters or form != "name":
            terminal.emit(document(clusters, form))
        return
    if clusters:
        terminal.say(report.listing(clusters, terminal.paint, most=terminal.columns))
    elif everything and all_runs:
        terminal.say(_("No run matches."))
    elif everything:
        terminal.say(_("No run matches. `tfcluster list --all` shows every run."))
    else:
        terminal.say(
            _(
                "No runs yet. `tfcluster launch train.py` starts one; "
                "`tfcluster launch --help` says more."
            )
        )
    hidden = len(everything) - len(clusters)
    if clusters and hidden and not all_runs and not tags:
        terminal.note(_("{count} more with `tfcluster list --all`").format(count=hidden))
    terminal.note_outage(clusters)


@click.command("status", cls=Command)
@grammar.ref_argument(required=False)
@click.option("-f", "--follow", is_flag=True, help="keep updating until the run has ended")
@grammar.output_option()
@grammar.backend_option
@click.pass_obj
def status_command(terminal: Terminal, ref: str | None, follow: bool, form: str) -> None:
    """Show the status of REF: one sentence, then each task. Without REF, the newest run."""
    cluster = terminal.manager.status(ref)
    if not follow:
        _show_status(terminal, cluster, form)
        for text in terminal.manager.left() if form == "table" and cluster.active else ():
            terminal.note(text)
        return
    with terminal.detaching(cluster.metadata.name):
        for change in terminal.manager.follow(cluster.metadata.name):
            cluster = change or cluster
            if form == "table":
                terminal.live(cluster, _status_text(terminal, cluster))
            elif change is not None:
                _show_status(terminal, cluster, form)
            if cluster.status.released_at is not None:
                break
    if form == "table":
        terminal.finished(cluster)


def _show_status(terminal: Terminal, cluster: TFCluster, form: str) -> None:
    if form == "table":
        terminal.emit(_status_text(terminal, cluster))
        return
    progress = terminal.manager.progress(cluster) if form != "name" else None
    beside = {"progress": run_card.progress_view(progress)} if progress else None
    terminal.emit(document(cluster, form, beside))


def _status_text(terminal: Terminal, cluster: TFCluster) -> str:
    notes = terminal.manager.notes(cluster)
    return terminal.words(report.status(cluster, terminal.paint, notes, most=terminal.columns))


def wait_and_report(
    terminal: Terminal,
    name: str,
    until: Until,
    timeout: float | None,
    form: str,
    *,
    quiet: bool = False,
) -> TFCluster:
    """Wait for a run and report its status; with `quiet`, do not report changes in between. Raises
    the errors of `ClusterManager.wait`.
    """
    try:
        cluster = terminal.manager.wait(
            name,
            timeout,
            until=until,
            on_change=None if quiet or form != "table" else terminal.changed,
        )
    finally:
        if form != "table":
            terminal.emit(document(terminal.manager.status(name), form))
    if form == "table":
        terminal.finished(cluster)
    return cluster


_UNTIL = {"running": Until.READY, "end": Until.END}


@click.command("wait", cls=Command)
@grammar.ref_argument()
@click.option(
    "--for",
    "what",
    type=click.Choice(list(_UNTIL)),
    default="end",
    help="until all of its tasks run, or until it has ended [end]",
)
@click.option("--timeout", type=grammar.Duration(), help="stop waiting after this long")
@grammar.output_option()
@grammar.backend_option
@click.pass_obj
def wait_command(
    terminal: Terminal, ref: str, what: str, timeout: float | None, form: str
) -> TFCluster:
    """Wait until the run REF has ended, and fail when it ends without success.

    With --for running, wait until all of its tasks run, or the run has succeeded.
    """
    name = terminal.manager.status(ref).metadata.name
    with terminal.detaching(name):
        return wait_and_report(terminal, name, _UNTIL[what], timeout, form)


COMPARISON_FORMS = ("table", "json", "yaml", "csv")


@click.command("compare", cls=Command)
@grammar.ref_argument(nargs=-1)
@click.option("--differences", is_flag=True, help="only rows with differences")
@grammar.output_option(COMPARISON_FORMS)
@grammar.backend_option
@click.pass_obj
def compare_command(
    terminal: Terminal, refs: tuple[str, ...], differences: bool, form: str
) -> None:
    """Show the runs REF… side by side: arguments, options, duration, last metrics, notes.

    Rows with differences are first and marked with ≠. `tfcluster tensorboard REF…` shows the curves
    of the same runs.
    """
    from ..output import comparison  # imports the program reader, which only launches need

    found = terminal.manager.compare(refs)
    if differences:
        found = comparison.differences(found)
    if form == "table":
        terminal.say(comparison.comparison_table(found, terminal.paint))
    elif form == "csv":
        terminal.emit(comparison.comparison_csv(found))
    else:
        terminal.emit(document(found, form))


TOP_REFRESH = 2.0
"""Seconds between two tables of `top`. The usage of tasks is sampled at the same interval."""


@click.command("top", cls=Command)
@grammar.ref_argument(required=False)
@click.option(
    "--sort",
    type=click.Choice(usage_output.ORDERS),
    default="cpu",
    help="sort by this column, largest first; `task`: in the order of the tasks [cpu]",
)
@click.option("--once", is_flag=True, help="print one table, also in a terminal")
@grammar.output_option(("table", "json", "yaml"))
@grammar.backend_option
@click.pass_obj
def top_command(
    terminal: Terminal, ref: str | None, sort: usage_output.Order, once: bool, form: str
) -> None:
    """Show what each task of REF uses: CPU, memory, network, disk, GPU, steps a second.

    A terminal shows it live until the run has ended; a pipe and a cell get one table. For a run
    that has ended, averages and peaks are shown. Without REF, the newest run.

    \b
    Examples:
      tfcluster top digits
      tfcluster top --sort memory -o json digits-2
    """  # noqa: D301 - click interprets \b
    cluster = terminal.manager.status(ref)
    if form != "table":
        terminal.emit(document(terminal.manager.usage(cluster), form))
        return

    def text() -> str:
        found = terminal.manager.usage(cluster)
        table = usage_output.usage_table(found, sort, terminal.paint, terminal.columns)
        return f"{report.headline(cluster, terminal.paint)}\n\n{table}"

    if once or terminal.columns is None or not cluster.active:
        terminal.say(text())
        return
    refresh = 0.0
    with terminal.detaching(cluster.metadata.name):
        for change in terminal.manager.follow(cluster.metadata.name):
            cluster = change or cluster
            if not cluster.active:
                break
            if time.monotonic() >= refresh:
                terminal.live(cluster, text())
                refresh = time.monotonic() + TOP_REFRESH
    terminal.live(cluster, text())


@click.command("note", cls=Command)
@grammar.ref_argument()
@click.argument("text", required=False)
@grammar.backend_option
@click.pass_obj
def note_command(terminal: Terminal, ref: str, text: str | None) -> None:
    """Show the note of the run REF, or set it to TEXT; an empty TEXT removes it.

    A note is one line, such as "learning rate 0.1". It does not affect the run.
    """
    head = terminal.manager.note(ref, text).metadata
    terminal.say(one_line(head.note) or _("{name} has no note.").format(name=head.name))


@click.command("rename", cls=Command)
@grammar.ref_argument()
@click.argument("text", required=False)
@grammar.backend_option
@click.pass_obj
def rename_command(terminal: Terminal, ref: str, text: str | None) -> None:
    """Show the display name of the run REF, or set it to TEXT; an empty TEXT removes it.

    Lists and JupyterLab show it. Commands still take the run's name, such as digits-2.
    """
    head = terminal.manager.rename(ref, text).metadata
    none = _("{name} has no display name.").format(name=head.name)
    terminal.say(one_line(head.display_name) or none)


@click.command("tag", cls=Command)
@grammar.ref_argument()
@click.argument("tags", metavar="[TAG]...", nargs=-1)
@click.option("--remove", is_flag=True, help="remove these tags")
@grammar.backend_option
@click.pass_obj
def tag_command(terminal: Terminal, ref: str, tags: tuple[str, ...], remove: bool) -> None:
    """Show the tags of the run REF, or add each TAG.

    Find runs by a tag with `tfcluster list --tag baseline`, or in JupyterLab with the filter
    tag:baseline.
    """
    if remove and not tags:
        raise UsageError(_("tag: name the tags to remove"))
    head = terminal.manager.tag(ref, **{"remove" if remove else "add": tags}).metadata
    none = _("{name} has no tags.").format(name=head.name)
    terminal.say(one_line(" ".join(head.tags)) or none)


# `stop` and `delete`

yes_option = click.option("-y", "--yes", is_flag=True, help="do not ask for confirmation")


@click.command("stop", cls=Command)
@grammar.ref_argument(required=False, nargs=-1)
@click.option("--all", "every", is_flag=True, help="every run that still has tasks")
@click.option("--reason", help="reason, for the record")
@click.option("--no-wait", is_flag=True, help="return at once")
@yes_option
@grammar.backend_option
@click.pass_obj
def stop_command(
    terminal: Terminal,
    refs: tuple[str, ...],
    every: bool,
    reason: str | None,
    no_wait: bool,
    yes: bool,
) -> None:
    """Stop the runs REF…; their records, output and checkpoints stay."""
    manager = terminal.manager
    clusters = _runs_to_stop(terminal, refs, every)
    names = [c.metadata.name for c in clusters]
    action = _("stop {names}").format(names=", ".join(names))
    if every and names and not terminal.confirm(action, yes):
        terminal.note(_("nothing was stopped"))
        return
    for name in names:
        manager.stop(name, reason)
    for before in clusters:
        name = before.metadata.name
        if no_wait:
            after = manager.status(name)
            stops = after.active and after.spec.stop is not None
            being_stopped = _("{name} is being stopped").format(name=name)
            terminal.say(being_stopped if stops else report.headline(after, terminal.paint))
            continue

        def changed(now: TFCluster, before: TFCluster = before) -> None:
            if now.status.messages != before.status.messages:
                terminal.changed(now)

        with terminal.detaching(name, _("{name} is still being stopped").format(name=name)):
            after = manager.wait(name, until=Until.RELEASED, on_change=changed)
        ended = "" if before.active else _("it had already ended")
        if before.status.released_at is None and after.status.reclaimed is not None:
            ended = report.reclaimed(after.status.reclaimed)
        terminal.say(report.headline(after, terminal.paint) + (f" ({ended})" if ended else ""))
        if before.active and (folder := after.status.paths.get("output")):
            text = _("The record of {name} stays, and its output in {folder}.")
            terminal.note(terminal.words(text.format(name=name, folder=folder)))


def _runs_to_stop(terminal: Terminal, refs: tuple[str, ...], every: bool) -> list[TFCluster]:
    """Return the runs to stop, each once. All runs are looked up before any of them is stopped."""
    if bool(refs) == every:
        raise UsageError(_("stop: name the runs, or use --all"))
    if not every:
        return _distinct_runs(terminal, refs)
    clusters = [c for c in terminal.manager.list(all_runs=True) if c.status.released_at is None]
    if not clusters:
        terminal.say(_("Nothing is running."))
    return clusters


def _distinct_runs(terminal: Terminal, refs: tuple[str, ...]) -> list[TFCluster]:
    clusters = [terminal.manager.status(ref) for ref in refs]
    return list({c.metadata.name: c for c in clusters}.values())


def _end_of_waiting(waiting: Sequence[TFCluster]) -> str:
    names = ", ".join(run.metadata.name for run in waiting)
    return ngettext(
        "make the waiting run {names} fail (unless it waits for :end)",
        "make the waiting runs {names} fail (unless they wait for :end)",
        len(waiting),
    ).format(names=names)


@click.command("delete", cls=Command)
@grammar.ref_argument(nargs=-1)
@click.option(
    "--with-logs", is_flag=True, help="also remove each run's folder of logs and checkpoints"
)
@yes_option
@grammar.backend_option
@click.pass_obj
def delete_command(terminal: Terminal, refs: tuple[str, ...], with_logs: bool, yes: bool) -> None:
    """Remove the records of the runs REF…; a run that is active is stopped first."""
    clusters = _distinct_runs(terminal, refs)
    for cluster in clusters:  # check all before asking, stopping or deleting
        terminal.manager.check_delete(cluster.metadata.name, with_logs=with_logs)
    active = [c.metadata.name for c in clusters if c.active]
    names = ", ".join(c.metadata.name for c in clusters)
    actions = [_("stop {names}").format(names=", ".join(active))] if active else []
    actions.append(_("delete {names}").format(names=names))
    if with_logs:
        folders = [c.status.paths["output"] for c in clusters if "output" in c.status.paths]
        actions.append(
            _("remove the output and checkpoints in {folders}").format(folders=", ".join(folders))
        )
    waiting = terminal.manager.waiting_for(active) if active else []  # nothing waits for ended runs
    if waiting:
        actions.append(_end_of_waiting(waiting))
    asks = bool(active) or with_logs
    if asks and not terminal.confirm(_(", ").join(actions), yes):
        terminal.note(_("nothing was deleted"))
        return
    for cluster in clusters:
        name = cluster.metadata.name
        goes_on = _("{name} is being stopped, and its record is still there").format(name=name)
        with terminal.detaching(name, goes_on):
            terminal.manager.delete(name, with_logs=with_logs)
        terminal.say(_("deleted {name}").format(name=name))


# `connect` and `tensorboard`


@click.command("connect", cls=Command)
@grammar.ref_argument()
@click.option(
    "--timeout",
    type=grammar.Duration(),
    default=60.0,
    help="wait at most this long for the servers [60s]",
)
@grammar.backend_option
@click.pass_obj
def connect_command(terminal: Terminal, ref: str, timeout: float) -> TFCluster:
    """Show how to use the In-Graph cluster REF; in a notebook, return its handle.

    In a notebook: cluster = %tfcluster connect REF, then cluster.target or cluster.strategy().
    """
    with terminal.detaching(ref):
        cluster = terminal.manager.reachable(ref, timeout)
    terminal.connected(cluster)
    return cluster


@click.command("tensorboard", cls=Command)
@grammar.ref_argument(required=False, nargs=-1)
@click.option("--all", "everything", is_flag=True, help="every run in the log folder")
@click.option("--stop", is_flag=True, help="stop it instead; without REF, stop every TensorBoard")
@grammar.backend_option
@click.pass_obj
def tensorboard_command(
    terminal: Terminal, refs: tuple[str, ...], everything: bool, stop: bool
) -> None:
    """Open one TensorBoard for the runs REF…, or for all runs.

    It stops automatically after half an hour without use.
    """
    if refs and everything:
        raise UsageError(_("tensorboard: use either runs or --all, not both"))
    boards = terminal.manager.boards
    if stop and not refs and not everything:
        for shown in (ended := boards.stop()):
            terminal.say(_("TensorBoard of {name} has ended").format(name=shown))
        if not ended:
            terminal.say(_("No TensorBoard is running."))
        return
    view = boards.view(*refs)
    what = (
        _("TensorBoard of {name}").format(name=", ".join(view.runs))
        if view.runs
        else _("TensorBoard of all runs")
    )
    if stop:
        ended = boards.stop([view.folder])
        text = _("{what} has ended") if ended else _("{what} is not running")
        terminal.say(text.format(what=what))
        return
    terminal.board(boards.open(view).url, what, view)


@click.command("options", cls=Command)
@grammar.output_option(("table", "json", "yaml"))
@grammar.backend_option
@click.pass_obj
def options_command(terminal: Terminal, form: str) -> None:
    """Show the free resources, and the Python and folders of tasks."""
    what = terminal.manager.options()
    if form == "table":
        terminal.say(report.options(what, terminal.paint))
    else:
        terminal.emit(document(what, form))


# `hours`

HOURS_FORMS = ("table", "json", "yaml", "csv")
DEFAULT_DAYS = 7


def window_options(command: grammar.F) -> grammar.F:
    """Add `--from` and `--to`, the first and the last day."""
    for option in (
        click.option("--to", "last", metavar="DAY", default="", help="last day [today, UTC]"),
        click.option("--from", "first", metavar="DAY", default="", help="first day [a week ago]"),
    ):
        command = option(command)
    return command


@click.command("hours", cls=Command)
@window_options
@click.option(
    "--by",
    type=click.Choice(["cluster", "day", "group"]),
    default="cluster",
    help="what each row sums up [cluster]",
)
@grammar.output_option(HOURS_FORMS)
@grammar.backend_option
@click.pass_obj
def hours_command(terminal: Terminal, first: str, last: str, by: Grouping, form: str) -> None:
    """Show the CPU- and GPU-hours that your runs have reserved, including deleted runs.

    Active runs count until now. Days are in UTC, such as 2026-11-22.
    """
    now = time.time()
    account = terminal.manager.hours()
    days = account.budget.days if account.budget else DEFAULT_DAYS
    first, last = budgets.requested_window(first, last, days, now)
    rows = ledger.hours_rows({"": account.days}, first, last, by)
    more = {"budget": msgspec.to_builtins(account.budget)} if account.budget else {}
    show_hours(terminal, rows, by, form, {"from": first, "to": last, "by": by, **more})
    if form == "table":
        for text in ledger.remaining_budget(account, now):
            terminal.say(text)


def show_hours(
    terminal: Terminal,
    rows: list[HoursRow],
    by: Grouping,
    form: str,
    about: dict[str, Any],
    as_table: Callable[..., str] = documents.hours_table,
) -> None:
    """Print rows of used hours in the requested format."""
    if form == "csv":
        terminal.emit(documents.hours_csv(rows, by))
    elif form != "table":
        told = {**about, "items": [msgspec.to_builtins(row) for row in rows]}
        text = json.dumps(told, indent=2, ensure_ascii=False)
        terminal.emit(text if form == "json" else to_yaml(told))
    elif rows:
        terminal.emit(as_table(rows, by, terminal.paint, terminal.columns))
    else:
        text = _("Nothing was reserved from {first} to {last}.")
        terminal.say(text.format(first=about["from"], last=about["to"]))
