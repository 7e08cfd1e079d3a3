"""The panel: the launch form and the list of runs below a cell, shown by bare `%tfcluster`.

The panel works wherever ipywidgets works (JupyterLab, Notebook 7), even without the Lab extension.
The kernel stays free to run cells. All panels read the same records, so they show the same runs,
even after a restart of the kernel. A notebook that is exported, for example as HTML, shows the
table of `%tfcluster list` in place of the panel. A row is redrawn only when its run changes. Before
a run is stopped or deleted, the user must confirm. Only the newest runs are shown; a filter finds
the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from typing import Any

import ipywidgets as widgets

from ..errors import Conflict, with_magic_commands
from ..i18n import _, ngettext
from ..output import report
from ..output.run_card import board_bundle, run_card
from ..output.text import PLAIN, Prefixer, clock, task_names
from ..output.usage import usage_table
from ..progress.run_progress import note_lines
from ..runs.manager import ClusterManager, newest
from ..runs.watcher import PROGRESS_INTERVAL, RunWatcher, WatchedRun
from ..spec import Phase, TFCluster
from .launch_form import ButtonActions, LaunchForm

MOST_ROWS = 20
LAST_LINES = 30
"""Maximum log lines of each task that are shown below the row of a run."""


class RunRow:
    """One run and its buttons."""

    def __init__(self, manager: ClusterManager, background: ButtonActions) -> None:
        self._manager, self._background = manager, background
        self._known: WatchedRun | None = None
        self._card = widgets.HTML()
        self._below = widgets.HTML()
        self._board = widgets.Output()
        self._question = widgets.HBox()
        self.stop = _button(_("Stop"), "stop")
        self.rerun = _button(_("Rerun"), "repeat")
        self.logs = _button(_("Logs"), "terminal")
        self.board = _button(_("TensorBoard"), "line-chart")
        self.resources = _button(_("Resources"), "bar-chart")
        self.delete = _button(_("Delete"), "trash")
        self.stop.on_click(lambda _b: self._ask(_("Stop {name}?"), _("Stop it"), self._stop))
        self.delete.on_click(lambda _b: self._ask_delete())
        background.on(self.rerun, self._rerun)
        background.on(self.logs, lambda: self._toggle(self.logs))
        background.on(self.resources, lambda: self._toggle(self.resources))
        background.on(self.board, self._open_board)
        self._buttons = widgets.HBox(layout=widgets.Layout(flex_flow="row wrap"))
        self.widget = widgets.VBox(
            [self._card, self._buttons, self._question, self._board, self._below]
        )
        self._shown: Any = None
        self._hidden = threading.Event()

    @property
    def name(self) -> str:
        """The name of the run."""
        assert self._known is not None
        return self._known.cluster.metadata.name

    def show(self, known: WatchedRun) -> None:
        """Show the current state of the run in the row."""
        if known == self._known:
            return
        before, self._known = self._known, known
        done = known.cluster.status.phase is Phase.SUCCEEDED
        html = run_card(known.cluster, note_lines(known.progress, known.notes, succeeded=done))
        if html != self._card.value:
            self._card.value = html
        if before is None or before.cluster.active != known.cluster.active:
            active = known.cluster.active
            ends, begins = ((self.stop,), ()) if active else ((), (self.rerun,))
            shows = (self.logs, self.board, self.resources)
            self._buttons.children = (*ends, *shows, *begins, self.delete)

    def close(self) -> None:
        """Close the row and stop following its logs or its resources."""
        self._hidden.set()
        self.widget.close()

    def _ask_delete(self) -> None:
        question = _("Delete the record of {name}?")
        if self._known is not None and self._known.cluster.active:
            question = _("Delete {name}? It still runs: it is stopped first.")
        self._ask(question, _("Delete it"), self._delete)

    def _ask(self, question: str, label: str, action: Callable[[], str | None]) -> None:
        yes = _button(label, "check", "danger")
        no = _button(_("Cancel"), "")
        no.on_click(lambda _b: self._close_question())
        yes.on_click(lambda _b: self._close_question())
        assert self._known is not None
        asked_about = self._known.cluster.metadata.uid

        def meant() -> str | None:
            if (
                self._manager.status(self.name).metadata.uid != asked_about
            ):  # another run has this name now
                raise Conflict(_("another run is called {name} now").format(name=self.name))
            return action()

        self._background.on(yes, meant)
        text = widgets.Label(question.format(name=self.name))
        self._question.children = (text, yes, no)

    def _close_question(self) -> None:
        self._question.children = ()

    def _stop(self) -> str | None:
        self._manager.stop(self.name)
        return None

    def _delete(self) -> str:
        self._manager.delete(self.name)
        return _("deleted {name}").format(name=self.name)

    def _rerun(self) -> str:
        made = self._manager.rerun(self.name)
        return _("launched {name}").format(name=made.metadata.name)

    def _open_board(self) -> None:
        """Open the same TensorBoard as `%tfcluster tensorboard`: in a tab if the extension is
        installed, else as a link.
        """
        board = self._manager.tensorboard(self.name)
        what = _("TensorBoard of {name}").format(name=self.name)
        shown = board_bundle(board.url, what, [self.name])
        self._board.outputs = ({"output_type": "display_data", "data": shown, "metadata": {}},)

    def _toggle(self, button: Any) -> None:
        """Show the logs or the resources of the run below its row. If `button` is pressed again,
        hide them; the button of the other view replaces them.
        """
        self._hidden.set()
        self.logs.description, self.resources.description = _("Logs"), _("Resources")
        self._below.value = ""
        self._shown = button if self._shown is not button else None
        if self._shown is None:
            return
        read = self._read_logs
        if button is self.resources:
            read = self._read_resources
            button.description = _("Hide resources")
        else:
            button.description = _("Hide logs")
        self._hidden = hidden = threading.Event()
        self._background.do(lambda: self._follow(read, hidden))

    def _follow(self, read: Callable[[TFCluster], str], hidden: threading.Event) -> None:
        """Show the text that `read` returns for the run until `hidden` is set. The text is polled,
        because only the newest lines and figures matter.
        """
        while not hidden.is_set():
            assert self._known is not None
            released = self._known.cluster.status.released_at is not None
            text = read(self._known.cluster)
            if not hidden.is_set():
                self._below.value = (
                    '<pre style="max-height:20em;overflow:auto;line-height:1.3" tabindex="0">'
                    f"{escape(text)}</pre>"
                )
            if released or hidden.wait(PROGRESS_INTERVAL):
                return

    def _read_logs(self, cluster: TFCluster) -> str:
        show = Prefixer(task_names(cluster), PLAIN)
        told = self._manager.logs(cluster.metadata.name, tail=LAST_LINES)
        lines = [show(line) for line in told if line is not None]
        return "\n".join(lines) or _("Nothing was printed yet.")

    def _read_resources(self, cluster: TFCluster) -> str:
        return with_magic_commands(usage_table(self._manager.usage(cluster)))


def _button(label: str, icon: str, style: str = "") -> Any:
    return widgets.Button(
        description=label,
        icon=icon,
        button_style=style,
        layout=widgets.Layout(width="auto"),
    )


class RunList:
    """The list of the newest runs, or of the runs that match the filter."""

    def __init__(self, manager: ClusterManager, background: ButtonActions) -> None:
        self._make = partial(RunRow, manager, background)
        # a lock, because runs change in the watcher's thread and the filter in the kernel's thread
        self._drawing = threading.RLock()
        self._rows: dict[str, RunRow] = {}
        self._known: dict[str, WatchedRun] = {}
        self.filter = widgets.Text(
            placeholder=_("Filter by name or phase"), layout=widgets.Layout(width="260px")
        )
        self.filter.observe(lambda _change: self._refilter(), "value")
        self._nothing = _no_runs()
        self._body = widgets.VBox([self._nothing])
        self._more = widgets.Label()
        self.widget = widgets.VBox([self.filter, self._body, self._more])

    def show(self, name: str, known: WatchedRun | None) -> None:
        """Update the row of a run. If `known` is None, remove the row."""
        with self._drawing:
            if known is None:
                self._known.pop(name, None)
            else:
                self._known[name] = known
            if known is not None and name in self._rows:
                self._rows[name].show(known)
            self._arrange()

    def clusters(self) -> Sequence[TFCluster]:
        """Return the active runs and the newest run of each name, newest first, whether they match
        the filter or not.
        """
        with self._drawing:
            every = [known.cluster for known in self._known.values()]
        return newest(
            sorted(every, key=lambda c: (c.metadata.created_at, c.metadata.run), reverse=True)
        )

    def close(self) -> None:
        """Remove all rows."""
        with self._drawing:
            self._known.clear()
            self._forget(())

    def _refilter(self) -> None:
        with self._drawing:
            self._arrange()

    def _arrange(self) -> None:
        """Put the visible rows in order. If the order has not changed, nothing is sent to the
        browser.
        """
        fitting = [c for c in self.clusters() if self._fits(c)]
        names = [c.metadata.name for c in fitting[:MOST_ROWS]]
        for name in names:
            if name not in self._rows:
                self._rows[name] = self._make()
                self._rows[name].show(self._known[name])
        self._forget(names)
        children = tuple(self._rows[name].widget for name in names) or (self._nothing,)
        if self._body.children != children:
            self._body.children = children
        left = len(fitting) - len(names)
        self._more.value = (
            ngettext("{count} more: %tfcluster list", "{count} more: %tfcluster list", left).format(
                count=left
            )
            if left
            else ""
        )

    def _forget(self, names: Sequence[str]) -> None:
        for name in self._rows.keys() - set(names):
            self._rows.pop(name).close()

    def _fits(self, cluster: TFCluster) -> bool:
        wanted = self.filter.value.strip().lower()
        return wanted in f"{cluster.metadata.name} {cluster.status.phase.value}".lower()


def _no_runs() -> Any:
    return widgets.HTML(
        "<p>"
        + escape(
            _(
                "No runs yet. A cluster is a set of TensorFlow processes, workers and parameter "
                "servers, that run your program together: fill in the form above and launch one."
            )
        )
        + "</p>"
    )


def _lost_kernel() -> Any:
    """Return the line that replaces a panel when ipywidgets says that the panel has no kernel."""
    text = _("The kernel of this panel has ended. Run the cell again to bring the panel back.")
    lost = ".tfc-panel.jupyter-widgets-disconnected > "
    line = widgets.HTML(
        f"<style>{lost}.tfc-lost-kernel{{display:block!important}}"
        f"{lost}:not(.tfc-lost-kernel){{display:none!important}}</style>"
        f'<p role="status">{escape(text)}</p>',
        layout=widgets.Layout(display="none"),
    )
    return line.add_class("tfc-lost-kernel")


# The panel as one widget

PATIENCE = 1.0
"""Maximum seconds that a cell waits for the list of runs. If the backend does not answer in time,
the panel opens with an empty list.
"""


class Panel(widgets.VBox):  # type: ignore[misc]  # ipywidgets are untyped
    """The widget that bare `%tfcluster` shows.

    Args:
        manager: the cluster manager.
        watcher: reports every change of a run; the panels of a kernel share one.
    """

    def __init__(self, manager: ClusterManager, watcher: RunWatcher) -> None:
        super().__init__()
        self._watcher = watcher
        background = ButtonActions(self._tell)
        self._message = widgets.HTML()
        self._away = widgets.HTML()
        self.runs = RunList(manager, background)
        self.form = LaunchForm(manager, background)
        folded = widgets.Accordion([self.form.widget], titles=(_("Launch a cluster"),))
        folded.selected_index = None
        self.add_class("tfc-panel")
        self.children = (_lost_kernel(), folded, self._message, self._away, self.runs.widget)
        self._end = watcher.listen(self._changed)
        if watcher.complete(PATIENCE) and not watcher.known():
            folded.selected_index = 0

    def close(self) -> None:
        """Close the panel; runs continue."""
        self._end()
        self.form.close()
        self.runs.close()
        super().close()

    def _changed(self, name: str, known: WatchedRun | None) -> None:
        if name:
            self.runs.show(name, known)
            return
        problem, told = self._watcher.problem, ""
        if problem:
            told = _("As of {time}: {problem}").format(time=clock(time.time()), problem=problem)
        self._away.value = f'<div role="status">{escape(told)}</div>' if told else ""

    def _tell(self, text: str, wrong: bool) -> None:
        colour = "var(--jp-error-color1, #c62828)" if wrong else "inherit"
        self._message.value = (
            f'<div role="status" style="color:{colour};white-space:pre-wrap">'
            f"{escape(with_magic_commands(text))}</div>"
        )

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """Return the widget, and the table of runs for pages without widgets."""
        bundle = super()._repr_mimebundle_(**options)
        table = report.listing(self.runs.clusters())
        bundle["text/plain"] = table
        bundle["text/html"] = f"<pre>{escape(table)}</pre>"
        return dict(bundle)
