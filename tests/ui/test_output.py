"""The run below a cell: drawn live by the page, with a kernel and without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect
from support.ui import flows
from support.ui.flows import LOAD, card, output_of
from support.ui.lab_server import LabServer
from support.ui.page import LabPage
from support.ui.page_console import AWAY


def kept(lab: LabPage) -> Any:
    """The outputs that the document of the notebook in front holds."""
    return lab.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.context.model.toJSON()"
        ".cells.map(cell => cell.outputs)"
    )


def test_a_launch_in_a_cell_is_drawn_and_goes_on_by_itself(lab: LabPage) -> None:
    """The card follows the run after the cell has ended, and its buttons act on the run."""
    lab.run(f"{LOAD}%tfcluster launch sleep.py --workers 2 --name digits")

    expect(card(lab)).to_contain_text("Running")
    expect(card(lab)).to_contain_text("2/2 ready")
    lab.screenshot("running")
    lab.server.manager.stop("digits-1", "enough")
    expect(card(lab)).to_contain_text("Stopped")
    lab.theme("dark")
    lab.screenshot("stopped-dark")
    card(lab).get_by_role("button", name="Logs digits-1").click()
    expect(lab.page.get_by_role("log", name="Output of digits-1")).to_contain_text("up")


def test_a_cell_that_waits_brings_one_card_up_to_date(lab: LabPage) -> None:
    """Below `--wait` stands one card, at last with the outcome, and a bare name shows another."""
    lab.notebook(f"{LOAD}run = %tfcluster launch hello.py --workers 1 --name once --wait", "run")
    lab.run_cell(0)
    expect(card(lab)).to_have_count(1)
    expect(card(lab)).to_contain_text("Succeeded")
    lab.run_cell(1)
    expect(card(lab)).to_have_count(2)
    expect(lab.cell(1).locator(".tfc-RunCard")).to_contain_text("Succeeded")


def test_an_old_notebook_shows_how_its_runs_are_now(lab: LabPage) -> None:
    """Drawn without a kernel that knows them, while the document keeps what it held."""
    launched = [lab.server.launch("hello.py", workers=1, name=f"old{n}") for n in "abc"]
    for run in launched:
        lab.server.manager.wait(run.metadata.name, 180)
    asked: list[str] = []
    lab.page.on("request", lambda request: asked.append(request.url))
    outputs = [output_of(run) for run in launched]
    lab.notebook("", "", "", outputs=outputs, kernel=False)

    for number, run in enumerate(launched):
        expect(card(lab).nth(number)).to_contain_text(run.metadata.name)
        expect(card(lab).nth(number)).to_contain_text("Succeeded")
    assert kept(lab) == json.loads(json.dumps(outputs))
    assert len([url for url in asked if "tfcluster/api/clusters" in url]) < 3


def test_a_deleted_run_stays_as_it_was_stored(lab: LabPage) -> None:
    """The stored state has its time and the reason why it is no more than that."""
    flows.show_a_deleted_run(lab)


def test_another_run_of_the_same_name_is_not_shown(lab: LabPage) -> None:
    """A name that was given again never changes what an old output says, also where the file that
    remembers numbers of runs was removed.
    """
    first = lab.server.launch("hello.py", workers=1, name="again")
    lab.server.delete("again-1")
    (lab.server.state / "hours.json").unlink()
    second = lab.server.launch("sleep.py", workers=1, name="again")
    assert second.metadata.name == first.metadata.name
    found = lab.notebook("", outputs=[output_of(first)], kernel=False)

    expect(found).to_contain_text("another run has the name now")
    expect(card(lab)).not_to_contain_text("Running")


def test_while_the_server_is_away_the_card_is_marked_as_old(
    own_server: LabServer, open_page: Callable[..., LabPage]
) -> None:
    """What was known stays, with its time, and is live again when the server is back."""
    lab = open_page(own_server)
    lab.console.allow(AWAY)
    lab.run(f"{LOAD}%tfcluster launch sleep.py --workers 1 --name digits")
    expect(card(lab)).to_contain_text("Running")
    own_server.stop()
    expect(card(lab)).to_contain_text("as of")
    expect(card(lab)).to_contain_text("Running")
    own_server.start()
    expect(card(lab)).not_to_contain_text("as of", timeout=60_000)
