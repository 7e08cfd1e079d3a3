"""The run below a cell, which the page draws live with or without a kernel."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from playwright.sync_api import expect
from support.polling import wait_until
from support.ui import flows
from support.ui.flows import LOAD, card, output_of
from support.ui.lab_server import LabServer
from support.ui.page import LabPage
from support.ui.page_console import AWAY

from tfcluster_magic.errors import ClusterFailed
from tfcluster_magic.output.run_card import MIME_TYPE
from tfcluster_magic.spec import Phase, Reason, Status, TFCluster


def kept(lab: LabPage) -> Any:
    """Return the outputs in the document of the active notebook."""
    return lab.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.context.model.toJSON()"
        ".cells.map(cell => cell.outputs)"
    )


def test_a_launch_in_a_cell_is_drawn_and_goes_on_by_itself(lab: LabPage) -> None:
    """The card follows the run after the cell has ended, and its buttons act on the run."""
    lab.run(f"{LOAD}%tfcluster launch sleep.py --workers 2 --name digits")

    expect(card(lab)).to_contain_text("Running")
    expect(card(lab)).to_contain_text("2 of 2 running")
    lab.screenshot("running")
    lab.server.manager.stop("digits-1", "enough")
    expect(card(lab)).to_contain_text("Stopped")
    lab.theme("dark")
    lab.screenshot("stopped-dark")
    card(lab).get_by_role("button", name="Logs digits-1").click()
    expect(lab.page.get_by_role("log", name="Output of digits-1")).to_contain_text("up")


def test_a_cell_that_waits_brings_one_card_up_to_date(lab: LabPage) -> None:
    """`--wait` updates one card until the run has ended; a cell with only the variable shows
    another card. A shell lists the run that the cell launched.
    """
    lab.notebook(f"{LOAD}run = %tfcluster launch hello.py --workers 1 --name once --wait", "run")
    lab.run_cell(0)
    expect(card(lab)).to_have_count(1)
    expect(card(lab)).to_contain_text("Succeeded")
    assert "once-1" in lab.server.shell("list")
    lab.run_cell(1)
    expect(card(lab)).to_have_count(2)
    expect(lab.cell(1).locator(".tfc-RunCard")).to_contain_text("Succeeded")


def test_an_interrupted_wait_shows_the_card_and_detaches_in_one_line(lab: LabPage) -> None:
    """While `wait()` waits, it shows the live card; interrupting it prints one line with what to
    type, and the run continues.
    """
    lab.notebook(f"{LOAD}run = %tfcluster launch sleep.py --workers 1 --name long", "run.wait()")
    lab.run_cell(0)
    output = lab.run_cell(1, wait=False)
    expect(output.locator(".tfc-RunCard")).to_contain_text("Running")
    lab.execute("notebook:interrupt-kernel")
    expect(output).to_contain_text("detached; long-1 goes on: `%tfcluster logs -f long-1`")
    expect(output).not_to_contain_text("Traceback")
    assert lab.server.manager.status("long").status.phase is Phase.RUNNING


def test_a_deleted_run_stays_as_it_was_stored(lab: LabPage) -> None:
    """A deleted run's card shows the stored state, its time, and why it is no longer updated."""
    flows.show_a_deleted_run(lab)


def test_another_run_of_the_same_name_is_not_shown(lab: LabPage) -> None:
    """An old output does not change when its run's name is used again, even if the file that
    remembers run numbers was removed.
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
    """While the server is away, the card shows the last known state with its time; when the server
    is back, the card is live again.
    """
    lab = open_page(own_server)
    lab.console.allow(AWAY)
    lab.run(f"{LOAD}%tfcluster launch sleep.py --workers 1 --name digits")
    expect(card(lab)).to_contain_text("Running")
    own_server.stop()
    expect(card(lab)).to_contain_text("as of")
    expect(card(lab)).to_contain_text("Running")
    own_server.start()
    expect(card(lab)).not_to_contain_text("as of", timeout=60_000)


# The data of a run in the notebook file: the last state and its time, readable without the
# extension.


def saved(lab: LabPage, name: str = "notebook.ipynb") -> dict[str, Any]:
    """Return the data of the first output in the file, by MIME type; text as one string."""
    cells = json.loads((lab.server.root / name).read_text())["cells"]
    data: dict[str, Any] = next(out["data"] for cell in cells for out in cell["outputs"])
    joined = {kind: "".join(data[kind]) for kind in ("text/plain", "text/html")}
    return {**data, **joined}


def save(lab: LabPage) -> None:
    """Save as Ctrl+S does."""
    lab.execute("docmanager:save")


def is_dirty(lab: LabPage) -> bool:
    """Return whether the active notebook has unsaved changes."""
    dirty: bool = lab.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.context.model.dirty"
    )
    return dirty


def see(lab: LabPage, seen: bool) -> None:
    """Show or hide the browser tab."""
    lab.page.evaluate(
        "value => {"
        " Object.defineProperty(document, 'hidden', { value, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        not seen,
    )


def outdated(run: TFCluster) -> list[dict[str, Any]]:
    """Return a cell output as it was right after the launch of its run."""
    queued = Status(phase=Phase.QUEUED, reason=Reason.QUEUED, message="It waits.")
    return output_of(msgspec.structs.replace(run, status=queued))


def test_what_is_saved_follows_the_run_while_the_page_is_open(lab: LabPage) -> None:
    """Each phase is written into the document, so a save at any time stores the newest. A hidden
    window writes the newest phase only once it is visible.
    """
    lab.run(f"{LOAD}%tfcluster launch sleep.py --workers 2 --name digits")
    expect(card(lab)).to_contain_text("2 of 2 running")
    wait_until(lambda: "Running" in kept_html(lab), lambda: f"Running is kept: {kept(lab)}")
    save(lab)
    running = saved(lab)
    assert "2 of 2 running" in running["text/html"]
    assert "digits-1 Running" in running["text/plain"]
    assert "%tfcluster status digits-1" in running["text/html"]
    assert not is_dirty(lab)

    see(lab, False)
    with lab.page.expect_response(re.compile("tfcluster/api/outputs")) as answered:
        lab.server.manager.stop("digits-1", "enough")
    answered.value.finished()
    expect(card(lab)).to_contain_text("Stopped")
    assert not is_dirty(lab)  # another window may be editing this notebook
    see(lab, True)
    wait_until(lambda: "Stopped" in kept_html(lab), lambda: f"Stopped is kept: {kept(lab)}")
    assert is_dirty(lab)  # so that JupyterLab saves the notebook by itself
    save(lab)
    for form in ("text/html", "text/plain"):
        assert "Stopped" in saved(lab)[form]
        assert "enough" in saved(lab)[form]
        assert "Running" not in saved(lab)[form]
    assert saved(lab)[MIME_TYPE]["cluster"]["status"]["phase"] == "Stopped"


def test_what_a_run_did_while_no_page_was_open_is_saved_with_the_next_change(lab: LabPage) -> None:
    """Opening a notebook does not change it; saving it stores how its failed run ended, with the
    time, the reason and the last lines of the task.
    """
    run = lab.server.launch("fail.py", workers=1, ps=0, name="broken")
    with pytest.raises(ClusterFailed):
        lab.server.manager.wait("broken-1", 180)
    before = outdated(run)
    lab.notebook("", name="another.ipynb")
    save(lab)
    metadata = json.loads((lab.server.root / "another.ipynb").read_text())["metadata"]
    with lab.page.expect_response(re.compile("tfcluster/api/outputs")) as answered:
        lab.notebook("", outputs=[before], metadata=metadata)
    answered.value.finished()

    expect(card(lab)).to_contain_text("ValueError: the data set is empty")
    expect(card(lab)).to_contain_text("before the fall")
    lab.screenshot("failed")
    lab.theme("dark")
    lab.screenshot("failed-dark")
    assert kept(lab) == json.loads(json.dumps([before]))
    assert not is_dirty(lab)
    save(lab)
    for form in ("text/html", "text/plain"):
        told = saved(lab)[form]
        assert re.search(r"broken-1.*Failed", told, re.DOTALL)
        assert re.search(r"as of \d{4}-\d\d-\d\d \d\d:\d\d [+-]\d{4}", told)
        assert "before the fall" in told
        assert "ValueError: the data set is empty" in told
        assert "Queued" not in told
    assert not is_dirty(lab)


def test_an_old_notebook_shows_how_its_runs_are_now(lab: LabPage) -> None:
    """Runs are drawn without a kernel that knows them, and the document keeps its content. A
    notebook with many outdated outputs requests their newest state once.
    """
    names = [f"old{n}" for n in range(5)]
    runs = [lab.server.launch("hello.py", workers=1, name=name) for name in names]
    for run in runs:
        lab.server.manager.wait(run.metadata.name, 180)
    asked: list[str] = []
    lab.page.on("request", lambda request: asked.append(request.url))
    outputs = [outdated(run) for run in runs]
    lab.notebook(*[""] * 5, outputs=outputs, kernel=False)
    for number, run in enumerate(runs):
        expect(card(lab).nth(number)).to_contain_text(run.metadata.name)
        expect(card(lab).nth(number)).to_contain_text("Succeeded")
    assert kept(lab) == json.loads(json.dumps(outputs))
    wait_until(lambda: any("api/outputs" in url for url in asked), lambda: f"asked: {asked}")
    assert len([url for url in asked if "api/outputs" in url]) == 1
    assert len([url for url in asked if "tfcluster/api/clusters" in url]) < 3


def kept_html(lab: LabPage) -> str:
    """Return the HTML of the first output of the document."""
    return next("".join(out["data"]["text/html"]) for outputs in kept(lab) for out in outputs)


def test_an_older_run_whose_name_was_launched_again_is_still_there(lab: LabPage) -> None:
    """The card still shows how the older run ended, and its buttons act on that run."""
    lab.server.launch("hello.py", workers=1, name="digits")
    lab.server.manager.wait("digits-1", 180)
    lab.notebook("", outputs=[output_of(lab.server.manager.status("digits-1"))], kernel=False)
    expect(card(lab).get_by_role("button", name="Rerun digits-1")).to_be_visible()

    lab.server.launch("hello.py", workers=1, name="digits")
    expect(lab.sidebar.get_by_role("row", name="digits-2")).to_be_visible()
    lab.sidebar.get_by_role("button", name="Refresh").click()
    expect(lab.sidebar.get_by_role("row", name="digits-1")).to_have_count(0)
    expect(card(lab).get_by_role("button", name="Rerun digits-1")).to_be_visible()
    lab.screenshot("older")
    expect(card(lab)).not_to_contain_text("as of")
    expect(lab.page.get_by_text("This run was deleted.")).to_have_count(0)


def test_a_cell_that_follows_goes_on_after_the_page_was_closed(lab: LabPage) -> None:
    """Below a cell that follows a run, the lines that were printed while no page was open, and
    later lines, appear too. A note says that the page was closed; if it was not, there is no note.
    """
    gate = lab.server.root / "go"
    (lab.server.root / "waits.py").write_text(
        "import os, time\n"
        "print('before', flush=True)\n"
        f"while not os.path.exists({str(gate)!r}):\n    time.sleep(0.05)\n"
        "print('after', flush=True)\ntime.sleep(600)\n"
    )
    lab.notebook(f"{LOAD}%tfcluster launch waits.py --workers 1 --ps 0 --name waits --follow")
    output = lab.run_cell(wait=False)
    expect(output).to_contain_text("before")
    expect(output).not_to_contain_text("The page was closed")
    lab.execute("docmanager:save")
    lab.layout_saved("notebook:notebook.ipynb")
    lab.page.goto("about:blank")
    gate.write_text("")
    wait_until(
        lambda: "after" in [line.text for line in lab.server.manager.logs("waits") if line],
        lambda: "the program goes on",
    )
    lab.load(reset=False)
    output = lab.cell().locator(".jp-Cell-outputArea")
    expect(output).to_contain_text("The page was closed while this cell followed waits-1.")
    expect(output.get_by_role("log", name="Output of waits-1")).to_contain_text("after")
    lab.screenshot("goes-on", output)
    below, above = (
        output.locator(selector).first.bounding_box()
        for selector in (".tfc-Follow", ".jp-OutputArea-output[data-mime-type*=stdout]")
    )
    assert below and above and below["y"] > above["y"]
    lab.server.manager.stop("waits")
    expect(output.locator(".tfc-Follow")).to_contain_text("Stopped")
