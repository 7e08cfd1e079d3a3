"""JupyterLab's Running panel: clusters and TensorBoards beside kernels and terminals."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, expect
from support.ui.accessibility import Findings
from support.ui.flows import launch_sleeping, row
from support.ui.page import LabPage

from tfcluster_magic.spec import Phase

FONTS = r"\.woff2"
"""Fonts that TensorBoard requests but its package lacks."""


def panel(lab: LabPage) -> Locator:
    """Open the panel and return it."""
    lab.execute("running:show-panel")
    found = lab.page.locator("#jp-running-sessions")
    expect(found).to_be_visible()
    return found


def item(lab: LabPage, text: str) -> Locator:
    """Return an item of the panel."""
    return lab.page.locator(".jp-RunningSessions-item").filter(has_text=re.compile(text))


def test_active_runs_are_in_the_panel_of_what_runs(lab: LabPage) -> None:
    """A run is listed while it is active; a click opens it in the sidebar, and a button stops it
    after a confirmation.
    """
    launch_sleeping(lab, "mnist")
    shown = panel(lab)
    mnist = item(lab, r"^mnist-1 · 2 of 2 running")
    expect(mnist).to_be_visible()
    requests: list[str] = []
    about = "tfcluster/api/clusters"
    lab.page.on("request", lambda r: requests.append(r.url) if about in r.url else None)
    lab.server.launch("sleep.py", workers=1, ps=0, name="second")
    expect(item(lab, r"^second-1 · 1 of 1 running")).to_be_visible()
    assert requests == []  # the server sent the run as an event
    found = Findings(lab)
    found.look(".jp-RunningSessions-item", "runs")
    assert not found.all, "\n".join(found.all)

    mnist.locator(".jp-RunningSessions-itemLabel").click()
    expect(row(lab, "mnist-1")).to_have_attribute("aria-expanded", "true")
    panel(lab)
    mnist.hover()
    mnist.locator(".jp-RunningSessions-itemShutdown").click()
    expect(lab.dialog).to_contain_text("Stop mnist-1?")
    lab.dialog.get_by_role("button", name="Stop").press("Enter")
    expect(mnist).to_have_count(0)
    assert lab.server.manager.status("mnist").status.phase in (Phase.STOPPED, Phase.STOPPING)

    title = shown.locator(".jp-AccordionPanel-title").filter(has_text="TensorFlow Clusters")
    title.get_by_role("button", name="Stop All").click()
    expect(lab.dialog).to_contain_text("This stops all active clusters.")
    lab.screenshot("stop-all")
    lab.dialog.get_by_role("button", name="Stop All").click()
    expect(item(lab, "second-1")).to_have_count(0)


def test_tensorboards_are_in_the_panel_of_what_runs(lab: LabPage) -> None:
    """All boards are listed, whoever started them; a click opens the tab, a button ends
    the board.
    """
    lab.console.allow(FONTS)
    lab.console.allow("tfcluster/tensorboard/")  # the page of a stopped board still sends requests
    lab.server.launch("train.py", "5", "0.01", name="digits", workers=1, ps=0)
    lab.server.manager.wait("digits", 180)
    lab.execute("tfcluster:tensorboard", name="digits-1")
    tab = lab.page.locator("#jp-main-dock-panel .lm-TabBar-tab", has_text="digits-1 · TensorBoard")
    expect(tab).to_be_visible()
    panel(lab)
    stop = lab.page.get_by_title("Stop this TensorBoard; the runs stay")
    board = item(lab, r"^digits-1 · TensorBoard").filter(has=stop)  # not the board of the open tab
    expect(board).to_be_visible()
    lab.screenshot("board")
    lab.execute("application:close-all")
    expect(tab).to_have_count(0)
    board.locator(".jp-RunningSessions-itemLabel").click()
    expect(tab).to_be_visible()
    panel(lab)
    board.hover()
    board.locator(".jp-RunningSessions-itemShutdown").click()
    expect(board).to_have_count(0)
    assert lab.server.ask("GET", "tfcluster/api/tensorboards")["tensorboards"] == []
    expect(lab.page.get_by_text("This TensorBoard was stopped.")).to_be_attached()
