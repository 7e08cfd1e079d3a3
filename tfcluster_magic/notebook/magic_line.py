"""The line after `%tfcluster` in a cell: run it, show what comes of it, complete it.

Words and messages are those of the command line, and the output is right for a notebook: a run is
shown once and brought up to date in place, nobody is asked anything, and an interrupt only
detaches. What a verb does is not known here.
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
from ..output.report import board_bundle, followed_bundle, run_bundle
from ..runs.handle import Cluster
from ..runs.manager import ClusterManager
from ..runs.watcher import RunWatcher
from ..spec import TFCluster
from ..tensorboard.views import View


def completions(text: str, terminal: Terminal) -> list[str]:
    """The words that may stand at the end of `text`, what was typed after `%tfcluster`."""
    args, typed = _split_typed(text)
    completer = ShellComplete(tfcluster, {"obj": terminal}, terminal.program, "")
    found: list[str] = []
    for item in completer.get_completions(args, typed):
        value = typed.partition("=")[2] if typed.startswith("--") else typed
        found += _complete_path(item, value)
    return found


def unfinished_word(text: str) -> str:
    """The end of `text` that a word of `completions` takes the place of, as it was typed."""
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
    """The finished words of `text`, and the one that is being typed."""
    args = split_arg_string(text)
    typed = args.pop() if args and not text[-1:].isspace() else ""
    return args, typed


def _complete_path(item: CompletionItem, typed: str) -> list[str]:
    """A path parameter is completed by the shell; there is none here, so by us."""
    if item.type not in ("file", "dir"):
        return [item.value]
    matches = glob.glob(glob.escape(typed) + "*")
    return [_quoted(path + "/" if os.path.isdir(path) else path) for path in sorted(matches)]


def _quoted(path: str) -> str:
    """A path as one word of a line; a folder's quotes stay open, for its files come next."""
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
    """The output below a cell. In a plain IPython (no kernel) it is a terminal as any other."""

    program = "%tfcluster"

    def __init__(self, shell: Any, manager: ClusterManager, cell: str | None) -> None:
        self.rich = hasattr(shell, "kernel")
        super().__init__(manager)
        self.shell = shell
        self.cell = cell
        self.shown: set[str] = set()

    def colours(self) -> bool:
        """A notebook understands colours."""
        return (self.rich and self.wants_colours()) or super().colours()

    def is_terminal(self) -> bool:
        """Return True: consoles, and whoever opens the notebook, show the output of a cell, too."""
        return self.rich or super().is_terminal()

    @property
    def columns(self) -> int | None:
        """A notebook's lines are as long as they are."""
        return None if self.rich else super().columns

    @property
    def can_ask(self) -> bool:
        """Nobody answers below a cell: Run All must not hang."""
        return False

    def words(self, text: str) -> str:
        """Commands in a message as they are written in a cell."""
        return with_magic_commands(text)

    def note(self, text: str) -> None:
        """A remark; not on stderr, which a notebook shows as if something was wrong."""
        self.say(text)

    def launched(self, cluster: TFCluster) -> None:
        """Show a new run; what becomes of it while the cell waits is shown in the same place."""
        if self.rich:
            self._show(cluster)
        else:
            self.say(report.launched(cluster, self.paint, self.program))

    def changed(self, cluster: TFCluster) -> None:
        """Bring what is shown up to date."""
        if self.rich and cluster.metadata.name in self.shown:
            self._show(cluster)
        else:
            super().changed(cluster)

    def live(self, cluster: TFCluster, text: str) -> None:
        """Bring what is shown up to date."""
        if self.rich:
            self._show(cluster)
        else:
            super().live(cluster, text)

    def finished(self, cluster: TFCluster) -> None:
        """The last word: in place where the run is shown."""
        if self.rich and cluster.metadata.name in self.shown:
            self._show(cluster)
        else:
            super().finished(cluster)

    def connected(self, cluster: TFCluster) -> None:
        """Show the cluster whose handle is returned."""
        self.launched(cluster)

    def board(self, url: str, what: str, view: View) -> None:
        """A tab of JupyterLab, by its extension; elsewhere a link."""
        if self.rich:
            display(board_bundle(url, what, view.runs), raw=True)
        else:
            super().board(url, what, view)

    @contextmanager
    def following(self, cluster: TFCluster, tasks: Sequence[str]) -> Iterator[None]:
        """Mark where lines come that a page which is closed does not get: it goes on when it is
        opened again, and whoever reads the notebook knows that there are more.
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
        beside = self.manager.beside(cluster)
        content = run_bundle(cluster, self.manager.progress(cluster), beside)
        display(content, raw=True, display_id=self.display_id(name), update=again)

    def display_id(self, name: str) -> str:
        """How the output of a run is known to whoever brings it up to date."""
        return f"{name}-{id(self)}"


def run(shell: Any, manager: ClusterManager, line: str, body: str | None) -> Cluster | None:
    """Do what `line` says; `body` is the rest of the cell, a program.

    Returns:
        The handle of the run that was launched, or connected to.

    Raises:
        TFClusterError: IPython shows its message alone, and the cell has failed.
        KeyboardInterrupt: what was interrupted was not the watching of a run.
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


_panels: dict[str, Any] = {}  # by cell: a panel that is made anew takes the place of the old one


def show_panel(shell: Any, manager: ClusterManager, watcher: RunWatcher) -> bool:
    """Show the panel below the cell; False where there are no widgets, or nobody to see them."""
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
    """The rest of a cell is a program, so only what takes a program takes it."""
    if body is not None and (not words or words[0] not in ("launch", "render")):
        text = _(
            "%%tfcluster runs the rest of the cell as a program, and {verb} takes none: "
            "write %%tfcluster launch …, or put %tfcluster on a line of its own"
        )
        raise UsageError(text.format(verb=words[0] if words else _("no verb")))
