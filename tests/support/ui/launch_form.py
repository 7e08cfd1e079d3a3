"""The launch form, as a user fills it in."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from .page import LabPage

LAUNCH = "Launch a TFCluster"


@pytest.fixture
def form(lab: LabPage) -> Locator:
    """Open the form by its command and return it once the server has sent its options."""
    return opened(lab)


def opened(lab: LabPage, **arguments: str) -> Locator:
    lab.execute("tfcluster:launch", **arguments)
    found = lab.page.get_by_role("form", name=LAUNCH)
    expect(found.get_by_text("Free now:")).to_be_visible()
    return found


def button(form: Locator) -> Locator:
    return form.get_by_role("button", name="Launch", exact=True)


def launch(form: Locator) -> None:
    """Click the button Launch once the form has no problems."""
    expect(button(form)).not_to_have_attribute("aria-disabled", "true")
    button(form).click()
