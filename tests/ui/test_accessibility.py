"""Accessibility of every screen: axe finds nothing serious in either theme, the keyboard is enough,
and changes are announced.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect
from support.ui.accessibility import Findings
from support.ui.page import LabPage

from tfcluster_magic.runs.manager import Until


@pytest.mark.timeout(420)  # axe examines a dozen screens
def test_axe_finds_nothing_serious(lab: LabPage) -> None:
    """Axe finds nothing serious in sidebar, dialogs, launch form, a run's output, logs and status
    item. test_launch.py checks the form with all its sections.
    """
    found = Findings(lab)
    expect(lab.sidebar).to_contain_text("No clusters yet")
    found.look("#tfcluster-sidebar", "empty")

    lab.server.launch("train.py", "--steps", "40000", "0.05", name="digits", workers=2)
    lab.server.launch("fail.py", name="broken", workers=1)
    lab.server.launch(mode="in-graph", name="servers", workers=1)
    lab.server.manager.wait("broken", 180, until=Until.RELEASED)
    row(lab, "broken-1").click()
    row(lab, "digits-1").click()
    expect(row(lab, "digits-1").get_by_role("progressbar")).to_be_visible()
    expect(row(lab, "servers-1")).to_contain_text("2 of 2 running")
    expect(lab.sidebar.get_by_role("table", name="worker")).to_contain_text("worker-1")
    found.look("#tfcluster-sidebar", "runs")
    found.look(".tfc-Status-button", "status")

    for question in ("stop", "delete"):
        lab.execute_later(f"tfcluster:{question}", name="digits-1")
        expect(lab.dialog).to_contain_text("digits-1?")
        found.look(".jp-Dialog-content", question)
        lab.page.keyboard.press("Escape")
        expect(lab.dialog).to_have_count(0)

    lab.execute("tfcluster:launch")
    form = lab.page.get_by_role("form")
    expect(form.get_by_text("Free now:")).to_be_visible()
    form.get_by_text("Use the cluster from this notebook").click()
    found.look(".tfc-Launch", "form-notebook")

    lab.execute("tfcluster:logs", name="digits-1")
    log = lab.page.get_by_role("log", name="Output of digits-1")
    expect(log).to_contain_text("step ")
    found.look(".tfc-Log", "logs")

    output = lab.run("%load_ext tfcluster_magic\n%tfcluster launch hello.py --name drawn")
    expect(output.locator(".tfc-RunCard")).to_contain_text("drawn-1")
    output.get_by_text("2 tasks", exact=True).click()
    expect(output.get_by_role("table", name="worker")).to_contain_text("worker-1")
    found.look(".jp-OutputArea-output", "output")
    assert not found.all, "\n".join(found.all)


def test_a_pressed_button_is_told_apart_where_the_system_chooses_all_colours(
    lab: LabPage,
) -> None:
    """In forced colours (high contrast), a pressed button has the system's colours of a
    selection, and its icon can be seen on it.
    """
    lab.page.emulate_media(forced_colors="active")
    older = lab.sidebar.get_by_role("button", name="Older runs")
    expect(older).to_have_attribute("aria-pressed", "false")
    colours = "node => [getComputedStyle(node).backgroundColor, getComputedStyle(node).color]"
    before = older.evaluate(colours)
    older.click()
    expect(older).to_have_attribute("aria-pressed", "true")
    lab.screenshot("pressed", lab.sidebar)
    background, text = older.evaluate(colours)
    assert background not in (before[0], text)
    icon = older.locator("svg [fill]").first.evaluate("node => getComputedStyle(node).fill")
    assert icon == text
    lab.page.emulate_media(forced_colors="none")


def row(lab: LabPage, run: str) -> Locator:
    """Return a run's row in the sidebar."""
    return lab.sidebar.get_by_role("row", name=run)


def test_a_run_is_launched_read_stopped_and_deleted_by_keyboard(lab: LabPage) -> None:
    """A run is launched from the palette, read, stopped and deleted without a mouse."""
    keys = lab.page.keyboard
    lab.palette("Launch a TFCluster")
    form = lab.page.get_by_role("form")
    expect(form.get_by_text("Free now:")).to_be_visible()
    reach(lab, form.get_by_label("Path of the program"))
    keys.type("sleep.py")
    reach(lab, form.get_by_label("Name", exact=True))
    keys.type("digits")
    reach(lab, form.get_by_role("button", name="Launch", exact=True))
    keys.press("Enter")
    run = row(lab, "digits-1")
    expect(run).to_be_focused()
    expect(run).to_have_attribute("aria-expanded", "true")
    expect(run).to_contain_text("2 of 2 running")
    keys.press("l")
    expect(lab.page.get_by_role("log", name="Output of digits-1")).to_be_focused()

    lab.palette("Show Clusters")
    expect(run).to_be_focused()
    keys.press("s")
    expect(lab.dialog.get_by_role("button", name="Stop")).to_be_focused()
    keys.press("Enter")
    expect(run).to_contain_text("Stopped")
    run.focus()
    keys.press("Delete")
    expect(lab.dialog.get_by_role("button", name="Delete")).to_be_focused()
    keys.press("Enter")
    expect(run).to_have_count(0)


def reach(lab: LabPage, target: Locator) -> None:
    """Press Tab until the target has the focus."""
    for _ in range(60):
        if target.evaluate("node => node === document.activeElement"):
            return
        lab.page.keyboard.press("Tab")
    raise AssertionError(f"Tab never came to {target}")


@pytest.mark.same_page
def test_changes_of_phase_are_announced(lab: LabPage) -> None:
    """A screen reader announces that a run began and how it ended, and the focus does not move."""
    live = lab.sidebar.get_by_role("status").last
    expect(live).to_have_attribute("aria-live", "polite")

    lab.server.launch("sleep.py", name="digits", workers=1)
    expect(live).to_have_text("digits-1: Running")
    lab.server.manager.stop("digits")
    expect(live).to_have_text("digits-1: Stopped")
