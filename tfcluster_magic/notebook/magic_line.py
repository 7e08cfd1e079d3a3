"""The line after `%tfcluster` in a cell: execution, output and completion.

Grammar and messages are those of the command line, whose click commands run here, too. The output
suits a notebook: a run is shown once and updated in place, and no question is asked. An interrupt
stops only the watching of a run; the run continues.
"""

from __future__ import annotations

import glob
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from click.shell_completion import CompletionItem, ShellComplete, split_arg_string
from IPython.display import display

from .. import cli
from ..cli import tfcluster
from ..cli.terminal import Detached, Interrupted, Terminal
from ..errors import UsageError, with_magic_commands
from ..i18n import _, mark
from ..output import report
from ..output.run_card import board_bundle, followed_bundle, run_bundle
from ..runs.handle import Cluster
from ..runs.manager import ClusterManager
from ..runs.watcher import RunWatcher
from ..spec import TFCluster
from ..tensorboard.views import View


def completions(text: str, terminal: Terminal) -> list[str]:
    """Return the words that can complete `text`, the input after `%tfcluster`."""
    args, typed = _split_typed(text)
    completer = ShellComplete(tfcluster, {"obj": terminal}, terminal.program, "")
    found: list[str] = []
    for item in completer.get_completions(args, typed):
        value = typed.partition("=")[2] if typed.startswith("--") else typed
        found += _complete_path(item, value)
    return found


def unfinished_word(text: str) -> str:
    """Return the end of `text` that a completion replaces: the unfinished word as typed, or only
    the part of it after `--option=`.
    """
    start, quote, escaped = 0, "", False
    for at, char in enumerate(text):
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char.isspace():
            start = at + 1
    typed = text[start:]
    return typed.partition("=")[2] if typed.startswith("--") and "=" in typed else typed


def _split_typed(text: str) -> tuple[list[str], str]:
    """Return the finished words of `text`, and the word that is being typed."""
    args = split_arg_string(text)
    typed = args.pop() if args and not text[-1:].isspace() else ""
    return args, typed


def _complete_path(item: CompletionItem, typed: str) -> list[str]:
    """Complete a path. Click leaves paths to the shell, which a notebook does not have."""
    if item.type not in ("file", "dir"):
        return [item.value]
    matches = glob.glob(glob.escape(typed) + "*")
    return [_quoted(path + "/" if os.path.isdir(path) else path) for path in sorted(matches)]


def _quoted(path: str) -> str:
    """Quote a path as one word. A folder gets no closing quote: the user continues typing."""
    quoted = shlex.quote(path)
    return quoted.removesuffix("'") if path.endswith("/") else quoted


HOW_TO = mark(
    """\
%tfcluster launch train.py -- --epochs 3       run a program on a cluster
%%tfcluster launch --workers 4                 run the rest of the cell
cluster = %tfcluster launch --mode in-graph    servers for this notebook
%tfcluster --help                              everything else"""
)
_MAKING = ("launch", "rerun", "connect")


class Cell(Terminal):
    """The output below a cell. Plain IPython, without a kernel, is treated as a terminal."""

    program = "%tfcluster"

    def __init__(self, shell: Any, manager: ClusterManager, cell: str | None) -> None:
        self.rich = hasattr(shell, "kernel")
        super().__init__(manager)
        self.shell = shell
        self.cell = cell
        self.shown: set[str] = set()

    def colours(self) -> bool:
        """Return whether colours are shown; a notebook can show them."""
        return (self.rich and self.wants_colours()) or super().colours()

    def is_terminal(self) -> bool:
        """Return True in a notebook too, so that control characters are removed: the output of a
        cell may be shown in a terminal later.
        """
        return self.rich or super().is_terminal()

    @property
    def columns(self) -> int | None:
        """The width of lines; None in a notebook, which does not cut lines."""
        return None if self.rich else super().columns

    @property
    def can_ask(self) -> bool:
        """Return False: a question would block Run All."""
        return False

    def words(self, text: str) -> str:
        """Return `text` with its commands as they are typed in a cell."""
        return with_magic_commands(text)

    def note(self, text: str) -> None:
        """Print a note on stdout, because a notebook shows stderr as an error."""
        self.say(text)

    def launched(self, cluster: TFCluster) -> None:
        """Show a new run. Its changes are shown in the same place while the cell waits."""
        if self.rich:
            self._show(cluster)
        else:
            self.say(report.launched(cluster, self.paint, self.program))

    def changed(self, cluster: TFCluster) -> None:
        """Update the output of a run."""
        if self.rich and cluster.metadata.name in self.shown:
            self._show(cluster)
        else:
            super().changed(cluster)

    def live(self, cluster: TFCluster, text: str) -> None:
        """Show the current state of a watched run in place of its earlier state."""
        if self.rich:
            self._show(cluster)
        else:
            super().live(cluster, text)

    def finished(self, cluster: TFCluster) -> None:
        """Show the result of a run, in place if the run is already shown."""
        if self.rich and cluster.metadata.name in self.shown:
            self._show(cluster)
        else:
            super().finished(cluster)

    def connected(self, cluster: TFCluster) -> None:
        """Show the cluster to which the user connected."""
        self.launched(cluster)

    def board(self, url: str, what: str, view: View) -> None:
        """Show a TensorBoard: the Lab extension opens it in a tab; without the extension, show a
        link.
        """
        if self.rich:
            display(board_bundle(url, what, view.runs), raw=True)
        else:
            super().board(url, what, view)

    @contextmanager
    def following(self, cluster: TFCluster, tasks: Sequence[str]) -> Iterator[None]:
        """Show a heading above the log lines of a run that the cell follows. If the page is closed
        before the run ends, the Lab extension shows the further lines when the page is opened
        again. Without the extension, the heading says that lines may be missing.
        """
        if not self.rich:
            yield
            return
        sys.stdout.flush()
        mark_id = f"follow-{self.display_id(cluster.metadata.name)}"
        display(followed_bundle(cluster, tasks, ended=False), raw=True, display_id=mark_id)
        try:
            yield
        finally:
            ended = followed_bundle(cluster, tasks, ended=True)
            display(ended, raw=True, display_id=mark_id, update=True)

    def _show(self, cluster: TFCluster) -> None:
        name = cluster.metadata.name
        again = name in self.shown
        self.shown.add(name)
        manager = self.manager
        beside, used = manager.beside(cluster), manager.used(cluster)
        content = run_bundle(cluster, manager.progress(cluster), beside, used=used)
        display(content, raw=True, display_id=self.display_id(name), update=again)

    def display_id(self, name: str) -> str:
        """Return the display id with which the output of a run is updated."""
        return f"{name}-{id(self)}"


def run(shell: Any, manager: ClusterManager, line: str, body: str | None) -> Cluster | None:
    """Run `line`; `body` is the rest of the cell, a program.

    Returns:
        The handle of the run that was launched or connected to.

    Raises:
        TFClusterError: the command failed; IPython shows only the message.
        KeyboardInterrupt: the user interrupted the command. An interrupt while the cell watches a
            run only stops watching, and raises nothing.
    """
    terminal = Cell(shell, manager, body)
    words = _split_line(line)
    _check_body(words, body)
    sys.stdout.flush()
    try:
        if not words:
            cli.run(["list"], terminal)
            terminal.say("\n" + _(HOW_TO))
            return None
        made = cli.run(words, terminal)
    except Detached as detached:
        name = detached.name if words[0] in _MAKING else None
    except Interrupted:
        raise KeyboardInterrupt from None
    else:
        name = made.metadata.name if isinstance(made, TFCluster) else None
    if not name:
        return None
    return Cluster(name, manager).shown_in(shell.execution_count, terminal.display_id(name))


_panels: dict[str, Any] = {}  # one panel for each cell: running the cell again replaces its panel


def show_panel(shell: Any, manager: ClusterManager, watcher: RunWatcher) -> bool:
    """Show the panel below the cell. Return False without ipywidgets or without a kernel."""
    if not hasattr(shell, "kernel"):
        return False
    try:
        from .panel import Panel
    except ImportError:
        return False
    parent = shell.get_parent()
    where = str(parent.get("metadata", {}).get("cellId") or parent["header"]["msg_id"])
    if where in _panels:
        _panels.pop(where).close()
    _panels[where] = Panel(manager, watcher)
    display(_panels[where])
    return True


def _split_line(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        text = _("%tfcluster {line}: {error}: a quote or backslash is not closed")
        raise UsageError(text.format(line=line, error=error)) from None


def _check_body(words: list[str], body: str | None) -> None:
    """Refuse a cell body for a verb that takes no program."""
    if body is not None and (not words or words[0] not in ("launch", "render", "schedule")):
        text = _(
            "%%tfcluster runs the rest of the cell as a program, and {verb} takes none: "
            "write %%tfcluster launch …, or put %tfcluster on a line of its own"
        )
        raise UsageError(text.format(verb=words[0] if words else _("no verb")))
