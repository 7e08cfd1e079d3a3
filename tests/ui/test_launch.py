"""The launch form in a real browser: both cards, refusals, files, cells, memory, keyboard."""

from __future__ import annotations

import contextlib
import re
import urllib.parse

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Error, Locator, Response, Route, expect

from tfcluster_magic.models import Phase
from tfcluster_magic.waiting import Until

from .page import LabPage

LAUNCH = "Launch a TFCluster"


@pytest.fixture
def form(lab: LabPage) -> Locator:
    """The form, opened by its command, after the server has said what there is."""
    return opened(lab)


def opened(lab: LabPage, **arguments: str) -> Locator:
    lab.execute("tfcluster:launch", **arguments)
    found = lab.page.get_by_role("form", name=LAUNCH)
    expect(found.get_by_text("Free now:")).to_be_visible()
    return found


def choose(form: Locator, card: str) -> None:
    form.get_by_text(card).click()


def button(form: Locator) -> Locator:
    return form.get_by_role("button", name="Launch", exact=True)


def launch(form: Locator) -> None:
    """Press the button once nothing stands against it."""
    expect(button(form)).not_to_have_attribute("aria-disabled", "true")
    button(form).click()


def test_each_worker_runs_a_program_with_real_tensorflow(lab: LabPage, form: Locator) -> None:
    """A program of the file browser is launched with its arguments, and trains to its end."""
    form.get_by_label("Path of the program").fill("examples/between_graph.py")
    form.get_by_label("Arguments").fill("--steps 60")
    form.get_by_label("Name", exact=True).fill("digits")
    expect(form.locator(".tfc-Line code")).to_have_text(
        "%tfcluster launch --name digits between_graph.py -- --steps 60"
    )
    expect(form.get_by_text("The same in a notebook of examples")).to_be_visible()
    lab.screenshot("filled")
    launch(form)
    expect(form.get_by_text("digits-1 was launched.")).to_be_visible()
    expect(lab.page.locator("#tfcluster-sidebar")).to_contain_text("digits-1")
    run = lab.server.manager.wait("digits", 180)
    assert run.status.phase is Phase.SUCCEEDED
    assert {t.value: n for t, n in run.spec.replicas.counts.items()} == {"worker": 2, "ps": 1}


def test_a_notebook_drives_real_servers(lab: LabPage, form: Locator) -> None:
    """The other card starts TensorFlow servers that are ready for a notebook's session."""
    choose(form, "I drive from this notebook")
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


def test_a_run_that_failed_is_not_told_as_one_that_goes_well(lab: LabPage, form: Locator) -> None:
    """What the form has launched is shown as it is now, and no more once it is deleted."""
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


def test_this_machine_is_asked_for_no_pods(form: Locator) -> None:
    """Where tasks are processes the form has a Python, and nothing that only pods have."""
    expect(form.get_by_label("Python of kernel")).to_be_visible()
    expect(form.locator("summary")).to_have_text(["Resources", "Limits"])


def test_what_does_not_fit_says_what_would(lab: LabPage, form: Locator) -> None:
    """Where room is short, a button takes the number that fits, and the launch goes on with it."""
    each = int(lab.server.manager.options().memory.free / 2.5 / 2**20)
    form.get_by_label("Path of the program").fill("hello.py")
    form.get_by_label("Workers").fill("6")
    form.get_by_text("Resources").click()
    form.get_by_label("Worker: Memory").fill(f"{each}Mi")
    expect(button(form)).to_have_attribute("aria-disabled", "true")
    expect(form.get_by_label("Workers")).to_have_attribute("aria-invalid", "true")
    lab.screenshot("refused")
    lab.theme("dark")
    lab.screenshot("refused-dark")
    form.get_by_role("button", name=re.compile(r"^Use \d+$")).click()
    launch(form)
    expect(form.get_by_text("hello-1 was launched.")).to_be_visible()


def test_every_mistake_stands_at_its_input(lab: LabPage, form: Locator) -> None:
    """Several mistakes are told at once, each described at the input that it is about."""
    form.get_by_label("Path of the program").fill("helo.py")
    form.get_by_label("Name", exact=True).fill("Not A Name")
    form.get_by_label("Arguments").fill("--epochs 'three")
    form.get_by_text("Limits").click()
    form.get_by_label("Longest run").fill("soon")
    expect(form.get_by_text(re.compile("did you mean hello.py"))).to_be_visible()
    expect(form.get_by_text("a quote is not closed")).to_be_visible()
    expect(form.get_by_label("Longest run")).to_have_accessible_description(re.compile("1h30m"))
    expect(form.get_by_label("Name", exact=True)).to_have_accessible_description(
        re.compile("lower-case")
    )
    expect(form.get_by_text("4 things have to be changed first.")).to_be_visible()
    button(form).click(force=True)
    expect(form.get_by_label("Path of the program")).to_be_focused()
    assert lab.server.manager.list() == []


def test_an_empty_form_does_not_scold(lab: LabPage, form: Locator) -> None:
    """What is only missing is no mistake before one tries to launch."""
    expect(form.get_by_text("Choose a program first.")).to_be_visible()
    expect(form.locator("[aria-invalid='true']")).to_have_count(0)
    lab.screenshot("empty")
    lab.theme("dark")
    lab.screenshot("empty-dark")
    button(form).click(force=True)
    expect(form.get_by_label("Path of the program")).to_have_attribute("aria-invalid", "true")


def test_a_file_is_chosen_in_a_dialog(lab: LabPage, form: Locator) -> None:
    """The dialog shows folders and programs, and its choice is the program."""
    form.get_by_role("button", name="Browse…").click()
    dialog = lab.dialog
    expect(dialog.get_by_text("hello.py")).to_be_visible()
    dialog.get_by_text("hello.py").click()
    dialog.get_by_role("button", name="Select").click()
    expect(form.get_by_label("Path of the program")).to_have_value("hello.py")


def test_the_file_browser_launches_a_program(lab: LabPage) -> None:
    """A right click on a program opens the form with it, on a folder with that."""
    item = lab.page.locator(".jp-DirListing-item")
    for name in ("hello.py", "examples"):
        item.filter(has_text=re.compile(f"^{name}")).click(button="right")
        lab.page.get_by_role("menuitem", name="Launch as TFCluster").click()
        path = lab.page.get_by_label("Path of the program")
        expect(path).to_have_value(name)


def test_this_cell_is_a_program(lab: LabPage) -> None:
    """The active cell is launched as it stands, without the magic's own line above it."""
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


def test_the_line_goes_into_the_notebook(lab: LabPage) -> None:
    """The line that does the same is inserted as a cell that runs, or copied."""
    lab.notebook("%load_ext tfcluster_magic", name="examples/own.ipynb")
    lab.run_cell()
    form = opened(lab)
    form.get_by_label("Path of the program").fill("hello.py")
    expect(form.locator(".tfc-Line code")).to_contain_text("hello.py")
    form.get_by_label("Arguments").fill("'{x}' $HOME")
    form.get_by_role("button", name="Copy").click()  # before the line below it is that of now
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


def test_the_last_launch_is_remembered(lab: LabPage, form: Locator) -> None:
    """After a reload the form has the values of the last launch; another program starts anew."""
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


def _keeps_the_launch(response: Response) -> bool:
    """JupyterLab has written its state, which it does a moment later."""
    kept = response.request.post_data or ""
    return "api/workspaces" in response.url and "--epochs 3" in kept


def test_the_keyboard_alone_launches(lab: LabPage) -> None:
    """From the palette to the running cluster without a mouse."""
    lab.palette(LAUNCH)
    form = lab.page.get_by_role("form", name=LAUNCH)
    expect(form.get_by_text("Free now:")).to_be_visible()
    press, typed = lab.page.keyboard.press, lab.page.keyboard.type
    expect(form.get_by_label("Each worker runs my program")).to_be_focused()
    press("ArrowUp")
    expect(form.get_by_label("I drive from this notebook")).to_be_checked()
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


def test_a_server_that_is_away_loses_nothing_that_was_typed(lab: LabPage, form: Locator) -> None:
    """While the server does not answer the form says so, keeps what is typed, and recovers."""
    lab.console.allow("tfcluster/api")
    lab.page.route("**/tfcluster/api/clusters/plan*", lambda route: route.abort())
    form.get_by_label("Path of the program").fill("hello.py")
    expect(form.get_by_role("alert")).to_contain_text("What you typed is kept.")
    expect(button(form)).to_have_attribute("aria-disabled", "true")
    form.get_by_role("button", name="Try again").click()
    lab.page.unroute("**/tfcluster/api/clusters/plan*")
    expect(form.get_by_role("alert")).to_have_count(0)
    expect(form.get_by_label("Path of the program")).to_have_value("hello.py")
    launch(form)
    expect(form.get_by_text("hello-1 was launched.")).to_be_visible()


def test_a_slow_answer_does_not_overwrite_a_newer_one(lab: LabPage, form: Locator) -> None:
    """Of two plans the newer counts, whichever comes last."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        if '"slow"' in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    lab.page.route("**/tfcluster/api/clusters/plan*", hold)
    with lab.page.expect_request("**/clusters/plan*"):
        form.get_by_label("Name", exact=True).fill("slow")
    form.get_by_label("Name", exact=True).fill("quick")
    line = form.locator(".tfc-Line code")
    expect(line).to_contain_text("--name quick")
    for route in held:
        with contextlib.suppress(Error):  # the page has given it up
            route.continue_()
    form.get_by_label("Arguments").fill("x")
    expect(line).to_have_text("%tfcluster launch --name quick -- x")
    assert held


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_form_is_accessible(lab: LabPage, form: Locator, theme: str) -> None:
    """Axe finds nothing, with everything open, in either theme, and at the width of a sidebar."""
    lab.theme(theme)  # type: ignore[arg-type]
    form.get_by_label("Path of the program").fill("nothing.py")
    form.get_by_text("Resources").click()
    form.get_by_text("Limits").click()
    expect(form.locator("[aria-invalid='true']").first).to_be_visible()
    lab.screenshot("open")
    found = Axe().run(lab.page, context=".tfc-LaunchForm").response["violations"]
    assert [(v["id"], v["nodes"][0]["html"]) for v in found] == []
    lab.page.set_viewport_size({"width": 800, "height": 1400})
    lab.page.evaluate("document.querySelector('.tfc-Launch').style.width = '320px';")
    wide = form.evaluate("node => node.scrollWidth > node.clientWidth")
    lab.screenshot("narrow")
    assert not wide


def test_what_came_from_a_name_is_text(lab: LabPage, form: Locator) -> None:
    """Markup in what is typed is shown, never run."""
    evil = "<img src=x onerror='window.__pwned=1'>.py"
    form.get_by_label("Path of the program").fill(evil)
    expect(form.locator(".tfc-Line code")).to_contain_text("<img src=x")
    assert lab.pwned() is None
    assert urllib.parse.unquote(lab.page.url).startswith(lab.server.url)
