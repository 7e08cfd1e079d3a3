"""The sidebar, commands on runs, the status bar and notifications, as a user sees them."""

from __future__ import annotations

import re
import shutil
import socket
from pathlib import Path

import pytest
from playwright.sync_api import expect
from support.ui import flows
from support.ui.accessibility import Findings
from support.ui.flows import launch_sleeping, row
from support.ui.page import LabPage

from tfcluster_magic.runs.manager import Until

BEYOND = """sidebar => {
    const { left, right } = sidebar.getBoundingClientRect();
    const shown = [...sidebar.querySelectorAll('*')].filter(e => e.checkVisibility?.() ?? true);
    const beyond = shown.filter(e => {
        const box = e.getBoundingClientRect();
        return box.width > 1 && (box.right > right + 1 || box.left < left - 1);
    });
    return beyond.map(e => `${e.tagName} ${e.getAttribute('class')} ${e.textContent.slice(0, 40)}`);
}"""
"""A function of the page: the elements of the sidebar that extend beyond its left or right side."""


@pytest.mark.same_page
def test_an_empty_sidebar_teaches(lab: LabPage) -> None:
    """Without runs, the sidebar explains clusters, gives a line to copy, and can launch."""
    empty = lab.sidebar.get_by_role("region", name="No clusters yet")
    expect(empty).to_contain_text("A cluster is a set of TensorFlow tasks")
    empty.get_by_role("button", name="Copy these lines").click()
    expect(empty.get_by_role("status")).to_have_text("Copied.")
    copied = lab.page.evaluate("() => navigator.clipboard.readText()")
    assert "%tfcluster launch" in copied
    lab.screenshot("empty", lab.sidebar)
    empty.get_by_role("button", name="Launch a Cluster…").click()
    expect(
        lab.page.locator(".lm-TabBar-tab.lm-mod-current").filter(has_text="Launch")
    ).to_be_visible()


@pytest.mark.same_page
def test_what_code_launches_appears_by_itself(lab: LabPage) -> None:
    """A run launched by code appears in the list without a request by the page."""
    expect(lab.sidebar).to_contain_text("No clusters yet")
    requests: list[str] = []
    runs = "tfcluster/api/clusters"
    lab.page.on("request", lambda r: requests.append(r.url) if runs in r.url else None)
    for name in ("first", "second"):
        lab.server.launch("sleep.py", workers=1, ps=0, name=name)
        row(lab, f"{name}-1").wait_for()
    assert requests == []


def test_a_project_is_launched_from_the_sidebar(lab: LabPage) -> None:
    """The sidebar says how to make a project, lists it with its last run, and fills in the form."""
    projects = lab.sidebar.locator(".tfc-Fold", has_text="Projects")
    projects.locator("summary").click()
    expect(projects).to_contain_text("%tfcluster project init .")
    found = Findings(lab)
    found.look("#tfcluster-sidebar", "projects-empty")
    folder = lab.server.root / "digits"
    folder.mkdir()
    (folder / "train.py").write_text("print('trained')\n")
    (folder / "tfcluster.yaml").write_text(
        "program: train.py\nworkers: 1\nconfigurations:\n  big: {workers: 2, memory: 64Mi}\n"
    )
    try:
        lab.server.launch("digits", name="digits")
        expect(row(lab, "digits-1")).to_contain_text("Succeeded", timeout=60_000)
        lab.sidebar.get_by_role("button", name="Refresh").click()
        expect(projects.get_by_role("button", name="digits-1")).to_be_visible()
        expect(projects.locator(".tfc-Phase")).to_have_text("Succeeded")
        found.look("#tfcluster-sidebar", "projects")
        projects.get_by_role("button", name="big", exact=True).click()
        form = lab.page.get_by_role("form")
        expect(form.get_by_label("Configuration")).to_have_value("big")
        expect(form.get_by_label("Workers", exact=True)).to_have_attribute("placeholder", "2")
        expect(form.locator(".tfc-Line code")).to_contain_text("--config big")
        lab.screenshot("project-form")
        form.get_by_label("Configuration").select_option("")
        expect(form.get_by_label("Workers", exact=True)).to_have_attribute("placeholder", "1")
    finally:
        shutil.rmtree(folder)
    assert not found.all, "\n".join(found.all)


@pytest.mark.same_page
def test_a_cell_and_a_shell_see_what_the_sidebar_reruns(lab: LabPage) -> None:
    """A run that the sidebar reruns is listed in a shell within a second."""
    flows.rerun(lab)


@pytest.mark.same_page
def test_a_stop_asks_first(lab: LabPage) -> None:
    """Stop says what will be lost; Cancel changes nothing, Stop ends the run."""
    flows.stop(lab)


@pytest.mark.same_page
def test_a_question_goes_with_its_run(lab: LabPage) -> None:
    """If its run is deleted elsewhere, an open dialog says so and cannot be confirmed."""
    launch_sleeping(lab, "digits")
    row(lab, "digits-1").focus()
    lab.page.keyboard.press("s")
    expect(lab.dialog).to_be_visible()
    lab.server.shell("delete", "digits-1", "--yes")
    expect(lab.dialog).to_contain_text("digits-1 was deleted elsewhere")
    expect(lab.dialog.get_by_role("button", name="Stop")).to_be_disabled()
    lab.dialog.get_by_role("button", name="Cancel").click()
    expect(lab.sidebar).to_contain_text("No clusters yet")


@pytest.mark.same_page
def test_a_run_is_deleted_with_its_output(lab: LabPage) -> None:
    """Delete asks first, and removes logs and output if this is selected."""
    lab.server.launch("hello.py", workers=1, ps=0, name="hi")
    done = lab.server.manager.wait("hi", 180)
    expect(row(lab, "hi-1")).to_have_attribute("data-phase", "Succeeded")
    row(lab, "hi-1").focus()
    lab.page.keyboard.press("Delete")
    lab.dialog.get_by_label("Delete its logs and output, too").check()
    lab.dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(lab.sidebar).to_contain_text("No clusters yet")
    assert lab.server.manager.list(all_runs=True) == []
    assert not (lab.server.root / done.status.paths["output"]).exists()


@pytest.mark.same_page
def test_the_filter_narrows_the_list(lab: LabPage) -> None:
    """Text and phases filter the list; if nothing matches, one click shows all again."""
    lab.server.launch("fail.py", workers=1, ps=0, name="broken")
    lab.server.launch("hello.py", workers=1, ps=0, name="hi")
    expect(row(lab, "broken-1")).to_have_attribute("data-phase", "Failed")
    expect(row(lab, "hi-1")).to_have_attribute("data-phase", "Succeeded")
    lab.sidebar.get_by_role("button", name="Failed 1").click()
    expect(row(lab, "hi-1")).to_have_count(0)
    row(lab, "broken-1").focus()
    lab.page.keyboard.press("/")
    expect(lab.sidebar.get_by_label("Filter clusters")).to_be_focused()
    lab.page.keyboard.type("nothing like it")
    expect(lab.sidebar).to_contain_text("No cluster matches the filter.")
    lab.sidebar.get_by_role("button", name="Show all").click()
    expect(row(lab, "hi-1")).to_be_visible()


@pytest.mark.same_page
def test_everything_can_be_done_with_the_keyboard(lab: LabPage) -> None:
    """With only the keyboard a user opens the list from the palette, moves between rows, opens and
    selects them, uses a row's menu, closes the row and ends the selection.
    """
    for name in ("first", "second"):
        lab.server.launch("hello.py", workers=1, ps=0, name=name)
        lab.server.manager.wait(name, 180)
    lab.palette("Show Clusters")
    second, first = row(lab, "second-1"), row(lab, "first-1")
    expect(first).to_have_attribute("data-phase", "Succeeded")
    expect(second).to_be_focused()
    keys = lab.page.keyboard
    keys.press("ArrowDown")
    expect(first).to_be_focused()
    keys.press("Enter")
    expect(first).to_have_attribute("aria-expanded", "true")
    keys.press("Space")
    expect(first).to_have_attribute("aria-selected", "true")
    keys.press("Home")
    keys.press("Space")
    expect(lab.sidebar).to_contain_text("2 selected")
    keys.press("End")
    keys.press("Tab")
    expect(first.locator(":focus")).to_be_visible()  # inside the open row
    first.get_by_role("button", name="More actions").focus()
    keys.press("Enter")
    menu = lab.page.get_by_role("menu").filter(has_text="Copy as YAML")
    expect(menu).to_be_visible()
    keys.press("Escape")
    expect(menu).to_have_count(0)
    first.focus()
    keys.press("Escape")  # closes the row
    expect(first).to_have_attribute("aria-expanded", "false")
    keys.press("Escape")  # ends the selection
    expect(lab.sidebar).not_to_contain_text("selected")


@pytest.mark.same_page
def test_a_note_is_written_in_the_sidebar(lab: LabPage) -> None:
    """A note that replaces another is in the row at once, as plain text."""
    launch_sleeping(lab, "digits")
    lab.server.manager.note("digits", "rate 0.1")
    row(lab, "digits-1").click()
    expect(row(lab, "digits-1")).to_contain_text("rate 0.1")
    row(lab, "digits-1").get_by_role("button", name="More actions").click()
    lab.page.get_by_role("menuitem", name="Note…").click()
    lab.dialog.get_by_role("textbox").fill("rate 0.2 <b>")
    lab.dialog.get_by_role("button", name="Save").click()
    expect(row(lab, "digits-1")).to_contain_text("rate 0.2 <b>")
    assert lab.server.manager.status("digits").metadata.note == "rate 0.2 <b>"


def test_a_run_is_renamed_and_tagged_by_keyboard(lab: LabPage) -> None:
    """Keys on a row rename and tag a run; both texts appear at once and match the filter."""
    lab.console.allow("422")  # an invalid tag
    launch_sleeping(lab, "digits")
    launch_sleeping(lab, "other")
    keys = lab.page.keyboard
    row(lab, "digits-1").focus()
    keys.press("F2")
    lab.dialog.get_by_role("textbox").fill("First <i>try</i>")
    keys.press("Enter")
    expect(row(lab, "digits-1").locator(".tfc-RunRow-name")).to_have_text("First <i>try</i>")
    expect(row(lab, "digits-1")).to_contain_text("digits-1")

    row(lab, "digits-1").focus()
    keys.press("#")
    lab.dialog.get_by_role("textbox").fill("baseline lr/0.1")
    keys.press("Enter")
    expect(row(lab, "digits-1").get_by_role("listitem")).to_have_text(["baseline", "lr/0.1"])
    assert lab.server.manager.status("digits").metadata.tags == ("baseline", "lr/0.1")

    row(lab, "digits-1").focus()
    keys.press("/")
    expect(lab.sidebar.get_by_role("searchbox")).to_be_focused()
    keys.type("tag:baseline")
    expect(row(lab, "other-1")).to_have_count(0)
    expect(row(lab, "digits-1")).to_be_visible()
    lab.screenshot("tagged", lab.sidebar)

    row(lab, "digits-1").focus()
    keys.press("#")
    lab.dialog.get_by_role("textbox").fill("<img src=x>")
    keys.press("Enter")
    expect(lab.page.get_by_text("a tag has at most 40 characters").first).to_be_visible()
    assert lab.server.manager.status("digits").metadata.tags == ("baseline", "lr/0.1")


def test_the_narrowest_sidebar_cuts_nothing_off(lab: LabPage) -> None:
    """At 220 pixels, narrower than JupyterLab's default, no part of a row extends beyond the
    sidebar.
    """
    launch_sleeping(lab, "a-name-that-is-as-long-as-some-are")
    lab.server.launch("fail.py", workers=2, ps=0, name="broken")
    expect(row(lab, "broken-1")).to_contain_text("the data set is empty")
    lab.server.manager.note("broken", "rate-0.1-" * 20)
    lab.server.manager.rename("broken", "display-name-" * 7)
    lab.server.manager.tag("broken", ["baseline", "tag" * 13])
    row(lab, "broken-1").click()
    expect(row(lab, "broken-1")).to_contain_text("rate-0.1-rate-0.1-")
    narrow = "width: 220px !important; min-width: 0 !important;"
    lab.page.add_style_tag(content=f"#tfcluster-sidebar {{ {narrow} }}")
    found = lab.sidebar.evaluate(BEYOND)
    lab.screenshot("narrow", lab.sidebar)
    assert lab.sidebar.evaluate("sidebar => sidebar.offsetWidth") == 220
    assert found == []


@pytest.mark.same_page
def test_the_menu_asks_which_logs(lab: LabPage) -> None:
    """Run > TFCluster > Logs opens the output of the run that the user selects."""
    for name in ("first", "second"):
        lab.server.launch("hello.py", workers=1, ps=0, name=name)
        lab.server.manager.wait(name, 180)
        row(lab, f"{name}-1").wait_for()
    lab.page.get_by_role("menuitem", name="Run", exact=True).click()
    lab.page.locator(".lm-Menu-item[data-type=submenu]", has_text="TFCluster").click()
    lab.page.get_by_role("menuitem", name="Logs of a Cluster…").click()
    lab.dialog.get_by_role("combobox").select_option("first-1 · Succeeded")
    lab.dialog.get_by_role("button", name="Logs").click()
    expect(lab.page.get_by_role("log")).to_contain_text("hello")


def test_the_copied_command_launches_the_same(lab: LabPage) -> None:
    """The action "Copy as Line for a Cell" copies a line that launches the same again."""
    flows.launch_the_copied_line(lab)


def test_connect_inserts_a_cell_that_connects(lab: LabPage) -> None:
    """The action "Connect a Session" inserts a cell below the active one; run, it connects to the
    cluster.
    """
    lab.server.launch(None, workers=1, ps=1, mode="in-graph", name="drive")
    lab.server.manager.wait("drive", 120, until=Until.READY)
    lab.notebook("1 + 1")
    lab.cell().locator(".cm-content").click()
    expect(row(lab, "drive-1")).to_have_attribute("data-phase", "Running")
    row(lab, "drive-1").click(button="right")
    lab.page.get_by_role("menuitem", name="Connect a Session").click()
    expect(lab.cell(1)).to_contain_text("session = cluster.session()")
    lab.run_cell(1)
    lab.page.keyboard.type("print(len(session.list_devices()), 'devices')")
    expect(lab.run_cell(2)).to_have_text(re.compile(r"[2-9] devices"))


@pytest.mark.same_page
def test_the_status_bar_counts_what_is_active(lab: LabPage) -> None:
    """During a run the bar shows `1 cluster · 2 tasks` and opens the sidebar; without runs it is
    empty.
    """
    flows.count_in_the_status_bar(lab)


def test_a_failure_is_told_once_with_its_reason(lab: LabPage) -> None:
    """A failure is shown with its reason and what to do, and not again after a reload."""
    flows.tell_a_failure_once(lab)


def test_the_sidebar_is_on_the_side_that_the_person_wants(lab: LabPage) -> None:
    """The setting moves the sidebar to the right."""
    expect(lab.sidebar).to_be_visible()
    lab.setting("tfcluster-labextension:plugin", side="right")
    lab.load()
    expect(lab.page.locator("#jp-right-stack #tfcluster-sidebar")).to_have_count(1)


@pytest.mark.same_page
def test_what_runs_is_first_and_one_row_is_open(lab: LabPage) -> None:
    """Active runs are above ended ones; opening a row closes the row that was open."""
    launch_sleeping(lab, "active")
    lab.server.launch("hello.py", workers=2, ps=0, name="done")
    lab.server.manager.wait("done", 180)
    expect(row(lab, "done-1")).to_contain_text("Succeeded · 2 tasks finished")
    names = lab.sidebar.locator("[data-run]").evaluate_all("all => all.map(e => e.dataset.run)")
    assert names == ["active-1", "done-1"]
    row(lab, "done-1").click()
    expect(row(lab, "done-1")).to_have_attribute("aria-expanded", "true")
    row(lab, "active-1").click()
    expect(row(lab, "active-1")).to_contain_text("running")
    expect(row(lab, "active-1")).to_have_attribute("aria-expanded", "true")
    expect(row(lab, "done-1")).to_have_attribute("aria-expanded", "false")
    actions = row(lab, "active-1").get_by_role("group", name="Actions on active-1")
    tops = actions.get_by_role("button").evaluate_all("all => all.map(e => e.offsetTop)")
    assert len(set(tops)) == 1
    expect(actions.get_by_role("button", name="Delete")).to_have_count(0)
    lab.screenshot("one-open")
    lab.theme("dark")
    lab.screenshot("one-open-dark")


def test_paths_of_a_run_are_links(lab: LabPage, tmp_path: Path) -> None:
    """A program opens in its editor, a folder in the file browser; paths outside the workspace are
    text.
    """
    program = lab.server.root / "examples" / "own.py"
    program.write_text("print('mine')\n")
    lab.server.launch("examples/own.py", workers=1, ps=0, name="mine", folder=program.parent)
    (tmp_path / "else.py").write_text("print('not mine')\n")
    lab.server.launch(str(tmp_path / "else.py"), workers=1, ps=0, name="else", folder=tmp_path)
    for name in ("mine", "else"):
        lab.server.manager.wait(name, 180)
    mine = row(lab, "mine-1")
    mine.click()
    links = mine.locator(".tfc-Facts button.tfc-Link")
    expect(links).to_have_text(["own.py", str(program.parent), str(lab.server.root / "log/mine/1")])
    found = Findings(lab)
    found.look("#tfcluster-sidebar", "links")
    assert not found.all, "\n".join(found.all)

    links.nth(1).click()
    crumbs = lab.page.locator("#filebrowser .jp-BreadCrumbs")
    expect(crumbs).to_contain_text("examples")
    expect(lab.page.locator("#filebrowser")).to_be_visible()
    lab.screenshot("folder")

    lab.execute("tfcluster:open-sidebar", name="mine-1")
    expect(mine).to_be_focused()
    actions = mine.locator(".tfc-Actions button:enabled").count()
    for _key in range(actions + 1):
        lab.page.keyboard.press("Tab")
    expect(links.first).to_be_focused()
    lab.page.keyboard.press("Enter")
    expect(lab.page.locator(".jp-FileEditor:visible")).to_contain_text("print('mine')")
    expect(mine).to_have_attribute("aria-expanded", "true")
    expect(lab.sidebar).to_be_visible()

    outside = row(lab, "else-1")
    outside.click()
    expect(outside).to_contain_text(str(tmp_path))
    links = outside.locator(".tfc-Facts button.tfc-Link")
    expect(links).to_have_text([str(lab.server.root / "log/else/1")])


def test_an_open_run_shows_its_tasks(lab: LabPage) -> None:
    """Each task's row shows its place, its times and its last line, and is updated during the run.
    A click or a key on the row opens the logs of that task.
    """
    asked: list[str] = []
    lab.page.on("request", lambda r: asked.append(r.url) if "api/tasks?" in r.url else None)
    lab.server.launch("talk.py", "2", workers=2, ps=1, name="talk")
    lab.server.manager.wait("talk", 180)
    row(lab, "talk-1").click()
    workers = lab.sidebar.get_by_role("table", name="worker")
    first = workers.get_by_role("row").filter(has_text="worker-0")
    expect(first).to_contain_text("Succeeded")
    expect(first).to_contain_text("line 1")
    expect(lab.sidebar.get_by_role("region", name="Tasks of talk-1")).to_contain_text(
        socket.gethostname()
    )
    assert len(asked) < 4, "one request for all tasks"
    lab.screenshot("tasks", lab.sidebar)
    first.get_by_role("button", name="worker-0, show its logs").focus()
    lab.page.keyboard.press("ArrowDown")
    expect(workers.get_by_role("button", name="worker-1, show its logs")).to_be_focused()
    lab.page.keyboard.press("Enter")
    log = lab.page.get_by_role("log", name="Output of talk-1")
    expect(log).to_contain_text("line 1")
    expect(log).not_to_contain_text("worker-0")
    expect(row(lab, "talk-1")).to_have_attribute("aria-expanded", "true")


def test_many_tasks_are_folded_and_those_that_failed_are_first(lab: LabPage) -> None:
    """If a run has many tasks, only the failed one is shown, below the reason; the others appear on
    request.
    """
    (lab.server.root / "one_fails.sh").write_text(
        'if [ "$TFCLUSTER_TASK" = worker-17 ]; then echo out of tune >&2; exit 3; fi\nsleep 600\n'
    )
    lab.server.launch("one_fails.sh", workers=20, ps=0, name="choir")
    row(lab, "choir-1").click()
    expect(row(lab, "choir-1")).to_have_attribute("data-phase", "Failed", timeout=90_000)
    table = lab.sidebar.get_by_role("table", name="worker")
    shown = table.locator(".tfc-TaskRow")
    expect(shown).to_have_count(1)
    expect(shown.first).to_contain_text("worker-17")
    expect(shown.first).to_contain_text("Failed")
    expect(row(lab, "choir-1")).to_contain_text("failed with exit code 3")
    lab.screenshot("folded", lab.sidebar)
    more = lab.sidebar.get_by_role("button", name="Show 19 more")
    more.press("Enter")
    expect(shown).to_have_count(20)
    expect(shown.first).to_contain_text("worker-17")
    lab.theme("dark")
    lab.screenshot("unfolded-dark", lab.sidebar)


@pytest.mark.same_page
def test_several_are_stopped_and_deleted_at_once(lab: LabPage) -> None:
    """For several selected rows, one question stops all active runs, and one deletes all."""
    for name in ("first", "second"):
        launch_sleeping(lab, name)
    for name in ("first", "second"):
        row(lab, f"{name}-1").focus()
        lab.page.keyboard.press("Space")
    selection = lab.sidebar.get_by_role("group", name="Actions on the selected clusters")
    expect(selection).to_contain_text("2 selected")
    lab.screenshot("selected", lab.sidebar)
    selection.get_by_role("button", name="Stop the selected clusters").press("Enter")
    expect(lab.dialog).to_contain_text("Stop 2 clusters?")
    lab.dialog.get_by_role("button", name="Stop", exact=True).press("Enter")
    for name in ("first", "second"):
        expect(row(lab, f"{name}-1")).to_have_attribute("data-phase", "Stopped", timeout=60_000)
    expect(selection.get_by_role("button", name="Stop the selected clusters")).to_be_disabled()
    selection.get_by_role("button", name="Delete the selected clusters").press("Enter")
    expect(lab.dialog).to_contain_text("Delete 2 clusters?")
    lab.screenshot("delete-several")
    lab.dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(lab.sidebar).to_contain_text("No clusters yet")
    assert lab.server.manager.list(all_runs=True) == []
