"""The output of a run in a tab: many lines, many tasks, unusual characters, lost streams."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect
from support.polling import wait_until
from support.ui import flows
from support.ui.accessibility import Findings
from support.ui.flows import copied, open_logs, tab
from support.ui.lab_server import LabServer
from support.ui.page import LabPage
from support.ui.page_console import AWAY

MOST_DRAWN = 300
"""Maximum number of lines that the page may contain at the same time."""
SLOW = """\
import time

for n in range(100_000):
    print("beat", n, flush=True)
    time.sleep(0.05)
"""
PAUSES = """\
import os
import time

for n in range(100_000):
    print("beat", n, flush=True)
    while n == 20 and not os.path.exists({go!r}):
        time.sleep(0.05)
    time.sleep(0.05)
"""
TURNS = """\
import os
import time

me, folder = int(os.environ["TFCLUSTER_TASK"][-1]), os.environ["TFCLUSTER_OUTPUT_DIR"]
for turn in range(6):
    if turn % 2 == me:
        print("turn", turn, flush=True)
        time.sleep(0.05)
        open(f"{folder}/turn-{turn}", "w").close()
    while not os.path.exists(f"{folder}/turn-{turn}"):
        time.sleep(0.02)
"""
SEEN_AFTER = """least => {
    const log = [...document.querySelectorAll('[role=log]')].find(log => log.offsetParent);
    const seen = log.getBoundingClientRect();
    return [...log.querySelectorAll('[data-line]')].some(line => {
        const place = line.getBoundingClientRect();
        const shown = place.top >= seen.top && place.bottom <= seen.bottom + 1;
        return shown && Number(line.dataset.line) >= least;
    });
}"""
"""A function of the page: whether the line with this number, or a later one, is in view."""


@pytest.mark.same_page
def test_all_tasks_are_one_stream_with_a_filter_and_a_last_sentence(lab: LabPage) -> None:
    """Each line has its task, one task can be selected, and the end of the run is shown."""
    flows.read_all_tasks(lab)


@pytest.mark.same_page
def test_a_hundred_thousand_lines_are_scrolled_and_searched(lab: LabPage) -> None:
    """Only visible lines are in the page, but every line can be found and copied."""
    lab.server.launch("talk.py", "50000", workers=2, name="talk")
    log = open_logs(lab, "talk-1")
    expect(log).to_contain_text("line 49999 of 50000", timeout=90_000)
    expect(tab(lab).locator("footer")).to_contain_text("Succeeded")

    log.press("/")
    lab.page.keyboard.type("line 49999 of")
    # Both tasks' logs are loaded, and the line is found in each.
    expect(tab(lab).get_by_text(re.compile(r"^\d of 2$"))).to_be_visible()
    lab.page.keyboard.press("Escape")
    lines = log.locator("[data-line]")
    assert lines.count() < MOST_DRAWN
    log.press("Home")
    expect(log).to_contain_text("line 0 of 50000")
    assert lines.count() < MOST_DRAWN
    lab.page.keyboard.press("/")
    lab.page.keyboard.type("LINE 31416 OF")
    expect(tab(lab).get_by_text("1 of 2", exact=True)).to_be_visible()
    expect(log.locator("mark[data-current]")).to_have_text("line 31416 of")
    expect(log.locator("mark[data-current]")).to_be_in_viewport()
    lab.page.keyboard.press("Enter")
    expect(tab(lab).get_by_text("2 of 2", exact=True)).to_be_visible()
    expect(log.locator("mark[data-current]")).to_be_in_viewport()
    expect(tab(lab).get_by_role("button", name="↓ End")).to_be_visible()
    lab.screenshot("found")
    lab.page.keyboard.press("Escape")
    expect(log).to_be_focused()
    assert len(copied(lab, log)) == 100_000
    tab(lab).get_by_role("button", name="Wrap").click()
    log.press("End")
    expect(log).to_contain_text("line 49999 of 50000")


@pytest.mark.same_page
def test_what_a_program_prints_is_text_and_colours(lab: LabPage) -> None:
    """HTML is shown as printed, and escape sequences only set colours."""
    flows.read_odd_output(lab)


@pytest.mark.same_page
def test_following_stops_when_one_scrolls_up(lab: LabPage) -> None:
    """The newest line stays in view until the user scrolls up; a button goes back to it."""
    (lab.server.root / "slow.py").write_text(SLOW)
    lab.server.launch("slow.py", workers=1, name="slow")
    log = open_logs(lab, "slow-1")
    follow = tab(lab).get_by_role("button", name="Follow", exact=True)
    expect(log).to_contain_text("beat 80")
    expect(follow).to_have_attribute("aria-pressed", "true")

    log.hover()

    def turn() -> bool:
        lab.page.mouse.wheel(0, -400)
        return follow.get_attribute("aria-pressed") == "false"

    wait_until(turn, "the wheel ends following")
    log.focus()
    lab.page.keyboard.press("Home")
    expect(log.get_by_text("beat 0", exact=True)).to_be_in_viewport()
    tab(lab).get_by_role("button", name="↓ Follow").click()
    expect(follow).to_have_attribute("aria-pressed", "true")
    newest = int(log.locator("[data-line]").last.get_attribute("data-line") or 0)
    lab.page.wait_for_function(SEEN_AFTER, arg=newest + 20)
    lab.page.keyboard.press("f")
    expect(follow).to_have_attribute("aria-pressed", "false")


@pytest.mark.same_page
def test_a_download_has_every_line_of_the_chosen_tasks(lab: LabPage) -> None:
    """The downloaded file has the lines of the selected tasks, as `tfcluster logs` prints them."""
    lab.server.launch("hello.py", workers=2, name="hi")
    lab.server.manager.wait("hi-1", 180)
    open_logs(lab, "hi-1", task="worker-1")
    with lab.page.expect_download() as download:
        tab(lab).get_by_role("button", name="Download all output").click()

    assert download.value.suggested_filename == "hi-1.log"
    assert download.value.path().read_text() == "worker-1 | hello from worker-1\n"


def test_a_tab_comes_back_with_the_layout(lab: LabPage) -> None:
    """After a reload the tab of a run is there, with the selected task."""
    lab.server.launch("hello.py", workers=2, name="hi")
    log = open_logs(lab, "hi-1", task="worker-1")
    expect(log).to_contain_text("hello from worker-1")
    open_logs(lab, "hi-1")
    expect(lab.page.locator(".tfc-LogsWidget")).to_have_count(1)
    lab.layout_saved("tfcluster-logs:hi-1")
    lab.reload()

    expect(log).to_contain_text("hello from worker-1")
    expect(log).not_to_contain_text("worker-0")


def test_a_lost_stream_goes_on_without_a_line_twice(
    own_server: LabServer, open_page: Callable[..., LabPage]
) -> None:
    """While the server is away the lines stay, marked as old; then the log continues without
    repetition.
    """
    lab = open_page(own_server)
    lab.console.allow(AWAY)
    go = own_server.root / "go"
    (own_server.root / "slow.py").write_text(PAUSES.format(go=str(go)))
    own_server.launch("slow.py", workers=2, name="slow")
    log = open_logs(lab, "slow-1")
    expect(log).to_contain_text("worker-0 | beat 20")
    expect(log).to_contain_text("worker-1 | beat 20")
    own_server.stop()
    lost = tab(lab).get_by_text("these lines are from before")
    expect(lost).to_be_visible()
    expect(log).to_contain_text("beat 20")
    lab.screenshot("lost")
    own_server.start()
    expect(lost).to_have_count(0, timeout=60_000)
    if lab.dialog.is_visible():  # messages of JupyterLab itself about the server
        lab.dialog.get_by_role("button", name="Close").click()
    go.touch()
    before = max(
        map(
            int,
            log.locator("[data-line]").evaluate_all(
                "lines => lines.map(line => line.dataset.line)"
            ),
        )
    )
    lab.page.wait_for_function(
        "before => [...document.querySelectorAll('[data-line]')]"
        ".some(line => Number(line.dataset.line) > before + 40)",
        arg=before,
    )
    shown = copied(lab, log)
    for task in ("worker-0", "worker-1"):
        beats = [line for line in shown if line.startswith(task)]
        assert beats == [f"{task} | beat {n}" for n in range(len(beats))]


@pytest.mark.same_page
def test_a_run_that_ends_or_is_deleted_is_said_to_be_so(lab: LabPage) -> None:
    """The result of a run that ends or is deleted is shown below its lines, which stay."""
    lab.server.launch("fail.py", workers=1, name="fails")
    log = open_logs(lab, "fails-1")
    expect(log).to_contain_text("before the fall")
    expect(tab(lab).locator("footer")).to_contain_text("the data set is empty")
    log.press("/")
    lab.page.keyboard.type("before")
    expect(log.locator("mark[data-current]")).to_have_text("before")
    for button in ("Follow", "↓ Follow", "↓ End"):  # the run has ended, and all lines are in view
        expect(tab(lab).get_by_role("button", name=button, exact=True)).to_have_count(0)
    lab.screenshot("failed")
    lab.page.keyboard.press("Escape")
    lab.server.delete("fails-1")
    expect(tab(lab).locator("footer")).to_contain_text("This run was deleted")
    expect(log).to_contain_text("before the fall")


@pytest.mark.same_page
def test_tasks_are_one_stream_in_the_order_of_time(lab: LabPage) -> None:
    """Lines of several tasks are in the order in which they were printed, with times, even after
    the run.
    """
    (lab.server.root / "turns.py").write_text(TURNS)
    lab.server.launch("turns.py", workers=2, name="turns")
    lab.server.manager.wait("turns-1", 180)
    log = open_logs(lab, "turns-1")
    expect(log).to_contain_text("turn 5")
    lab.screenshot("times")
    lines = [line for line in copied(lab, log) if "turn" in line]
    assert lines == [f"worker-{n % 2} | turn {n}" for n in range(6)]
    times = log.locator(".tfc-Log-time").all_inner_texts()
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} ", time) for time in times[-6:])
    lab.theme("dark")
    lab.screenshot("times-dark")
    tab(lab).get_by_role("button", name="Times").click()
    expect(log.locator(".tfc-Log-time")).to_have_count(0)


def test_a_search_finds_what_has_scrolled_out(lab: LabPage) -> None:
    """The server searches lines that the page lacks, and the page shows the lines around a
    match.
    """
    lab.server.launch("talk.py", "201000", workers=1, name="talk")
    lab.server.manager.wait("talk-1", 180)
    log = open_logs(lab, "talk-1")
    expect(log).to_contain_text("line 200999 of", timeout=90_000)
    expect(tab(lab)).to_contain_text("Only the newest lines are shown.")
    log.press("/")
    lab.page.keyboard.type("LINE 77 OF")
    older = tab(lab).get_by_role("button", name="1 in older lines")
    expect(older).to_be_visible(timeout=90_000)
    expect(tab(lab).get_by_text("no match", exact=True)).to_be_visible()
    older.press("Enter")
    match = tab(lab).get_by_role("region", name="Matches in older lines").get_by_role("button")
    expect(match).to_contain_text("line 77 of 201000")
    lab.screenshot("older")
    match.press("Enter")
    expect(log.locator("mark[data-current]")).to_have_text("line 77 of")
    expect(log.locator("mark[data-current]")).to_be_in_viewport()
    expect(tab(lab)).to_contain_text("These are older lines, printed around")
    found = Findings(lab)
    found.look(".tfc-Log", "around")
    assert found.all == []
    tab(lab).get_by_role("button", name="Back to the newest").click()
    expect(log).to_contain_text("line 200999 of")
    log.press("/")
    lab.page.keyboard.type("line 7[8] of")
    expect(tab(lab)).to_contain_text("none in older lines")
    tab(lab).get_by_role("button", name="Use a regular expression").click()
    expect(match).to_contain_text("line 78 of")
    status = lab.server.manager.status("talk-1").status
    (Path(status.paths["logs"]) / "worker-0.log").write_text("another log\n")
    match.press("Enter")
    expect(tab(lab)).to_contain_text("This line can no longer be read. Search again.")
    expect(tab(lab)).to_contain_text("line 200999 of")
    lab.screenshot("missed")
