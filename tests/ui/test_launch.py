"""The launch form in a browser: both cards, files, cells, the line and the keyboard."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from msgspec.structs import replace
from playwright.sync_api import Locator, Response, expect
from support.ui import flows
from support.ui.accessibility import Findings
from support.ui.launch_form import LAUNCH, button, form, launch, opened
from support.ui.page import THEMES, LabPage

from tfcluster_magic.runs.manager import Until
from tfcluster_magic.spec import Phase

__all__ = ["form"]  # a fixture used by the tests below
COUNTS = ("Workers", "Parameter servers")
STEPS = """\
import os, sys, time

for step in range(int(sys.argv[-1])):
    print("step", step, flush=True)
while os.environ["TFCLUSTER_TASK_TYPE"] == "ps":
    time.sleep(1)
"""


def choose(form: Locator, card: str) -> None:
    form.get_by_text(card).click()


@pytest.mark.parametrize(
    "program",
    # The second program is long; tests/integration/test_examples.py also trains it.
    ["steps.py", pytest.param("between_graph.py", marks=pytest.mark.long)],
)
def test_each_worker_runs_a_program(lab: LabPage, form: Locator, program: str) -> None:
    """A program from the file browser is launched with its arguments, and trains to its end."""
    (lab.server.root / "examples" / "steps.py").write_text(STEPS)
    form.get_by_label("Path of the program").fill(f"examples/{program}")
    form.get_by_label("Arguments").fill("--steps 60")
    form.get_by_label("Name", exact=True).fill("digits")
    expect(form.locator(".tfc-Line code")).to_have_text(
        f"%tfcluster launch --name digits {program} -- --steps 60"
    )
    expect(form.get_by_text("In a notebook of examples")).to_be_visible()
    expect(form.get_by_text("1 parameter server, because line")).to_be_visible()
    lab.screenshot("filled")
    launch(form)
    expect(form.get_by_text("digits-1 was launched.")).to_be_visible()
    expect(lab.page.locator("#tfcluster-sidebar")).to_contain_text("digits-1")
    run = lab.server.manager.wait("digits", 180)
    assert run.status.phase is Phase.SUCCEEDED
    assert {t.value: n for t, n in run.spec.replicas.counts.items()} == {"worker": 2, "ps": 1}


def test_a_notebook_drives_real_servers(lab: LabPage, form: Locator) -> None:
    """The card "Use the cluster from this notebook" starts TensorFlow servers that are ready for a
    notebook's session.
    """
    choose(form, "Use the cluster from this notebook")
    expect(form.get_by_label("Path of the program")).to_have_count(0)
    form.get_by_label("Workers").fill("1")
    expect(form.locator(".tfc-Line code")).to_have_text(
        "%tfcluster launch --mode in-graph --workers 1"
    )
    lab.screenshot("in-graph")
    launch(form)
    expect(form.get_by_text("in-graph-1 was launched.")).to_be_visible()
    run = lab.server.manager.wait("in-graph-1", 120, until=Until.READY)
    assert run.spec.replicas.total == 2
    expect(form.get_by_role("group", name="Actions on in-graph-1")).to_be_visible()


@pytest.mark.same_page
def test_this_machine_is_asked_for_no_pods(form: Locator) -> None:
    """On this machine the form offers a choice of Python, and no options that only pods have."""
    expect(form.get_by_label("Python of kernel")).to_be_visible()
    expect(form.locator("summary")).to_have_text(["Resources", "Limits"])


@pytest.mark.same_page
def test_a_file_is_chosen_in_a_dialog(lab: LabPage, form: Locator) -> None:
    """The dialog shows folders and programs, and its choice becomes the program."""
    form.get_by_role("button", name="Browse…").click()
    dialog = lab.dialog
    expect(dialog.get_by_text("hello.py")).to_be_visible()
    dialog.get_by_text("hello.py").click()
    dialog.get_by_role("button", name="Select").click()
    expect(form.get_by_label("Path of the program")).to_have_value("hello.py")


@pytest.mark.same_page
def test_the_file_browser_launches_a_program(lab: LabPage) -> None:
    """A right click on a program or folder opens the form with it."""
    item = lab.page.locator(".jp-DirListing-item")
    for name in ("hello.py", "examples"):
        item.filter(has_text=re.compile(f"^{name}")).click(button="right")
        lab.page.get_by_role("menuitem", name="Launch as TFCluster").click()
        path = lab.page.get_by_label("Path of the program")
        expect(path).to_have_value(name)


def test_this_cell_is_a_program(lab: LabPage) -> None:
    """The active cell is launched unchanged, but without the magic's line above it."""
    flows.launch_the_active_cell(lab)


def test_the_line_goes_into_the_notebook(lab: LabPage) -> None:
    """The equivalent command is inserted as a cell that works, or copied."""
    flows.insert_the_line(lab)


def test_the_last_launch_is_remembered(lab: LabPage, form: Locator) -> None:
    """After a reload the form has the values of the last launch; another program or cell resets
    them.
    """
    form.get_by_label("Path of the program").fill("hello.py")
    form.get_by_label("Arguments").fill("--epochs 3")
    form.get_by_label("Workers").fill("3")
    with lab.page.expect_response(_keeps_the_launch):
        launch(form)
    expect(form.get_by_text("hello-1 was launched.")).to_be_visible()
    lab.reload()
    form = opened(lab)
    expect(form.get_by_label("Path of the program")).to_have_value("hello.py")
    expect(form.get_by_label("Workers")).to_have_value("3")
    opened(lab, program="sleep.py")
    expect(form.get_by_label("Path of the program")).to_have_value("sleep.py")
    expect(form.get_by_label("Arguments")).to_have_value("")
    opened(lab, **{"from": "hello-1"})
    expect(form.get_by_label("Arguments")).to_have_value("--epochs 3")
    expect(form.get_by_label("Workers")).to_have_value("3")
    lab.notebook("print('from a cell')", kernel=False)
    lab.cell().locator(".cm-content").click(button="right")
    lab.page.get_by_role("menuitem", name="Launch This Cell as TFCluster").click()
    expect(form.get_by_text("print('from a cell')")).to_be_visible()
    expect(form.get_by_label("Arguments")).to_have_value("")
    expect(form.get_by_label("Workers")).to_have_value("")


def test_a_run_is_edited_and_launched_again(lab: LabPage) -> None:
    """The menu action "Edit and Launch Again…" fills in the form with the run's values and says
    where they come from; the launch makes a new run.
    """
    options: dict[str, Any] = {"workers": 1, "ps": 0, "grace": "5s", "folder": lab.server.root}
    options["env"] = {"RATE": "0.1", "TEXT": "a\nb"}
    lab.server.launch("hello.py", "--steps", "a b", name="digits", **options)
    first = lab.server.manager.wait("digits", 180)
    run = flows.row(lab, "digits-1")
    expect(run).to_have_attribute("data-phase", "Succeeded")
    run.focus()
    run.click(button="right")
    lab.page.get_by_role("menuitem", name="Edit and Launch Again…").press("Enter")
    form = lab.page.get_by_role("form", name=LAUNCH)
    said = form.locator(".tfc-Origin")
    expect(said).to_contain_text("These values come from digits-1. Launching creates a new run.")
    expect(said).to_contain_text("“Rerun” uses the copy that digits-1 ran.")
    expect(said).to_contain_text("Environment: values with line breaks")
    expect(form.get_by_label("Path of the program")).to_have_value("hello.py")
    expect(form.get_by_label("Arguments")).to_have_value("--steps 'a b'")
    expect(form.get_by_label("Workers")).to_have_value("1")
    found = Findings(lab)
    found.look(".tfc-Launch", "form")
    assert not found.all, "\n".join(found.all)
    form.get_by_label("Workers").fill("2")
    launch(form)
    expect(form.get_by_text("digits-2 was launched.")).to_be_visible()
    again = lab.server.manager.wait("digits-2", 180)
    assert again.spec.replicas.worker.count == 2
    assert again.spec.env == {"RATE": "0.1"}
    assert again.spec.lifecycle == first.spec.lifecycle
    assert first.spec.program is not None
    assert again.spec.program == replace(first.spec.program, source="hello.py")

    flows.launch_sleeping(lab, "busy")
    flows.row(lab, "busy-1").focus()
    lab.page.keyboard.press("e")
    expect(said).to_contain_text("These values come from busy-1.")
    expect(said).to_contain_text("busy-1 is still active, so the new run gets another name.")
    launch(form)
    expect(form.get_by_text("sleep-1 was launched.")).to_be_visible()


def _keeps_the_launch(response: Response) -> bool:
    """Return whether JupyterLab has saved this launch in its state."""
    kept = response.request.post_data or ""
    return "api/workspaces" in response.url and "--epochs 3" in kept


def test_the_keyboard_alone_launches(lab: LabPage) -> None:
    """A cluster is launched from the palette without a mouse."""
    lab.palette(LAUNCH)
    form = lab.page.get_by_role("form", name=LAUNCH)
    expect(form.get_by_text("Free now:")).to_be_visible()
    press, typed = lab.page.keyboard.press, lab.page.keyboard.type
    expect(form.get_by_label("Run my program on every worker")).to_be_focused()
    press("ArrowUp")
    expect(form.get_by_label("Use the cluster from this notebook")).to_be_checked()
    press("ArrowDown")
    press("Tab")
    expect(form.get_by_label("File or folder")).to_be_focused()
    press("Tab")
    typed("hello.py")
    press("Tab")
    press("Tab")
    expect(form.get_by_label("Arguments")).to_be_focused()
    press("Tab")
    typed("1")
    expect(form.get_by_label("Workers")).to_have_value("1")
    expect(button(form)).not_to_have_attribute("aria-disabled", "true")
    press("Enter")
    expect(form.get_by_text("hello-1 was launched.")).to_be_visible()


def test_the_form_is_accessible(lab: LabPage, form: Locator) -> None:
    """With all sections open, axe finds no fault in either theme and at the width of a sidebar."""
    form.get_by_label("Path of the program").fill("nothing.py")
    form.get_by_text("Resources").click()
    form.get_by_text("Limits").click()
    expect(form.locator("[aria-invalid='true']").first).to_be_visible()
    for theme in THEMES:
        lab.theme(theme)
        lab.screenshot(f"open-{theme}")
        found = Axe().run(lab.page, context=".tfc-LaunchForm").response["violations"]
        assert [(v["id"], v["nodes"][0]["html"]) for v in found] == []
    lab.page.set_viewport_size({"width": 800, "height": 1400})
    for width in (420, 280):
        lab.page.evaluate(f"document.querySelector('.tfc-Launch').style.width = '{width}px';")
        wide = form.evaluate("node => node.scrollWidth > node.clientWidth")
        lab.screenshot(f"narrow-{width}")
        assert not wide
        tops = [
            box["y"]
            for label in COUNTS
            if (box := form.get_by_label(label, exact=True).bounding_box())
        ]
        assert len(set(tops)) == 1, "the inputs of the counts stand on one line"
        found = Axe().run(lab.page, context=".tfc-LaunchForm").response["violations"]
        assert [(v["id"], v["nodes"][0]["html"]) for v in found] == []


def test_sections_stay_as_they_were_left(lab: LabPage, form: Locator) -> None:
    """A section that the user opened is open in the next form; a section that a mistake opened is
    not.
    """
    resources = form.locator("details", has_text="Resources")
    limits = form.locator("details", has_text="Limits")
    with lab.page.expect_response(_keeps("resources")):
        resources.locator("summary").press("Enter")
    expect(resources).to_have_attribute("open", "")
    with lab.page.expect_response(_keeps("resources", "limits")):
        limits.locator("summary").click()
    form.get_by_label("Retries").fill("-1")
    expect(form.get_by_label("Retries")).to_have_attribute("aria-invalid", "true")
    with lab.page.expect_response(_keeps("resources")):
        limits.locator("summary").click()
    expect(limits).to_have_attribute("open", "")  # opened because a field in it is invalid
    lab.reload()
    form = opened(lab)
    expect(form.locator("details", has_text="Resources")).to_have_attribute("open", "")
    expect(form.locator("details", has_text="Limits")).not_to_have_attribute("open", "")


def _keeps(*sections: str) -> Callable[[Response], bool]:
    """Return a condition for a response: JupyterLab has saved just these sections as open."""

    def saves(response: Response) -> bool:
        if "api/workspaces" not in response.url or not (sent := response.request.post_data):
            return False
        kept = json.loads(sent)["data"].get("tfcluster-labextension:launch-sections")
        return bool(kept == list(sections))

    return saves


def test_inputs_look_enabled_and_icons_are_seen_in_every_theme(lab: LabPage, form: Locator) -> None:
    """Inputs have the page's background and a visible border in light, dark and high contrast. The
    product's icon can be seen in each theme, and even if the system sets all colours.
    """
    lab.sidebar.wait_for()
    name = form.get_by_label("Name", exact=True)
    for theme in ("JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast"):
        lab.execute("apputils:change-theme", theme=theme)
        expect(lab.page.locator(f"body[data-jp-theme-name='{theme}']")).to_be_attached()
        lab.screenshot(theme.rpartition(" ")[2].lower())
        ground, border = _style(name, "background-color"), _style(name, "border-top-color")
        assert contrast(ground, border) >= 3
        assert contrast(ground, _style(name, "color")) >= 7
        assert contrast(_style(form.locator(".."), "background-color"), ground) < 1.25
        mark = lab.page.locator(".lm-TabBar-tab svg[data-icon='tfcluster:cluster'] g").first
        behind = _style(lab.page.locator(".jp-SideBar").first, "background-color")
        assert contrast(_style(mark, "fill"), behind) >= 3
    lab.page.emulate_media(forced_colors="active")
    assert contrast(_style(mark, "fill"), _style(mark, "background-color", "Canvas")) >= 3
    lab.screenshot("forced-colors")


def _style(of: Locator, name: str, system: str = "") -> str:
    """Return the computed value of a property, or the named system colour."""
    script = """(node, [name, system]) => {
        if (system) {
            const probe = document.body.appendChild(document.createElement('div'));
            probe.style.backgroundColor = system;
            const colour = getComputedStyle(probe).backgroundColor;
            probe.remove();
            return colour;
        }
        return getComputedStyle(node).getPropertyValue(name);
    }"""
    return str(of.first.evaluate(script, [name, system]))


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, `rgb(1, 2, 3)`, by WCAG 2."""

    def luminance(colour: str) -> float:
        parts = [int(each) / 255 for each in re.findall(r"\d+", colour)[:3]]
        red, green, blue = (
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.same_page
def test_more_workers_than_cores_are_warned_of_at_their_number(lab: LabPage) -> None:
    """If the number of workers is far above the machine's cores or the allowed number of tasks, its
    input shows a warning with the number that fits.
    """
    form = opened(lab)
    form.get_by_label("Path of the program").fill("hello.py")
    workers = form.get_by_label("Workers")
    cores = os.cpu_count() or 1
    workers.fill(str(20 * cores))
    row = form.locator("[data-option=workers]")
    expect(row).to_contain_text(f"{20 * cores} workers share {cores} CPU core")
    expect(workers).not_to_have_attribute("aria-invalid", "true")  # this is only a warning
    lab.screenshot("warned")
    lab.theme("dark")
    lab.screenshot("warned-dark")
    row.get_by_role("button", name=f"Use {cores}", exact=True).first.press("Enter")
    expect(workers).to_have_value(str(cores))
    expect(workers).to_be_focused()
    expect(row).not_to_contain_text("share")
    most = lab.server.ask("GET", "tfcluster/api/options")["options"]["maxTasks"]
    expect(workers).to_have_attribute("max", str(most))
    launch = form.get_by_role("button", name="Launch", exact=True)
    form.get_by_label("Path of the program").scroll_into_view_if_needed()
    expect(launch).to_be_in_viewport()
