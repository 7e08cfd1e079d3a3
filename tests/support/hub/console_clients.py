"""Clients of the admin console of a real hub: a page, requests with a browser's cookies or with a
token, and a shell.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from playwright.sync_api import Locator, Page, expect

from .make_run import OWNER, PASSWORD, Hub, Visitor

SLEEP = "import time\nprint('<b>line</b> of', __file__, flush=True)\ntime.sleep(3600)\n"


@pytest.fixture
def page(context: object) -> Iterator[Page]:
    """Yield a page; fail if a script fails or a resource is missing. Axe's own errors are
    allowed.
    """
    made: Page = context.new_page()  # type: ignore[attr-defined]
    failed: list[str] = []
    made.on("pageerror", lambda error: failed.append(str(error)))
    made.on("console", lambda said: failed.append(said.text) if said.type == "error" else None)
    made.on("response", lambda one: failed.append(one.url) if one.status == 404 else None)
    yield made
    made.close()
    # Messages that axe itself causes.
    of_axe = ("inline style", "fontawesome", "Failed to load resource")
    assert not [text for text in failed if not any(word in text for word in of_axe)]


class Console:
    """The console's API as a page or a program calls it."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor, self.url = visitor, f"{visitor.hub.url}/services/admin/"
        opened = visitor.get(self.url)
        found = re.search(r'data-xsrf="([^"]*)"', opened.text)
        self.opened, self.xsrf = opened, found.group(1) if found else ""

    def ask(self, method: str, path: str, xsrf: str | None = None, **words: object):
        headers = {"X-XSRFToken": self.xsrf if xsrf is None else xsrf, "Sec-Fetch-Mode": "cors"}
        return self.visitor.session.request(
            method, self.url + path, headers=headers, timeout=120, **words
        )

    def stop(self, name: str, reason: str) -> dict[str, object]:
        body = {"runs": [{"owner": OWNER, "name": name}], "reason": reason}
        answer = self.ask("POST", "api/clusters/stop", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["results"][0]


def opened(visitor: Visitor) -> Console:
    """Open the console in a user's browser; wait until it answers, because it may still be
    starting.
    """
    found: list[Console] = []

    def is_open() -> bool:
        found.append(Console(visitor))
        return bool(found[-1].xsrf)

    visitor.hub.until(is_open, "the console is open")
    return found[-1]


def sign_in_to(page: Page, hub: Hub, name: str) -> None:
    """Open one of the console's pages as the owner, and enter the password."""
    page.goto(f"{hub.url}/hub/login?next={hub.base_url}services/admin/{name}")
    page.get_by_label("Username").fill(OWNER)
    page.locator("#password_input").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def looked_at(page: Page, shots: Path, ready: Locator | None = None) -> None:
    """Take a screenshot of a page in both themes, and check each for accessibility.

    With `ready`, an element that shows that the page has loaded, repeat this in Chinese, and check
    that each row of the page's table has as many cells as the table has heads.
    """
    # imported here, because benchmarks use this module without axe
    from .pages import accessible, in_every_look

    if ready is not None:
        in_every_look(page, shots, "all", ready)
        expect(ready).to_be_visible()
        rows = "[...document.querySelectorAll('main table tr')].map(row => row.cells.length)"
        heads, *cells = page.evaluate(rows)
        assert set(cells) == {heads}, "COLUMNS and drawRow of the page's script differ"
        return

    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
        page.screenshot(path=shots.with_name(f"{shots.name}-{theme}.png"), full_page=True)
        accessible(page)


def token(visitor: Visitor, name: str, scopes: list[str] | None = None) -> str:
    """Create a token on the hub's page for tokens."""
    body = {"note": "a test"} | ({"scopes": scopes} if scopes else {})
    answer = visitor.api("POST", f"users/{name}/tokens", body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def by_token(hub: Hub, text: str) -> requests.Response:
    """Return the list of clusters, requested with a token."""
    return requests.get(
        f"{hub.url}/services/admin/api/clusters",
        headers={"Authorization": f"Bearer {text}"},
        timeout=120,
    )


def shell(hub: Hub, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run `tfcluster WORDS` in a shell of the account that runs the hub."""
    env = {**hub.environment, "TFCLUSTER_HOME": str(hub.root), **more}
    command = str(Path(sys.executable).with_name("tfcluster"))
    return subprocess.run([command, *words], env=env, capture_output=True, text=True, check=False)


def said_in_log(hub: Hub, since: int) -> str:
    """Return the log of hub, proxy and console from this position."""
    return (hub.state / "hub" / "hub.log").read_text(errors="replace")[since:]


def refused(answer: requests.Response, status: int) -> bool:
    """Return whether an answer has this status and the content type of all error answers."""
    kind = answer.headers["Content-Type"]
    return answer.status_code == status and kind == "application/problem+json"
