"""Faults between a page and its runs: the view says what is wrong, marks its data as old, and
recovers by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect
from support.blocking_file import Blocking
from support.ui.lab_server import LabServer
from support.ui.page import LabPage
from support.ui.page_console import AWAY
from support.ui.relay import Relay

from tfcluster_magic.backends.local.run_store import RunFolder
from tfcluster_magic.runs.manager import Until

Open = Callable[..., LabPage]


def knows(lab: LabPage, run: str) -> None:
    """Wait until the sidebar lists a run as current."""
    expect(lab.sidebar.get_by_role("row", name=run)).to_be_visible()
    expect(lab.sidebar.get_by_role("alert")).to_have_count(0)


def is_old(lab: LabPage, run: str, why: str) -> None:
    """Wait until the sidebar says what is wrong, and since when the run's row has been old."""
    alert = lab.sidebar.get_by_role("alert")
    expect(alert).to_contain_text(why, timeout=90_000)
    expect(alert).to_contain_text("as of")
    expect(lab.sidebar.get_by_role("row", name=run)).to_be_visible()


def test_a_disabled_server_extension_is_named_with_what_to_do(
    own_server: LabServer, open_page: Open
) -> None:
    """If the server extension is off, the sidebar shows the command that enables it; once it is
    enabled, the sidebar works.
    """
    own_server.stop()
    own_server.enabled = False
    own_server.start()
    lab = open_page(own_server)
    lab.console.allow("404")

    alert = lab.sidebar.get_by_role("alert")
    expect(alert).to_contain_text("The server extension is off")
    expect(alert).to_contain_text("jupyter server extension enable tfcluster_magic.server")
    lab.screenshot("off")

    own_server.stop()
    own_server.enabled = True
    own_server.start()
    lab.console.allow(AWAY)
    own_server.launch("hello.py", name="back")
    knows(lab, "back-1")


def test_a_server_that_is_restarted_is_found_again(own_server: LabServer, open_page: Open) -> None:
    """While the server is away the list stays, marked as old; then it shows what happened
    meanwhile.
    """
    lab = open_page(own_server)
    own_server.launch("sleep.py", name="before")
    knows(lab, "before-1")

    own_server.stop()
    lab.console.allow(AWAY)
    is_old(lab, "before-1", "does not answer")
    lab.screenshot("away")
    own_server.launch("hello.py", name="meanwhile")
    own_server.start()

    knows(lab, "meanwhile-1")
    knows(lab, "before-1")
    own_server.launch("hello.py", name="after")
    knows(lab, "after-1")


def test_an_expired_token_asks_to_sign_in_again(own_server: LabServer, open_page: Open) -> None:
    """After a server has lost its sessions, the list says so, and a new sign-in repairs it."""
    lab = open_page(own_server)
    own_server.launch("sleep.py", name="digits")
    knows(lab, "digits-1")

    own_server.stop()
    own_server.token = "another"
    (own_server.folder / "runtime" / "jupyter_cookie_secret").unlink()
    own_server.start()
    lab.console.allow(AWAY + "|403|401|Forbidden")

    is_old(lab, "digits-1", "You are signed out: reload this page to sign in again.")
    lab.screenshot("signed-out")
    lab.load()
    knows(lab, "digits-1")


def test_records_that_cannot_be_read_are_told_with_the_reason(
    own_server: LabServer, open_page: Open
) -> None:
    """Without the state folder the list is marked as old instead of empty; when the folder returns,
    the list is current again.
    """
    lab = open_page(own_server)
    own_server.launch("sleep.py", name="digits")
    knows(lab, "digits-1")

    away = own_server.state.rename(own_server.folder / "state-away")
    own_server.state.write_text("a file in the folder's place")
    try:
        lab.console.allow(AWAY)
        is_old(lab, "digits-1", "state")
        lab.screenshot("unreadable")
    finally:
        own_server.state.unlink()
        away.rename(own_server.state)
    knows(lab, "digits-1")


def test_a_backend_that_hangs_is_named_and_waited_for(
    own_server: LabServer, open_page: Open
) -> None:
    """While records are unreadable, list and form say so and keep their data, marked as old; they
    recover without a click.
    """
    lab = open_page(own_server)
    own_server.launch("hello.py", name="digits", workers=1)
    run = own_server.manager.wait("digits", 180, until=Until.RELEASED)
    knows(lab, "digits-1")
    form = lab.page.get_by_role("form")
    lab.execute("tfcluster:launch", program="hello.py")
    expect(form.get_by_text("Free now:")).to_be_visible()

    lab.console.allow(AWAY)
    hanging = Blocking(RunFolder(Path(run.status.paths["logs"]).parent).status_file)
    try:
        is_old(lab, "digits-1", "does not answer")
        form.get_by_label("Workers").fill("3")
        expect(form.get_by_role("alert")).to_contain_text("Your input is kept.")
        lab.screenshot("hangs")
    finally:
        hanging.end()
    knows(lab, "digits-1")
    expect(form.get_by_role("alert")).to_have_count(0)
    expect(form.get_by_label("Workers")).to_have_value("3")


@pytest.fixture
def wire(own_server: LabServer) -> Iterator[Relay]:
    """A connection to the server that can be cut."""
    relay = Relay(own_server.port)
    yield relay
    relay.close()


def test_a_cut_network_is_noticed_and_mended(
    own_server: LabServer, wire: Relay, open_page: Open
) -> None:
    """When nothing arrives any longer, the list says so; once the connection is back, the list
    catches up.
    """
    lab = open_page(own_server, load=False)
    lab.load(origin=f"http://127.0.0.1:{wire.port}{own_server.base_url}")
    own_server.launch("sleep.py", name="before")
    knows(lab, "before-1")

    wire.cut()
    lab.console.allow(AWAY)
    own_server.launch("hello.py", name="meanwhile")
    # otherwise the page asks only every 45 s
    lab.sidebar.get_by_role("button", name="Refresh").click()
    is_old(lab, "before-1", "does not answer")
    lab.screenshot("cut")
    wire.mend()

    knows(lab, "meanwhile-1")
    own_server.launch("hello.py", name="after")
    knows(lab, "after-1")


def test_an_offline_computer_is_noticed_and_comes_back(lab: LabPage, server: LabServer) -> None:
    """The page reacts to the browser's offline and online events."""
    server.launch("sleep.py", name="before")
    knows(lab, "before-1")

    lab.console.allow(AWAY)
    lab.page.context.set_offline(True)
    is_old(lab, "before-1", "does not answer")
    lab.page.context.set_offline(False)

    knows(lab, "before-1")


@pytest.mark.long  # test_sidebar.py tests another dialog whose run disappears
def test_a_run_that_is_deleted_elsewhere_while_its_dialog_is_open(
    lab: LabPage, server: LabServer
) -> None:
    """A dialog about a run that was deleted meanwhile says so, and any answer is harmless."""
    server.launch("hello.py", name="digits")
    server.manager.wait("digits", 180)
    knows(lab, "digits-1")
    lab.execute_later("tfcluster:delete", name="digits-1")
    expect(lab.dialog).to_contain_text("Delete digits-1?")

    server.delete("digits-1")
    expect(lab.dialog.get_by_role("status")).to_contain_text("digits-1 was deleted elsewhere")
    lab.screenshot("gone")
    expect(lab.dialog.get_by_role("button", name="Delete")).to_be_disabled()
    lab.dialog.get_by_role("button", name="Cancel").click()

    expect(lab.dialog).to_have_count(0)
    expect(lab.sidebar.get_by_role("row", name="digits-1")).to_have_count(0)


@pytest.mark.same_page
def test_markup_in_names_and_messages_is_text(lab: LabPage, server: LabServer) -> None:
    """HTML and control characters from a program are shown as text and never run."""
    odd = server.root / "odd<img src=x onerror=window.__pwned=1>.py"
    odd.write_text(
        "raise ValueError('<script>window.__pwned = 2</script> \\x1b[31m \\u202e <b>b</b>')"
    )
    try:
        run = server.launch(odd.name, "<i>argument</i>", name="odd")
        server.manager.wait("odd", 180, until=Until.RELEASED)
        row = lab.sidebar.get_by_role("row", name=run.metadata.name)
        expect(row).to_contain_text("<script>window.__pwned = 2</script>")
        row.click()
        expect(row).to_contain_text("<i>argument</i>")
        lab.screenshot("markup")
        assert lab.pwned() is None
    finally:
        odd.unlink()


def test_failures_that_come_together_are_one_notification(lab: LabPage, server: LabServer) -> None:
    """Several failures share one notification, which disappears when their runs are deleted."""
    knows_nothing = lab.sidebar.get_by_role("row")
    expect(knows_nothing).to_have_count(0)
    for name in "abc":
        server.launch("fail.py", workers=1, ps=0, name=name)
    toasts = lab.page.locator(".Toastify__toast")
    expect(toasts.filter(has_text="3 clusters failed:")).to_be_visible()
    expect(toasts).to_have_count(1)
    lab.screenshot("together")
    lab.theme("dark")
    lab.screenshot("together-dark")
    for name in "ab":
        server.delete(f"{name}-1")
    lab.page.locator(".jp-Notification-Status").click()
    told = lab.page.locator(".jp-Notification-Center")
    expect(told.get_by_text("c-1 failed.")).to_be_visible()
    server.delete("c-1")
    expect(told.get_by_text("failed")).to_have_count(0)
