"""The base of browser tests for any backend of their Lab: Chromium, pages, pictures.

A page shares nothing with another test. A test fails on an error in its page's console. The last
picture of each test is kept; if the test fails, a trace is kept too. The conftest of this folder
and the Kubernetes suite import the fixtures, and provide the Lab and the `profile`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

from ..polling import wait_until
from .lab_server import LabServer
from .page import SHOTS, TRACED, LabPage

ROOT = Path(__file__).parents[3]
BUILT = ROOT / "tfcluster_magic" / "labextension"
PATIENCE = 60_000
"""Timeout in milliseconds for an element to appear on a busy machine."""
BUILDING = 60.0
"""Seconds to wait for a complete labextension, which another process may just be building."""
FAILED = pytest.StashKey[bool]()
STORED = "cookies,local_storage,indexeddb,service_workers,file_systems"
"""Data that a page may leave in a profile, in the terms of Chromium's protocol."""
SIZE = {"width": 1280, "height": 800}
SAME_PAGE = "same_page"
"""The marker of tests that leave nothing in a page except tabs; the next such test continues with
the page.
"""
ORIGINS: dict[BrowserContext, set[str]] = {}
"""The origins that pages of a profile have visited and where they may have stored something."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Record for the fixtures below whether the test itself failed."""
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture(scope="session")
def assets(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the built labextension, so that a rebuild changes no test."""
    built = pytestconfig.getoption("labextension", BUILT)
    folder = tmp_path_factory.mktemp("labextensions")
    copy = folder / "tfcluster-labextension"
    wait_until(lambda: _copied(built, copy), f"{built} is built: make install", BUILDING, every=0.2)
    return folder


def _copied(built: Path, copy: Path) -> bool:
    """Copy the build; return whether it is complete, because a running build replaces it."""
    shutil.rmtree(copy, ignore_errors=True)
    try:
        shutil.copytree(built, copy)
        entry = json.loads((copy / "package.json").read_text())["jupyterlab"]["_build"]["load"]
    except (OSError, ValueError, KeyError):  # copytree's own Error is an OSError, too
        return False
    return (copy / entry).is_file()


@contextmanager
def chromium(folder: Path) -> Iterator[BrowserContext]:
    """Start Chromium with a profile in `folder`, so that it loads and compiles JupyterLab only
    once. An empty page stays open, because a browser may end with its last page.
    """
    spec = importlib.util.spec_from_file_location("browser", ROOT / "tools" / "browser.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    found = tool.find()
    assert found, "no Chromium: python tools/browser.py"
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        profile = playwright.chromium.launch_persistent_context(
            folder,
            executable_path=found,
            args=["--no-sandbox"] if os.getuid() == 0 else [],
            viewport=SIZE,
            locale="en-US",
            accept_downloads=True,
            permissions=["clipboard-read", "clipboard-write"],
        )
        profile.set_default_timeout(PATIENCE)
        yield profile
        profile.close()


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """Start the machine's Chromium."""
    with chromium(tmp_path_factory.mktemp("profile")) as profile:
        yield profile


def picture(item: pytest.Item, folder: str) -> Path:
    """Return the start of the paths of a test's pictures; each picture adds its own ending."""
    test = re.sub(r"\W+", "-", item.name.removeprefix("test_")).strip("-")
    (SHOTS / folder).mkdir(parents=True, exist_ok=True)
    return SHOTS / folder / test


@pytest.fixture
def shots(request: pytest.FixtureRequest) -> Path:
    """The start of the paths of this test's pictures; each picture adds its own ending."""
    return picture(request.node, request.node.path.stem.removeprefix("test_"))


@pytest.fixture
def context(
    profile: BrowserContext, request: pytest.FixtureRequest, shots: Path
) -> Iterator[BrowserContext]:
    """A profile without cookies, storage and pages of other tests; only a test marked SAME_PAGE
    keeps those of the test before it. If the test fails, its trace is kept (playwright show-trace
    FILE).
    """
    origins = ORIGINS.setdefault(profile, set())

    def follow(page: Page) -> None:
        page.on("framenavigated", lambda frame: origins.add("/".join(frame.url.split("/")[:3])))

    goes_on = request.node.get_closest_marker(SAME_PAGE) is not None
    if not goes_on:
        _forget(profile, origins)
    profile.on("page", follow)
    if TRACED:
        profile.tracing.start(snapshots=True)
    yield profile
    trace = shots.with_name(f"{shots.name}-trace.zip")
    trace.unlink(missing_ok=True)
    failed = request.node.stash.get(FAILED, True)
    if TRACED:
        profile.tracing.stop(path=trace if failed else None)
    profile.remove_listener("page", follow)
    if failed or not goes_on:
        _forget(profile, origins)


def _forget(profile: BrowserContext, origins: set[str]) -> None:
    """Delete everything in a profile except the cache."""
    empty, *others = profile.pages
    for page in others:
        page.close()
    if not origins:
        return
    profile.set_offline(False)
    profile.unroute_all()
    profile.clear_cookies()
    devtools = profile.new_cdp_session(empty)
    for origin in origins:
        words = {"origin": origin, "storageTypes": STORED}
        devtools.send("Storage.clearDataForOrigin", words)
    devtools.detach()
    origins.clear()


@pytest.fixture
def open_page(
    context: BrowserContext, request: pytest.FixtureRequest, shots: Path
) -> Iterator[Callable[..., LabPage]]:
    """Return a function that opens a page on a JupyterLab; check the console of each page at the
    end.
    """
    opened: list[LabPage] = []
    goes_on = request.node.get_closest_marker(SAME_PAGE) is not None

    def open_lab(server: LabServer, *, load: bool = True) -> LabPage:
        there = [page for page in context.pages[1:] if goes_on and page.url.startswith(server.url)]
        lab = LabPage(there[0] if there else context.new_page(), server, shots)
        opened.append(lab)
        if there:  # wait until the runs of the last test have disappeared
            expect(lab.page.locator(".tfc-RunRow")).to_have_count(0)
        elif load:
            lab.load()
        return lab

    yield open_lab
    failed = request.node.stash.get(FAILED, True)
    for number, lab in enumerate(opened):
        end = shots.with_name(f"{shots.name}-end{number or ''}.png")
        end.unlink(missing_ok=True)
        if TRACED or failed:
            lab.page.screenshot(path=end)
    errors = [error for lab in opened for error in lab.console.errors]
    assert not errors, "the page's console has errors:\n" + "\n".join(errors)
    for lab in opened if goes_on and not failed else ():
        lab.empty()
