"""What browser tests stand on, whatever world their Lab is in front of: Chromium, pages, pictures.

Promises that a page knows nothing of another test, that a test fails on an error in its console,
and that the last picture is kept, and a trace when it fails. The fixtures are imported by the
conftest of this folder and by the Kubernetes suite; who makes the Lab and the `profile` says the
importer.
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
from .page import SHOTS, LabPage

ROOT = Path(__file__).parents[3]
BUILT = ROOT / "tfcluster_magic" / "labextension"
PATIENCE = 60_000
"""Milliseconds in which anything must have appeared, on a machine that is busy with others."""
BUILDING = 60.0
"""Seconds that a build beside the tests may take."""
FAILED = pytest.StashKey[bool]()
STORED = "cookies,local_storage,indexeddb,service_workers,file_systems"
"""What a page may leave in a profile, in the words of Chromium's protocol."""
SIZE = {"width": 1280, "height": 800}
TRACED = os.environ.get("CI") != "true" or "TFC_TRACED_PAGES" in os.environ
"""Whether pages are traced: a build machine does it when it tries a test again (tools/suite.py)."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Note for the fixtures below whether the test itself failed."""
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture(scope="session")
def assets(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the built labextension: a rebuild meanwhile changes no test."""
    built = pytestconfig.getoption("labextension", BUILT)
    folder = tmp_path_factory.mktemp("labextensions")
    copy = folder / "tfcluster-labextension"
    wait_until(lambda: _copied(built, copy), f"{built} is built: make install", BUILDING, every=0.2)
    return folder


def _copied(built: Path, copy: Path) -> bool:
    """Copy what is built; whether it is whole. A build that runs now replaces it."""
    shutil.rmtree(copy, ignore_errors=True)
    try:
        shutil.copytree(built, copy)
        entry = json.loads((copy / "package.json").read_text())["jupyterlab"]["_build"]["load"]
    except (OSError, ValueError, KeyError):  # copytree collects OSErrors in one of its own
        return False
    return (copy / entry).is_file()


@contextmanager
def chromium(folder: Path) -> Iterator[BrowserContext]:
    """The machine's Chromium with a profile in `folder`: it fetches and compiles JupyterLab once.

    An empty page stays open in it, for a browser may end with its last page.
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
    """The machine's Chromium."""
    with chromium(tmp_path_factory.mktemp("profile")) as profile:
        yield profile


def picture(item: pytest.Item, folder: str) -> Path:
    """Where a test's pictures go, but for what follows in their names."""
    test = re.sub(r"\W+", "-", item.name.removeprefix("test_")).strip("-")
    (SHOTS / folder).mkdir(parents=True, exist_ok=True)
    return SHOTS / folder / test


@pytest.fixture
def shots(request: pytest.FixtureRequest) -> Path:
    """Where this test's pictures go, but for what follows in their names."""
    return picture(request.node, request.node.path.stem.removeprefix("test_"))


@pytest.fixture
def context(
    profile: BrowserContext, request: pytest.FixtureRequest, shots: Path
) -> Iterator[BrowserContext]:
    """A profile without cookies, storage and pages of another test.

    The trace is kept if the test fails (playwright show-trace FILE), where there is one.
    """
    origins: set[str] = set()

    def follow(page: Page) -> None:
        page.on("framenavigated", lambda frame: origins.add("/".join(frame.url.split("/")[:3])))

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
    empty, *others = profile.pages
    for page in others:
        page.close()
    _forget(profile, empty, origins)


def _forget(profile: BrowserContext, empty: Page, origins: set[str]) -> None:
    """Leave nothing in a profile but what it has fetched."""
    profile.set_offline(False)
    profile.unroute_all()
    profile.clear_cookies()
    devtools = profile.new_cdp_session(empty)
    for origin in origins:
        words = {"origin": origin, "storageTypes": STORED}
        devtools.send("Storage.clearDataForOrigin", words)
    devtools.detach()


@pytest.fixture
def open_page(context: BrowserContext, shots: Path) -> Iterator[Callable[..., LabPage]]:
    """Opens a page on a JupyterLab; each is checked for errors in its console at the end."""
    opened: list[LabPage] = []

    def open_lab(server: LabServer, *, load: bool = True) -> LabPage:
        lab = LabPage(context.new_page(), server, shots)
        opened.append(lab)
        if load:
            lab.load()
        return lab

    yield open_lab
    for number, lab in enumerate(opened):
        lab.screenshot(f"end{number or ''}")
    errors = [error for lab in opened for error in lab.console.errors]
    assert not errors, "the page's console has errors:\n" + "\n".join(errors)
