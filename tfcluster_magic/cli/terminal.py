"""The terminal of a command in a shell. `notebook/magic_line.py` has the terminal of a cell.

Commands use a `Terminal` for all output and for questions, so each command works in a shell and in
a cell. With a `Terminal`, a command also makes Ctrl-C end only the watching of a run and not the
run itself. This module decides about colours, width, and the effect of Ctrl-C while a run is
watched.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

from ..errors import TFClusterError, UsageError
from ..i18n import _
from ..output import report
from ..output.text import Paint, last_overwrite, sanitize_text
from ..runs.handle import detached
from ..runs.manager import ClusterManager
from ..spec import TFCluster

if TYPE_CHECKING:
    from ..tensorboard.views import View


class Detached(Exception):
    """The user stopped watching; the run continues."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name)


class Interrupted(Exception):
    """The user interrupted something other than watching a run."""


class Terminal:
    """The terminal of a command in a shell: results go to stdout, notes to stderr.

    Attributes:
        program: the command that the user typed, for messages.
        typed: the words that the user typed after it.
        cell: the body of a notebook cell, used as the program.
        exit_code: the exit code of a successful command.
    """

    program = "tfcluster"
    typed: Sequence[str] = ()
    cell: str | None = None

    def __init__(self, manager: ClusterManager | None = None) -> None:
        self._manager = manager
        self._live_lines = 0
        self._last_note = ""
        self._outage = ""
        self._warnings: set[str] | None = None
        """Warnings that were shown when the run was launched."""
        self.exit_code = 0
        self.paint = Paint(self.colours(), in_terminal=self.is_terminal())

    @property
    def manager(self) -> ClusterManager:
        """The cluster manager, created on first use."""
        if self._manager is None:
            self._manager = ClusterManager()
        return self._manager

    def use_backend(self, name: str) -> None:
        """Make `manager` a cluster manager that uses the backend `name`."""
        if self.manager.backend_name != name:
            # Both managers have the same parent, from which they read their configuration.
            parent = self.manager.parent
            self._manager = ClusterManager(parent=parent, backend_name=name)

    def colours(self) -> bool:
        """Return whether stdout shows colours."""
        return self.is_terminal() and self.wants_colours()

    def is_terminal(self) -> bool:
        """Return whether stdout is a terminal, which interprets control characters."""
        return sys.stdout.isatty()

    @staticmethod
    def wants_colours() -> bool:
        """Return whether the user allows colours. NO_COLOR: https://no-color.org."""
        return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    @property
    def columns(self) -> int | None:
        """The width to which tables are cut; None if stdout is not a terminal."""
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    @property
    def can_ask(self) -> bool:
        """Whether a user can answer a question."""
        return sys.stdin.isatty() and sys.stdout.isatty()

    def say(self, text: str) -> None:
        """Print a result as text."""
        self.emit(self.words(text))

    def emit(self, text: str, *, raw: bool = False) -> None:
        """Write a document or a log line as a result. A terminal gets the colours of the text, but
        no other control characters. A pipe gets no colours; with `raw`, it gets every byte.

        Raises:
            TFClusterError: stdout cannot be written.
            BrokenPipeError: the reader of stdout has closed it.
        """
        colours = self.paint.enabled
        if self.is_terminal():
            text = "\n".join(sanitize_text(last_overwrite(line)) for line in text.split("\n"))
        elif raw:
            colours = True  # True, because click would strip colours from a pipe
        try:
            click.echo(text, color=colours)
        except BrokenPipeError:
            raise
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise TFClusterError(
                _("the output cannot be written: {why}").format(why=error.strerror)
            ) from None

    def words(self, text: str) -> str:
        """Return `text` with its commands in the form that is typed in this terminal."""
        return text

    def note(self, text: str) -> None:
        """Print a note on stderr, so that piped output stays clean."""
        with suppress(OSError):  # a note that cannot be written must not fail the command
            click.echo(sanitize_text(text), err=True)

    def launched(self, cluster: TFCluster) -> None:
        """Show a run that was just launched."""
        self.say(report.launched(cluster, self.paint))
        self._warnings = set(cluster.status.warnings)
        self.note_outage([cluster])

    def changed(self, cluster: TFCluster) -> None:
        """Report a change of a run while a command waits for it. The caller reports the run's
        end.
        """
        text = report.headline(cluster)
        if cluster.active and text != self._last_note:
            self._last_note = text
            self.note(text)
        self.note_outage([cluster])

    def note_outage(self, clusters: Sequence[TFCluster]) -> None:
        """Report once that the operator of these runs does not answer, and once that it answers
        again.
        """
        away = self.manager.outage(clusters)
        if away != self._outage and (away or any(each.active for each in clusters)):
            self.note(self.words(away or _("The operator of TFCluster answers again.")))
        self._outage = away

    def live(self, cluster: TFCluster, text: str) -> None:
        """Show the current state of a watched run in place of its earlier state."""
        if not sys.stdout.isatty():
            self.changed(cluster)
            return
        lines = sanitize_text(text).split("\n")[: shutil.get_terminal_size().lines - 1]
        up = f"\x1b[{self._live_lines}A\x1b[J" if self._live_lines else ""
        click.echo(up + "\n".join(lines), color=True)
        self._live_lines = len(lines)

    def finished(self, cluster: TFCluster) -> None:
        """Print the result of a run after waiting for it or watching it, with its warnings since
        the launch.
        """
        self.note(report.last_line(cluster))
        if self._warnings is not None:
            for text in report.warnings(cluster, self._warnings, self.paint):
                self.note(text)

    def connected(self, cluster: TFCluster) -> None:
        """Show how to use an In-Graph cluster."""
        self.say(report.connect_help(cluster, self.paint))

    def board(self, url: str, what: str, view: View) -> None:  # noqa: ARG002 - the terminal of a cell uses it
        """Print the address of a TensorBoard; `view` is what it shows."""
        self.note(f"{what}:")
        self.say(url)

    @contextmanager
    def following(self, cluster: TFCluster, tasks: Sequence[str]) -> Iterator[None]:  # noqa: ARG002 - the terminal of a cell uses it
        """Return a context manager for printing the output of a followed run. Only the output of
        `tasks` is printed; an empty sequence means all tasks.
        """
        yield

    def confirm(self, action: str, yes: bool) -> bool:
        """Ask the user whether to do `action`, and return the answer; with `yes`, return True
        without a question. If nobody can answer, refuse, and repeat the command with `--yes`.

        Raises:
            UsageError: nobody can be asked and `yes` is false.
        """
        if yes:
            return True
        if not self.can_ask:
            end = self.typed.index("--") if "--" in self.typed else len(self.typed)
            command = shlex.join([*self.typed[:end], "--yes", *self.typed[end:]])
            text = _("this would {action}; to confirm: `{program} {command}`")
            raise UsageError(text.format(action=action, program=self.program, command=command))
        return click.confirm(
            sanitize_text(_("This will {action}. Continue?").format(action=action)), err=True
        )

    @contextmanager
    def detaching(self, name: str, then: str = "") -> Iterator[None]:
        """Within this context, let Ctrl-C only end the watching of the run `name`; the run itself
        continues. `then` tells the user what continues.

        Raises:
            Detached: the user pressed Ctrl-C.
        """
        try:
            yield
        except KeyboardInterrupt:
            self.note("\n" + self.words(detached(name, then)))
            raise Detached(name) from None
