"""Links from other pages into JupyterLab: `lab?tfcluster=logs:digits-1` opens the logs of a run."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Locator, expect
from support.ui.flows import launch_sleeping, row
from support.ui.lab_server import LabServer
from support.ui.page import LabPage

from tfcluster_magic.spec import Phase


def follow(lab: LabPage, query: str) -> None:
    """Follow a link into JupyterLab as from another page."""
    lab.page.goto("about:blank")
    lab.page.goto(f"{lab.server.url}lab?token={lab.server.token}&{query}")
    lab.restored()
    expect(lab.page).not_to_have_url(re.compile("tfcluster="))  # otherwise F5 would reopen the link


def tabs(lab: LabPage) -> Locator:
    """Return the tabs of documents."""
    return lab.page.locator("#jp-main-dock-panel .lm-TabBar-tab")


def test_a_link_opens_what_it_names(
    server: LabServer, open_page: Callable[[LabServer], LabPage]
) -> None:
    """A link opens a run's row, its logs or its curves, even if JupyterLab is open in another tab
    of the browser.
    """
    lab = open_page(server)
    server.launch("sleep.py", workers=2, ps=0, name="mnist")
    follow(lab, "tfcluster=run:mnist-1")
    expect(row(lab, "mnist-1")).to_have_attribute("aria-expanded", "true")
    lab.screenshot("run")

    follow(lab, "tfcluster=logs:mnist-1")
    log = lab.page.get_by_role("log", name="Output of mnist-1")
    expect(log).to_be_visible()
    lab.screenshot("logs")
    second = open_page(server)  # a second tab of the browser gets its own workspace
    follow(second, "tfcluster=tensorboard:mnist-1")
    expect(tabs(second).filter(has_text="mnist-1 · TensorBoard")).to_be_visible()


def test_a_link_does_nothing_but_show(lab: LabPage) -> None:
    """A link cannot make another user stop a run."""
    launch_sleeping(lab, "mnist")
    lab.page.goto(f"{lab.server.url}lab?token={lab.server.token}&tfcluster=stop:mnist-1")
    lab.restored()
    expect(row(lab, "mnist-1")).to_have_attribute("data-phase", "Running")
    expect(lab.dialog).to_have_count(0)
    assert lab.server.manager.status("mnist").status.phase == Phase.RUNNING
