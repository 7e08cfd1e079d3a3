"""The click group of all verbs. It imports a command only when the command is used, and shows help
in the user's language.

Help is declared in English and translated when it is shown. Lines are wrapped by their width on the
terminal, where a Chinese character takes two columns. Messages of click are translated if this
module lists them.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator

import click
from click.shell_completion import CompletionItem, get_completion_class

from ..i18n import ENGLISH, _, current_language, mark
from ..output.text import fold, width

_CLICK_HELP = (
    mark("Options"),
    mark("Commands"),
    mark("Show this message and exit."),
    mark("Show the version and exit."),
)
_CLICK_MESSAGES = (
    mark("Missing argument {name}."),
    mark("Missing option {name}."),
    mark("No such option {name}. Did you mean {close}?"),
    mark("No such option {name}. (Did you mean one of: {close}?)"),
    mark("No such option {name}."),
    mark("Option {name} requires an argument."),
    mark("Option {name} does not take a value."),
    mark("Got unexpected extra argument ({words})"),
    mark("Got unexpected extra arguments ({words})"),
    mark("Invalid value for {name}: {problem}"),
    mark("{value} is not one of {choices}."),
    mark("{value} is not a valid integer."),
    mark("{value} is not in the range {range}."),
)


def translated_click_message(text: str) -> str:
    """Translate a message of click. Each known message is a pattern; it finds the values in `text`,
    which are then put into the translation.
    """
    if current_language() == ENGLISH:
        return text
    for sentence in _CLICK_MESSAGES:
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.*?)", re.escape(sentence))
        if found := re.fullmatch(pattern, text, re.DOTALL):
            values = {
                key: translated_click_message(value) for key, value in found.groupdict().items()
            }
            return _(sentence).format(**values)
    return text


class Formatter(click.HelpFormatter):
    """A help formatter in the user's language."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the usage line."""
        super().write_usage(prog, args, prefix or _("Usage: "))

    def write_heading(self, heading: str) -> None:
        """Write the title of a section."""
        self.write(" " * self.current_indent + _("{title}:").format(title=_(heading)) + "\n")

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        super().write_text(_translated_help(text, self.width - self.current_indent))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write a list of terms with their meanings."""
        rows = list(rows)
        longest = min(max((width(word) for word, _meaning in rows), default=0), col_max)
        left = self.width - longest - col_spacing - 2
        told = []
        for word, meaning in rows:
            # click appends the range of a numeric option to the option's help
            text, gap, bounds = meaning.partition("  [")
            told.append((word, _translated_help(text, max(left, 10)) + gap + bounds))
        super().write_dl(told, col_max, col_spacing)


def paragraphs(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each paragraph of a help text, and whether to keep its line breaks. If line breaks are
    to be kept, click marks the paragraph with a backspace character, which is not part of the
    message.
    """
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield paragraph.removeprefix("\b\n"), True
        elif paragraph:
            yield " ".join(paragraph.split()), False


def _translated_help(text: str, columns: int) -> str:
    """Translate `text` and wrap it here, because click counts characters, not terminal columns."""
    if current_language() == ENGLISH:
        return text
    told = []
    for message, stays in paragraphs(text):
        lines = [_(message)] if stays else fold(_(message), columns)
        told.append("\n".join(["\b", *lines]))
    return "\n\n".join(told)


class _Context(click.Context):
    formatter_class = Formatter


class Command(click.Command):
    """A command whose help is in the user's language."""

    context_class = _Context

    def get_help_option_names(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return `-h` and `--help` for every command, even when it is used without its group. Click
        caches the option on first use, so the names must not depend on the context of that use.
        """
        return ["-h", "--help"]

    def get_short_help_str(self, limit: int = 45) -> str:  # noqa: ARG002 - click's signature
        """Return the whole first clause of the help; click would cut it in the middle."""
        first = next((message for message, _stays in paragraphs(self.help or "")), "")
        ends = r"[.;:](?= |$)" if current_language() == ENGLISH else r"[。；：\n]"  # noqa: RUF001 - Chinese punctuation
        return re.split(ends, _(first))[0]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the matching options and words, each with its meaning."""
        found = super().shell_complete(ctx, incomplete)
        for item in found:
            item.help = item.help and _(item.help)
        return found


class VerbGroup(Command, click.Group):
    """A group that shows its help when no verb is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Show the help and exit with code 0. Click would report an error with code 2."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)


# The verbs

VERBS: dict[str, tuple[str, str]] = {
    "launch": ("tfcluster_magic.cli.launch", mark("start a cluster")),
    "project": (
        "tfcluster_magic.cli.project",
        mark("write, check and list projects: folders with tfcluster.yaml"),
    ),
    "list": ("tfcluster_magic.cli.runs", mark("list the runs")),
    "status": (
        "tfcluster_magic.cli.runs",
        mark("show the status of a run and of each task"),
    ),
    "wait": (
        "tfcluster_magic.cli.runs",
        mark("wait until a run has ended, or until its tasks run"),
    ),
    "compare": ("tfcluster_magic.cli.runs", mark("compare runs side by side")),
    "logs": ("tfcluster_magic.cli.logs", mark("show the output of the tasks")),
    "top": (
        "tfcluster_magic.cli.runs",
        mark("show the CPU, memory, network and GPU use of each task"),
    ),
    "stack": (
        "tfcluster_magic.cli.logs",
        mark("show the Python stacks of running tasks, such as one that hangs"),
    ),
    "note": ("tfcluster_magic.cli.runs", mark("show or change the note on a run")),
    "tag": ("tfcluster_magic.cli.runs", mark("show, add or remove the tags of a run")),
    "rename": ("tfcluster_magic.cli.runs", mark("show or change the display name of a run")),
    "stop": ("tfcluster_magic.cli.runs", mark("stop runs; their records and output stay")),
    "delete": ("tfcluster_magic.cli.runs", mark("remove records, and output when asked")),
    "rerun": ("tfcluster_magic.cli.launch", mark("launch the same snapshot again, or resume it")),
    "schedule": (
        "tfcluster_magic.cli.schedules",
        mark("launch again and again, at times of a cron expression"),
    ),
    "notify": (
        "tfcluster_magic.cli.notifications",
        mark("get a message by mail or webhook when a run fails, ends or waits"),
    ),
    "connect": ("tfcluster_magic.cli.runs", mark("show how to use an in-graph cluster")),
    "tensorboard": ("tfcluster_magic.cli.runs", mark("open TensorBoard on a run or on all")),
    "render": (
        "tfcluster_magic.cli.render",
        mark("print the record of a run or a launch, and how each task starts"),
    ),
    "import": (
        "tfcluster_magic.cli.launch",
        mark("convert a Kubeflow TFJob to a cluster file, or launch it"),
    ),
    "options": (
        "tfcluster_magic.cli.runs",
        mark("show the free resources, and the Python and folders of tasks"),
    ),
    "hours": (
        "tfcluster_magic.cli.runs",
        mark("show the CPU- and GPU-hours that runs have reserved, and what is left"),
    ),
    "admin": (
        "tfcluster_magic.cli.admin",
        mark("manage everyone's clusters, for administrators of a hub"),
    ),
    "completion": ("tfcluster_magic.cli.group", mark("print the completion script of a shell")),
}
"""For each verb, a pair: the module with the verb's command, and the verb's line in the help text.
The order of the verbs is their order in `tfcluster --help`.
"""


class LazyGroup(VerbGroup):
    """A group with a command for each row of `VERBS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the verbs in the order of `VERBS`."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the module of a verb and return its command."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(VERBS[cmd_name][0])
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write each verb with its line, without importing its module."""
        with formatter.section(mark("Verbs")):
            formatter.write_dl([(name, line) for name, (_, line) in VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; reject an unknown verb and suggest a similar one."""
        name = args[0]
        if name not in VERBS and not name.startswith("-") and not ctx.resilient_parsing:
            close = difflib.get_close_matches(name, VERBS, 1)
            if close:
                text = _("no such verb: {name}; did you mean {close}?")
            else:
                text = _("no such verb: {name}; the verbs are {verbs}")
            words = {"name": name, "close": "".join(close), "verbs": ", ".join(VERBS)}
            raise click.UsageError(text.format(**words), ctx)
        return super().resolve_command(ctx, args)


# `completion`: the script for completion of verbs, options and run names in a shell

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  eval "$(tfcluster completion bash)"          in ~/.bashrc
    zsh:   eval "$(tfcluster completion zsh)"           in ~/.zshrc
    fish:  tfcluster completion fish | source           in ~/.config/fish/config.fish
    """  # noqa: D301 - click interprets \b
    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root().command
    click.echo(kind(root, {}, "tfcluster", "_TFCLUSTER_COMPLETE").source())
