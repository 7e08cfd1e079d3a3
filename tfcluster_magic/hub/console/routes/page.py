"""A page of the console: a template, its script, and the bar that leads to the others."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from tornado.template import Loader

from .base import POLICY, ConsoleHandler

PAGES = Path(__file__).parents[1] / "pages"


class Page(ConsoleHandler):
    """A page; its script asks for everything else. `title` stands in the bar."""

    is_page = True
    title = ""
    template = ""

    async def get(self) -> None:
        """The page, or for who is no administrator one that says so."""
        self._show(
            self.template,
            xsrf=self.xsrf_token.decode("ascii"),
            user=self.who,
            most_bytes=self.most_bytes,
        )

    def send_problem(self, told: dict[str, Any]) -> None:
        """Show a problem as a page."""
        self.set_status(told["status"])
        self._show("refused.html", detail=told["detail"])

    def _show(self, name: str, **words: object) -> None:
        nonce = secrets.token_urlsafe(16)
        self.set_header("Content-Security-Policy", POLICY.format(nonce=nonce))
        words |= {"nonce": nonce, "hub": self.console.hub, "prefix": self.console.prefix}
        words |= {"title": self.title, "bar": self.console.bar}
        self.finish(Loader(str(PAGES)).load(name).generate(**words))
