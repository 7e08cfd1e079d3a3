"""A class of students during its term, in real browsers on a real hub: an administrator imports it,
its students work, and the administrator archives it.

`--class-size` students (default 2) each have a system account and a browser; the hub runs as root.
The machine can run only a few notebooks, so students come in turns of `AT_A_TIME`. Before the next
turn an administrator stops the notebooks of students who have launched; their clusters continue.
The clusters only sleep, because the test is about numbers, not training.
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from support.hub.classroom import AT_A_TIME, Student, furnish, person
from support.hub.console_clients import looked_at, page, sign_in_to
from support.hub.make_run import OWNER, Hub
from support.hub.pages import PATIENCE, accessible
from support.hub.system_accounts import entered, open_folder, students

from tfcluster_magic.hub.user_limits import Allowances

__all__ = ["page"]  # a fixture used by the tests below
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another account")
GROUP = "ml101"
POLICY = f"default: {{quota: {{cpu: 0.5}}}}\ngroups: {{{GROUP}: {{quota: {{cpu: 2}}}}}}\n"
MORE, OVER, END = "a bigger model today", "The lesson is over", "the term is over"
EACH = 60_000
"""Timeout in milliseconds for each student's archive, enough for a busy machine."""


@pytest.fixture(scope="module")
def accounts(class_size: int) -> Mapping[str, int]:
    """The accounts of the class."""
    return students(class_size)


@pytest.fixture(scope="module")
def hub(accounts: Mapping[str, int]) -> Iterator[Hub]:
    """A hub started like `make run` as root, on a machine with these accounts."""
    with open_folder(accounts.values()) as machine:
        (folder := machine / "root").mkdir(mode=0o700)
        (around := machine / "around").mkdir()
        hub = Hub(folder, base_url="/tf/")
        hub.prefix = entered(around, [folder], accounts)
        furnish(around / "homes", accounts)
        (hub.state / "hub").mkdir(parents=True, mode=0o700)
        (hub.state / "hub" / "policy.yaml").write_text(POLICY)
        try:
            hub.start()
            yield hub
        finally:
            hub.close()
            shutil.rmtree(Allowances(hub.state / "hub").of_others, ignore_errors=True)


@pytest.fixture
def pupils(
    hub: Hub, accounts: Mapping[str, int], context: object, shots: Path
) -> Iterator[list[Student]]:
    """The students. At the end all their browsers are closed, and none has seen an error."""
    browser = context.browser  # type: ignore[attr-defined]
    made = [Student(hub, browser, name, shots) for name in accounts]
    yield made
    for one in made:
        if one.is_here:
            one.lab.screenshot(f"{one.name}-end")
        one.goes()
    assert not [error for one in made for error in one.errors]


@pytest.mark.usefixtures("admin")
def test_from_the_list_of_a_class_to_its_archive(
    hub: Hub, pupils: list[Student], page: Page, shots: Path, tmp_path: Path
) -> None:
    """A class is imported, signs in, launches, meets a limit, gets an override, is stopped and
    archived.
    """
    sign_in_to(page, hub, "users")
    links = imported(page, pupils, tmp_path, shots)
    for one in pupils:
        one.link = links[one.name]
    eager, *_others = pupils
    turns = [pupils[at : at + AT_A_TIME] for at in range(0, len(pupils), AT_A_TIME)]
    for turn in turns:
        for one in turn:
            one.comes()
        for one in turn:
            one.arrives()
            if one is eager:
                is_refused(eager, shots)
                allowed_more(page, eager, shots)
                eager.launches(6)
            else:
                one.launches(1)
        if turn is not turns[-1]:
            make_room(page, turn)

    expect(person(page, eager.name)).to_contain_text("3 of 4")
    expect(person(page, pupils[-1].name)).to_contain_text("0.5 of 2")
    looked_at(page, shots.with_name(f"{shots.name}-users"))
    stop_all(page, len(pupils), shots)
    for turn in reversed(turns):
        away = [one for one in turn if not one.is_here]
        for one in away:
            one.comes()
        for one in away:
            one.arrives()
        for one in turn:
            expect(one.row).to_contain_text(f"Stopped by admin {OWNER}: {OVER}.", timeout=PATIENCE)
        turn[0].lab.screenshot("stopped")
        page.get_by_role("link", name="Users", exact=True).click()
        make_room(page, turn)
    archive_all(hub, page, pupils, shots)


def imported(page: Page, pupils: list[Student], folder: Path, shots: Path) -> dict[str, str]:
    """Import the class's file on the page; return the links that it offers to save, by name."""
    file = folder / "class.csv"
    file.write_text("".join(["name,full name\n", *(f"{one.name},Somebody\n" for one in pupils)]))
    page.get_by_role("button", name="Import a class…").click()
    page.get_by_label("A file").set_input_files(file)
    page.get_by_label("Group for lines without one").fill(GROUP)
    page.get_by_role("button", name="Try without changing anything").click()
    said = page.locator("#import-said")
    expect(said).to_have_text(f"{len(pupils)} of {len(pupils)} lines would be imported.")
    page.get_by_role("button", name="Import", exact=True).click()
    expect(said).to_have_text(f"{len(pupils)} of {len(pupils)} lines were imported.")
    page.screenshot(path=shots.with_name(f"{shots.name}-import.png"))
    accessible(page, "#ask-import")
    with page.expect_download() as saved:
        page.get_by_role("link", name="Save the links").click()
    page.get_by_role("button", name="Close").click()
    with saved.value.path().open(newline="") as text:
        links = {row["name"]: row["link"] for row in csv.DictReader(text)}
    assert links.keys() == {one.name for one in pupils}
    return links


def is_refused(one: Student, shots: Path) -> None:
    """A launch form with more than the group's limit says why it cannot launch, and that an
    administrator can help.
    """
    form = one.fills_in(6)
    expect(form).to_contain_text(f"your limit is 2 CPU cores at the same time (group {GROUP})")
    expect(form).to_contain_text("for more, ask an administrator of the hub")
    button = form.get_by_role("button", name="Launch", exact=True)
    expect(button).to_have_attribute("aria-disabled", "true")
    one.lab.screenshot("refused")


def allowed_more(page: Page, one: Student, shots: Path) -> None:
    """Grant an override for a day, as the dialog suggests."""
    page.get_by_role("button", name=f"Override for {one.name}").click()
    page.get_by_label("CPU cores").fill("4")
    page.get_by_label("Reason, shown to the user").fill(MORE)
    page.screenshot(path=shots.with_name(f"{shots.name}-override.png"))
    page.get_by_role("button", name="Set", exact=True).click()
    expect(person(page, one.name)).to_contain_text(MORE)


def make_room(page: Page, turn: list[Student]) -> None:
    """Close the browsers of the students who have launched, and stop their notebooks."""
    for one in turn:
        one.goes()
        page.get_by_role("checkbox", name=f"Select {one.name}").check()
    page.get_by_role("button", name="Stop servers…").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop", exact=True).click()
    for one in turn:
        expect(person(page, one.name)).to_contain_text("stopped", timeout=PATIENCE)


def stop_all(page: Page, count: int, shots: Path) -> None:
    """Stop all clusters of the class with one reason."""
    page.get_by_role("link", name="Clusters").click()
    running, stopped = (page.locator(f"[data-word={word}]") for word in ("Running", "Stopped"))
    expect(running).to_have_text(f"Running {count}", timeout=PATIENCE)
    page.get_by_role("checkbox", name="Select all on this page that can be stopped").check()
    looked_at(page, shots.with_name(f"{shots.name}-clusters"))
    page.get_by_role("button", name=f"Stop {count}…").click()
    asking = page.get_by_role("dialog")
    asking.get_by_label("Reason").fill(OVER)
    page.screenshot(path=shots.with_name(f"{shots.name}-stop.png"))
    asking.get_by_role("button", name="Stop", exact=True).click()
    expect(asking).to_be_hidden(timeout=PATIENCE)
    page.get_by_role("button", name="Show ended").click()
    expect(stopped).to_have_text(f"Stopped {count}", timeout=PATIENCE)
    expect(page.get_by_text(f"Stopped by admin {OWNER}: {OVER}.")).to_have_count(count)


def archive_all(hub: Hub, page: Page, pupils: list[Student], shots: Path) -> None:
    """Select the users of the group, archive their data and remove them; check that each archive
    has the program and the record of a run.
    """
    count = len(pupils)
    page.get_by_label("Filter by name").fill(GROUP)
    expect(page.locator("#count")).to_have_text(re.compile(rf"^1\D{count} of {count} matches"))
    page.get_by_role("checkbox", name="Select all users on this page").check()
    page.get_by_role("button", name="Archive…").click()
    asking = page.get_by_role("dialog")
    asking.get_by_label("Reason, shown to each user").fill(END)
    asking.get_by_label("Remove user and account once everything is packed").check()
    asking.get_by_role("button", name="Archive", exact=True).click()
    expect(page.locator("#archive-said")).to_have_text("All is done.", timeout=EACH * count)
    expect(page.locator("#archives a")).to_have_count(count)
    page.screenshot(path=shots.with_name(f"{shots.name}-archive.png"))
    accessible(page, "#ask-archive")
    asking.get_by_role("button", name="Close").click()
    expect(page.get_by_text("No user matches.")).to_be_visible()
    for one in pupils:
        (packed,) = (hub.state / "hub" / "archives").glob(f"{one.name}-*.tar.gz")
        told = packed.with_name(f"{packed.name}.sha256").read_text()
        assert hashlib.sha256(packed.read_bytes()).hexdigest() == told.split()[0]
        with tarfile.open(packed) as tar:
            assert {"workspace/train.py", "runs/train/1/record.json"} <= {*tar.getnames()}
    assert hub.visitor().sign_in(pupils[0].name, "eight letters").status_code != 302
