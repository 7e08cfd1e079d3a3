"""Axe's findings about screens of JupyterLab."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from .page import THEMES, LabPage

SERIOUS = {"serious", "critical"}


class Findings:
    """Axe's findings about one screen after another, each in both themes and with a picture."""

    def __init__(self, lab: LabPage) -> None:
        self._lab = lab
        self._themes = [*THEMES]
        self.all: list[str] = []

    def look(self, selector: str, name: str) -> None:
        """Check the parts of the page that match the selector. The page stays in the second theme;
        the next call begins with it.
        """
        for theme in self._themes:
            self._lab.theme(theme)
            self._look(selector, f"{name}-{theme}")
        self._themes.reverse()

    def _look(self, selector: str, name: str) -> None:
        self._lab.screenshot(name)
        shown = self._lab.page.locator(selector)
        expect(shown.first).to_be_visible()
        answer: dict[str, Any] = Axe().run(self._lab.page, context=selector).response
        self.all += [
            f"{name}: {v['id']} ({v['impact']}): {v['help']}: {node['target']} {node['html'][:160]}"
            f" {[each['message'] for each in node['any']][:1]}"
            for v in answer["violations"]
            for node in v["nodes"][:4]
            if v["impact"] in SERIOUS
        ]
