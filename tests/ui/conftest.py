"""Fixtures of the browser tests; README.md describes their use.

All tests of a process share one JupyterLab and one Chromium. Chromium's client keeps an event loop
running, so `make test` runs these tests in processes of their own. `support/ui/browser.py` has the
fixtures that the Kubernetes suite uses too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.ui.browser import (
    BUILT,
    SAME_PAGE,
    assets,
    context,
    open_page,
    profile,
    pytest_runtest_makereport,
    shots,
)
from support.ui.lab_server import LabServer
from support.ui.page import LabPage

# fixtures and hooks for pytest
__all__ = ["assets", "context", "open_page", "profile", "pytest_runtest_makereport", "shots"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add an option to test another build."""
    parser.addoption(
        "--labextension",
        type=Path,
        default=BUILT,
        help="folder of the built extension; without it tfcluster_magic/labextension",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker for tests that share a page."""
    config.addinivalue_line("markers", f"{SAME_PAGE}: leaves nothing in its page but tabs")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that share a page first in their file, because the others open a new page."""
    files = [*dict.fromkeys(item.path for item in items)]
    items.sort(key=lambda it: (files.index(it.path), it.get_closest_marker(SAME_PAGE) is None))


@pytest.fixture(scope="session")
def start_lab(
    assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., LabServer]]:
    """Return a function that starts another JupyterLab with the arguments of LabServer."""
    started: list[LabServer] = []

    def start(**words: Any) -> LabServer:
        server = LabServer(tmp_path_factory.mktemp("lab"), assets, **words)
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.close()


@pytest.fixture(scope="session")
def shared_server(start_lab: Callable[..., LabServer]) -> LabServer:
    """The JupyterLab of all tests, under /a/b/."""
    return start_lab()


@pytest.fixture
def server(shared_server: LabServer) -> Iterator[LabServer]:
    """The JupyterLab of all tests; everything that a test started there is ended after it."""
    yield shared_server
    shared_server.clean()


@pytest.fixture(scope="session")
def restarted_server(start_lab: Callable[..., LabServer]) -> LabServer:
    """The JupyterLab that tests stop and start."""
    return start_lab()


@pytest.fixture
def own_server(restarted_server: LabServer) -> Iterator[LabServer]:
    """A JupyterLab that this test may stop and start; it is started again afterwards."""
    yield restarted_server
    if not restarted_server.enabled:  # if the test failed in between
        restarted_server.stop()
        restarted_server.enabled = True
    restarted_server.revive()
    restarted_server.clean()


@pytest.fixture
def fresh_server(start_lab: Callable[..., LabServer]) -> Iterator[LabServer]:
    """A new JupyterLab that this test configures."""
    server = start_lab()
    yield server
    server.close()


@pytest.fixture(scope="session")
def root_server(start_lab: Callable[..., LabServer]) -> LabServer:
    """A JupyterLab with base_url /."""
    return start_lab(base_url="/")


@pytest.fixture
def lab(server: LabServer, open_page: Callable[..., LabPage]) -> LabPage:
    """A JupyterLab page with a new layout."""
    return open_page(server)
