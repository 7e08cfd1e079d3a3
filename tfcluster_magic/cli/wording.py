"""Help texts and click's own messages in the person's language.

Promises that what is declared in English, when a command is imported, is translated when it is
shown, and that lines of wide characters fit the terminal. Owns the commands' base class and the
list of click's sentences that a person may meet; a sentence that is not in it stays English.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator

import click
from click.shell_completion import CompletionItem

from ..i18n import ENGLISH, _, current, mark
from ..output.text import fold, width

_HELP_OF_CLICK = (
    mark("Options"),
    mark("Show this message and exit."),
    mark("Show the version and exit."),
)
_SENTENCES_OF_CLICK = (
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


def of_click(text: str) -> str:
    """A sentence of click's in the person's language, found again by how click builds it."""
    if current() == ENGLISH:
        return text
    for sentence in _SENTENCES_OF_CLICK:
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.*?)", re.escape(sentence))
        if found := re.fullmatch(pattern, text, re.DOTALL):
            values = {key: of_click(value) for key, value in found.groupdict().items()}
            return _(sentence).format(**values)
    return text


class Formatter(click.HelpFormatter):
    """Writes help in the person's language."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """The first line."""
        super().write_usage(prog, args, prefix or _("Usage: "))

    def write_heading(self, heading: str) -> None:
        """The title of a section."""
        self.write(" " * self.current_indent + _("{title}:").format(title=_(heading)) + "\n")

    def write_text(self, text: str) -> None:
        """Paragraphs."""
        super().write_text(_told(text, self.width - self.current_indent))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Words and what they mean."""
        rows = list(rows)
        longest = min(max((width(word) for word, _meaning in rows), default=0), col_max)
        left = self.width - longest - col_spacing - 2
        told = []
        for word, meaning in rows:
            text, gap, bounds = meaning.partition("  [")  # click adds those of a number
            told.append((word, _told(text, max(left, 10)) + gap + bounds))
        super().write_dl(told, col_max, col_spacing)


def paragraphs(text: str) -> Iterator[tuple[str, bool]]:
    """The messages of a help text, one for each paragraph, and whether its lines stay as they are.

    click's mark for such a paragraph, a backspace, is not part of the message.
    """
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield paragraph.removeprefix("\b\n"), True
        elif paragraph:
            yield " ".join(paragraph.split()), False


def _told(text: str, columns: int) -> str:
    """`text` translated, in lines of our own: click counts characters, and not columns."""
    if current() == ENGLISH:
        return text
    told = []
    for message, stays in paragraphs(text):
        lines = [_(message)] if stays else fold(_(message), columns)
        told.append("\n".join(["\b", *lines]))
    return "\n\n".join(told)


class _Context(click.Context):
    formatter_class = Formatter


class Command(click.Command):
    """A command whose help is in the person's language."""

    context_class = _Context

    def get_help_option_names(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """`-h` and `--help` for each command, also for one that is used without its group.

        click keeps the option of the first use, so it must not depend on that use's context.
        """
        return ["-h", "--help"]

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first sentence, for a list of completions."""
        if current() == ENGLISH:
            return super().get_short_help_str(limit)
        first = next((message for message, _stays in paragraphs(self.help or "")), "")
        return re.split(r"[。；\n]", _(first))[0]  # noqa: RUF001 - Chinese punctuation

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The options and words that fit, each with its meaning."""
        found = super().shell_complete(ctx, incomplete)
        for item in found:
            item.help = item.help and _(item.help)
        return found
