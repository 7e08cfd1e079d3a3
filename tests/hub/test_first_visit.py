"""The whole first visit in a real browser below /tf/: from the printed link to signing out."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from support.hub.make_run import OWNER, PASSWORD, Hub
from support.hub.pages import PATIENCE, accessible, fill_password, in_every_look
from support.ui.page import LabPage
from support.ui.workspace import EVENT_WRITER, TRAIN

BIN = Path(sys.executable).parent
SECRETS = """\
import os
print("secrets:", [name for name in os.environ if name.startswith(("JUPYTERHUB_", "JPY_"))])
"""


@pytest.fixture(scope="module")
def hub(start_hub: Callable[..., Hub]) -> Hub:
    """A hub below a base URL; its sign-up link has not been used."""
    return start_hub(base_url="/tf/", terminals=True)


@pytest.fixture
def signed_up(hub: Hub) -> None:
    """Make sure that the owner has a password, even if the first visit failed."""
    visitor = hub.visitor()
    if visitor.sign_in(OWNER, PASSWORD).status_code != 302:
        assert visitor.set_password(hub.link).status_code == 302


@pytest.fixture
def page(context: object, hub: Hub, shots: Path) -> Iterator[Page]:
    """A page; its last screenshot and the log of the hub and its notebooks are kept."""
    made: Page = context.new_page()  # type: ignore[attr-defined]
    made.emulate_media(reduced_motion="reduce")
    yield made
    made.screenshot(path=shots.with_name(f"{shots.name}-end.png"))
    log = hub.state / "hub" / "hub.log"
    shots.with_name(f"{shots.name}-hub.log").write_bytes(log.read_bytes())


def sign_in(page: Page, at: str) -> None:
    """Sign in as the owner if a page asks for it."""
    page.goto(at)
    page.get_by_label("Username").fill(OWNER)
    page.locator("#password_input").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def test_from_the_link_to_a_cluster_and_out(hub: Hub, page: Page, shots: Path) -> None:
    """A user sets a password, runs cells as in the example, uses sidebar and TensorBoard, signs
    out.
    """
    page.goto(hub.link)
    expect(page.get_by_text(f"You will sign in as {OWNER}")).to_be_visible()
    in_every_look(page, shots, "password")
    fill_password(page, PASSWORD)

    first = page.locator(".jp-NotebookPanel h1", has_text="Between-Graph")
    expect(first).to_be_visible(timeout=PATIENCE)
    assert page.url == f"{hub.url}/user/{OWNER}/lab/tree/examples/01-between-graph.ipynb"
    lab = LabPage(page, hub, shots)  # type: ignore[arg-type]
    lab.restored()
    expect(page.get_by_text(re.compile(r"Python 3 \(.*\) \| Idle"))).to_be_visible()
    dirty = "jupyterapp.shell.currentWidget.context.model.dirty"
    assert page.evaluate(dirty) is False, "opening an example changes nothing"
    lab.screenshot("example")

    (hub.root / "secrets.py").write_text(SECRETS)
    (hub.root / "train.py").write_text(TRAIN)
    (hub.root / "event_writer.py").write_text(EVENT_WRITER.read_text())
    output = lab.run("%tfcluster launch secrets.py --name cell --workers 1 --follow")
    expect(output).to_contain_text("secrets: []")

    lab.execute("terminal:create-new")
    typed = page.locator(".jp-Terminal textarea")
    typed.press_sequentially("command -v tfcluster python | tee programs.txt\n")
    programs = hub.root / "programs.txt"
    hub.until(lambda: programs.exists() and len(programs.read_text().split()) == 2, "a terminal")
    assert programs.read_text().split() == [str(BIN / "tfcluster"), str(BIN / "python")]
    lab.screenshot("terminal")

    lab.execute("tfcluster:launch")
    form = page.get_by_role("form")
    form.get_by_label("Path of the program").fill("train.py")
    form.get_by_label("Arguments").fill("2000 0.05")
    form.get_by_label("Name", exact=True).fill("digits")
    button = form.get_by_role("button", name="Launch", exact=True)
    expect(button).not_to_have_attribute("aria-disabled", "true")
    button.click()
    row = lab.sidebar.locator(".tfc-RunRow[data-run='digits-1']")
    expect(row).to_have_attribute("data-phase", "Running")
    expect(row).to_contain_text(re.compile(r"step \d+"))  # the server sends the step as an event

    lab.execute("tfcluster:logs", name="digits-1")
    expect(page.get_by_role("log", name="Output of digits-1")).to_contain_text("step ")
    lab.execute("tfcluster:tensorboard", name="digits-1")
    board = page.frame_locator(".jp-MainAreaWidget:not(.lm-mod-hidden) > .tfc-Board iframe")
    expect(board.locator("scalar-card").first).to_contain_text("loss", timeout=60_000)
    lab.screenshot("tensorboard")
    hub.manager.stop("digits", "seen")
    expect(row).to_have_attribute("data-phase", "Stopped")

    page.goto(f"{hub.url}/hub/home")
    page.get_by_role("button", name="Logout").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.goto(f"{hub.url}/user/{OWNER}/lab")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.usefixtures("signed_up")
def test_a_wrong_password_is_told_and_the_right_one_goes_on(
    hub: Hub, page: Page, shots: Path
) -> None:
    """After a wrong password the name stays in its field; the right one leads back to
    the notebook.
    """
    page.goto(f"{hub.url}/hub/nothing-here")
    expect(page.get_by_text("There is no such page.")).to_be_visible()
    in_every_look(page, shots, "404")
    page.goto(f"{hub.url}/")
    expect(page.get_by_text("Run make password in a terminal on this machine")).to_be_visible()
    in_every_look(page, shots, "sign-in")
    page.get_by_label("Username").fill(OWNER)
    page.locator("#password_input").fill("not this one")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("Invalid username or password")).to_be_visible()
    accessible(page)
    expect(page.get_by_label("Username")).to_have_value(OWNER)
    page.locator("#password_input").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(re.compile(f"/tf/user/{OWNER}/lab"), timeout=PATIENCE)


@pytest.mark.usefixtures("signed_up")
def test_the_home_page_tells_how_notebook_and_clusters_are(
    hub: Hub, page: Page, shots: Path
) -> None:
    """The hub's page shows clusters even while no notebook runs, links into the notebook, and works
    by keyboard.
    """
    hub.launch("raise SystemExit('<b>no</b> data')\n", "broken", workers=1, restarts=0)
    hub.launch("import time\nprint('up', flush=True)\ntime.sleep(3600)\n", "steps", workers=2)
    sign_in(page, f"{hub.url}/")
    expect(page).to_have_url(re.compile(f"/tf/user/{OWNER}/lab"), timeout=PATIENCE)
    page.goto(f"{hub.url}/hub/home")
    state, clusters = page.locator("#notebook-state"), page.locator("#clusters")
    expect(state).to_contain_text("It is running; last active")
    row = clusters.get_by_role("listitem").filter(has_text="steps-")
    expect(row).to_contain_text("Running", timeout=90_000)
    expect(row).to_contain_text("2 workers")
    ended = clusters.locator("summary")
    expect(ended).to_contain_text("ended cluster", timeout=90_000)
    broken = clusters.get_by_role("listitem").filter(has_text="broken-1")
    expect(broken).to_be_hidden()
    ended.press("Enter")
    expect(broken).to_contain_text("Failed")
    expect(broken).to_contain_text("<b>no</b> data")
    expect(broken.locator("code")).to_have_text("tfcluster logs broken-1 worker-0")
    page.screenshot(path=shots.with_name(f"{shots.name}-ended.png"), full_page=True)
    accessible(page)
    in_every_look(page, shots, "runs", row)
    assert not re.search(r"token['\"=: ]+[0-9a-f]{32}", page.content()), "a credential"

    page.get_by_role("button", name="Stop it").press("Enter")
    expect(state).to_contain_text("It is not running", timeout=PATIENCE)
    expect(row).to_contain_text("Running")
    expect(clusters).to_contain_text("These links start the notebook first.")
    accessible(page)
    row.get_by_role("link", name="Logs").press("Enter")
    expect(page.get_by_role("heading", name="The notebook is not running")).to_be_visible()
    in_every_look(page, shots, "not-running")
    page.get_by_role("link", name="Start it").press("Enter")
    log = page.get_by_role("log", name="Output of steps-")
    expect(log).to_contain_text("up", timeout=PATIENCE)
    page.screenshot(path=shots.with_name(f"{shots.name}-logs.png"))

    page.goto(f"{hub.url}/hub/home")  # the notebook is running now
    row.get_by_role("link", name="TensorBoard").press("Enter")
    board = page.locator(".lm-TabBar-tab", has_text=re.compile(r"steps-\d+ · TensorBoard"))
    expect(board).to_be_visible(timeout=PATIENCE)
    page.screenshot(path=shots.with_name(f"{shots.name}-tensorboard.png"))
    page.goto(f"{hub.url}/hub/home")
    row.get_by_role("link", name="steps-").press("Enter")
    opened = page.locator(".tfc-RunRow[data-run^='steps-']")
    expect(opened).to_have_attribute("aria-expanded", "true", timeout=PATIENCE)
    hub.manager.stop("steps", "seen")


@pytest.mark.usefixtures("signed_up")
def test_an_invited_person_is_refused_a_notebook_with_the_reason(
    hub: Hub, page: Page, shots: Path
) -> None:
    """An invited user sets a password. A refused notebook shows the reason and what to do."""
    sign_in(page, f"{hub.url}/hub/accounts")
    page.get_by_role("button", name="Invite…").click()
    page.get_by_label("User name").fill("tfc-guest")
    page.get_by_role("button", name="Create a link").click()
    page.get_by_role("button", name="Invite without a notebook").click()
    link = page.get_by_label("Give this link to").input_value()
    page.goto(f"{hub.url}/hub/change-password")
    accessible(page)

    page.goto(link)
    expect(page.get_by_text(f"This browser is signed in as {OWNER} until then")).to_be_visible()
    fill_password(page, "too few")
    # The browser itself says that the password is too short.
    expect(page.get_by_label("New password")).to_be_focused()
    fill_password(page, "eight more letters")
    expect(page.get_by_role("heading", name="You have no notebook here yet")).to_be_visible()
    expect(page.get_by_text(re.compile("has no system account|was started by"))).to_be_visible()
    # Commands are shown as code, without backticks.
    expect(page.locator("main")).not_to_contain_text("`")
    expect(page.get_by_text("Ask an administrator of this hub")).to_be_visible()
    in_every_look(page, shots, "403")
    page.get_by_role("link", name="home page").click()
    expect(page.locator("#notebook-state")).to_contain_text("It is not running")
    expect(page.get_by_text("You have no clusters yet.")).to_be_visible()
    in_every_look(page, shots, "empty", page.locator("#clusters code"))
    page.goto(f"{hub.url}/hub/token")
    in_every_look(page, shots, "token")
    page.goto(f"{hub.url}/hub/accounts")
    expect(page.get_by_text("This page is for administrators of the hub.")).to_be_visible()
    page.get_by_role("button", name="Logout").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
