"""Students of a class, with system accounts and browsers of their own, who take turns.

A student's page is closed before their notebook is stopped, and the console output of a page is
kept for the test. Tests use JupyterLab through `LabPage`, and the admin console by its pages in a
browser.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from ..ui.browser import SIZE
from ..ui.page import LabPage
from .make_run import LAB_CONFIG, PASSWORD, Hub
from .pages import PATIENCE, fill_password

AT_A_TIME = 4
"""Maximum number of students with a notebook at the same time; more notebooks than cores would only
wait for each other.
"""
PROGRAM = "import time\nprint('up', flush=True)\ntime.sleep(3600)\n"


def furnish(homes: Path, accounts: Mapping[str, int]) -> None:
    """Write a program and JupyterLab's settings into each home; with these settings, a test can
    call JupyterLab's commands.
    """
    settings = LAB_CONFIG.format(terminals=False)
    for name, uid in accounts.items():
        written = {"tfcluster/train.py": PROGRAM, ".jupyter/jupyter_lab_config.py": settings}
        for path, text in written.items():
            file = homes / name / path
            file.parent.mkdir(mode=0o700)
            file.write_text(text)
            for each in (file.parent, file):
                os.chown(each, uid, uid)


class Student:
    """A user of the hub with a browser."""

    def __init__(self, hub: Hub, browser: Browser, name: str, shots: Path) -> None:
        self.hub, self.name = hub, name
        self.link = ""
        self.errors: list[str] = []
        self._browser, self._shots = browser, shots
        self._context: BrowserContext | None = None
        self.lab: LabPage

    def comes(self) -> None:
        """Open the invitation link and choose a password; if that is done, sign in. The notebook
        then starts.
        """
        self._context = self._browser.new_context(viewport=SIZE, locale="en-US")
        self._context.set_default_timeout(PATIENCE / 3)
        page = self._context.new_page()
        self.lab = LabPage(page, self.hub, self._shots)  # type: ignore[arg-type]
        if self.link:
            page.goto(self.link)
            fill_password(page, PASSWORD)
            self.link = ""
            return
        page.goto(f"{self.hub.url}/")
        page.get_by_label("Username").fill(self.name)
        page.locator("#password_input").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()

    def arrives(self) -> LabPage:
        """Wait for the page of the student's notebook, with the Between-Graph example open."""
        expect(self.lab.page).to_have_url(re.compile(f"/user/{self.name}/lab"), timeout=PATIENCE)
        first = self.lab.page.locator(".jp-NotebookPanel h1", has_text="Between-Graph")
        expect(first).to_be_visible(timeout=PATIENCE)
        self.lab.restored()
        return self.lab

    def fills_in(self, workers: int) -> Locator:
        """Fill in the launch form without launching."""
        form = self.lab.page.get_by_role("form", name="Launch a TFCluster")
        if not form.is_visible():
            self.lab.execute("tfcluster:launch")
            expect(form.get_by_text("Free now:")).to_be_visible(timeout=PATIENCE)
        form.get_by_label("Path of the program").fill("train.py")
        # Empty the field first: filling in the value that it already has triggers no new check.
        for number in ("", str(workers)):
            form.get_by_label("Workers").fill(number)
        return form

    def launches(self, workers: int) -> None:
        """Launch, and wait until the run is running."""
        form = self.fills_in(workers)
        button = form.get_by_role("button", name="Launch", exact=True)
        expect(button).not_to_have_attribute("aria-disabled", "true", timeout=PATIENCE)
        button.click()
        expect(form.get_by_text("train-1 was launched.")).to_be_visible(timeout=PATIENCE)
        expect(self.row).to_have_attribute("data-phase", "Running", timeout=PATIENCE)

    @property
    def row(self) -> Locator:
        """Return the cluster's row in the sidebar."""
        return self.lab.sidebar.locator(".tfc-RunRow[data-run='train-1']")

    def goes(self) -> None:
        """Close the browser, and keep its console output."""
        if self._context is not None:
            self.errors += [f"{self.name}: {error}" for error in self.lab.console.errors]
            self._context.close()
            self._context = None

    @property
    def is_here(self) -> bool:
        """Whether the browser is open."""
        return self._context is not None


def person(page: Page, name: str) -> Locator:
    """Return a user's row on the page Users."""
    return page.get_by_role("row", name=re.compile(rf"\b{name}\b")).first
