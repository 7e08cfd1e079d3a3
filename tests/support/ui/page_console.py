"""The console of a page: every error in it is an error of the test.

`ALLOWED` are messages of JupyterLab itself or of the browser, each with its circumstances. A test
of a fault names the expected errors with `Console.allow`.
"""

from __future__ import annotations

import re

from playwright.sync_api import ConsoleMessage, Error, Page

ALLOWED = {
    # from Notebook 7.2, for a file without a checkpoint
    r"reading 'last_modified'[\s\S]*static/notebook/",
    # from Notebook 7.6, if settings load before those of its shortcuts
    r"reading 'schema'[\s\S]*static/notebook/notebook_core",
    # from Jupyter Server if it is asked for its kernels while one starts: the new kernel has no
    # `last_activity` yet (list_kernels ignores KeyError, but not TraitError)
    r"status of 500 .*/api/kernels\?",
}
AWAY = (
    r"Failed to fetch|ERR_|WebSocket|NetworkError|Connection lost|503 \(|Load failed"
    r"|404 .*/api/kernels/"
)
"""Messages of the browser and JupyterLab in the console while a server is down, and when it returns
without its kernels.
"""
OURS = "tfcluster-labextension"


class Console:
    """The console of one page."""

    def __init__(self, page: Page) -> None:
        self._errors: list[str] = []
        self._allowed = [re.compile(pattern) for pattern in ALLOWED]
        page.on("pageerror", self._page_error)
        page.on("console", self._message)

    def allow(self, pattern: str) -> None:
        """Allow errors whose text or address matches `pattern`, because the test provokes them."""
        self._allowed.append(re.compile(pattern))

    @property
    def errors(self) -> list[str]:
        """Return every error that is not allowed."""
        return [e for e in self._errors if not any(p.search(e) for p in self._allowed)]

    def _page_error(self, error: Error) -> None:
        self._errors.append(f"uncaught: {error}\n{error.stack or ''}")

    def _message(self, message: ConsoleMessage) -> None:
        where = message.location
        # This warning counts as an error, because errors follow it: the extension was built for
        # another version of JupyterLab.
        unfit = "Unsatisfied version" in message.text and OURS in where["url"]
        if message.type == "error" or unfit:
            self._errors.append(f"{message.text} ({where['url']}:{where['lineNumber']})")
