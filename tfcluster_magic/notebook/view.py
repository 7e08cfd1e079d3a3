"""The panel as one widget: form above, list below, a line that says what came of the last press."""

from __future__ import annotations

import time
from html import escape
from typing import Any

import ipywidgets as widgets

from ..errors import in_cells
from ..i18n import _
from ..output import report
from ..output.text import clock
from ..runs.manager import ClusterManager
from ..runs.watcher import Feed, Known
from .background import Background
from .form import LaunchForm
from .panel import RunList

PATIENCE = 1.0
"""Seconds that a cell waits for the runs; where a backend hangs, the panel comes without them."""


class Panel(widgets.VBox):  # type: ignore[misc]  # ipywidgets are untyped
    """What bare `%tfcluster` shows.

    Args:
        manager: the door to the runs.
        feed: tells of every run; the panels of a kernel share one.
    """

    def __init__(self, manager: ClusterManager, feed: Feed) -> None:
        super().__init__()
        self._feed = feed
        background = Background(self._tell)
        self._message = widgets.HTML()
        self._away = widgets.HTML()
        self.runs = RunList(manager, background)
        self.form = LaunchForm(manager, background)
        folded = widgets.Accordion([self.form.widget], titles=(_("Launch a cluster"),))
        folded.selected_index = None
        self.children = (folded, self._message, self._away, self.runs.widget)
        self._end = feed.listen(self._changed)
        if feed.complete(PATIENCE) and not feed.known():
            folded.selected_index = 0

    def close(self) -> None:
        """Forget the panel; runs go on."""
        self._end()
        self.form.close()
        self.runs.close()
        super().close()

    def _changed(self, name: str, known: Known | None) -> None:
        if name:
            self.runs.show(name, known)
            return
        problem, told = self._feed.problem, ""
        if problem:
            told = _("As of {time}: {problem}").format(time=clock(time.time()), problem=problem)
        self._away.value = f'<div role="status">{escape(told)}</div>' if told else ""

    def _tell(self, text: str, wrong: bool) -> None:
        colour = "var(--jp-error-color1, #c62828)" if wrong else "inherit"
        self._message.value = (
            f'<div role="status" style="color:{colour};white-space:pre-wrap">'
            f"{escape(in_cells(text))}</div>"
        )

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """The widget, and the table of runs for a page without widgets."""
        bundle = super()._repr_mimebundle_(**options)
        table = report.listing(self.runs.clusters())
        bundle["text/plain"] = table
        bundle["text/html"] = f"<pre>{escape(table)}</pre>"
        return dict(bundle)
