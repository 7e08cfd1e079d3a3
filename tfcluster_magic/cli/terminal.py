"""The terminal of a command: a shell's two streams; a cell's is in `notebook/magic_line.py`.

Commands never ask whether they run in a shell or a cell: they say, show, ask and detach through
this. Owns colours and width of the terminal, and what Ctrl-C means while watching.
"""

from __future__ import annotations

import os
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
    """The person stopped watching; the run goes on."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name)


class Interrupted(Exception):
    """The person broke off what was not the watching of a run."""


class Terminal:
    """A shell: results on stdout, remarks on stderr.

    Attributes:
        program: how the person calls us, for messages.
        cell: the body of a cell as the program, in a notebook.
        exit_code: what a command that did its work wants to leave with.
    """

    program = "tfcluster"
    cell: str | None = None

    def __init__(self, manager: ClusterManager | None = None) -> None:
        self._manager = manager
        self._live_lines = 0
        self._last_note = ""
        self._outage = ""
        self._warnings: set[str] | None = None
        """What was told of a run at its launch."""
        self.exit_code = 0
        self.paint = Paint(self.colours())

    @property
    def manager(self) -> ClusterManager:
        """The door to the clusters, made when first needed."""
        if self._manager is None:
            self._manager = ClusterManager()
        return self._manager

    def use_backend(self, name: str) -> None:
        """Talk to the backend called `name` from now on."""
        if self.manager.backend_name != name:
            parent = self.manager.parent  # with its configuration
            self._manager = ClusterManager(parent=parent, backend_name=name)

    def colours(self) -> bool:
        """Whether stdout shows colours."""
        return self.is_terminal() and self.wants_colours()

    def is_terminal(self) -> bool:
        """Return whether stdout is a terminal, which would act on control characters."""
        return sys.stdout.isatty()

    @staticmethod
    def wants_colours() -> bool:
        """Whether the person wants colours where they can be shown. NO_COLOR: https://no-color.org."""
        return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    @property
    def columns(self) -> int | None:
        """Width to cut tables to; None when the output is not for eyes."""
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    @property
    def can_ask(self) -> bool:
        """Whether a person sits there who can answer."""
        return sys.stdin.isatty() and sys.stdout.isatty()

    def say(self, text: str) -> None:
        """A result, in words."""
        self.emit(self.words(text))

    def emit(self, text: str, *, raw: bool = False) -> None:
        """Write a result as it is: a document, a line of a log. A terminal gets its colours but no
        other control characters; a pipe gets no colours, and with `raw` every byte.

        Raises:
            TFClusterError: stdout takes no more; BrokenPipeError when nobody reads it any more.
        """
        colours = self.paint.enabled
        if self.is_terminal():
            text = "\n".join(sanitize_text(last_overwrite(line)) for line in text.split("\n"))
        elif raw:
            colours = True  # otherwise click strips them
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
        """Commands in a message as this person writes them."""
        return text

    def note(self, text: str) -> None:
        """A remark, which must not spoil the output of a pipe."""
        with suppress(OSError):  # the result, not the remark, is what counts
            click.echo(sanitize_text(text), err=True)

    def launched(self, cluster: TFCluster) -> None:
        """Show a run that has just been launched."""
        self.say(report.launched(cluster, self.paint))
        self._warnings = set(cluster.status.warnings)
        self.note_outage([cluster])

    def changed(self, cluster: TFCluster) -> None:
        """Tell a change of a run that is waited for; its end is told by whoever waits."""
        text = report.headline(cluster)
        if cluster.active and text != self._last_note:
            self._last_note = text
            self.note(text)
        self.note_outage([cluster])

    def note_outage(self, clusters: Sequence[TFCluster]) -> None:
        """Say once that nobody answers for these runs, and once that somebody does again."""
        away = self.manager.outage(clusters)
        if away != self._outage and (away or any(each.active for each in clusters)):
            self.note(self.words(away or _("The operator of TFCluster answers again.")))
        self._outage = away

    def live(self, cluster: TFCluster, text: str) -> None:
        """Show a run that is being watched, in place of what was shown before."""
        if not sys.stdout.isatty():
            self.changed(cluster)
            return
        lines = sanitize_text(text).split("\n")[: shutil.get_terminal_size().lines - 1]
        up = f"\x1b[{self._live_lines}A\x1b[J" if self._live_lines else ""
        click.echo(up + "\n".join(lines), color=True)
        self._live_lines = len(lines)

    def finished(self, cluster: TFCluster) -> None:
        """The last word on a run that was waited for or watched, and what it was warned of since
        its launch.
        """
        self.note(report.last_line(cluster))
        if self._warnings is not None:
            for text in report.warnings(cluster, self._warnings, self.paint):
                self.note(text)

    def connected(self, cluster: TFCluster) -> None:
        """Show how an In-Graph cluster is used."""
        self.say(report.connect_help(cluster, self.paint))

    def board(self, url: str, what: str, view: View) -> None:  # noqa: ARG002 - for a cell
        """Show where a TensorBoard is opened; `view` is what it shows."""
        self.note(f"{what}:")
        self.say(url)

    @contextmanager
    def following(self, cluster: TFCluster, tasks: Sequence[str]) -> Iterator[None]:  # noqa: ARG002 - for a cell
        """Surround the lines of a run that is followed; of these tasks, or of all when empty."""
        yield

    def confirm(self, action: str, yes: bool, command: str) -> bool:
        """Ask before `action`; where nobody can answer, refuse and say the `command` that does it.

        Raises:
            UsageError: nobody can be asked and `yes` is false.
        """
        if yes:
            return True
        if not self.can_ask:
            text = _("this would {action}; to do it: `{program} {command} --yes`")
            raise UsageError(text.format(action=action, program=self.program, command=command))
        return click.confirm(
            sanitize_text(_("This will {action}. Go on?").format(action=action)), err=True
        )

    @contextmanager
    def detaching(self, name: str, then: str = "") -> Iterator[None]:
        """Ctrl-C inside stops watching run `name` and nothing else; `then` says what goes on.

        Raises:
            Detached: it was interrupted.
        """
        try:
            yield
        except KeyboardInterrupt:
            self.note("\n" + self.words(detached(name, then)))
            raise Detached(name) from None
