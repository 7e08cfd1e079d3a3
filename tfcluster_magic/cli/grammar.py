"""Arguments and options that several commands share, such as REF, `-o` and the launch options."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import click
from click.shell_completion import CompletionItem

from ..backends.selection import BACKENDS
from ..errors import TFClusterError
from ..i18n import _, mark
from ..launch.options import BY_KEY, OF_SCHEDULE, OPTIONS, Kind, split_schedule
from ..output.documents import FORMS
from ..runs.manager import ClusterManager
from ..spec import AwaitedOutcome, Message
from ..spec.quantities import DURATION_RULE, parse_duration
from .group import Command, translated_click_message
from .terminal import Terminal

F = TypeVar("F", bound=Callable[..., Any])


class Duration(click.ParamType[float]):
    """A parameter type: a number of seconds, or a duration such as 10m."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the duration in seconds."""
        try:
            return float(value) if isinstance(value, (int, float)) else parse_duration(str(value))
        except ValueError:
            told = Message("NotDuration", {"text": str(value), "rule": DURATION_RULE})
            self.fail(str(told), param, ctx)


class Whole(click.IntRange):
    """A parameter type: a whole number in a range. click calls it "integer range" in messages."""

    name = "integer"


class Choices(click.ParamType[str]):
    """A parameter type that suggests words for completion. It accepts any value; the manager
    rejects wrong values.
    """

    name = "word"

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the words that start with `incomplete`."""
        return [CompletionItem(word) for word in self.words if word.startswith(incomplete)]


Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completion(names: Callable[[ClusterManager], Mapping[str, str]]) -> Completion:
    """Return a completion that offers the names from `names`, each with its help; nothing if the
    backend does not answer.
    """

    def complete(
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG001 - click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        terminal = ctx.find_object(Terminal) or Terminal()
        try:
            found = names(terminal.manager)
        except TFClusterError:
            return []
        return [CompletionItem(n, help=h) for n, h in found.items() if n.startswith(incomplete)]

    return complete


complete_runs = completion(
    lambda manager: {c.metadata.name: c.status.phase.value for c in manager.list(all_runs=True)}
)
complete_schedules = completion(
    lambda manager: {each.name: each.rules.cron for each in manager.schedules.list()}
)


def complete_awaited(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete a run or `schedule:NAME` for `--after`; after a colon, complete the condition.

    A run of a schedule waits only for runs of other schedules, so the commands of schedules offer
    no runs here.
    """
    of, rest = split_schedule(incomplete)
    name, colon, _until = rest.partition(":")
    if colon:
        words = (f"{of}{name}:{each.value}" for each in AwaitedOutcome)
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]
    awaits_runs = not isinstance(ctx.command, LaunchCommand) or ctx.command.awaits_runs
    found = complete_runs(ctx, param, incomplete) if awaits_runs and not of else []
    if of or OF_SCHEDULE.startswith(incomplete):
        for each in complete_schedules(ctx, param, rest if of else ""):
            found.append(CompletionItem(f"{OF_SCHEDULE}{each.value}", help=each.help))
    return found


def ref_argument(required: bool = True, nargs: int = 1) -> Callable[[F], F]:
    """Return a decorator that adds the argument REF: a run (digits-2), or the newest run of a name
    (digits).
    """
    name, metavar = "ref", "REF" if required else "[REF]"
    if nargs == -1:
        name, metavar = "refs", "REF..." if required else "[REF]..."
    return click.argument(
        name, metavar=metavar, required=required, nargs=nargs, shell_complete=complete_runs
    )


def output_option(forms: Sequence[str] = FORMS) -> Callable[[F], F]:
    """Return a decorator that adds the option `-o`, the output format."""
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(forms),
        default="table",
        help="output format [table]",
    )


def backend_option(command: F) -> F:
    """Add `--backend`, which selects the backend in which the verb looks for clusters."""

    def use(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
        if value is not None and not ctx.resilient_parsing:
            terminal = ctx.find_object(Terminal)
            assert terminal is not None
            terminal.use_backend(value)

    return click.option(
        "--backend",
        type=click.Choice(BACKENDS),
        expose_value=False,
        callback=use,
        help=(
            "where clusters run [auto: Kubernetes if this command runs in a pod of a cluster with "
            "TFCluster, else this machine]"
        ),
    )(command)


def launch_options(command: F) -> F:
    """Add every option of `launch.options.OPTIONS`. Values stay text; the manager parses them."""
    for option in reversed(OPTIONS):
        settings: dict[str, Any] = {"help": option.help, "default": None}
        if option.kind is Kind.SWITCH:
            names = f"{option.flag}/--no-{option.flag[2:]}"
        else:
            names = option.flag
            settings["metavar"] = "|".join(option.words) or option.kind.value
            settings["type"] = click.Path() if option.kind is Kind.FILE else Choices(option.words)
            settings["multiple"] = option.kind.repeats
            if option.kind is Kind.RUNS:
                settings["shell_complete"] = complete_awaited
        command = click.option(names, option.key, **settings)(command)
    return command


def _complete_configs(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001 - click's signature
    incomplete: str,
) -> list[CompletionItem]:
    """Return the names of the configurations of the project that the user typed, else of the
    project in the current folder.
    """
    from ..launch.project import complete_configs

    # click does not parse the arguments of an unfinished line, so each word may be the project
    words = [*ctx.meta.get(_TYPED, ()), "."]
    found = next((found for word in words if (found := [*complete_configs(word, Path.cwd())])), [])
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def config_option(command: F) -> F:
    """Add `--config`, which selects a configuration of a project."""
    return click.option(
        "--config",
        metavar="NAME",
        help="configuration of a project: of a folder with tfcluster.yaml",
        shell_complete=_complete_configs,
    )(command)


def given_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the launch options among `options` that the user set."""
    return {key: value for key, value in options.items() if value not in (None, ())}


def program_arguments(ctx: click.Context) -> list[str] | None:
    """Return the words after `--`, or None if there was no `--`."""
    words: list[str] | None = ctx.meta.get(_ARGUMENTS)
    return words


_ARGUMENTS = "tfcluster.arguments"
_TYPED = "tfcluster.typed"
_OWN_ARGUMENTS = mark("the program's own arguments follow ` -- ` at the end")
_THIS_COMMAND = mark("This command")
_CLUSTER = mark("Cluster")
_RESOURCES = mark("Resources")
_PODS = mark("Only on Kubernetes")
_LIMITS = mark("Limits and policies")


class LaunchCommand(Command):
    """A command that takes the launch options, and the program's own arguments after `--`."""

    awaits_runs: ClassVar[bool] = True
    """Whether `--after` may name a run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split off the words after the first `--`. An unknown option may belong to the program, so
        the error says that the program's arguments follow `--`.
        """
        if "--" in args:
            at = args.index("--")
            ctx.meta[_ARGUMENTS], args = args[at + 1 :], args[:at]
        ctx.meta[_TYPED] = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            flags = [flag for param in self.params for flag in param.opts]
            close = difflib.get_close_matches(error.option_name, flags, 1, cutoff=0.7)
            hint = _("did you mean {close}?").format(close=close[0]) if close else _(_OWN_ARGUMENTS)
            text = _("no such option: {name}; {hint}").format(name=error.option_name, hint=hint)
            raise click.UsageError(text, ctx) from None
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message:
                raise
            text = _("; ").join(
                [translated_click_message(error.message).rstrip("."), _(_OWN_ARGUMENTS)]
            )
            raise click.UsageError(text, ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in sections, because a list of forty is hard to read."""
        sections: dict[str, list[tuple[str, str]]] = {
            title: [] for title in (_THIS_COMMAND, _CLUSTER, _RESOURCES, _PODS, _LIMITS)
        }
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                sections[_section(param.name or "")].append(record)
        for title, records in sections.items():
            if records:  # `import` takes arguments but no launch options
                with formatter.section(title):
                    formatter.write_dl(records)


def _section(key: str) -> str:
    option = BY_KEY.get(key)
    if option is None:
        return _THIS_COMMAND
    if option.only_kubernetes:
        return _PODS
    if option.path[0] in ("lifecycle", "after"):
        return _LIMITS
    return _RESOURCES if option.path[-1] in ("cpu", "memory", "gpu") else _CLUSTER
