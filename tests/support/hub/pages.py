"""Pages of a hub as browser tests use and check them."""

from __future__ import annotations

from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

PATIENCE = 180_000
"""Milliseconds for a first notebook on a busy machine."""


def accessible(page: Page, part: str = "body") -> None:
    """Check that axe finds nothing serious, after theme changes have ended."""
    page.emulate_media(reduced_motion="reduce")
    found = Axe().run(page, context=part).response["violations"]
    serious = [f"{v['id']}: {v['nodes'][0]['html']}" for v in found if v["impact"] != "minor"]
    # Leave out findings about headings and landmarks: on some pages these are JupyterHub's own.
    serious = [v for v in serious if not v.startswith(("region", "landmark", "page-has-heading"))]
    assert not serious, "\n".join(serious)


def in_every_look(page: Page, shots: Path, name: str, ready: Locator | None = None) -> None:
    """Load a page in both themes, in English and in Chinese; take a picture of each, and check its
    accessibility.
    """
    browser = page.context.new_cdp_session(page)  # the language of a context cannot be changed
    browser.send("Network.enable")
    agent = page.evaluate("navigator.userAgent")
    for look, theme, language in (
        ("dark", "dark", "en-US"),
        ("zh-dark", "dark", "zh-CN"),
        ("zh", "light", "zh-CN"),
        ("light", "light", "en-US"),
    ):
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
        browser.send(
            "Emulation.setUserAgentOverride", {"userAgent": agent, "acceptLanguage": language}
        )
        # set the header too, because the override does not apply to requests of an EventSource
        headers = {"Accept-Language": language}
        browser.send("Network.setExtraHTTPHeaders", {"headers": headers})
        page.reload()
        expect(page.locator("html")).to_have_attribute("lang", language.removesuffix("-US"))
        if ready is not None:
            expect(ready).to_be_visible()
        page.screenshot(path=shots.with_name(f"{shots.name}-{name}-{look}.png"), full_page=True)
        accessible(page)
    browser.detach()


def fill_password(page: Page, password: str) -> None:
    """Type a new password twice and send it."""
    page.get_by_label("New password").fill(password)
    page.get_by_label("Repeat the password").fill(password)
    page.get_by_role("button", name="Set the password and continue").click()
