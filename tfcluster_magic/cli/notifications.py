"""`notify`: messages about runs by mail and webhooks. Each command calls one method of
`manager.notifications`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from ..errors import UsageError
from ..i18n import _
from ..notifications import Occasion, WebhookFormat
from ..output import notifications as report
from ..output.documents import document
from . import grammar
from .group import Command, VerbGroup
from .terminal import Terminal

FORMS = ("table", "json", "yaml")

complete_rules = grammar.completion(
    lambda manager: {each.name: each.receiver for each in manager.notifications.list()}
)
rule_argument = click.argument("name", metavar="NAME", shell_complete=complete_rules)


@click.group("notify", cls=VerbGroup)
def notify_command() -> None:
    """Get a message by webhook or mail when a run fails, ends or waits.

    Messages are also sent while every shell and notebook is closed: on this machine by the clock
    process, on Kubernetes by the notifier. A message that
    cannot be sent is tried again for a day.
    """


@notify_command.command("add", cls=Command)
@click.argument("name", metavar="NAME")
@click.option(
    "--on",
    multiple=True,
    type=click.Choice([each.value for each in Occasion]),
    help="event that sends a message; repeatable [failed]",
)
@click.option(
    "--webhook",
    metavar="URL",
    help="URL to post to; @FILE reads the first line of FILE, - asks for the URL",
)
@click.option(
    "--mail", metavar="ADDRESS", help="mail address to write to, through the policy's mail server"
)
@click.option(
    "--format",
    "kind",
    type=click.Choice([each.value for each in WebhookFormat]),
    help="message format that the receiver expects [chosen by its host, else json]",
)
@click.option(
    "--secret",
    metavar="SECRET",
    help="secret that signs messages; @FILE reads the first line of FILE, - asks for the secret",
)
@click.option("--only", "clusters", multiple=True, metavar="NAME", help="only runs of this name")
@click.option(
    "--queued-longer-than",
    metavar="TIME",
    help="also report runs queued for this long; without --on, report only these",
)
@click.option("--lab", metavar="URL", help="address of JupyterLab, for links [the hub's]")
@click.option("--output/--no-output", "output", default=True, help="include the last printed lines")
@click.option("-o", "form", type=click.Choice(FORMS), default="table", help="output format [table]")
@grammar.backend_option
@click.pass_obj
def add_command(terminal: Terminal, /, form: str, kind: str | None, **words: Any) -> None:
    """Add the rule NAME: when messages are sent, and to whom.

    \b
    Examples:
      tfcluster notify add team --webhook @hook.txt
      tfcluster notify add me --mail me@example.com --on failed --on finished --only digits
      tfcluster notify add ops --webhook - --on stalled --queued-longer-than 30m
    """  # noqa: D301 - click interprets \b
    secrets = [str(words[option]) for option in ("webhook", "secret")]
    for option in ("webhook", "secret"):
        words[option] = _secret(terminal, option, words[option])
    said = {key: value for key, value in words.items() if value not in (None, ())}
    if kind is not None:
        said["format"] = kind
    if "on" not in said and "queued_longer_than" in said:
        said["on"] = (Occasion.QUEUED.value,)
    made = terminal.manager.notifications.add(**said)
    if form != "table":
        terminal.emit(document(made, form))
    else:
        terminal.say(report.rules([made], terminal.paint, terminal.columns))
    if made.format is not None and kind is None:
        text = _("messages are sent in the format {format}; --format sets another one")
        terminal.note(text.format(format=made.format.value))
    if file := next((each[1:] for each in secrets if each.startswith("@")), None):
        text = _("{file} is no longer needed: delete it, because launches copy small files")
        terminal.note(text.format(file=file))
    if not made.lab:
        terminal.note(_("messages have no link into JupyterLab; --lab URL adds one"))
    terminal.note(
        terminal.words(_("to test it: `tfcluster notify test {name}`").format(name=made.name))
    )


def _secret(terminal: Terminal, option: str, said: str | None) -> str | None:
    """Return the secret that the option's value `said` means: for `@FILE` the first line of the
    file, for `-` a line of user input, otherwise `said` itself.
    """
    if said is None or not (said == "-" or said.startswith("@")):
        return said
    if said != "-":
        try:
            text = Path(said[1:]).expanduser().read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise UsageError(
                _("--{option}: {file} cannot be read: {why}").format(
                    option=option, file=said[1:], why=why
                )
            ) from None
    elif terminal.can_ask:
        text = click.prompt(f"--{option}", hide_input=True, err=True)
    else:
        text = sys.stdin.readline()
    return text.strip().partition("\n")[0].strip()


@notify_command.command("list", cls=Command)
@grammar.output_option(FORMS)
@grammar.backend_option
@click.pass_obj
def list_command(terminal: Terminal, form: str) -> None:
    """List the rules, without their secrets."""
    found = terminal.manager.notifications.list()
    if form != "table":
        terminal.emit(document(found, form))
    elif found:
        terminal.say(report.rules(found, terminal.paint, terminal.columns))
    else:
        terminal.say(_("No rules yet. `tfcluster notify add --help` says how to make one."))


@notify_command.command("remove", cls=Command)
@rule_argument
@grammar.backend_option
@click.pass_obj
def remove_command(terminal: Terminal, name: str) -> None:
    """Remove the rule NAME; its pending messages are not sent."""
    terminal.manager.notifications.remove(name)
    terminal.say(_("The rule {name} is removed.").format(name=name))


@notify_command.command("test", cls=Command)
@rule_argument
@grammar.backend_option
@click.pass_obj
def test_command(terminal: Terminal, name: str) -> None:
    """Send a message to the receiver of NAME now, and print whether it was accepted."""
    rule = terminal.manager.notifications.test(name)
    terminal.say(_("{receiver} accepted the message.").format(receiver=report.receiver(rule)))


@notify_command.command("history", cls=Command)
@grammar.ref_argument(required=False)
@grammar.output_option(FORMS)
@grammar.backend_option
@click.pass_obj
def history_command(terminal: Terminal, ref: str | None, form: str) -> None:
    """List messages and their states, newest first.

    REF selects the messages about one run (digits-2), or about all runs and the schedule of a
    name (digits).
    """
    found = terminal.manager.notifications.history(ref)
    if form != "table":
        terminal.emit(document(found, form))
    elif found:
        terminal.say(report.history(found, time.time(), terminal.paint, terminal.columns))
    else:
        terminal.say(_("No messages yet."))
