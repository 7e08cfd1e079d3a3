"""The widget panel below a cell, in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from playwright.sync_api import Locator, expect
from support.slow_program import SlowProgram
from support.ui.accessibility import Findings
from support.ui.lab_server import LabServer
from support.ui.page import LabPage

from tfcluster_magic.runs.manager import Until

# Only the end of a button's text is compared, because its icon is a character before the word.
LAUNCH, STOP = re.compile("Launch$"), re.compile("Stop$")
CARD = ("Stop", "Connect the Notebook", "Logs", "TensorBoard", "Resources", "Rerun", "Delete")
"""The actions of a run's card, in order."""
LOAD = "%load_ext tfcluster_magic\n%tfcluster"


def row(output: Locator, name: str) -> Locator:
    """Return the row of a run in the panel."""
    return output.locator(".widget-vbox").filter(has_text=name).last


def test_a_panel_launches_shows_and_stops_a_run(lab: LabPage) -> None:
    """The form, the list, a confirmation and the end of a run all work below one cell."""
    output = lab.run(LOAD)
    output.get_by_label("Program").fill("sleep.py")
    output.get_by_label("Workers").fill("1")
    expect(output.get_by_text("%tfcluster launch --workers 1 sleep.py")).to_be_visible()
    lab.screenshot("form", output)
    output.get_by_role("button", name=LAUNCH).click()

    expect(output.get_by_text("launched sleep-1")).to_be_visible()
    expect(output.get_by_text("1 of 1 running")).to_be_visible()
    output.get_by_role("button", name="Logs").click()
    expect(output.locator("pre")).to_contain_text("worker-0 |")
    lab.screenshot("running", output)
    output.get_by_role("button", name="Resources").click()
    expect(output.locator("pre")).to_contain_text(re.compile(r"TASK +CPU +MEMORY"))
    lab.screenshot("resources", output)

    output.get_by_role("button", name=STOP).click()
    expect(output.get_by_text("Stop sleep-1?")).to_be_visible()
    output.get_by_role("button", name="Stop it").click()
    expect(output.get_by_text("Stopped", exact=True)).to_be_visible()
    lab.theme("dark")
    lab.screenshot("dark", output)


def test_the_kernel_runs_cells_while_the_panel_launches(
    lab: LabPage, slow_program: SlowProgram
) -> None:
    """While a launch by a button waits for its program, the kernel is free, so the next cell has
    its result at once.
    """
    lab.notebook(LOAD, "6 * 7")
    output = lab.run_cell(0)
    output.get_by_label("Program").fill(slow_program.url)
    expect(output.get_by_role("button", name=LAUNCH)).to_be_enabled()
    output.get_by_role("button", name=LAUNCH).click()
    assert slow_program.asked.wait(30)

    expect(lab.run_cell(1)).to_have_text(re.compile("42"))
    expect(output.get_by_role("button", name=LAUNCH)).to_be_disabled()
    slow_program.answer.set()
    expect(output.get_by_text("launched slow-1")).to_be_visible()


def test_two_panels_and_the_sidebars_server_agree(lab: LabPage) -> None:
    """Both panels show a run from a shell; after a restart of the kernel a new panel shows that run
    too.
    """
    lab.notebook(LOAD, "%tfcluster")
    first, second = lab.run_cell(0), lab.run_cell(1)
    lab.server.launch("sleep.py", workers=1, name="digits")
    expect(first.get_by_text("digits-1")).to_be_visible()
    expect(second.get_by_text("digits-1")).to_be_visible()

    lab.page.evaluate(
        "async () => { await window.jupyterapp.shell.currentWidget.sessionContext"
        ".session.kernel.restart(); }"
    )
    lab.idle()
    expect(lab.run_cell(0).get_by_text("digits-1")).to_be_visible()


def test_axe_finds_nothing_serious(lab: LabPage) -> None:
    """Axe finds nothing serious in the form, the list, the logs and a confirmation."""
    found = Findings(lab)
    lab.server.launch("fail.py", name="broken", workers=1)
    lab.server.manager.wait("broken", 180, until=Until.RELEASED)
    lab.server.launch("sleep.py", name="digits", workers=1)
    output = lab.run(LOAD)
    output.get_by_text("Launch a cluster").click()
    output.get_by_label("Program").fill("nothing-there.py")
    output.get_by_text("More options").click()
    expect(output.get_by_role("status").first).to_contain_text("nothing-there.py")
    found.look(".jp-OutputArea-output", "form")
    output.get_by_text("More options").click()
    expect(output.get_by_text("1 of 1 running")).to_be_visible()
    output.get_by_role("button", name="Logs").first.click()
    expect(output.locator("pre[tabindex]")).to_contain_text("up")
    output.get_by_role("button", name=STOP).click()
    expect(output.get_by_text("Stop digits-1?")).to_be_visible()
    found.look(".jp-OutputArea-output", "list")
    assert not found.all, "\n".join(found.all)


def test_a_lab_whose_extension_is_disabled(
    fresh_server: LabServer, open_page: Callable[..., LabPage]
) -> None:
    """Without the JupyterLab extension, a launch shows the run's state with the time at which it
    was read, and bare %tfcluster shows the panel.
    """
    fresh_server.stop()
    config = fresh_server.folder / "config" / "labconfig" / "page_config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"disabledExtensions": {"tfcluster-labextension": True}}))
    fresh_server.start()
    lab = open_page(fresh_server)
    launch = "%load_ext tfcluster_magic\n%tfcluster launch sleep.py --workers 1 --name digits"
    lab.notebook(launch, "%tfcluster")
    output = lab.run_cell(0)
    expect(output).to_contain_text(
        re.compile(r"digits-1[\s\S]*running · as of \d{4}-\d\d-\d\d \d\d:\d\d")
    )
    expect(lab.page.locator(".tfc-RunCard")).to_have_count(0)
    panel = lab.run_cell(1)
    expect(panel.get_by_text("1 of 1 running")).to_be_visible()
    lab.screenshot("both")
    panel.get_by_role("button", name=STOP).click()
    panel.get_by_role("button", name="Stop it").click()
    expect(panel.get_by_text("Stopped", exact=True)).to_be_visible()


def test_a_panel_whose_kernel_was_restarted_says_how_it_comes_back(lab: LabPage) -> None:
    """An untouched form shows no error, and a run has the card's actions in the same order. A panel
    without its kernel says in one line what to do.
    """
    lab.server.launch("sleep.py", workers=1, name="digits")
    output = lab.run(LOAD)
    expect(output.get_by_text("1 of 1 running")).to_be_visible()
    output.get_by_text("Launch a cluster").click()
    expect(output.get_by_text("%tfcluster launch", exact=True)).to_be_visible()
    expect(output.get_by_role("status").filter(visible=True)).to_have_count(0)
    lab.screenshot("begun", output)
    names = output.locator(".widget-button:visible").all_inner_texts()
    ours = [name for name in map(str.strip, names) if name in CARD]
    assert ours == ["Stop", "Logs", "TensorBoard", "Resources", "Delete"]
    back = output.get_by_text("Run the cell again to bring the panel back.")
    expect(back).to_be_hidden()
    lab.page.evaluate(
        "async () => { await window.jupyterapp.shell.currentWidget.sessionContext"
        ".session.kernel.restart(); }"
    )
    expect(back).to_be_visible()
    lab.theme("dark")
    lab.screenshot("lost-dark", output)
