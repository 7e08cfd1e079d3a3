"""JupyterLab in a browser, by a user's actions: open a notebook, run a cell, choose a theme.

A method returns when its result is visible. Nothing here depends on a screen of the product: the
tests of a screen find its parts by role and name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Locator, Page, expect

from ..polling import wait_until
from . import workspace
from .lab_server import LabServer
from .page_console import Console

Theme = Literal["light", "dark"]
THEMES: dict[Theme, str] = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
SHOTS = Path(__file__).parents[3] / "build" / "screenshots"
TRACED = os.environ.get("CI") != "true" or "TFC_TRACED_PAGES" in os.environ
"""Whether pages have traces and pictures. A build machine sets TFC_TRACED_PAGES when it retries a
test (tools/suite.py).
"""
DRAWN = """() => new Promise(done => {
    requestAnimationFrame(() => requestAnimationFrame(done));
    setTimeout(done, 500);
})"""
"""A script that waits until the page is drawn, but at most half a second, because a page behind
another one is not drawn.
"""
EMPTIED = """async () => {
    const { commands, shell } = window.jupyterapp;
    for (const area of ['main', 'down']) {
        for (const widget of [...shell.widgets(area)]) {
            widget.dispose();
        }
    }
    shell.collapseRight();
    shell.activateById('filebrowser');
    await commands.execute('filebrowser:go-to-path', { path: '/' });
}"""


class LabPage:
    """One page with JupyterLab.

    Args:
        page: a page of playwright, for everything that has no method here.
        server: its Lab.
        shots: path of this test's screenshots; `-<name>.png` is added.
    """

    def __init__(self, page: Page, server: LabServer, shots: Path) -> None:
        self.page = page
        self.server = server
        self.console = Console(page)
        self._shots = shots

    # -- the whole page ----------------------------------------------------------------------------

    def load(self, path: str = "lab", *, reset: bool = True, origin: str | None = None) -> None:
        """Open JupyterLab (again) and wait until it is complete; `reset` forgets the layout."""
        query = f"?token={self.server.token}" + ("&reset" if reset else "")
        self.page.goto((origin or self.server.url) + path + query)
        self.restored()
        if reset:  # wait until the launcher of the new layout has taken the focus
            expect(self.page.locator(".jp-Launcher")).to_be_focused()

    def empty(self) -> None:
        """Close all tabs and reset the rest of the layout, for the next test."""
        if self.page.locator("body[data-jp-theme-light='false']").count():
            self.theme("light")
        self.page.evaluate(EMPTIED)
        expect(self.page.locator(".jp-Launcher")).to_have_count(1)

    def reload(self) -> None:
        """Reload as F5 does; the layout is restored."""
        self.page.reload()
        self.restored()

    def layout_saved(self, *tabs: str) -> None:
        """Wait until JupyterLab has saved its layout with these tabs, given by their names in the
        data of the layout restorer. JupyterLab saves the layout a moment after the last change, and
        the tabs' own state before that.
        """

        def saved() -> str:
            data = self.server.ask("GET", "lab/api/workspaces/default")["data"]
            return json.dumps(data.get("layout-restorer:data", {}).get("main"))

        def are_saved() -> bool:
            layout = saved()
            return all(json.dumps(tab) in layout for tab in tabs)

        wait_until(are_saved, lambda: f"{tabs} are saved: {saved()}", every=0.1)

    def restored(self) -> None:
        """Wait until JupyterLab has restored its layout."""
        # A second tab is redirected to its own workspace meanwhile, so this wait is longer.
        self._until("() => window.jupyterapp?.restored")

    def _until(self, found: str, patience: float | None = None) -> None:
        """Wait until this expression gives a value; if the value is a promise, wait for its end.
        The expression must not be an async function, because its promise would be a value at once.
        """
        self.page.wait_for_function(found, timeout=patience)

    def execute(self, command: str, **arguments: Any) -> None:
        """Run a command by its id, as menus do, and wait until it has ended."""
        self.page.evaluate(
            "async ([id, args]) => { await window.jupyterapp.commands.execute(id, args); }",
            [command, arguments],
        )

    def execute_later(self, command: str, **arguments: Any) -> None:
        """Run a command that opens a dialog, without waiting for its end."""
        self.page.evaluate(
            "([id, args]) => { void window.jupyterapp.commands.execute(id, args); }",
            [command, arguments],
        )

    def palette(self, label: str) -> None:
        """Choose an entry of the command palette with the keyboard."""
        self.page.keyboard.press("Control+Shift+C")
        expect(self.page.locator(".lm-CommandPalette-input")).to_be_focused()
        self.page.keyboard.type(label)
        active = self.page.locator(".lm-CommandPalette-item.lm-mod-active")
        expect(active).to_contain_text(label)
        self.page.keyboard.press("Enter")

    def theme(self, name: Theme) -> None:
        """Switch to JupyterLab's light or dark theme."""
        self.execute("apputils:change-theme", theme=THEMES[name])
        light = str(name == "light").lower()
        expect(self.page.locator(f"body[data-jp-theme-light='{light}']")).to_be_attached()

    def screenshot(self, name: str, of: Locator | None = None) -> Path:
        """Save a picture of the page or of a part of it under build/screenshots; see TRACED."""
        path = self._shots.with_name(f"{self._shots.name}-{name}.png")
        if not TRACED:  # only scroll and wait as for a picture
            if of is not None:
                of.scroll_into_view_if_needed()
            self.page.evaluate(DRAWN)
        elif of is None:
            self.page.screenshot(path=path)
        else:
            of.screenshot(path=path)
        return path

    @property
    def dialog(self) -> Locator:
        """JupyterLab's modal dialog."""
        return self.page.locator(".jp-Dialog")

    # -- the product's sidebar ---------------------------------------------------------------------

    @property
    def sidebar(self) -> Locator:
        """Return TFCluster's sidebar; open it first if it is closed."""
        found = self.page.locator("#tfcluster-sidebar")
        if not found.is_visible():
            self.execute("tfcluster:open-sidebar")
        expect(found).to_be_visible()
        return found

    # -- notebooks ---------------------------------------------------------------------------------

    def open(self, path: str) -> None:
        """Open a file of the workspace with the default viewer or editor of its type."""
        self.execute("docmanager:open", path=path)

    def notebook(
        self,
        *cells: str,
        name: str = "notebook.ipynb",
        outputs: Sequence[Sequence[object]] = (),
        kernel: bool = True,
        metadata: Mapping[str, object] | None = None,
    ) -> Locator:
        """Write and open a notebook with these cells; without `kernel`, do not wait for one."""
        workspace.notebook(self.server.root / name, cells or [""], outputs, metadata)
        self.open(name)
        found = self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        expect(found.locator(".jp-CodeCell")).to_have_count(len(cells) or 1)
        if kernel:
            self.idle()
        return found

    def idle(self) -> None:
        """Wait until the notebook's kernel is idle."""
        # Do not use the indicator on the screen: it says "idle" before the kernel has started.
        context = "window.jupyterapp?.shell.currentWidget?.sessionContext"
        for found in ("ready", "session?.kernel?.info", "session?.kernel?.status === 'idle'"):
            self._until(f"() => {context}?.{found}", 60_000)

    def cell(self, number: int = 0) -> Locator:
        """Return a code cell of the visible notebook, counted from 0."""
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell").nth(number)

    def run_cell(self, number: int = 0, *, wait: bool = True) -> Locator:
        """Run a cell with Shift+Enter; return its output area after its end, or at once without
        `wait`.
        """
        cell = self.cell(number)
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")
        if wait:
            prompt = cell.locator(".jp-InputPrompt").first
            expect(prompt).to_have_text(re.compile(r"\[\d+\]"), timeout=60_000)
        return cell.locator(".jp-Cell-outputArea")

    def run(self, source: str) -> Locator:
        """Run a cell's text in a new notebook; return the output area."""
        self.notebook(source)
        return self.run_cell()

    # -- the state of the page ---------------------------------------------------------------------

    def pwned(self) -> object:
        """Return what a script has stored that came from a program's output or a name; it must be
        None, because the page must never run such a script.
        """
        return self.page.evaluate("() => window.__pwned ?? null")

    def setting(self, plugin: str, **values: object) -> None:
        """Set a plugin's settings before the page is loaded (again)."""
        path = f"lab/api/settings/{plugin}"
        self.server.ask("PUT", path, {"raw": json.dumps(values)})
