"""Pages of a hub as browser tests use and check them."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

PATIENCE = 180_000
"""Milliseconds for a first notebook on a busy machine."""


def accessible(page: Page, part: str = "body") -> None:
    """Check that axe finds nothing serious, without a theme change in progress."""
    page.emulate_media(reduced_motion="reduce")
    found = Axe().run(page, context=part).response["violations"]
    serious = [f"{v['id']}: {v['nodes'][0]['html']}" for v in found if v["impact"] != "minor"]
    # JupyterHub's own pages have their own headings and landmarks.
    serious = [v for v in serious if not v.startswith(("region", "landmark", "page-has-heading"))]
    assert not serious, "\n".join(serious)


def fill_password(page: Page, password: str) -> None:
    """Type a new password twice and send it."""
    page.get_by_label("New password").fill(password)
    page.get_by_label("The same again").fill(password)
    page.get_by_role("button", name="Set the password and go on").click()
