"""TensorBoard in a JupyterLab tab: opened, drawn, restored, stopped, and without cookies."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import FrameLocator, Locator, expect
from support import event_writer as ev
from support.polling import wait_until
from support.project import TESTS
from support.ui.accessibility import Findings
from support.ui.flows import row
from support.ui.lab_server import LabServer
from support.ui.page import LabPage

from tfcluster_magic.paths import private
from tfcluster_magic.tensorboard.process import RegistryEntry, registry_folder

RECORDER = TESTS / "support" / "server" / "recorder.py"
FONTS = r"\.woff2"
"""Fonts that TensorBoard requests but its package lacks."""


@pytest.fixture
def lab(lab: LabPage) -> LabPage:
    """A page whose console may report TensorBoard's missing fonts."""
    lab.console.allow(FONTS)
    return lab


def write_events(folder: Path, points: int = 20) -> Path:
    """Write event files with one curve."""
    events = [ev.event(step, {"loss": 1 / step}) for step in range(1, points)]
    ev.event_file(folder).write_bytes(ev.version() + b"".join(events))
    return folder


def frame(lab: LabPage) -> FrameLocator:
    """Return the page inside the active tab."""
    return lab.page.frame_locator(".jp-MainAreaWidget:not(.lm-mod-hidden) > .tfc-Board iframe")


def tabs(lab: LabPage) -> Locator:
    """Return the tabs of TensorBoards."""
    return lab.page.locator("#jp-main-dock-panel .lm-TabBar-tab", has_text="· TensorBoard")


def charts_are_drawn(lab: LabPage) -> None:
    """Wait until a curve is visible."""
    card = frame(lab).locator("scalar-card").first
    # check that it is visible, because a page that was released still has all the text
    expect(card).to_be_visible(timeout=60_000)
    expect(card).to_contain_text("loss")
    expect(card.locator("line-chart canvas, line-chart svg").first).to_be_visible()
    expect(lab.page.locator(".tfc-Board-notice:visible")).to_have_count(0)


def boards(server: LabServer) -> list[dict[str, Any]]:
    """Return the running boards."""
    found: list[dict[str, Any]] = server.ask("GET", "tfcluster/api/tensorboards")["tensorboards"]
    return found


@pytest.mark.same_page
def test_the_tab_of_a_run(lab: LabPage) -> None:
    """The command opens a run's curves under the base URL; repeated, it shows the same tab. Runs
    opened together have their curves in one chart, under their names.
    """
    for name in ("digits", "other"):
        lab.server.launch("train.py", "40", "0.02", name=name, workers=1, ps=0)
    for name in ("digits", "other"):
        lab.server.manager.wait(name, 180)
    lab.execute("tfcluster:tensorboard", name="digits-1")
    charts_are_drawn(lab)
    expect(tabs(lab)).to_have_text("digits-1 · TensorBoard")
    expect(frame(lab).locator("runs-data-table")).to_contain_text("digits-1")
    url = frame(lab).locator("body").evaluate("() => location.href")
    assert url.startswith(f"{lab.server.url}tfcluster/tensorboard/")
    lab.screenshot("charts")

    lab.execute("tfcluster:tensorboard", refs=["digits"])  # another reference to the same board
    expect(tabs(lab)).to_have_count(1)
    lab.execute("tfcluster:tensorboard", name="digits-1")
    expect(tabs(lab)).to_have_count(1)
    assert len(boards(lab.server)) == 1

    lab.execute("tfcluster:tensorboard", refs=["other-1", "digits-1"])
    charts_are_drawn(lab)
    expect(tabs(lab).last).to_have_text("digits-1, other-1 · TensorBoard")
    for name in ("digits-1", "other-1"):
        expect(frame(lab).locator("runs-data-table")).to_contain_text(name)
    lab.screenshot("compared")


@pytest.mark.same_page
def test_it_reloads_while_the_run_is_active_and_says_so(lab: LabPage) -> None:
    """New points appear by themselves, and no setting of the user is changed."""
    lab.server.launch("train.py", "100000", "0.05", name="digits", workers=1, ps=0)
    wait_until((lab.server.root / "log" / "digits" / "1").is_dir, "output", 90)
    lab.execute("tfcluster:tensorboard", name="digits-1")
    charts_are_drawn(lab)
    said = lab.page.locator(".tfc-Board-reloads:visible")
    expect(said).to_have_text("Reloads every 10 s while a run is active")
    for _time in range(2):
        with lab.page.expect_request(re.compile("timeSeries"), timeout=90_000):
            pass  # without a click
    settings = frame(lab).locator("body").evaluate("() => ({...localStorage})")
    assert "_tb_global_settings" not in settings or "autoReload" not in str(settings)
    lab.screenshot("reloads")
    lab.server.manager.stop("digits", "seen")
    expect(said).to_have_text("Not reloading: no run shown here is active")


@pytest.mark.same_page
def test_it_waits_for_the_first_point(lab: LabPage) -> None:
    """A tab that is opened before the first point says so. The curve appears by itself, even if the
    user has opened the graph in between, and even after the end of the run.
    """
    for name in ("digits", "looked"):
        lab.server.launch("sleep.py", name=name, workers=1, ps=0)
    files = {}
    for name in ("digits", "looked"):
        output = lab.server.root / "log" / name / "1"
        wait_until(output.is_dir, "output", 90)
        files[name] = ev.event_file(output)
        files[name].write_bytes(ev.version() + ev.graph())

    def write_points(name: str) -> None:
        with files[name].open("ab") as file:
            file.write(b"".join(ev.event(step, {"loss": 1 / step}) for step in range(1, 9)))

    lab.execute("tfcluster:tensorboard", name="digits-1")
    notice = lab.page.locator(".tfc-Board-notice:visible")
    expect(notice).to_contain_text("No curves yet, waiting for the first step.", timeout=60_000)
    lab.screenshot("waiting")
    write_points("digits")
    charts_are_drawn(lab)

    lab.execute("tfcluster:tensorboard", name="looked-1")
    notice.get_by_role("button", name="Show TensorBoard Now").click(timeout=60_000)
    expect(frame(lab).locator("[data-plugin-id='graphs']")).to_be_visible(timeout=60_000)
    write_points("looked")
    lab.server.manager.stop("looked", "seen")
    charts_are_drawn(lab)


@pytest.mark.same_page
def test_it_is_dark_when_jupyterlab_is(lab: LabPage) -> None:
    """TensorBoard starts with JupyterLab's theme and follows a change; a choice on its own page
    stays.
    """
    write_events(lab.server.root / "dark")
    lab.theme("dark")
    lab.execute("tfcluster:tensorboard", folder="dark")
    charts_are_drawn(lab)
    page = frame(lab).locator("body")
    expect(page).to_have_class(re.compile(r"\bdark-mode\b"))
    lab.screenshot("dark")
    lab.theme("light")
    expect(page).not_to_have_class(re.compile(r"\bdark-mode\b"))
    charts_are_drawn(lab)
    lab.screenshot("light")
    lab.theme("dark")
    expect(page).to_have_class(re.compile(r"\bdark-mode\b"))


def test_selected_runs_are_compared(lab: LabPage) -> None:
    """A table of differences is above one chart with the curves of the selected runs; axe finds
    nothing serious.
    """
    found = Findings(lab)
    for name, steps in (("one", "20"), ("two", "40")):
        lab.server.launch("train.py", steps, "0.02", name=name, workers=1, ps=0)
    for name in ("one", "two"):
        lab.server.manager.wait(name, 180)
    lab.server.manager.note("one", "<b>rate 0.1</b>")
    lab.server.manager.rename("one", "First <i>try</i>")
    for name in ("one", "two"):
        row(lab, f"{name}-1").click(modifiers=["ControlOrMeta"])
    lab.sidebar.get_by_role("button", name="Compare").click()

    table = lab.page.locator(".tfc-Comparison table")
    expect(table).to_contain_text("Step")
    names = table.get_by_role("columnheader").all_inner_texts()
    assert sorted("First <i>try</i>" in name for name in names) == [False, True]
    first = 1 if "First" in names[0] else 2

    def cells(label: str) -> list[str]:
        line = table.get_by_role("row").filter(has_text=re.compile(f"^{label}")).first
        return line.locator("td").all_inner_texts()

    assert cells("Other arguments")[first - 1] == "20 0.02"
    assert cells("Note")[first - 1] == "<b>rate 0.1</b>"
    charts_are_drawn(lab)
    for name in ("one-1", "two-1"):
        expect(frame(lab).locator("runs-data-table")).to_contain_text(name)
    found.look(".tfc-Comparison", "compared")
    assert found.all == []

    only = lab.page.get_by_role("checkbox", name="Only differences")
    only.focus()
    lab.page.keyboard.press("Space")
    expect(table).not_to_contain_text("Program")
    expect(table).to_contain_text("differs")
    lab.server.manager.tag("two", add=["final"])  # appears without a reload
    expect(table).to_contain_text("final")


@pytest.mark.same_page
def test_from_palette_launcher_and_a_folders_menu(lab: LabPage) -> None:
    """Palette and launcher open one tab for all runs; the file browser opens one for a folder."""
    write_events(lab.server.root / "log" / "old" / "1")
    write_events(lab.server.root / "curves" / "a")
    lab.palette("Open TensorBoard on All Runs")
    charts_are_drawn(lab)
    expect(tabs(lab)).to_have_text(["All runs · TensorBoard"])
    lab.execute("launcher:create")
    lab.page.locator(".jp-LauncherCard:visible", has_text="TensorBoard").click()
    expect(tabs(lab)).to_have_count(1)

    lab.execute("filebrowser:go-to-path", path="/")
    lab.execute("filebrowser:refresh")
    lab.page.locator(".jp-DirListing-item", has_text="curves").click(button="right")
    lab.page.get_by_role("menuitem", name="Open in TensorBoard").click()
    expect(tabs(lab)).to_have_text(["All runs · TensorBoard", "curves · TensorBoard"])
    charts_are_drawn(lab)
    lab.page.locator(".jp-DirListing-item", has_text="hello.py").click(button="right")
    expect(lab.page.locator(".lm-Menu")).to_be_visible()
    expect(lab.page.get_by_role("menuitem", name="Open in TensorBoard")).to_have_count(0)
    lab.page.keyboard.press("Escape")


def test_restored_with_the_layout(lab: LabPage) -> None:
    """After a reload the tab has its curves; a hidden tab starts no board yet."""
    for name in ("first", "second"):
        write_events(lab.server.root / name)
        lab.execute("tfcluster:tensorboard", folder=name)
        charts_are_drawn(lab)
    lab.layout_saved('tfcluster-tensorboard:"first"', 'tfcluster-tensorboard:"second"')
    for board in boards(lab.server):
        lab.server.ask("DELETE", f"tfcluster/api/tensorboards/{board['id']}")
    lab.reload()
    expect(tabs(lab)).to_have_text(["first · TensorBoard", "second · TensorBoard"])
    charts_are_drawn(lab)
    assert [board["title"] for board in boards(lab.server)] == ["second"]
    tabs(lab).first.click()
    charts_are_drawn(lab)
    assert len(boards(lab.server)) == 2


@pytest.mark.same_page
def test_stop_and_start_again(lab: LabPage) -> None:
    """The toolbar ends the board. The tab says so and starts it again, by mouse or keyboard. Axe
    finds nothing serious.
    """
    found = Findings(lab)
    write_events(lab.server.root / "log" / "x" / "1")
    lab.execute("tfcluster:tensorboard")
    charts_are_drawn(lab)
    stop = lab.page.get_by_role("button", name="Stop this TensorBoard")
    stop.click()
    notice = lab.page.locator(".tfc-Board-notice")
    expect(notice).to_contain_text("was stopped")
    assert boards(lab.server) == []
    lab.screenshot("stopped")
    again = notice.get_by_role("button", name="Start Again")
    again.click()
    charts_are_drawn(lab)

    lab.page.get_by_role("button", name="Load this TensorBoard again").click()
    charts_are_drawn(lab)
    with lab.page.context.expect_page() as opened:
        lab.page.get_by_role("button", name="Open in a tab of the browser").click()
    expect(opened.value.locator("scalar-card").first).to_contain_text("loss", timeout=60_000)
    opened.value.close()

    stop.focus()
    lab.page.keyboard.press("Enter")
    expect(notice).to_be_focused()
    found.look(".tfc-Board-notice", "stopped")
    assert not found.all, "\n".join(found.all)
    lab.page.keyboard.press("Tab")
    expect(again).to_be_focused()
    lab.page.keyboard.press("Enter")
    charts_are_drawn(lab)
    expect(lab.page.locator(".tfc-Board iframe")).to_be_focused()


@pytest.mark.same_page
def test_a_tensorboard_that_cannot_be_opened(lab: LabPage) -> None:
    """The tab says why, as text, and offers to try again."""
    lab.console.allow(
        r"api/tensorboards|/tfcluster/tensorboard/[0-9a-f]+/(\?darkMode=\w+)?:"
    )  # refused requests, and the page of an unknown board
    name = "<img src=x onerror='window.__pwned=1'>"
    lab.execute("tfcluster:tensorboard", folder=name)
    alert = lab.page.locator(".tfc-Board-notice [role='alert']")
    expect(alert).to_contain_text("TensorBoard cannot show")
    expect(alert).to_contain_text("<img src=x")
    lab.screenshot("refused")
    assert lab.pwned() is None
    (lab.server.root / name).mkdir()
    alert.get_by_role("button", name="Try Again").click()
    expect(frame(lab).locator("body")).to_contain_text("No event files yet", timeout=60_000)
    assert lab.pwned() is None
    lab.execute("tfcluster:tensorboard", folder="../..")
    expect(lab.page.locator("[role='alert']:visible")).to_contain_text("TensorBoard may not show")


def test_the_server_was_restarted(
    own_server: LabServer, open_page: Callable[[LabServer], LabPage]
) -> None:
    """Boards end with the server; when it is back, an open tab loads again by itself."""
    lab = open_page(own_server)
    for expected in (FONTS, "ERR_CONNECTION_REFUSED", "WebSocket", "api/", "Failed to fetch"):
        lab.console.allow(expected)
    write_events(own_server.root / "log" / "x" / "1")
    lab.execute("tfcluster:tensorboard")
    charts_are_drawn(lab)
    (board,) = boards(own_server)
    own_server.stop()
    assert own_server.manager.boards.living() == []
    # JupyterLab's dialog about the server may appear at any time and cover the tab
    close = lab.dialog.get_by_role("button", name="Close")
    lab.page.add_locator_handler(close, lambda button: button.click())
    lab.page.get_by_role("button", name="Load this TensorBoard again").click()
    expect(lab.page.locator("[role='alert']:visible")).to_contain_text("does not answer")
    own_server.start()
    charts_are_drawn(lab)  # without a click
    assert [b["id"] for b in boards(own_server)] == [board["id"]]


@pytest.mark.same_page
def test_the_page_comes_before_its_process(lab: LabPage) -> None:
    """TensorBoard's page appears while its process starts; a notice replaces the page if the start
    takes long. Once the page is back, it has the focus.
    """
    lab.console.allow("api/tensorboards")
    notice = lab.page.locator(".tfc-Board-notice:visible")
    for name in ("slow", "gone"):
        folder = write_events(lab.server.root / name)
        # The start of a board waits for this lock.
        with RegistryEntry(private(registry_folder(lab.server.state)), str(folder)).locked():
            lab.execute("tfcluster:tensorboard", folder=name)
            expect(frame(lab).locator("mat-toolbar").first).to_be_visible()
            assert lab.server.manager.boards.living() == []
            expect(notice).to_contain_text("is starting")
            expect(frame(lab).locator("mat-toolbar")).to_have_count(0)
            if name == "gone":
                shutil.rmtree(folder)
        if name == "slow":
            charts_are_drawn(lab)
            expect(lab.page.locator(".tfc-Board iframe")).to_be_focused()
            lab.server.manager.boards.stop()
    expect(notice.get_by_role("alert")).to_contain_text("did not start", timeout=60_000)


@pytest.mark.same_page
def test_a_tab_that_loads_behind_another(lab: LabPage) -> None:
    """Curves that arrived in a hidden tab are drawn when it is shown."""
    write_events(lab.server.root / "behind")
    lab.execute("tfcluster:tensorboard", folder="behind")
    lab.execute("launcher:create")
    page = lab.page.frame_locator(".tfc-Board iframe").locator("tb-webapp")
    expect(page).to_contain_text("loss", timeout=60_000)
    expect(page).to_be_hidden()
    tabs(lab).click()
    charts_are_drawn(lab)


@pytest.fixture
def recorder(server: LabServer) -> Iterator[Path]:
    """A stand-in for a TensorBoard; it shows the requests that reach it."""
    folder = server.root / "recorded"
    folder.mkdir()
    file = RegistryEntry(registry_folder(server.state), str(folder)).file("json")
    words = [sys.executable, str(RECORDER), str(file), str(folder), "/a-secret"]
    with subprocess.Popen(words) as process:
        wait_until(file.exists)
        yield folder
        process.kill()


@pytest.mark.same_page
def test_no_cookie_reaches_the_board(lab: LabPage, recorder: Path) -> None:
    """The browser's cookies reach the server, but not the board."""
    lab.execute("tfcluster:tensorboard", folder=recorder.name)
    told = frame(lab).locator("pre, body").first
    expect(told).to_contain_text('"headers"')
    seen = json.loads(told.inner_text())
    names = {name.lower() for name, _value in seen["headers"]}
    assert lab.page.context.cookies()
    assert "accept-language" in names
    assert not names & {"cookie", "authorization", "x-xsrftoken", "referer", "origin"}
    assert not any(name.startswith("sec-") for name in names)


def test_a_cell_opens_the_tab(lab: LabPage) -> None:
    """`%tfcluster tensorboard` in a cell opens the tab on the process that the cell started."""
    lab.server.launch("train.py", "5", "0.02", name="digits", workers=1, ps=0)
    lab.server.manager.wait("digits", 180)
    lab.notebook("%load_ext tfcluster_magic\n%tfcluster tensorboard digits")
    lab.run_cell(wait=False)  # the tab covers the notebook once the cell has ended
    charts_are_drawn(lab)
    expect(tabs(lab)).to_have_text("digits-1 · TensorBoard")
    assert len(lab.server.manager.boards.living()) == 1  # the cell's own process
