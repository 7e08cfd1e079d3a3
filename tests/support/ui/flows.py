"""Flows of the page in JupyterLab for any backend, and the parts of the page that they use.

Each flow has one test on this machine and one in the Kubernetes suite. A flow works with any
backend, however slow the backend is: after each click, it waits until the page shows the change.
"""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Locator, expect

from tfcluster_magic.output.run_card import run_bundle
from tfcluster_magic.runs.manager import Until
from tfcluster_magic.spec import Phase, TFCluster

from .launch_form import launch, opened
from .page import LabPage

LOAD = "%load_ext tfcluster_magic\n"


def row(lab: LabPage, name: str) -> Locator:
    """Return the row of a run."""
    return lab.sidebar.locator(f".tfc-RunRow[data-run='{name}']")


def launch_sleeping(lab: LabPage, name: str) -> None:
    """Launch a run that works until it is stopped, and wait until the page shows it."""
    lab.server.launch("sleep.py", workers=2, ps=0, name=name)
    lab.server.manager.wait(name, 180, until=Until.READY)
    expect(row(lab, f"{name}-1")).to_have_attribute("data-phase", "Running")


def open_logs(lab: LabPage, name: str, **more: str) -> Locator:
    """Open the tab with a run's output; return the element of its lines."""
    lab.execute("tfcluster:logs", name=name, **more)
    return lab.page.get_by_role("log", name=f"Output of {name}")


def tab(lab: LabPage) -> Locator:
    """Return the visible tab with a run's output."""
    return lab.page.locator(".tfc-LogsWidget:visible")


def copied(lab: LabPage, log: Locator) -> list[str]:
    """Copy all lines by the keyboard and return them."""
    log.focus()
    lab.page.keyboard.press("Control+a")
    lab.page.keyboard.press("Control+c")
    text: str = lab.page.evaluate("() => navigator.clipboard.readText()")
    return text.split("\n")


def output_of(run: TFCluster) -> list[dict[str, Any]]:
    """Return the output of a cell that launched this run, as a notebook stores it."""
    data = run_bundle(run)
    return [{"output_type": "display_data", "data": data, "metadata": {}}]


def card(lab: LabPage) -> Locator:
    """Return the cards in the visible notebook."""
    return lab.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .tfc-RunCard")


def launch_the_active_cell(lab: LabPage) -> None:
    """Launch the active cell from the form, and check the run's output."""
    lab.notebook("%%tfcluster launch --workers 9\nprint('from a cell')", kernel=False)
    lab.cell().locator(".cm-content").click()
    form = opened(lab)
    form.get_by_label("This cell").check()
    expect(form.get_by_text("print('from a cell')")).to_be_visible()
    form.get_by_label("Workers").fill("1")
    expect(form.locator(".tfc-Line code")).to_have_text("%%tfcluster launch --workers 1")
    launch(form)
    expect(form.get_by_text("cell-1 was launched.")).to_be_visible()
    lab.server.manager.wait("cell", 180)
    assert [line.text for line in lab.server.manager.logs("cell") if line] == ["from a cell"]


def insert_the_line(lab: LabPage) -> None:
    """Insert the form's line into a notebook, launch it there, and copy it."""
    lab.notebook("%load_ext tfcluster_magic", name="examples/own.ipynb")
    lab.run_cell()
    form = opened(lab)
    form.get_by_label("Path of the program").fill("hello.py")
    expect(form.locator(".tfc-Line code")).to_contain_text("hello.py")
    form.get_by_label("Arguments").fill("'{x}' $HOME")
    # Click Copy before Insert, because Copy waits until the line matches the form.
    form.get_by_role("button", name="Copy").click()
    expect(lab.page.get_by_text("Copied", exact=True)).to_be_visible()
    copied = lab.page.evaluate("navigator.clipboard.readText()")
    assert copied == "%tfcluster launch hello.py -- '{{x}}' '{chr(36)}HOME'"
    form.get_by_role("button", name="Insert into notebook").click()
    lab.open("examples/own.ipynb")
    inserted = lab.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell.jp-mod-active")
    expect(inserted).to_contain_text("%tfcluster launch ../hello.py")
    inserted.locator(".cm-content").click()
    lab.page.keyboard.press("Shift+Enter")
    expect(inserted.or_(lab.page.locator(".jp-OutputArea"))).to_contain_text(["hello-1"])
    run = lab.server.manager.wait("hello", 180)
    assert run.spec.program is not None
    assert run.spec.program.arguments == ("{x}", "$HOME")


def launch_what_fails(lab: LabPage) -> None:
    """Launch a program that fails from the form, read the reason below it, and delete the run."""
    form = opened(lab)
    form.get_by_label("Path of the program").fill("fail.py")
    launch(form)
    told = form.locator(".tfc-Launched")
    expect(told).to_contain_text("fail-1 was launched.")
    expect(told).to_contain_text("ValueError: the data set is empty")
    expect(told).to_have_attribute("data-phase", "Failed")
    expect(told.get_by_role("button", name="Rerun fail-1")).to_be_visible()
    told.scroll_into_view_if_needed()
    lab.screenshot("failed")
    lab.server.delete("fail-1")
    expect(told).to_have_count(0)


def rerun(lab: LabPage) -> None:
    """Rerun from the sidebar, and list the run in a shell."""
    lab.server.launch("hello.py", workers=1, ps=0, name="hi")
    lab.server.manager.wait("hi", 180)
    expect(row(lab, "hi-1")).to_have_attribute("data-phase", "Succeeded")
    row(lab, "hi-1").focus()
    lab.page.keyboard.press("r")
    row(lab, "hi-2").wait_for()
    assert "hi-2" in lab.server.shell("list")


def stop(lab: LabPage) -> None:
    """Stop a run from the sidebar, first with Cancel, then by the keyboard."""
    launch_sleeping(lab, "digits")
    row(lab, "digits-1").hover()
    row(lab, "digits-1").get_by_role("button", name="Stop digits-1").click()
    expect(lab.dialog).to_contain_text("Stop digits-1?")
    expect(lab.dialog).to_contain_text("checkpoints and the record stay")
    lab.screenshot("question")
    lab.dialog.get_by_role("button", name="Cancel").click()
    assert lab.server.manager.status("digits").status.phase is Phase.RUNNING
    lab.execute("tfcluster:open-sidebar", name="digits-1")
    lab.page.keyboard.press("s")
    lab.dialog.get_by_role("button", name="Stop").click()
    expect(row(lab, "digits-1")).to_have_attribute("data-phase", "Stopped")


def launch_the_copied_line(lab: LabPage) -> None:
    """Copy a run as a line for a cell, and launch the line in a notebook."""
    lab.server.launch("talk.py", "3", workers=1, ps=0, name="talk")
    lab.server.manager.wait("talk", 180)
    row(lab, "talk-1").click(button="right")
    lab.page.get_by_role("menuitem", name="Copy as Line for a Cell").click()
    expect(lab.page.get_by_text(re.compile("Copied: ")).first).to_be_visible()
    line = lab.page.evaluate("() => navigator.clipboard.readText()")
    lab.run(f"%load_ext tfcluster_magic\n{line}")
    row(lab, "talk-2").wait_for()
    again = lab.server.manager.wait("talk", 180)
    first = lab.server.manager.status("talk-1")
    assert again.spec.program is not None and first.spec.program is not None
    assert again.spec.program.arguments == first.spec.program.arguments
    assert again.spec.replicas == first.spec.replicas


def count_in_the_status_bar(lab: LabPage) -> None:
    """Check the count of active runs in the status bar until the run ends."""
    item = lab.page.locator("#jp-main-statusbar").get_by_role("button", name="1 cluster")
    lab.server.launch("sleep.py", workers=2, ps=0, name="digits")
    expect(item).to_have_text("1 cluster · 2 tasks")
    item.click()
    expect(lab.page.locator("#tfcluster-sidebar")).to_be_visible()
    lab.server.manager.stop("digits")
    expect(item).to_have_count(0)


def tell_a_failure_once(lab: LabPage) -> None:
    """Check that one notification reports a failure and shows the run, and that a reload does not
    repeat it.
    """
    lab.server.launch("fail.py", workers=1, ps=0, name="broken")
    toast = lab.page.locator(".Toastify__toast").filter(has_text="broken-1 failed")
    expect(toast).to_contain_text("the data set is empty")
    lab.screenshot("failed")
    toast.get_by_role("button", name="Show").click()
    expect(row(lab, "broken-1")).to_have_attribute("aria-expanded", "true")
    lab.reload()
    expect(row(lab, "broken-1")).to_be_visible()
    expect(toast).to_have_count(0)


def read_all_tasks(lab: LabPage) -> None:
    """Read the output of all tasks, select one, and copy its lines."""
    lab.server.launch("hello.py", workers=3, name="hi")
    log = open_logs(lab, "hi-1")

    for task in ("worker-0", "worker-1", "worker-2"):
        expect(log).to_contain_text(f"{task} | hello from {task}")
    expect(tab(lab).locator("footer")).to_contain_text("Succeeded")
    lab.screenshot("light")
    tab(lab).get_by_role("button", name="All tasks").click()
    tab(lab).get_by_role("button", name="Only worker-1").click()
    lab.theme("dark")
    lab.screenshot("tasks-dark")
    expect(log).not_to_contain_text("worker-0 |")
    lines = copied(lab, log)  # a task with a slow name server first prints a message about it
    assert lines[-1] == "worker-1 | hello from worker-1"
    assert all(line.startswith("worker-1 | ") for line in lines)


def read_odd_output(lab: LabPage) -> None:
    """Read output with markup, colours and control characters."""
    lab.server.launch("odd.py", workers=1, name="odd")
    log = open_logs(lab, "odd-1")

    expect(log).to_contain_text("<script>window.__pwned = 1</script><img src=x onerror=")
    expect(log.locator(".tfc-Ansi-fg1")).to_have_text("red")
    expect(log).to_contain_text("null ␀ back end")
    expect(log).to_contain_text("<U+202E>gnp.exe")
    expect(log).to_contain_text("<b>bold</b> &amp;")
    expect(log).not_to_contain_text("title")
    assert log.locator("img, script, b").count() == 0
    assert lab.pwned() is None
    assert "title" not in lab.page.title()


def show_a_deleted_run(lab: LabPage) -> None:
    """Open a notebook whose run was deleted."""
    run = lab.server.launch("hello.py", workers=1, name="gone")
    lab.server.manager.wait("gone-1", 180)
    lab.server.delete("gone-1")
    found = lab.notebook("", outputs=[output_of(run)], kernel=False)

    expect(card(lab)).to_contain_text("as of")
    expect(found).to_contain_text("does not know the run")
    expect(card(lab).get_by_role("button")).to_have_count(0)
