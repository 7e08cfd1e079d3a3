"""`schedule`: the commands of schedules. Each command calls one method of `manager.schedules`."""

from __future__ import annotations

import time
from typing import Any

import click

from ..i18n import _
from ..launch.form_fields import bounds
from ..output import schedules as report
from ..output.documents import document
from ..schedules import ASK_ABOVE, Schedule, ScheduleRules
from ..schedules.options import SCHEDULE_OPTIONS, ScheduleKind
from . import grammar
from .group import Command, VerbGroup
from .runs import yes_option
from .terminal import Terminal

FORMS = ("table", "json", "yaml")


name_argument = click.argument("name", metavar="NAME", shell_complete=grammar.complete_schedules)


def schedule_options(command: grammar.F) -> grammar.F:
    """Add every option of `schedules.options`. The manager checks the values."""
    for option in reversed(SCHEDULE_OPTIONS):
        names, settings = option.flag, dict[str, Any](help=option.help)
        if option.kind is ScheduleKind.SWITCH:
            names, settings["default"] = f"{option.flag}/--no-{option.flag[2:]}", None
        elif option.words:
            settings["type"] = click.Choice(option.words)
        elif option.kind is ScheduleKind.WHOLE:
            limits = bounds((option.field,), ScheduleRules)
            settings["type"] = grammar.Whole(min=limits["minimum"])
        elif option.kind in (ScheduleKind.DURATION, ScheduleKind.DURATIONS):
            settings["metavar"] = "TIME"
            settings["multiple"] = option.kind is ScheduleKind.DURATIONS
        command = click.option(names, option.key, **settings)(command)
    return command


def launch_words(command: grammar.F) -> grammar.F:
    """Add the options of a launch and of a schedule to a command."""
    for option in (
        grammar.launch_options,
        click.option("--sha256", help="checksum that a program from a URL must have"),
        click.option(
            "-f", "--file", type=click.Path(), help="cluster file in YAML; options override it"
        ),
        grammar.config_option,
        schedule_options,
    ):
        command = option(command)
    return command


def _asked(ctx: click.Context, words: dict[str, Any]) -> dict[str, Any]:
    """Return the options that the user set, by the names of the manager's parameters."""
    terminal: Terminal = ctx.obj
    said = {key: value for key, value in words.items() if value not in (None, ())}
    if (arguments := grammar.program_arguments(ctx)) is not None:
        said["arguments"] = arguments
    if terminal.cell is not None:
        said["cell"] = terminal.cell
    return said


class ScheduleCommand(grammar.LaunchCommand):
    """A command with the options of a schedule and of its launch."""

    awaits_runs = False


@click.group("schedule", cls=VerbGroup)
def schedule_command() -> None:
    """Launch a program again and again, at times of a cron expression.

    A small process of yours, the clock, launches due runs even while all shells and notebooks are
    closed. A schedule launches a snapshot of its program; `update` takes a new one.
    """


@schedule_command.command("create", cls=ScheduleCommand)
@click.argument("name", metavar="NAME")
@click.argument("program", required=False, type=click.Path())
@launch_words
@grammar.output_option(FORMS)
@grammar.backend_option
@click.pass_context
def create_command(ctx: click.Context, /, form: str, **words: Any) -> None:
    """Create the schedule NAME, which launches PROGRAM; its runs are NAME-1 and so on.

    Arguments and --env may contain {scheduled_for} and {previous_success}, also with a format:
    {scheduled_for:%Y-%m-%d}.

    \b
    Examples:
      tfcluster schedule create nightly --cron "0 2 * * *" --time-zone Asia/Shanghai train.py
      tfcluster schedule create nightly --cron @daily --overlap replace digits/ --config quick
      tfcluster schedule create daily --cron @daily train.py -- --day {scheduled_for:%Y-%m-%d}
    """  # noqa: D301 - click interprets \b
    terminal: Terminal = ctx.obj
    said = _asked(ctx, words)
    made = terminal.manager.schedules.create(**said)
    _show(terminal, made, form)
    if "time_zone" not in said:
        text = _("the time zone is this machine's, {zone}; --time-zone sets another one")
        terminal.note(text.format(zone=made.rules.time_zone))


@schedule_command.command("list", cls=Command)
@grammar.output_option(FORMS)
@grammar.backend_option
@click.pass_obj
def list_command(terminal: Terminal, form: str) -> None:
    """List the schedules: when they are due next, and how their last due times ended."""
    found = terminal.manager.schedules.list()
    if form != "table":
        terminal.emit(document(found, form))
    elif found:
        text = report.listing(found, time.time(), terminal.paint, most=terminal.columns)
        terminal.say(text)
    else:
        terminal.say(
            _("No schedules yet. `tfcluster schedule create --help` says how to make one.")
        )


def _show(terminal: Terminal, schedule: Schedule, form: str) -> None:
    if form != "table":
        terminal.emit(document(schedule, form))
        return
    terminal.say(report.schedule(schedule, time.time(), terminal.paint, most=terminal.columns))


@schedule_command.command("show", cls=Command)
@name_argument
@grammar.output_option(FORMS)
@grammar.backend_option
@click.pass_obj
def show_command(terminal: Terminal, name: str, form: str) -> None:
    """Show the schedule NAME: its rules, its next due times, and what it waits for."""
    _show(terminal, terminal.manager.schedules.show(name), form)


@schedule_command.command("history", cls=Command)
@name_argument
@click.option(
    "--last",
    type=grammar.Whole(min=1),
    default=30,
    help="number of due times to list, newest first [30]",
)
@grammar.output_option(FORMS)
@grammar.backend_option
@click.pass_obj
def history_command(terminal: Terminal, name: str, last: int, form: str) -> None:
    """List the due times of NAME with their results, newest first."""
    schedule = terminal.manager.schedules.show(name)
    found = terminal.manager.schedules.history(name, last)
    if form != "table":
        terminal.emit(document(found, form))
    elif found:
        text = report.history(schedule, found, terminal.paint, most=terminal.columns)
        terminal.say(text)
    else:
        terminal.say(_("{name} was not due yet.").format(name=name))


@schedule_command.command("pause", cls=Command)
@name_argument
@click.option("--reason", default="", help="the reason, which `list` and `show` display")
@grammar.backend_option
@click.pass_obj
def pause_command(terminal: Terminal, name: str, reason: str) -> None:
    """Pause NAME: it launches nothing until `resume`. Active runs go on."""
    _headline(terminal, terminal.manager.schedules.pause(name, reason))


@schedule_command.command("resume", cls=Command)
@name_argument
@grammar.backend_option
@click.pass_obj
def resume_command(terminal: Terminal, name: str) -> None:
    """Resume NAME. Due times during the pause are not caught up."""
    _headline(terminal, terminal.manager.schedules.resume(name))


@schedule_command.command("run-now", cls=Command)
@name_argument
@grammar.backend_option
@click.pass_obj
def run_now_command(terminal: Terminal, name: str) -> None:
    """Launch NAME now, even outside its scheduled times; its overlap rules still apply."""
    terminal.manager.schedules.run_now(name)
    text = _("{name} is due now. To follow it: `tfcluster schedule history {name}`")
    terminal.say(text.format(name=name))


@schedule_command.command("update", cls=ScheduleCommand)
@name_argument
@click.argument("program", required=False, type=click.Path())
@launch_words
@grammar.output_option(FORMS)
@grammar.backend_option
@click.pass_context
def update_command(ctx: click.Context, /, form: str, **words: Any) -> None:
    """Change the given options of NAME, and take a new snapshot of its program.

    All other options stay as they are. Active runs do not change.
    """
    terminal: Terminal = ctx.obj
    _show(terminal, terminal.manager.schedules.update(**_asked(ctx, words)), form)


@schedule_command.command("delete", cls=Command)
@name_argument
@yes_option
@grammar.backend_option
@click.pass_obj
def delete_command(terminal: Terminal, name: str, yes: bool) -> None:
    """Remove NAME with its history. Its runs are kept; active ones continue."""
    terminal.manager.schedules.show(name)
    action = _("delete the schedule {name} and its history").format(name=name)
    if not terminal.confirm(action, yes):
        terminal.note(_("nothing was deleted"))
        return
    terminal.manager.schedules.delete(name)
    terminal.say(_("The schedule {name} is deleted; its runs stay.").format(name=name))


@schedule_command.command("backfill", cls=Command)
@name_argument
@click.option("--from", "start", required=True, help="first time, such as 2026-11-01")
@click.option(
    "--to",
    "end",
    required=True,
    help="last time, such as 2026-11-26T23:59; a date alone means 0:00 on that day",
)
@click.option(
    "--parallel", type=grammar.Whole(1, 100), default=1, help="number of runs at the same time [1]"
)
@yes_option
@grammar.output_option(FORMS)
@grammar.backend_option
@click.pass_obj
def backfill_command(
    terminal: Terminal, name: str, start: str, end: str, parallel: int, yes: bool, form: str
) -> None:
    """Run NAME for earlier due times, oldest first; those that succeeded are left out.

    It runs in the background; `tfcluster schedule show NAME` has its progress.
    """
    planned = terminal.manager.schedules.plan_backfill(name, start, end, parallel)
    if planned.total > ASK_ABOVE:
        action = _("launch {count} runs of {name}").format(count=planned.total, name=name)
        if not terminal.confirm(action, yes):
            terminal.note(_("nothing was launched"))
            return
    _show(terminal, terminal.manager.schedules.backfill(name, start, end, parallel), form)


@schedule_command.command("install", cls=Command)
@click.option("--remove", is_flag=True, help="remove the unit; a running clock process continues")
@grammar.backend_option
@click.pass_obj
def install_command(terminal: Terminal, remove: bool) -> None:
    """Let systemd start your clock process, so that schedules work after a reboot.

    It writes a user unit for this Python and enables it. Repeat it if your Python has moved.
    """
    service = terminal.manager.schedules.install(remove=remove)
    if remove:
        done = _("{path} is deleted. The next `tfcluster` command starts the clock again.")
        nothing = _("Nothing was installed.")
        terminal.say(done.format(path=service.file) if service else nothing)
    elif service:
        terminal.say(_("{path} is enabled.").format(path=service.file))
        if service.lingers:
            terminal.say(_("systemd starts the clock with the machine."))
        else:
            terminal.say(
                _(
                    "systemd starts the clock when you log in; `loginctl enable-linger` lets it "
                    "start with the machine."
                )
            )


def _headline(terminal: Terminal, schedule: Schedule) -> None:
    terminal.say(report.headline(schedule, time.time(), terminal.paint))
