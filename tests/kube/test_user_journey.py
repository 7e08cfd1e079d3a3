"""A user's full journey in a real browser: from an invite link through the ingress controller to
clusters of both modes, TensorBoard, and sign-out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, FrameLocator, Locator, Page, expect
from support.kube.hub import PASSWORD, Hub
from support.ui import browser as pages
from support.ui.page import LabPage
from support.ui.workspace import EVENT_WRITER, TRAIN

pytestmark = pytest.mark.needs("ingress", "rwx", "network-policy", "registry")
FONTS = r"\.woff2"
"""Fonts that TensorBoard requests but its package lacks."""
SLOW = 240_000
"""Timeout in milliseconds for steps that start TensorFlow in several pods of one node."""
VOLUMES = ("/data", "/home/jovyan", "/log")
STEPS = EVENT_WRITER.read_text() + TRAIN.replace("from event_writer import", "#")
"""The program that is launched from the sidebar. Unlike the examples, it needs no TensorFlow."""
context = pages.context


class Way(LabPage):
    """A page with a hub user's JupyterLab. The hub serves it, not a server of the tests."""

    def __init__(self, page: Page, shots: Path) -> None:
        super().__init__(page, None, shots)  # type: ignore[arg-type]
        self.console.allow(FONTS)
        self._number = 0

    def keep(self, name: str) -> None:
        """Take a screenshot, numbered by its place in the journey."""
        self._number += 1
        self.screenshot(f"{self._number:02}-{name}")

    def example(self, name: str) -> Locator:
        """Open an example, and wait for its kernel."""
        self.open(f"examples/{name}.ipynb")
        found = self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        expect(found.locator(".jp-Cell").first).to_be_visible()
        self.idle()
        return found

    def run_until(self, text: str | re.Pattern[str], cells: int) -> None:
        """Run `cells` cells from the selected one on, including text cells, and wait for the output
        of the last cell.
        """
        for _cell in range(cells):
            self.execute("notebook:run-cell-and-select-next")
        panel = self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        expect(panel.locator(".jp-OutputArea").filter(has_text=text).last).to_be_visible(
            timeout=SLOW
        )

    def row(self, name: str) -> Locator:
        """Return a run's row in the sidebar."""
        return self.sidebar.locator(f".tfc-RunRow[data-run='{name}']")

    def board(self) -> FrameLocator:
        """Return the TensorBoard page in the active tab."""
        return self.page.frame_locator(".jp-MainAreaWidget:not(.lm-mod-hidden) > .tfc-Board iframe")


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """The machine's Chromium; it is closed after this file because it holds an event loop."""
    with pages.chromium(tmp_path_factory.mktemp("profile")) as profile:
        yield profile


@pytest.fixture
def shots(request: pytest.FixtureRequest) -> Path:
    """Path and name prefix of this test's screenshots."""
    return pages.picture(request.node, "whole-way")


@pytest.fixture
def way(context: BrowserContext, shots: Path) -> Iterator[Way]:
    """A browser without cookies; after the test, a last screenshot of it is kept."""
    made = Way(context.new_page(), shots)
    yield made
    made.screenshot("end")


def comes_in(hub: Hub, way: Way) -> str:
    """Use an invite link and start a notebook; return the user's name."""
    page = way.page
    name, code = hub.invited("walker")
    page.goto(hub.url(f"hub/set-password?code={code}"))
    page.get_by_label("New password").fill(PASSWORD)
    page.get_by_label("Repeat the password").fill(PASSWORD)
    way.keep("password")
    page.get_by_role("button", name="Set the password and continue").click()
    # The title of a size that the policy offers.
    expect(page.get_by_text("Too large")).to_be_visible()
    way.keep("sizes")
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#progress-message")).to_be_visible()
    way.keep("starting")
    first = page.locator(".jp-NotebookPanel h1", has_text="Between-Graph")
    expect(first).to_be_visible(timeout=SLOW)
    way.restored()
    assert page.url.endswith(f"/tf/user/{name}/lab/tree/examples/01-between-graph.ipynb")
    way.keep("first-example")
    return name


def runs_both_examples(way: Way) -> None:
    """Run the cells of the first two examples unchanged; the In-Graph servers keep running."""
    way.idle()
    way.run_until(re.compile("digits-1"), cells=4)
    expect(way.row("digits-1")).to_have_attribute("data-phase", "Running", timeout=SLOW)
    way.keep("between-graph-runs")
    way.run_until(re.compile(r"held-out digits are read correctly"), cells=7)
    expect(way.row("digits-1")).to_have_attribute("data-phase", "Succeeded")
    way.keep("between-graph-succeeded")
    way.execute("tfcluster:tensorboard", name="digits-1")
    expect(way.board().locator("scalar-card").first).to_be_visible(timeout=SLOW)
    way.keep("tensorboard")
    way.example("02-in-graph")
    way.run_until(re.compile(r"held-out digits are read correctly"), cells=12)
    expect(way.row("session-1")).to_have_attribute("data-phase", "Running")
    way.keep("in-graph")


def launches_from_the_sidebar(hub: Hub, way: Way, name: str) -> None:
    """Launch a cluster from the form, and follow it in the sidebar."""
    inside = hub.namespace(name)
    (pod,) = inside.every("pod", "tfcluster.dev/notebook=true")
    write = "cat >/home/jovyan/steps.py"
    inside("exec", "-i", pod["metadata"]["name"], "--", "sh", "-c", write, stdin=STEPS)
    way.execute("tfcluster:launch")
    form = way.page.get_by_role("form")
    form.get_by_label("Path of the program").fill("steps.py")
    form.get_by_label("Arguments").fill("20000 0.05")
    form.get_by_role("spinbutton", name="Parameter servers").fill("1")
    button = form.get_by_role("button", name="Launch", exact=True)
    expect(button).not_to_have_attribute("aria-disabled", "true")
    way.keep("form")
    button.click()
    launched = way.row("steps-1")
    expect(launched).to_have_attribute("data-phase", "Running", timeout=SLOW)
    expect(launched).to_contain_text(re.compile(r"step \d+"), timeout=SLOW)
    way.keep("sidebar")


def stops(way: Way, *runs: str) -> None:
    """Stop runs, and confirm each stop."""
    for run in runs:
        way.execute_later("tfcluster:stop", name=run)
        way.dialog.get_by_role("button", name="Stop").click()
        expect(way.row(run)).to_have_attribute("data-phase", "Stopped", timeout=SLOW)
    way.keep("stopped")


def volumes(hub: Hub, name: str) -> dict[str, str]:
    """Return the type of the file system at each of the notebook's VOLUMES."""
    inside = hub.namespace(name)
    (pod,) = inside.every("pod", "tfcluster.dev/notebook=true")
    mounts = inside.exec(pod["metadata"]["name"], "cat", "/proc/mounts").splitlines()
    kinds = {line.split()[1]: line.split()[2] for line in mounts}
    return {where: kinds.get(where, "") for where in VOLUMES}


def signs_out(hub: Hub, way: Way, name: str) -> None:
    """Sign out; the notebook then asks for a sign-in."""
    page = way.page
    page.goto(hub.url("hub/home"))
    page.get_by_role("button", name="Logout").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.goto(hub.url(f"user/{name}/lab"))
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    way.keep("signed-out")


def test_from_a_link_to_clusters_and_out(hub: Hub, way: Way) -> None:
    """A new user sets a password, gets a notebook, runs the first two examples, sees curves in
    TensorBoard, launches and stops from the sidebar, and signs out.

    The notebook's volumes are on GlusterFS.
    """
    name = comes_in(hub, way)
    runs_both_examples(way)
    launches_from_the_sidebar(hub, way, name)
    stops(way, "steps-1", "session-1")
    assert volumes(hub, name) == dict.fromkeys(VOLUMES, "fuse.glusterfs")
    signs_out(hub, way, name)
    assert not way.console.errors
