"""The base of all browser tests: the palette, base URLs, a slow start, and pages without data of
other tests.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect
from support.ui.lab_server import LabServer
from support.ui.page import LabPage


def test_the_palette_runs_a_command(lab: LabPage) -> None:
    """The palette finds a command by its label, in the dark theme too."""
    lab.theme("dark")
    lab.palette("New Launcher")

    expect(lab.page.locator(".jp-Launcher")).to_have_count(2)


def test_no_base_url_is_needed(root_server: LabServer, open_page: Callable[..., LabPage]) -> None:
    """The sidebar follows runs if JupyterLab is at the root of its host too."""
    lab = open_page(root_server)
    root_server.launch("hello.py", name="root")

    expect(lab.sidebar.get_by_role("row", name="root-1")).to_contain_text("Succeeded")


def test_a_slow_start_is_waited_for(lab: LabPage) -> None:
    """A reloaded page has all its commands, even if its scripts start late."""
    lab.page.add_init_script(
        """const listen = window.addEventListener;
        window.addEventListener = (type, heard, ...more) => {
            const late = event => setTimeout(() => heard.call(window, event), 1000);
            listen.call(window, type, type === 'load' ? late : heard, ...more);
        };"""
    )
    lab.reload()

    lab.execute("tfcluster:open-sidebar")
    expect(lab.page.locator("#tfcluster-sidebar")).to_be_visible()


@pytest.mark.parametrize("turn", ["first", "second"])
def test_a_page_knows_nothing_of_another_test(lab: LabPage, turn: str) -> None:
    """A profile contains neither cookies nor stored data of another test."""
    kept = """async () => [
        document.cookie.includes('turn='),
        localStorage.getItem('turn'),
        (await indexedDB.databases()).some(({ name }) => name === 'turn')
    ]"""
    assert lab.page.evaluate(kept) == [False, None, False]
    lab.page.evaluate(
        """turn => new Promise((done, failed) => {
            document.cookie = `turn=${turn}; max-age=3600`;
            localStorage.setItem('turn', turn);
            const asked = indexedDB.open('turn');
            asked.onsuccess = () => done(asked.result.close());
            asked.onerror = failed;
        })""",
        turn,
    )
    assert lab.page.evaluate(kept) == [True, turn, True]
