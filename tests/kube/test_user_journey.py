"""The whole way of a user in a real browser: from an administrator's link, through the ingress
controller, to clusters of both modes, TensorBoard, and out again.
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
"""TensorBoard asks for fonts that its package does not have."""
SLOW = 240_000
"""Milliseconds for what starts TensorFlow in several pods of one node."""
VOLUMES = ("/data", "/home/jovyan", "/log")
STEPS = EVENT_WRITER.read_text() + TRAIN.replace("from event_writer import", "#")
"""The program that the sidebar follows; TensorFlow is in the examples that come before."""
context = pages.context


class Way(LabPage):
    """A page with the JupyterLab of a user of the hub, which has no server of the tests."""

    def __init__(self, page: Page, shots: Path) -> None:
        super().__init__(page, None, shots)  # type: ignore[arg-type]
        self.console.allow(FONTS)
        self._number = 0

    def keep(self, name: str) -> None:
        """A picture, by its place on the way."""
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
        """Run cells one after the other from the selected one, text cells too, and wait for what
        the last prints.
        """
        for _cell in range(cells):
            self.execute("notebook:run-cell-and-select-next")
        panel = self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        expect(panel.locator(".jp-OutputArea").filter(has_text=text).last).to_be_visible(
            timeout=SLOW
        )

    def row(self, name: str) -> Locator:
        """A run in the sidebar."""
        return self.sidebar.locator(f".tfc-RunRow[data-run='{name}']")

    def board(self) -> FrameLocator:
        """The page of TensorBoard in the tab in front."""
        return self.page.frame_locator(".jp-MainAreaWidget:not(.lm-mod-hidden) > .tfc-Board iframe")


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """The machine's Chromium; it ends with this file, for it holds an event loop."""
    with pages.chromium(tmp_path_factory.mktemp("profile")) as profile:
        yield profile


@pytest.fixture
def shots(request: pytest.FixtureRequest) -> Path:
    """Where this test's pictures go, but for what follows in their names."""
    return pages.picture(request.node, "whole-way")


@pytest.fixture
def way(context: BrowserContext, shots: Path) -> Iterator[Way]:
    """A browser that knows nobody; the last picture is kept."""
    made = Way(context.new_page(), shots)
    yield made
    made.screenshot("end")


def comes_in(hub: Hub, way: Way) -> str:
    """Use an administrator's link and start a notebook; gives the user's name."""
    page = way.page
    name, code = hub.invited("walker")
    page.goto(hub.url(f"hub/set-password?code={code}"))
    page.get_by_label("New password").fill(PASSWORD)
    page.get_by_label("The same again").fill(PASSWORD)
    way.keep("password")
    page.get_by_role("button", name="Set the password and go on").click()
    expect(page.get_by_text("Too large")).to_be_visible()  # a size that the policy offers
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
    """The cells of the first two examples, as they stand; the In-Graph servers go on."""
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
    """A cluster from the form, followed in the sidebar."""
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
    """Stop runs, each after the question."""
    for run in runs:
        way.execute_later("tfcluster:stop", name=run)
        way.dialog.get_by_role("button", name="Stop").click()
        expect(way.row(run)).to_have_attribute("data-phase", "Stopped", timeout=SLOW)
    way.keep("stopped")


def volumes(hub: Hub, name: str) -> dict[str, str]:
    """What kind of file system the notebook of a user has at each path."""
    inside = hub.namespace(name)
    (pod,) = inside.every("pod", "tfcluster.dev/notebook=true")
    mounts = inside.exec(pod["metadata"]["name"], "cat", "/proc/mounts").splitlines()
    kinds = {line.split()[1]: line.split()[2] for line in mounts}
    return {where: kinds.get(where, "") for where in VOLUMES}


def signs_out(hub: Hub, way: Way, name: str) -> None:
    """Sign out; the notebook then asks who one is."""
    page = way.page
    page.goto(hub.url("hub/home"))
    page.get_by_role("button", name="Logout").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.goto(hub.url(f"user/{name}/lab"))
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    way.keep("signed-out")


def test_from_a_link_to_clusters_and_out(hub: Hub, way: Way) -> None:
    """A new user sets a password, gets a notebook, runs both first examples, sees curves in
    TensorBoard, launches and stops from the sidebar, and signs out; the volumes are GlusterFS.
    """
    name = comes_in(hub, way)
    runs_both_examples(way)
    launches_from_the_sidebar(hub, way, name)
    stops(way, "steps-1", "session-1")
    assert volumes(hub, name) == dict.fromkeys(VOLUMES, "fuse.glusterfs")
    signs_out(hub, way, name)
    assert not way.console.errors
